"""The group of commands: imports a command when it runs, and turns errors and signals into a line
and an exit code.

Results go to stdout, progress and warnings to stderr. Exit codes: 0 done; 1 something failed; 2
nothing was done, because an option or an input is wrong; 3 a file that captcha-ocr wrote is
damaged; 130 Ctrl-C; 143 SIGTERM.
"""

import io
import os
import signal
import sys
import warnings
from importlib import import_module
from typing import Any, NoReturn

import click

from captcha_ocr.cli.options import DeclaredCommand
from captcha_ocr.cli.wording import ARGUMENTS, word_error
from captcha_ocr.errors import CaptchaOcrError, UsageError, check, in_one_line
from captcha_ocr.system.processors import rank_and_world_size
from captcha_ocr.version import __version__

COMMANDS = {  # by group, which is the module of captcha_ocr.cli.commands that holds them
    "data": ("generate", "inspect", "prepare"),
    "designs": ("design",),
    "training": ("train", "curve", "adapt"),
    "reading": ("eval", "export"),
    "web": ("serve", "label"),
    "audit": ("audit",),
    "machine": ("bench", "doctor"),
}
_UNDER_TORCHRUN = ("train", "doctor")
_AGAIN = "; run the same command again"
_AFTER_A_SIGNAL: dict[str | None, str] = {  # those that take time
    **dict.fromkeys(("generate", "train", "curve", "adapt", "audit"), f"{_AGAIN} to resume"),
    **dict.fromkeys(("design", "prepare", "inspect"), f"{_AGAIN}, which starts over"),
    **dict.fromkeys(("eval", "export", "bench"), f"{_AGAIN}, which starts over"),
}


class _CommandGroup(click.Group):
    """Imports a command's module when the command is asked for, and reports every error in one
    line.
    """

    command_class = DeclaredCommand

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [name for names in COMMANDS.values() for name in names]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        for group, names in COMMANDS.items():
            if cmd_name in names:
                import_module(f"captcha_ocr.cli.commands.{group}")  # it adds its commands to `main`
        return super().get_command(ctx, cmd_name)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for group, names in COMMANDS.items():
            with formatter.section(group.capitalize()):
                commands = [self.get_command(ctx, name) for name in names]
                formatter.write_dl(
                    [(str(command.name), _describe(command)) for command in commands if command]
                )

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if self.get_command(ctx, args[0]) is None:
            if os.path.exists(args[0]) or set("./*").intersection(args[0]):
                args = ["eval", *args]
            elif not ctx.resilient_parsing:
                self._suggest_command(ctx, args[0])
        found = super().resolve_command(ctx, args)
        ctx.meta[ARGUMENTS] = list(found[2])  # click empties it
        if found[0] not in _UNDER_TORCHRUN and rank_and_world_size()[1] > 1:
            raise UsageError(
                f"{found[0]} does not share its work over the processes of torchrun; start it once"
            )
        return found

    def _suggest_command(self, ctx: click.Context, name: str) -> None:
        """UsageError that names the command which was probably meant, if one is similar."""
        from difflib import get_close_matches

        similar = get_close_matches(name, self.list_commands(ctx), n=1)
        check(not similar, f"there is no command {name!r}; did you mean {' '.join(similar)}?")

    def main(self, *args: Any, **settings: Any) -> Any:
        try:
            return super().main(*args, **settings)
        except OSError as error:  # also one from printing the help
            _leave(1, _explain(error))

    def invoke(self, ctx: click.Context) -> Any:
        warnings.filterwarnings("ignore", module=r"PIL\.")  # our errors cover what matters
        _tolerate_odd_characters()
        # Leave through SystemExit, so that files are closed and folders unlocked.
        before = signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
        try:
            super().invoke(ctx)
            if sys.stdout is not None:
                sys.stdout.flush()  # a full disk is an error here, and not when Python ends
        except CaptchaOcrError as error:
            _leave(error.exit_code, f"{_name_process()}{word_error(error)}")
        except KeyboardInterrupt:
            _leave(130, f"interrupted{_AFTER_A_SIGNAL.get(ctx.invoked_subcommand, '')}")
        except SystemExit as leaving:
            if leaving.code == 128 + signal.SIGTERM:
                _leave(143, f"terminated{_AFTER_A_SIGNAL.get(ctx.invoked_subcommand, '')}")
            raise
        except ModuleNotFoundError as error:
            package = (error.name or "").partition(".")[0]
            if package == "captcha_ocr":
                raise
            _leave(1, f"this command needs {package}; install captcha-ocr without --no-deps")
        except MemoryError:
            _leave(1, "there is too little memory")
        finally:
            signal.signal(signal.SIGTERM, before)


def _describe(command: click.Command) -> str:
    """Return the first paragraph of a command's help and its example, a line each; `\\b` stops
    click from wrapping.
    """
    paragraphs = (command.help or "").split("\n\n")
    return "\b\n" + "\n".join([" ".join(paragraphs[0].split()), paragraphs[-1].strip()])


def _leave(code: int, message: str) -> NoReturn:
    click.echo(in_one_line(f"captcha-ocr: {message}"), err=True)
    sys.exit(code)


def _explain(error: OSError) -> str:
    """Return the file and the reason of an error; an error without a file comes from standard
    output.
    """
    if error.filename is None:
        if sys.stdout is not None:  # else Python would try to write the rest again at its end
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return f"standard output or a temporary file: {error.strerror or error}"
    return f"{os.fsdecode(error.filename)}: {error.strerror or error}"


def _tolerate_odd_characters() -> None:
    """Accept names and texts with characters that the terminal's encoding lacks; write UTF-8 into
    files and pipes.
    """
    for stream, errors in (
        (sys.stdin, "surrogateescape"),
        (sys.stdout, "backslashreplace"),
        (sys.stderr, "backslashreplace"),
    ):
        if isinstance(stream, io.TextIOWrapper):
            is_data = stream is sys.stdout and not stream.isatty()
            stream.reconfigure(encoding="utf-8" if is_data else stream.encoding, errors=errors)


def _name_process() -> str:
    """Return a prefix with the rank of this process if torchrun started several."""
    try:
        rank, world_size = rank_and_world_size()
    except UsageError:
        return ""
    return f"process {rank} of {world_size}: " if world_size > 1 else ""


@click.group(
    cls=_CommandGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(__version__, prog_name="captcha-ocr", message="%(prog)s %(version)s")
def main() -> None:
    """Read text captchas, or train a small ResNet-18 on your own.

    For captchas that you generate, own or may test.

    Example: captcha-ocr eval image.png; captcha-ocr COMMAND --help shows an example of every
    command.
    """

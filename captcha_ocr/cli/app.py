"""The group of commands, what turns errors and signals into a sentence and an exit code, and what options share."""

import errno
import io
import os
import signal
import sys
import traceback
import warnings
from importlib import import_module
from types import FrameType
from typing import Any, NoReturn

import click

from captcha_ocr.errors import CaptchaOcrError, UsageError, in_one_line
from captcha_ocr.system.parallel import rank_and_count
from captcha_ocr.version import __version__

MODULES = {  # where a command stands: only that is imported, for eval starts as fast as what it needs
    "generate": "data",
    "prepare": "data",
    "inspect": "data",
    "train": "training",
    "curve": "training",
    "eval": "reading",
    "export": "reading",
    "bench": "machine",
    "doctor": "machine",
}


class Commands(click.Group):
    """Turns the project's errors and the signals into one sentence and an exit code."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(MODULES)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name in MODULES:
            import_module(f"captcha_ocr.cli.{MODULES[cmd_name]}")  # which adds it to the group
        return super().get_command(ctx, cmd_name)

    def main(self, *args: Any, **settings: Any) -> Any:
        try:
            return super().main(*args, **settings)
        except OSError as error:
            where = f"{os.fsdecode(error.filename)}: " if isinstance(error.filename, (str, bytes)) else ""
            if not where and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EIO):
                if _is_of_output(error):
                    where = "standard output: "
                    _silence_output()
                else:
                    import tempfile  # which starting does without

                    where = f"a temporary file in {tempfile.gettempdir()}: "
            click.echo(in_one_line(f"captcha-ocr: {where}{error.strerror or error}"), err=True)
            sys.exit(1)

    def invoke(self, ctx: click.Context) -> Any:
        _open_what_is_closed()
        warnings.filterwarnings("ignore", module=r"PIL\.")  # what matters in them is said in our own words
        for stream, errors in (
            (sys.stdin, "surrogateescape"),
            (sys.stdout, "backslashreplace"),
            (sys.stderr, "backslashreplace"),
        ):
            if isinstance(stream, io.TextIOWrapper):  # odd names and alphabets, whatever the terminal's encoding
                stream.reconfigure(errors=errors)
        before = signal.signal(signal.SIGTERM, _terminate)
        try:
            result = super().invoke(ctx)
            if sys.stdout is not None:
                sys.stdout.flush()  # here a full disk is a sentence
            return result
        except CaptchaOcrError as error:
            click.echo(f"captcha-ocr: {_speaker()}{error}", err=True)
            sys.exit(error.exit_code)
        except KeyboardInterrupt:
            repeat = "" if ctx.invoked_subcommand == "eval" else "; the same command again ends what is begun"
            click.echo(f"captcha-ocr: interrupted{repeat}", err=True)
            sys.exit(130)
        except SystemExit as leaving:
            if leaving.code == 128 + signal.SIGTERM:
                click.echo("captcha-ocr: terminated", err=True)
            raise
        except BrokenPipeError:
            # The reader of our output left (`| head`): nothing is wrong, and nobody listens.
            _silence_output()
            sys.exit(1)
        except ModuleNotFoundError as error:
            package = (error.name or "").partition(".")[0]
            if package == "captcha_ocr":
                raise
            click.echo(
                f"captcha-ocr: this needs {package}, which an installation without --no-deps brings along", err=True
            )
            sys.exit(1)
        except MemoryError:
            click.echo("captcha-ocr: there is too little memory", err=True)
            sys.exit(1)
        finally:
            signal.signal(signal.SIGTERM, before)  # or one that comes while Python ends would be a traceback

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        found = super().resolve_command(ctx, args)
        if found[0] not in ("train", "eval", "doctor") and rank_and_count()[1] > 1:
            raise UsageError(f"{found[0]} does not share its work over the processes of torchrun; start it once")
        return found


def _speaker() -> str:
    """Which of several processes speaks."""
    try:
        rank, count = rank_and_count()
    except UsageError:
        return ""
    return f"process {rank} of {count}: " if count > 1 else ""


def _open_what_is_closed() -> None:
    """Let standard streams that were closed (`2>&-`) lead nowhere: else the next files to be opened would be they."""
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest number that is free
    if sys.stderr is None:
        sys.stderr = os.fdopen(2, "w", closefd=False)  # for progress, which asks it whether it is a terminal


def _is_of_output(error: OSError) -> bool:
    """Whether an error that names no file came of printing: our own files name themselves, a library's do not."""
    raised_in = [frame for frame, _ in traceback.walk_tb(error.__traceback__)][-1].f_globals["__name__"]
    return bool(raised_in.startswith(("click.", "captcha_ocr.cli.")))


def _silence_output() -> None:
    """Let standard output lead nowhere: else Python would try once more, in the end, to write what is left."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _terminate(number: int, frame: FrameType | None) -> NoReturn:
    sys.exit(128 + number)


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="captcha-ocr", message="%(prog)s %(version)s")
def main() -> None:
    """Make, learn and read text captchas: ones that you generate, own or may test.

    \b
        captcha-ocr generate       labelled images       data/images
        captcha-ocr prepare        tensor shards         data/shards
        captcha-ocr train          a trained model       runs/default
        captcha-ocr eval a.png     what it reads
        captcha-ocr inspect        what is in a folder of images, and what a model gets wrong there
        captcha-ocr curve          how accuracy grows with the number of images
        captcha-ocr export         one file that reads without torch
        captcha-ocr bench          how fast this machine trains and reads
        captcha-ocr doctor         what there is to compute with
    """

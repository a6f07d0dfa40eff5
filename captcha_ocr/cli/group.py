"""The group of commands, what turns errors and signals into a sentence and an exit code, and what options share."""

import errno
import io
import json
import os
import re
import shlex
import signal
import sys
import traceback
import warnings
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn, TypeVar

import click

from captcha_ocr.config import MAX_BYTES, Lengths
from captcha_ocr.errors import CaptchaOcrError, UsageError, in_one_line
from captcha_ocr.system.parallel import rank_and_count
from captcha_ocr.version import __version__

Command = TypeVar("Command", bound=Callable[..., Any])

IMAGES, SHARDS, RUN = Path("data/images"), Path("data/shards"), Path("runs/default")
FOLDER = click.Path(file_okay=False, path_type=Path)
FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


MODULES = {  # where a command stands: only that is imported, for eval starts as fast as what it needs
    "generate": "images",
    "prepare": "images",
    "inspect": "images",
    "train": "learning",
    "curve": "learning",
    "export": "learning",
    "bench": "learning",
    "doctor": "learning",
    "eval": "reading",
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


def option(*names: str, **settings: Any) -> Callable[[Command], Command]:
    """A click option that shows its default."""
    settings.setdefault("show_default", True)
    return click.option(*names, **settings)


workers_option = option("--workers", type=click.IntRange(1, 256), help="Processes.  [default: one a processor]")
seed_option = option("--seed", type=click.IntRange(0), default=0, help="Where all chance comes from.")
force_option = option("--force", is_flag=True, help="Replace what an earlier run with other options wrote.")
quiet_option = option("--quiet", is_flag=True, help="No progress on stderr.")
max_bytes_option = option("--max-bytes", type=int, default=MAX_BYTES, help="Image files that are larger are refused.")
json_option = option("--json", "as_json", is_flag=True, help="The result as JSON.")
device_option = option("--device", default="auto", metavar="auto|cpu|cuda[:n]|mps|xpu[:n]", help="Where to compute.")


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


def parse_size(context: click.Context, parameter: click.Parameter, text: str | None) -> tuple[int, int] | None:
    """WIDTHxHEIGHT as (width, height)."""
    if text is None:
        return None
    sides = re.fullmatch(r"0*([1-9][0-9]{0,8})x0*([1-9][0-9]{0,8})", text)
    if sides is None:
        raise click.BadParameter(f"{text[:40]!r} is not WIDTHxHEIGHT, such as 160x60")
    return int(sides[1]), int(sides[2])


def parse_numbers(separator: str) -> Callable[[click.Context, click.Parameter, str | None], tuple[int, ...]]:
    """Whole numbers between separators as a tuple."""

    def parse(context: click.Context, parameter: click.Parameter, text: str | None) -> tuple[int, ...]:
        parts = text.split(separator) if text else []
        if not all(re.fullmatch(r" *[0-9]{1,9} *", part) for part in parts):
            raise click.BadParameter(f"{(text or '')[:40]!r} is not whole numbers separated by {separator!r}")
        return tuple(int(part) for part in parts)

    return parse


def parse_lengths(context: click.Context, parameter: click.Parameter, text: str | None) -> Lengths | None:
    """`4`, or `4-6` for the shortest and the longest, as Lengths."""
    return None if text is None else Lengths.parse(text)


def length_option(help_text: str, **settings: Any) -> Callable[[Command], Command]:
    """An option for the number of characters of texts."""
    return option("--length", "lengths", metavar="N|N-M", callback=parse_lengths, help=help_text, **settings)


size_option = option("--size", metavar="WIDTHxHEIGHT", callback=parse_size, help="Of the images in pixels.")


def field_option(config: type, name: str, field: str, help_text: str, **settings: Any) -> Callable[[Command], Command]:
    """An option whose default is that of a configuration's field."""
    return option(name, field, default=getattr(config, field), help=help_text, **settings)


def report(as_json: bool, document: dict[str, Any], text: str, following: str) -> None:
    """Print a command's result, and to stderr the next command."""
    click.echo(json.dumps(document, ensure_ascii=False) if as_json else text)
    click.echo(f"next: {following}", err=True)


def next_command(name: str, folder: Path, default: Path, option_name: str = "") -> str:
    """The command that follows; a folder that is its default goes unsaid."""
    named = f"./{folder}" if str(folder).startswith("-") else str(folder)
    return f"captcha-ocr {name}" + ("" if folder == default else f" {option_name}{shlex.quote(named)}")


def escape(path: str) -> str:
    """As `in_one_line`, a backslash of the path's own doubled where it parts no folders."""
    return in_one_line(path if os.sep == "\\" else path.replace("\\", "\\\\"))

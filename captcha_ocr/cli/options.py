"""Options that several commands share, and how a command reports its result."""

import json
import os
import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from captcha_ocr.config import MAX_BYTES, Lengths
from captcha_ocr.errors import in_one_line

Command = TypeVar("Command", bound=Callable[..., Any])


IMAGES = Path("data/images")


SHARDS = Path("data/shards")


RUN = Path("runs/default")


FOLDER = click.Path(file_okay=False, path_type=Path)


FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


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

"""How a command reports its result, and which command comes next."""

import json
import os
from pathlib import Path
from typing import Any

import click

from captcha_ocr.cli.options import ARGUMENTS, RUN
from captcha_ocr.errors import in_one_line
from captcha_ocr.inference.model_folder import MODEL_VARIABLE, name_model
from captcha_ocr.system.console import command_line


def report(as_json: bool, document: dict[str, Any], text: str, following: str | None) -> None:
    """Print the result to stdout, and the next command, if there is one, to stderr unless quiet."""
    click.echo(json.dumps(document, ensure_ascii=False) if as_json else text)
    if following is not None and not click.get_current_context().params.get("quiet"):
        click.echo(f"next: {following}", err=True)


def next_command(name: str, *words: str) -> str:
    """Return a command that works as it stands in a shell."""
    return command_line(*name.split(), *words)


def place(folder: Path, default: Path | None = None, option_name: str = "") -> list[str]:
    """Return the words that name a folder in a command, none for the default one."""
    path = f"./{folder}" if str(folder).startswith("-") else str(folder)
    return [] if folder == default else [*option_name.split(), path]


def given_words(*names: str) -> list[str]:
    """Return those options of the running command that were given, as they were given.

    names: of the parameters of its function.
    """
    context = click.get_current_context()
    values, _, _ = context.command.make_parser(context).parse_args(list(context.meta[ARGUMENTS]))
    words = []
    for parameter in context.command.params:
        if parameter.name not in names or parameter.name not in values:
            continue
        flag, value = parameter.opts[0], values[parameter.name]
        if value is True:
            words.append(flag)
        else:
            parts = value if isinstance(value, list) else [value]
            words += [f"{flag}={part}" for part in parts]
    return words


def read_command(model: Path, images: Path | None) -> str:
    """Return the command that reads an image below `images`, or asks for one, with a model."""
    from captcha_ocr.data.images import find_images  # numpy takes a tenth of a second

    words = []
    if images is not None and images.is_dir():
        for file in find_images(images).images[:1]:
            words += place(images / file)
    if model != RUN or MODEL_VARIABLE in os.environ:
        words += ["--model", *place(Path(name_model(model)))]
    return next_command("eval", *words, *given_words("device", "threads", "max_bytes"))


def escape(path: str) -> str:
    """Escape a path with `in_one_line`, and double its backslashes unless they separate folders."""
    return in_one_line(path if os.sep == "\\" else path.replace("\\", "\\\\"))

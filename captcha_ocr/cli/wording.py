"""What a command prints: its result, its errors, and commands that work as they stand.

A flag stands for each field that the library names.
"""

import json
import os
import re
from contextlib import suppress
from pathlib import Path
from typing import Any

import click

from captcha_ocr.errors import CaptchaOcrError, Command, in_one_line
from captcha_ocr.inference.model_folder import MODEL_VARIABLE, name_model
from captcha_ocr.options.declaration import flag_for, words
from captcha_ocr.options.shared import ADAPTED, LABELLED, RUN
from captcha_ocr.system.console import command_line
from captcha_ocr.system.documents import read_json

ARGUMENTS = "captcha_ocr.arguments"  # of the running command, in click's context
_FIELD = re.compile(r"`([a-z][a-z0-9_]*)`")


def with_flags(text: str) -> str:
    """Return a text of the library in which a flag stands for each `field`.

    What the person gave stays as it is, in backticks, too.
    """
    context = click.get_current_context(silent=True)
    given = " ".join(context.meta.get(ARGUMENTS, ())) if context is not None else ""
    return _FIELD.sub(lambda field: field[0] if field[0] in given else flag_for(field[1]), text)


def word_command(command: Command) -> str:
    """Return a command as a line that works as it stands in a shell."""
    arguments = map(str, command.arguments)
    return command_line(*command.name.split(), *arguments, *words(command.options))


def word_error(error: CaptchaOcrError) -> str:
    """Return the sentence of an error, with the command that helps."""
    sentence = with_flags(str(error))
    if error.advice is None:
        return sentence
    return f"{sentence}; {error.advice.purpose}: {word_command(error.advice.command)}"


def report(document: dict[str, Any], text: str, following: str | None = None) -> None:
    """Print the result of the running command, and the next command, if there is one.

    document: the result with --json, as JSON types.
    """
    as_json = click.get_current_context().params["as_json"]
    click.echo(json.dumps(document, ensure_ascii=False) if as_json else text)
    if following is not None:
        note(f"next: {following}")


def note(line: str) -> None:
    """Print a line beside the result, to stderr, unless the running command is quiet."""
    if not click.get_current_context().params.get("quiet"):
        click.echo(line, err=True)


def place(folder: Path, default: Path | None = None, flag: str = "") -> list[str]:
    """Return the words that name a folder in a command, none for the default one."""
    path = f"./{folder}" if str(folder).startswith("-") else str(folder)
    return [] if folder == default else [*flag.split(), path]


def given_words(*names: str) -> list[str]:
    """Return those options of the running command that were given, as they were given.

    names: of the parameters of its function.
    """
    context = click.get_current_context()
    values, _, _ = context.command.make_parser(context).parse_args(list(context.meta[ARGUMENTS]))
    line = []
    for parameter in context.command.params:
        if parameter.name not in names or parameter.name not in values:
            continue
        flag, value = parameter.opts[0], values[parameter.name]
        if value is True:
            line.append(flag)
        else:
            parts = value if isinstance(value, list) else [value]
            line += [f"{flag}={part}" for part in parts]
    return line


def find_learnt_folders(run: Path) -> list[Path]:
    """Return the folders of images from which a run learnt, if its shards are where they were."""
    with suppress(CaptchaOcrError, ImportError, KeyError, TypeError):
        from captcha_ocr.data.shards import read_manifest

        folders = read_json(run / "run.json")["given"]["data"]
        return [Path(read_manifest(Path(shards)).source) for shards in folders]
    return []


def read_command(model: Path, images: Path | None = None) -> str:
    """Return the command that reads an image below `images`, or asks for one, with a model.

    Without `images` it is one from which the model learnt.
    """
    from captcha_ocr.data.images import find_images  # numpy takes a tenth of a second

    line = []
    for folder in filter(Path.is_dir, [images] if images else find_learnt_folders(model)[:1]):
        for file in find_images(folder).images[:1]:
            line += place(folder / file)
    if model not in (RUN, ADAPTED, LABELLED) or MODEL_VARIABLE in os.environ:
        line += ["--model", *place(Path(name_model(model)))]
    return command_line("eval", *line, *given_words("device", "threads", "max_bytes"))


def escape(path: str) -> str:
    """Escape a path with `in_one_line`, and double its backslashes unless they separate folders."""
    return in_one_line(path if os.sep == "\\" else path.replace("\\", "\\\\"))

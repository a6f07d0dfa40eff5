"""Options that several commands share, and how a command reports its result."""

import json
import os
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args, get_origin

import click

from captcha_ocr.charset import Charset, resolve_alphabet
from captcha_ocr.errors import UsageError, in_one_line
from captcha_ocr.inference.model_folder import MODEL_VARIABLE, name_model, resolve_model_name
from captcha_ocr.options.declaration import (
    Options,
    declarations,
    field_types,
    own_flag,
    parts_of_type,
)
from captcha_ocr.options.limits import MAX_BYTES, MAX_THREADS
from captcha_ocr.options.model import EngineName, Lengths
from captcha_ocr.system.console import command_line

Command = TypeVar("Command", bound=Callable[..., Any])
Parsed = TypeVar("Parsed")

IMAGES, SHARDS, RUN = Path("data/images"), Path("data/shards"), Path("runs/default")
FOLDER = click.Path(file_okay=False, path_type=Path)
FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
NEW_FILE = click.Path(dir_okay=False, path_type=Path)
PATH = click.Path(exists=True, path_type=Path)
ARGUMENTS = "captcha_ocr.arguments"  # of the running command, in click's context


class ModelFolder(click.Path):
    """The folder of a model or a run; `pretrained` is the model in the package."""

    def convert(
        self, value: Any, parameter: click.Parameter | None, context: click.Context | None
    ) -> Any:
        """Return the folder."""
        folder = super().convert(value, parameter, context)
        return resolve_model_name(value) if isinstance(value, str) else folder


MODEL = ModelFolder(file_okay=False, path_type=Path)


class SectionOption(click.Option):
    """An option of click that stands under a heading in the help."""

    def __init__(self, *names: Any, section: str = "Options", **settings: Any) -> None:
        super().__init__(*names, **settings)
        self.section = section


class NumberChoice(click.Choice):  # type: ignore[type-arg]  # click is generic from 8.2 on
    """A choice among whole numbers."""

    def __init__(self, numbers: Iterable[int]) -> None:
        super().__init__([str(number) for number in numbers])

    def convert(
        self, value: Any, parameter: click.Parameter | None, context: click.Context | None
    ) -> Any:
        """Return the number."""
        return int(super().convert(str(value), parameter, context))


def option(*names: str, **settings: Any) -> Callable[[Command], Command]:
    """Return a click option whose help shows its default. section: the heading in the help."""
    settings.setdefault("show_default", True)
    return click.option(*names, cls=SectionOption, **settings)


def declared_option(
    kind: type[Options], name: str, **settings: Any
) -> Callable[[Command], Command]:
    """Return the click option that a field declares, with the field's default.

    settings: what the command says instead, such as `default` or `shown`, the default that the help shows.
    """
    declared, default = declarations(kind)[name], getattr(kind, name)
    settings.setdefault("default", default)
    shown = settings.pop("shown", declared.shown)
    if shown is None and default and settings["default"] is None:
        shown = str(default)
    help_text = declared.help if shown is None else f"{declared.help}  [default: {shown}]"
    for setting, value in click_type(field_types(kind)[name]).items():
        settings.setdefault(setting, value)
    settings.setdefault("metavar", declared.metavar)
    return option(own_flag(kind, name), name, help=help_text, **settings)


def declared_options(
    kind: type[Options], *names: str, **settings: Any
) -> Callable[[Command], Command]:
    """Return a decorator that adds the options that these fields declare, in their order."""
    return add_options(*(declared_option(kind, name, **settings) for name in names))


def click_type(annotation: Any) -> dict[str, Any]:
    """Return the settings of click for an option of such a type."""
    kind, _ = parts_of_type(annotation)
    if kind is bool:
        return {"is_flag": True}
    if get_origin(kind) is Literal:
        choices = get_args(kind)
        is_number = isinstance(choices[0], int)
        return {"type": NumberChoice(choices) if is_number else click.Choice(choices)}
    if kind == tuple[int, int]:
        return {"callback": parse_size, "metavar": "WIDTHxHEIGHT"}
    if hasattr(kind, "parse"):
        return {"callback": named_option(kind.parse)}
    if get_origin(kind) is tuple:
        return {"type": get_args(kind)[0], "multiple": True}
    return {"type": kind}


def pick(kind: type[Options], options: Mapping[str, Any]) -> dict[str, Any]:
    """Return those of a command's options that are fields of a class."""
    return {name: options[name] for name in declarations(kind) if name in options}


def add_options(*added: Callable[[Command], Command]) -> Callable[[Command], Command]:
    """Return a decorator that adds several options, in the order of the help."""

    def add(command: Command) -> Command:
        for each in reversed(added):
            command = each(command)
        return command

    return add


workers_option = option(
    "--workers", type=click.IntRange(1, 256), help="Processes.  [default: one per processor]"
)
threads_option = option(
    "--threads",
    type=click.IntRange(1, MAX_THREADS),
    help="Threads to compute with.  [default: one per processor]",
)
seed_option = option("--seed", type=click.IntRange(0), default=0, help="Random seed.")
force_option = option(
    "--force", is_flag=True, help="Replace what an earlier run with other options wrote."
)
quiet_option = option("--quiet", is_flag=True, help="Print no progress and no next command.")
max_bytes_option = option(
    "--max-bytes", type=int, default=MAX_BYTES, help="Refuse larger image files."
)
json_option = option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
reading_model_option = option(
    "--model",
    "model_folder",
    type=MODEL,
    help=f"A model or run folder, or pretrained.  [default: {MODEL_VARIABLE}, else {RUN}, else pretrained]",
)
engine_option = option(
    "--engine",
    type=click.Choice(get_args(EngineName)),
    default="auto",
    help="auto: onnx if model.onnx exists.",
)
device_option = option(
    "--device", default="auto", metavar="auto|cpu|cuda[:n]|mps|xpu[:n]", help="Where to compute."
)


def parse_size(
    context: click.Context, parameter: click.Parameter, text: str | None
) -> tuple[int, int] | None:
    """Parse WIDTHxHEIGHT as (width, height)."""
    if text is None:
        return None
    sides = re.fullmatch(r"0*([1-9][0-9]{0,8})x0*([1-9][0-9]{0,8})", text)
    if sides is None:
        raise click.BadParameter(f"{text[:40]!r} is not WIDTHxHEIGHT, such as 160x60")
    return int(sides[1]), int(sides[2])


def parse_numbers(
    separator: str,
) -> Callable[[click.Context, click.Parameter, str | None], tuple[int, ...]]:
    """Return a click callback that parses integers between separators."""

    def parse(
        context: click.Context, parameter: click.Parameter, text: str | None
    ) -> tuple[int, ...]:
        parts = text.split(separator) if text else []
        if not all(re.fullmatch(r" *[0-9]{1,9} *", part) for part in parts):
            raise click.BadParameter(
                f"{(text or '')[:40]!r} is not whole numbers separated by {separator!r}"
            )
        return tuple(int(part) for part in parts)

    return parse


def named_option(
    parse: Callable[[str], Parsed],
) -> Callable[[click.Context, click.Parameter, str | None], Parsed | None]:
    """Return a click callback that parses a value; what is wrong with it is said with the option's name."""

    def callback(
        context: click.Context, parameter: click.Parameter, text: str | None
    ) -> Parsed | None:
        try:
            return None if text is None else parse(text)
        except UsageError as error:
            raise UsageError(f"{parameter.opts[0]}: {error}") from None

    return callback


def check_charset(name_or_characters: str) -> str:
    """Return the value of --charset; UsageError unless it is an alphabet, or the name of one."""
    Charset(resolve_alphabet(name_or_characters))
    return name_or_characters


def charset_option(help_text: str, **settings: Any) -> Callable[[Command], Command]:
    """Return an option for an alphabet."""
    return option("--charset", callback=named_option(check_charset), help=help_text, **settings)


def length_option(help_text: str, **settings: Any) -> Callable[[Command], Command]:
    """Return an option for the number of characters of a text."""
    return option(
        "--length",
        "lengths",
        metavar="N|N-M",
        callback=named_option(Lengths.parse),
        help=help_text,
        **settings,
    )


size_option = option(
    "--size", metavar="WIDTHxHEIGHT", callback=parse_size, help="Size of the images in pixels."
)


def report(as_json: bool, document: dict[str, Any], text: str, following: str | None) -> None:
    """Print the result of a command to stdout, and the next command, if there is one, to stderr unless `--quiet`."""
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


def given(*names: str) -> list[str]:
    """Return those options of the running command that were given, by their parameters' names, as they were given."""
    context = click.get_current_context()
    values, _, _ = context.command.make_parser(context).parse_args(list(context.meta[ARGUMENTS]))
    words = []
    for parameter in context.command.params:
        if parameter.name in names and parameter.name in values:
            value = values[parameter.name]
            for each in value if isinstance(value, list) else [value]:
                words += [parameter.opts[0]] if each is True else [f"{parameter.opts[0]}={each}"]
    return words


def read_command(model: Path, images: Path | None) -> str:
    """Return the command that reads an image below `images`, or asks for one, with a model."""
    from captcha_ocr.data.images import find_images

    is_default = model == RUN and MODEL_VARIABLE not in os.environ
    words = [] if is_default else ["--model", *place(Path(name_model(model)))]
    found = []
    if images is not None and images.is_dir():
        found = [images / file for file in find_images(images).images[:1]]
    return next_command(
        "eval",
        *(place(file)[0] for file in found),
        *words,
        *given("device", "threads", "max_bytes"),
    )


def escape(path: str) -> str:
    """Escape a path with `in_one_line`, and double its backslashes unless they separate folders."""
    return in_one_line(path if os.sep == "\\" else path.replace("\\", "\\\\"))

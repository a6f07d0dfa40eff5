"""From what a field declares to an option of click, and from the values back to objects."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import Field, fields
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args, get_origin

import click

from captcha_ocr.cli.wording import with_flags
from captcha_ocr.errors import UsageError
from captcha_ocr.inference.model_folder import resolve_model_name
from captcha_ocr.options.declaration import (
    Declared,
    Options,
    PathKind,
    declarations,
    declared_by,
    parts_of_type,
    plain_flag,
)
from captcha_ocr.options.values import parse_size

Function = TypeVar("Function", bound=Callable[..., Any])
_Kind = TypeVar("_Kind", bound=Options)

FOLDER = click.Path(file_okay=False, path_type=Path)  # of an argument
IMAGES, SHARDS, RUN = Path("data/images"), Path("data/shards"), Path("runs/default")
ARGUMENTS = "captcha_ocr.arguments"  # of the running command, in click's context
RUNNING = "Running"  # the heading in the help of what most people never need


class Given:
    """The options of a running command: those that the person gave."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self._values = values

    def values(self, kind: type[Options]) -> dict[str, Any]:
        """Return what was given for the fields of a class; no None, no False and no empty tuple."""
        values = {}
        for name in declarations(kind):
            value = self._values.get(name)
            if is_set(value):
                values[name] = value
        return values

    def of(self, kind: type[_Kind]) -> _Kind:
        """Return an object of a class of options; UsageError names what is wrong in it."""
        return kind(**self.values(kind))


def is_set(value: object) -> bool:
    """Tell whether a value says something: not None, not False and not an empty tuple."""
    return not (value is None or value is False or value == ())


class SectionOption(click.Option):
    """An option of click that stands under a heading in the help."""

    def __init__(self, *names: Any, section: str, **settings: Any) -> None:
        super().__init__(*names, **settings)
        self.section = section


class DeclaredCommand(click.Command):
    """A command whose function takes its arguments and one object with the options, `given`.

    Its help shows the options under their headings, in the order of the first option of each.
    """

    def invoke(self, ctx: click.Context) -> Any:
        arguments: dict[str, Any] = {}
        options: dict[str, Any] = {}
        for parameter in self.params:
            name = str(parameter.name)
            part = arguments if isinstance(parameter, click.Argument) else options
            part[name] = ctx.params[name]
        assert self.callback is not None, "every command has a function"
        return ctx.invoke(self.callback, **arguments, given=Given(options))

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        sections: dict[str, list[tuple[str, str]]] = {}
        for parameter in self.get_params(ctx):
            is_option = isinstance(parameter, click.Option)  # the usage shows the arguments
            record = parameter.get_help_record(ctx) if is_option else None
            if record is not None:
                heading = getattr(parameter, "section", "Options")  # click's own --help has none
                sections.setdefault(heading, []).append(record)
        for heading, records in sections.items():
            with formatter.section(heading):
                formatter.write_dl(records)


class _ModelFolder(click.Path):
    """The folder of a model or a run; `pretrained` is the model in the package."""

    def convert(
        self, value: Any, parameter: click.Parameter | None, context: click.Context | None
    ) -> Path:
        super().convert(value, parameter, context)
        return resolve_model_name(value)


class _NumberChoice(click.Choice):  # type: ignore[type-arg]  # click is generic from 8.2 on
    """A choice among whole numbers."""

    def __init__(self, numbers: Iterable[int]) -> None:
        super().__init__([str(number) for number in numbers])

    def convert(
        self, value: Any, parameter: click.Parameter | None, context: click.Context | None
    ) -> Any:
        return int(super().convert(value, parameter, context))


def takes(
    kind: type[Options], *names: str, section: str = "Options", **settings: Any
) -> Callable[[Function], Function]:
    """Return a decorator that adds the options that a class declares to a command.

    names: of fields, in the order of the help; without any all that have a help text. section:
    their heading in the help. settings: `shown` or settings of click that say something else.
    """
    by_name = {item.name: item for item in fields(kind)}
    names = names or tuple(name for name, item in by_name.items() if declared_by(item).help)

    def add(command: Function) -> Function:
        for name in reversed(names):
            command = _make_option(by_name[name], section, **settings)(command)
        return command

    return add


def _make_option(item: Field[Any], section: str, **settings: Any) -> Callable[[Function], Function]:
    name, declared, default = item.name, declared_by(item), item.default
    shown = settings.pop("shown", declared.shown)
    if shown is None and is_set(default):
        shown = str(default)
    help_text = declared.help
    if "`" in help_text:
        help_text = with_flags(help_text)
    if shown:
        help_text += f"  [default: {shown}]"
    settings = {**_click_settings(item.type, declared), **settings}
    if declared.metavar is not None:
        settings["metavar"] = declared.metavar
    # What is not given is None, so that the class alone knows the default.
    settings.setdefault("default", None)
    flag = declared.flag or plain_flag(name)
    return click.option(flag, name, cls=SectionOption, section=section, help=help_text, **settings)


def _click_settings(annotation: Any, declared: Declared) -> dict[str, Any]:
    """Return the settings of click for an option of such a type."""
    kind = parts_of_type(annotation)[0]
    if kind is bool:
        return {"is_flag": True, "default": False}
    if get_origin(kind) is Literal:
        choices = get_args(kind)
        is_number = isinstance(choices[0], int)
        return {"type": _NumberChoice(choices) if is_number else click.Choice(choices)}
    if kind == tuple[int, int]:
        return {"callback": _name_option(parse_size), "metavar": "WIDTHxHEIGHT"}
    parse = declared.parse or getattr(kind, "parse", None)
    if parse is not None:
        return {"callback": _name_option(parse)}
    is_multiple = get_origin(kind) is tuple
    element = get_args(kind)[0] if is_multiple else kind
    if declared.path is not None:
        element = _path_type(declared.path, element)
    return {"type": element, "multiple": is_multiple}


def _path_type(kind: PathKind, element: type) -> click.Path:
    if kind == "model":
        return _ModelFolder(file_okay=False)
    return click.Path(
        exists=kind in ("file", "file or folder"),
        file_okay=kind != "folder",
        dir_okay=kind in ("folder", "file or folder"),
        path_type=element,
    )


def _name_option(
    parse: Callable[[str], Any],
) -> Callable[[click.Context, click.Parameter, str | None], Any]:
    """Return a click callback that parses a value; its errors begin with the option's name."""

    def callback(context: click.Context, parameter: click.Parameter, text: str | None) -> Any:
        try:
            return None if text is None else parse(text)
        except UsageError as error:
            raise UsageError(f"{parameter.opts[0]}: {error}") from None

    return callback

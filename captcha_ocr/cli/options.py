"""From what a field declares to an option of click, and from the values back to objects."""

from collections.abc import Callable, Collection, Mapping
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
    declarations,
    declared_by,
    plain_flag,
    type_without_none,
)
from captcha_ocr.options.shared import parse_size

Function = TypeVar("Function", bound=Callable[..., Any])
_Kind = TypeVar("_Kind", bound=Options)

FOLDER = click.Path(file_okay=False, path_type=Path)  # of an argument
_SMALL_LIMIT = 10**5  # that a person may meet, so that the help shows it
RUNNING = "Running"  # the heading in the help of what most people never need


class Given:
    """The options that the person gave to a running command; no None, False and empty tuple."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self._values = {name: value for name, value in values.items() if is_set(value)}

    def values(self, kind: type[Options]) -> dict[str, Any]:
        """Return what was given for the fields of a class."""
        return {name: self._values[name] for name in declarations(kind) if name in self._values}

    def __getitem__(self, kind: type[_Kind]) -> _Kind:
        """Return an object of a class of options; UsageError names what is wrong in it."""
        return kind(**self.values(kind))


def is_set(value: object) -> bool:
    """Tell whether a value says something: not None, not False and not an empty tuple."""
    return not (value is None or value is False or value == ())


class _SectionOption(click.Option):
    """An option of click that stands under a heading in the help."""

    def __init__(self, *names: Any, section: str, **settings: Any) -> None:
        super().__init__(*names, **settings)
        self.section = section


class DeclaredCommand(click.Command):
    """A command whose function takes its arguments and one object with the options, `given`.

    Its help shows the options under their headings, in the order of the first option of each.
    """

    def invoke(self, ctx: click.Context) -> Any:
        assert self.callback is not None, "every command has a function"
        names = [str(each.name) for each in self.params if isinstance(each, click.Argument)]
        arguments = {name: ctx.params[name] for name in names}
        return ctx.invoke(self.callback, **arguments, given=Given(ctx.params))

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


def takes(
    kind: type[Options],
    *names: str,
    without: Collection[str] = (),
    section: str = "Options",
    **settings: Any,
) -> Callable[[Function], Function]:
    """Return a decorator that adds the options that a class declares to a command.

    names: of fields, in the order of the help; without any all that have a help text, but for those
    in `without`. section: their heading in the help. settings: `shown` or settings of click that
    say something else.
    """
    by_name = {item.name: item for item in fields(kind) if item.name not in without}
    names = names or tuple(name for name, item in by_name.items() if declared_by(item).help)

    def add(command: Function) -> Function:
        for name in reversed(names):
            command = _make_option(by_name[name], section, **settings)(command)
        return command

    return add


def _make_option(item: Field[Any], section: str, **settings: Any) -> Callable[[Function], Function]:
    declared = declared_by(item)
    shown = settings.pop("shown", declared.shown)
    if shown is None and is_set(item.default):
        shown = str(item.default)
    help_text = with_flags(declared.help)
    notes = [f"default: {shown}"] if shown else []
    if declared.at_least > 1 or declared.at_most < _SMALL_LIMIT:
        notes.append(declared.limits)
    if notes:
        help_text += f"  [{'; '.join(notes)}]"
    # What is not given is None, so that the class alone knows the default.
    settings = {"default": None, **_click_settings(item.type, declared), **settings}
    if declared.variable is not None:
        settings |= {"envvar": declared.variable, "show_envvar": True}
    if declared.metavar is not None:
        settings["metavar"] = declared.metavar
    flag = declared.flag or plain_flag(item.name)
    return click.option(
        flag, item.name, cls=_SectionOption, section=section, help=help_text, **settings
    )


def _click_settings(annotation: Any, declared: Declared) -> dict[str, Any]:
    kind = type_without_none(annotation)
    if kind is bool:
        return {"is_flag": True, "default": False}
    if get_origin(kind) is Literal:
        choices = get_args(kind)
        return {
            "type": click.Choice([*map(str, choices)]),
            "callback": _parsed_by(type(choices[0])),
        }
    if kind == tuple[int, int]:
        return {"callback": _parsed_by(parse_size), "metavar": "WIDTHxHEIGHT"}
    if declared.path == "model":
        return {"type": click.Path(file_okay=False), "callback": _parsed_by(resolve_model_name)}
    parse = declared.parse or getattr(kind, "parse", None)
    if parse is not None:
        return {"callback": _parsed_by(parse)}
    is_multiple = get_origin(kind) is tuple
    element = get_args(kind)[0] if is_multiple else kind
    if declared.path is not None:
        element = click.Path(
            exists=declared.path in ("file", "file or folder"),
            file_okay=declared.path != "folder",
            dir_okay=declared.path in ("folder", "file or folder"),
            path_type=element,
        )
    return {"type": element, "multiple": is_multiple}


def _parsed_by(
    parse: Callable[[str], Any],
) -> Callable[[click.Context, click.Parameter, str | None], Any]:
    """Return a click callback that parses a value; its errors begin with the option's name."""

    def callback(context: click.Context, parameter: click.Parameter, text: str | None) -> Any:
        try:
            return None if text is None else parse(text)
        except UsageError as error:
            raise UsageError(f"{parameter.opts[0]}: {error}") from None

    return callback

"""Options said once: a field of a dataclass declares limits, help and flag, and the rest follows.

    class TrainConfig(Options):
        patience: int = option(20, "Stop after so many epochs.", at_least=1, at_most=10**6)

The declaration gives the field's check, its JSON, its line in the difference of two runs, its words in a command, and
the option of click (`cli/declared.py`). The flag follows from the field's name unless the declaration names another.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import Field, asdict, dataclass, field, fields, is_dataclass
from functools import cache
from types import NoneType, UnionType
from typing import Any, Literal, Self, Union, get_args, get_origin, get_type_hints

from captcha_ocr.errors import UsageError, check

DECLARED = "declared"  # the key of the declaration in a field's metadata


@dataclass(frozen=True)
class Declared:
    """What a field declares beside its name, its type and its default.

    at_least, at_most: limits of numbers, or of each number of a sequence. above, below: the same without the limit
    itself. flag: of the command line. metavar: what the help shows as value. shown: what the help shows as default.
    section: the heading in the help under which the option stands; "" for the first one.
    """

    help: str = ""
    flag: str | None = None
    metavar: str | None = None
    shown: str | None = None
    section: str = ""
    at_least: float = -math.inf
    at_most: float = math.inf
    above: float = -math.inf
    below: float = math.inf

    def allows(self, number: float) -> bool:
        """Tell whether a number lies within the limits; nan does not."""
        return self.at_least <= number <= self.at_most and self.above < number < self.below

    @property
    def limits(self) -> str:
        """The limits in words, such as `1 to 1,000,000`."""
        if self.at_most < math.inf and self.at_least > -math.inf:
            return f"{_shown_number(self.at_least)} to {_shown_number(self.at_most)}"
        if self.at_least > -math.inf:
            return f"{_shown_number(self.at_least)} or more"
        return f"above {_shown_number(self.above)} and below {_shown_number(self.below)}"


def option(default: Any, help_text: str = "", **declared: Any) -> Any:
    """Return a dataclass field that declares an option; see `Declared` for what it may say."""
    return field(default=default, metadata={DECLARED: Declared(help_text, **declared)})


@dataclass(frozen=True)
class Options:
    """The base class of dataclasses whose fields declare options; it checks types and limits.

    UsageError names the field in backticks.
    """

    def __post_init__(self) -> None:
        types = field_types(type(self))
        for item in fields(self):
            _check_value(item, types[item.name], getattr(self, item.name))

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as JSON types."""
        return asdict(self)

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> Self:
        """Invert `to_dict`, where JSON has lists for tuples; UsageError for any other document."""
        values = {}
        for name, value in document.items():
            values[name] = tuple(value) if isinstance(value, list) else value
        try:
            return cls(**values)
        except TypeError as error:
            raise UsageError(f"the options are malformed ({error})") from None


def declared_fields(kind: type[Options]) -> Iterator[tuple[Field[Any], Declared]]:
    """Yield the fields of a class that declare an option, with their declarations."""
    for item in fields(kind):
        if DECLARED in item.metadata:
            yield item, item.metadata[DECLARED]


def field_types(kind: type[Options]) -> dict[str, Any]:
    """Return the types of the fields of a class, by their names."""
    return get_type_hints(kind)


def parts_of_type(annotation: Any) -> tuple[Any, bool]:
    """Return a type without None, and whether it admits None."""
    if get_origin(annotation) not in (Union, UnionType):
        return annotation, False
    kinds = [kind for kind in get_args(annotation) if kind is not NoneType]
    return kinds[0], len(kinds) < len(get_args(annotation))


def flag_for(name: str) -> str:
    """Return the flag of a field: the one that a declaration names, else the field's name."""
    return _named_flags().get(name) or "--" + name.replace("_", "-")


def words(options: Mapping[str, object]) -> list[str]:
    """Return options as words of a command line, by their fields; those that are None or False are left out."""
    found: list[str] = []
    for name, value in options.items():
        if value is True:
            found.append(flag_for(name))
        elif isinstance(value, Sequence) and not isinstance(value, str):
            for part in value:
                found += [flag_for(name), str(part)]
        elif value is not None and value is not False:
            found += [flag_for(name), str(value)]
    return found


def differences(old: Any, new: Any) -> Iterator[tuple[str, str, str]]:
    """Yield (name, old, new) of each field in which two dataclasses of one type differ, nested ones included."""
    for item in fields(new):
        before, after = getattr(old, item.name), getattr(new, item.name)
        if is_dataclass(before):
            yield from differences(before, after)
        elif before != after:
            yield item.name, show(before), show(after)


def show(value: object) -> str:
    """Return a value as a difference shows it."""
    return "unset" if value is None else str(value)


def _check_value(item: Field[Any], annotation: Any, value: object) -> None:
    declared = item.metadata.get(DECLARED, Declared())
    kind, may_be_none = parts_of_type(annotation)
    if value is None and may_be_none:
        return
    if get_origin(kind) is Literal:
        check(value in get_args(kind), f"unknown {item.name} {value!r}")
    elif kind in (int, float):
        _check_number(item.name, kind, declared, value)
    elif kind is bool:
        check(isinstance(value, bool), f"`{item.name}` must be true or false, not {value!r}")
    elif kind is str:
        check(isinstance(value, str), f"`{item.name}` must be a text, not {value!r}")


def _check_number(name: str, kind: type, declared: Declared, value: object) -> None:
    types = (int,) if kind is int else (int, float)
    is_number = isinstance(value, types) and not isinstance(value, bool)
    if not is_number or not declared.allows(value):  # type: ignore[arg-type]
        raise UsageError(f"`{name}` must be {declared.limits}, not {value}")


def _shown_number(number: float) -> str:
    return f"{number:,}"


@cache
def _named_flags() -> dict[str, str]:
    named = {"lengths": "--length", "model_folder": "--model", "as_json": "--json"}
    for kind in Options.__subclasses__():
        for item, declared in declared_fields(kind):
            if declared.flag is not None:
                named[item.name] = declared.flag
    return named

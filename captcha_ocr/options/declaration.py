"""Options said once: a field of a dataclass declares limits, help and flag, and the rest follows.

    @dataclass(frozen=True, eq=False, repr=False)  # `Options` has both, which starts faster
    class TrainConfig(Options):
        patience: int = option(20, "Stop after so many epochs.", at_least=1, at_most=10**6)

The declaration gives the field's check, its JSON, its line in the difference of two runs, its words
in a command, and the option of click (`cli/options.py`). The flag follows from the field's name
unless the declaration names another.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import Field, asdict, dataclass, field, fields, is_dataclass
from itertools import chain
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, Self, Union, cast, get_args, get_origin

from captcha_ocr.charset import how_they_differ
from captcha_ocr.errors import UsageError, check

PathKind = Literal["file or folder", "file", "folder", "model", "new file"]
_DECLARED = "declared"  # the key of the declaration in a field's metadata


@dataclass(frozen=True)
class Declared:
    """What a field declares beside its name, its type and its default: an attribute for each.

    at_least, at_most: limits of numbers. above, below: the same without the limit itself. flag: of
    the command line. variable: of the environment, which stands in for the flag. metavar: what the
    help shows as value. shown: what the help shows as default. path: what a path may be. parse:
    makes the value of a text, for types without a method of that name. is_newer: whether the JSON
    leaves the default out, so that documents of older versions keep their hash.
    """

    help: str = ""
    flag: str | None = None
    metavar: str | None = None
    shown: str | None = None
    path: PathKind | None = None
    variable: str | None = None
    parse: Callable[[str], Any] | None = None
    is_newer: bool = False
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
        if self.at_least > -math.inf and self.at_most < math.inf:
            return f"{self.at_least:,} to {self.at_most:,}"
        limits = {"at least": self.at_least, "above": self.above}
        limits |= {"at most": self.at_most, "below": self.below}
        words = [f"{word} {limit:,}" for word, limit in limits.items() if abs(limit) < math.inf]
        return " and ".join(words) or "a number"


def option(default: Any, help_text: str = "", **declared: Any) -> Any:
    """Return a dataclass field that declares an option; see `Declared` for what it may say.

    Without a help text the command line has no such option.
    """
    return field(default=default, metadata={_DECLARED: Declared(help_text, **declared)})


@dataclass(frozen=True, eq=False, repr=False)
class Options:
    """The base class of dataclasses whose fields declare options; it checks types and limits.

    A class has an attribute for each option of its command, however many they are.
    UsageError names the field in backticks.
    """

    def __post_init__(self) -> None:
        for item in fields(self):
            value = getattr(self, item.name)
            if isinstance(value, str) and declared_by(item).path is not None:
                value = Path(value)  # as a program may write it
                object.__setattr__(self, item.name, value)
            _check_value(item, value)

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and vars(self) == vars(other)

    def __hash__(self) -> int:
        return hash(tuple(vars(self).values()))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({vars(self)})"

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as JSON types."""
        document = asdict(self)
        for item in fields(self):
            if declared_by(item).is_newer and getattr(self, item.name) == item.default:
                del document[item.name]
        return document

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> Self:
        """Invert `to_dict`, where JSON has lists for tuples; UsageError for any other document."""
        values = {}
        try:
            for name, value in document.items():
                values[name] = tuple(value) if isinstance(value, list) else value
            return cls(**values)
        except (AttributeError, TypeError) as error:
            raise UsageError(f"the options are malformed ({error})") from None


def declared_by(item: Field[Any]) -> Declared:
    """Return what a field declares."""
    return cast(Declared, item.metadata[_DECLARED])


def declarations(kind: type[Options]) -> dict[str, Declared]:
    """Return what the fields of a class declare, by their names."""
    return {item.name: declared_by(item) for item in fields(kind)}


def type_without_none(annotation: Any) -> Any:
    """Return the type that is declared, or the one beside None."""
    if get_origin(annotation) in (Union, UnionType):
        return next(kind for kind in get_args(annotation) if kind is not NoneType)
    return annotation


def flag_for(name: str) -> str:
    """Return the flag of a field: the one that a class declares, else the field's name."""
    declared = chain.from_iterable(map(fields, Options.__subclasses__()))
    flags = [declared_by(item).flag for item in declared if item.name == name]
    return next(filter(None, flags), plain_flag(name))


def plain_flag(name: str) -> str:
    """Return the flag of a field whose declaration names none."""
    return "--" + name.replace("_", "-")


def words(options: Mapping[str, object]) -> list[str]:
    """Return options, by their fields, as words of a command line; None and False have none."""
    line: list[str] = []
    for name, value in options.items():
        for part in value if isinstance(value, list | tuple) else [value]:
            if part is True:
                line.append(flag_for(name))
            elif part is not None and part is not False:
                line += [flag_for(name), str(part)]
    return line


def differences(old: Any, new: Any) -> Iterator[tuple[str, str]]:
    """Yield the name and the line `old -> new` of each field in which two dataclasses of one type
    differ.

    Nested dataclasses are compared field by field.
    """
    for item in fields(new):
        before, after = getattr(old, item.name), getattr(new, item.name)
        if is_dataclass(before):
            yield from differences(before, after)
        elif before != after:
            yield item.name, change(before, after)


def change(old: object, new: object) -> str:
    """Return a change of a value in words; it says how texts that look alike differ."""
    before, after = _show(old), _show(new)
    return f"{before} -> {after}{how_they_differ(before, after)}"


def _show(value: object) -> str:
    return "unset" if value is None else str(value)


def _check_value(item: Field[Any], value: object) -> None:
    if value is None and NoneType in get_args(item.type):
        return
    kind, declared = type_without_none(item.type), declared_by(item)
    name = f"`{item.name}`" if declared.help else item.name
    if get_origin(kind) is Literal:
        choices = ", ".join(map(str, get_args(kind)))
        check(value in get_args(kind), f"unknown {item.name} {value!r}; choose one of {choices}")
    elif kind in (int, float):
        is_number = isinstance(value, int | kind) and not isinstance(value, bool)
        number = "a whole number" if kind is int else "a number"
        check(is_number, f"{name} must be {number}, not {value!r}")
        is_allowed = declared.allows(cast(float, value))
        check(is_allowed, f"{name} must be {declared.limits}, not {value!r}")
    elif kind is bool:
        check(isinstance(value, bool), f"{name} must be true or false, not {value!r}")
    elif kind is str:
        check(isinstance(value, str), f"{name} must be a text, not {value!r}")

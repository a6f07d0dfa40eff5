"""Options said once: a field of a dataclass declares limits, help and flag, and the rest follows.

    class TrainConfig(Options):
        patience: int = option(20, "Stop after so many epochs.", at_least=1, at_most=10**6)

The declaration gives the field's check, its JSON, its line in the difference of two runs, its words
in a command, and the option of click (`cli/options.py`). The flag follows from the field's name
unless the declaration names another.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import Field, asdict, dataclass, field, fields, is_dataclass
from types import NoneType, UnionType
from typing import Any, Literal, Self, Union, cast, get_args, get_origin

from captcha_ocr.charset import how_they_differ
from captcha_ocr.errors import UsageError, check

PathKind = Literal["file or folder", "file", "folder", "model", "new file"]
_DECLARED = "declared"  # the key of the declaration in a field's metadata


@dataclass(frozen=True)
class Declared:
    """What a field declares beside its name, its type and its default: an attribute for each.

    at_least, at_most: limits of numbers, or of each number of a sequence. above, below: the same
    without the limit itself. flag: of the command line. metavar: what the help shows as value.
    shown: what the help shows as default. path: what a path may be. parse: makes the value of a
    text, for types without a method of that name. is_newer: whether the JSON leaves the default
    out, so that documents of older versions keep their hash.
    """

    help: str = ""
    flag: str | None = None
    metavar: str | None = None
    shown: str | None = None
    path: PathKind | None = None
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


_NOTHING = Declared()


def option(default: Any, help_text: str = "", **declared: Any) -> Any:
    """Return a dataclass field that declares an option; see `Declared` for what it may say."""
    return field(default=default, metadata={_DECLARED: Declared(help_text, **declared)})


@dataclass(frozen=True)
class Options:
    """The base class of dataclasses whose fields declare options; it checks types and limits.

    A class has an attribute for each option of its command, however many they are.
    UsageError names the field in backticks.
    """

    def __post_init__(self) -> None:
        for item in fields(self):
            _check_value(item, getattr(self, item.name))

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
        for name, value in document.items():
            values[name] = tuple(value) if isinstance(value, list) else value
        try:
            return cls(**values)
        except TypeError as error:
            raise UsageError(f"the options are malformed ({error})") from None


def declared_by(item: Field[Any]) -> Declared:
    """Return what a field declares; the defaults for a plain field."""
    return cast(Declared, item.metadata.get(_DECLARED, _NOTHING))


def declarations(kind: type[Options]) -> dict[str, Declared]:
    """Return what the fields of a class declare, by their names."""
    return {item.name: declared_by(item) for item in fields(kind)}


def parts_of_type(annotation: Any) -> tuple[Any, bool]:
    """Return a type without None, and whether it admits None."""
    if get_origin(annotation) not in (Union, UnionType):
        return annotation, False
    kinds = [kind for kind in get_args(annotation) if kind is not NoneType]
    return kinds[0], len(kinds) < len(get_args(annotation))


def flag_for(name: str) -> str:
    """Return the flag of a field: the one that a class declares, else the field's name."""
    for kind in Options.__subclasses__():
        declared = declarations(kind).get(name)
        if declared is not None and declared.flag is not None:
            return declared.flag
    return plain_flag(name)


def plain_flag(name: str) -> str:
    """Return the flag of a field whose declaration names none."""
    return "--" + name.replace("_", "-")


def words(options: Mapping[str, object], flags: Mapping[str, str] | None = None) -> list[str]:
    """Return options, by their fields, as words of a command line; None and False have none.

    flags: those of the command by field; for others `flag_for` names one.
    """
    line: list[str] = []
    for name, value in options.items():
        flag = (flags or {}).get(name) or flag_for(name)
        if value is True:
            line.append(flag)
        elif isinstance(value, list | tuple):
            for part in value:
                line += [flag, str(part)]
        elif value is not None and value is not False:
            line += [flag, str(value)]
    return line


def given_options(options: Options) -> dict[str, object]:
    """Return the options of an object that do not have their defaults, by field."""
    given = {}
    for item in fields(options):
        value = getattr(options, item.name)
        if value != item.default:
            given[item.name] = value
    return given


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
    kind, may_be_none = parts_of_type(item.type)
    if value is None and may_be_none:
        return
    if get_origin(kind) is Literal:
        check(value in get_args(kind), f"unknown {item.name} {value!r}")
    elif kind in (int, float):
        _check_number(item.name, kind, declared_by(item), value)
    elif kind is bool:
        check(isinstance(value, bool), f"`{item.name}` must be true or false, not {value!r}")
    elif kind is str:
        check(isinstance(value, str), f"`{item.name}` must be a text, not {value!r}")


def _check_number(name: str, kind: type, declared: Declared, value: object) -> None:
    types = (int,) if kind is int else (int, float)
    is_number = isinstance(value, types) and not isinstance(value, bool)
    if not is_number or not declared.allows(value):  # type: ignore[arg-type]
        raise UsageError(f"`{name}` must be {declared.limits}, not {value!r}")

"""A design: a document that says how captchas look, checked field by field (docs/designs.md)."""

import difflib
import json
import os
import random
import re
import tomllib
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import cached_property
from importlib.resources import files
from typing import Any

from captcha_ocr.charset import NAMED_ALPHABETS, Charset, resolve_alphabet, split_characters
from captcha_ocr.errors import UsageError, check, is_int
from captcha_ocr.generation.operators import (
    glyph_marks,
    glyphs,
    layout,
    marks,
    pixels,
    under,
    warps,
)
from captcha_ocr.generation.operators.registry import OPERATORS, Operator
from captcha_ocr.generation.operators.values import (
    Color,
    Draw,
    Flag,
    Kind,
    Number,
    Once,
    Word,
    fixed,
    in_words,
    show,
)
from captcha_ocr.options.drawing import MAX_SIDE, MIN_SIDE, OFTEN
from captcha_ocr.options.model import Lengths
from captcha_ocr.system.files import open_regular

OPERATOR_MODULES = (
    glyphs,
    layout,
    marks,
    glyph_marks,
    under,
    warps,
    pixels,
)  # importing them fills OPERATORS
DESIGNS = files("captcha_ocr.generation.designs")
_MAX_OPERATORS = 64
_MAX_NUMBER = 10**13  # of a random design
MAX_FILE_BYTES = 2**30
ARITHMETIC = "0123456789+-*/=?"
LONGEST_SUM = Lengths(4, 7)  # 1+2= to 12+34=?


@dataclass(frozen=True)
class CanvasSide(Number):
    """A width or height in pixels, or the word `text`: as wide or high as the text."""

    def parse_one(self, value: Any, field: str) -> Draw:
        """Return a function that draws a side in pixels; 0 means that of the text."""
        if isinstance(value, str) and value != "text":
            raise UsageError(
                f"{field} must be a whole number of {self.limits}, a range or "
                f'"text", not {show(value)}'
            )
        return (lambda rng: 0) if value == "text" else super().parse_one(value, field)


_GLYPH_STAGES = ("shape", "corners", "stroke")  # of operators that work on single glyphs
_SIDE = (MIN_SIDE, MAX_SIDE)
CANVAS: dict[str, Kind] = {
    "width": CanvasSide(*_SIDE, 160, "pixels", whole=True),
    "height": CanvasSide(*_SIDE, 60, "pixels", whole=True),
    "padding": Number(0, 500, 8, "pixels", whole=True),
    "color": Color("#ffffff", words=()),
}
TEXT: dict[str, Kind] = {
    "size": Number(4, 512, 42, "pixels"),
    "color": Color("#202020", words=("canvas",)),
    "color_per_glyph": Flag(False),
    "opacity": Number(0, 1, 1),
    "opacity_by_luminance": Number(0, 10, 0),
    "spacing": Number(-0.9, 5, (0, 0.2)),
    "spread": Flag(False),
    "blanks": Number(0, 1, 0),
    "indent": Number(0, 5, 0),
    "x": Number(0, 1, 0.5),
    "y": Number(0, 1, 0.5),
    "align": Word(("baseline", "middle"), "baseline"),
    "overflow": Word(("squeeze", "clip"), "squeeze"),
    "overlap": Word(("over", "knock out"), "over"),
}
FONTS: dict[str, Kind] = {"per_glyph": Flag(False)}
_TEXT_WORDS = ("length", "charset", "often", "arithmetic")  # of [text]: what is written
SECTIONS = {
    "canvas": [*CANVAS],
    "text": [*_TEXT_WORDS, *TEXT],
    "fonts": ["faces", "sha256", *FONTS],
}


@dataclass(frozen=True)
class Step:
    """An operator of a design with the values that it draws for each image, or for each glyph.

    probability: of an image to have the operator. glyph_probability: of each of its glyphs, if it
    works on glyphs.
    """

    operator: Operator
    draws: dict[str, Draw]
    probability: float
    glyph_probability: float = 1

    def values(self, rng: random.Random) -> dict[str, Any]:
        """Draw a value for each field of the operator."""
        return {name: draw(rng) for name, draw in self.draws.items()}

    def skips(self, rng: random.Random) -> bool:
        """Tell, at random, whether the next glyph goes without the operator."""
        return self.glyph_probability < 1 and rng.random() >= self.glyph_probability


@dataclass(frozen=True)
class Texts:
    """The texts of a design.

    often: the characters that come `OFTEN` times as often as others. arithmetic: whether the texts
    are exercises such as `9-4=`, whatever the charset and the lengths.
    """

    charset: str
    often: str
    lengths: Lengths
    arithmetic: bool

    @cached_property
    def symbols(self) -> list[str]:
        """What texts are drawn from, with combining marks; frequent ones several times."""
        often = split_characters(self.often)
        symbols = []
        for character in split_characters(self.charset):
            symbols += [character] * (OFTEN if character in often else 1)
        return symbols

    def write(self, rng: random.Random) -> str:
        """Draw a text."""
        if self.arithmetic:
            return _write_sum(rng)
        lengths, symbols = self.lengths, self.symbols
        length = rng.randint(lengths.shortest, lengths.longest) if lengths.vary else lengths.longest
        return "".join(rng.choice(symbols) for _ in range(length))


@dataclass(frozen=True)
class Design:
    """A design whose fields were checked.

    name: how messages call it. document: what it was made from, as JSON types. canvas, text, fonts:
    what draws the value of each field. faces: the names of the fonts to choose from; none means all
    that are at hand. steps: the operators, in their order.
    """

    name: str
    document: dict[str, Any]
    canvas: dict[str, Draw]
    text: dict[str, Draw]
    fonts: dict[str, Draw]
    faces: tuple[str, ...]
    texts: Texts
    redraw_illegible: bool
    steps: list[Step]

    @cached_property
    def has_once(self) -> bool:
        """Whether a value is drawn once for all glyphs of an image."""
        draws = [*self.text.values()]
        for step in self.steps:
            draws += step.draws.values()
        return any(isinstance(draw, Once) for draw in draws)

    def for_image(self, rng: random.Random) -> "Design":
        """Return the design with the values that are drawn once for an image."""
        if not self.has_once:
            return self
        text, *draws = (
            _fix_values(values, rng) for values in (self.text, *(step.draws for step in self.steps))
        )
        steps = [
            replace(step, draws=values) for step, values in zip(self.steps, draws, strict=True)
        ]
        return replace(self, text=text, steps=steps)

    def with_fields(self, values: Mapping[str, Any]) -> "Design":
        """Return the design with the values of some fields changed.

        values: by the places of the fields: `text.spacing`, or `operators.lines.count` of the first
        operator of this kind. UsageError for another place, and for a value that it cannot have.
        """
        document = deepcopy(self.document)
        for section in SECTIONS:
            document.setdefault(section, {})
        for place, value in values.items():
            section, _, rest = place.partition(".")
            kind, _, field = rest.rpartition(".")
            parts = []
            if section == "operators":
                parts = [part for part in document.get("operators", []) if part["kind"] == kind]
            elif section in SECTIONS and field and not kind:
                parts = [document[section]]
            check(
                bool(parts),
                f"{place!r} is no field of {self.name}, such as text.spacing or"
                " operators.lines.count",
            )
            parts[0][field] = value
        return parse_design(document, self.name)


def _fix_values(draws: Mapping[str, Draw], rng: random.Random) -> dict[str, Draw]:
    return {name: fixed(draw, rng) for name, draw in draws.items()}


def _write_sum(rng: random.Random) -> str:
    """Draw an exercise in arithmetic as it stands in the image, such as `9-4=` or `12+3=?`."""
    first, second = (rng.randint(0, 9 if rng.random() < 0.7 else 99) for _ in range(2))
    return f"{first}{rng.choice('+-*/')}{second}={rng.choice(['', '?'])}"


def parse_design(document: Mapping[str, Any], name: str) -> Design:
    """Check a document; UsageError that begins with `name` and names the field."""
    _check_names(document, [*SECTIONS, "operators", "redraw_illegible", "number"], name, "section")
    for section, names in SECTIONS.items():
        check(
            isinstance(document.get(section, {}), Mapping),
            f"{name}: {section} must be a table: [{section}]",
        )
        _check_names(document.get(section, {}), names, f"{name}: [{section}]", "field")
    canvas, text, fonts = (dict(document.get(section, {})) for section in SECTIONS)
    arithmetic = text.get("arithmetic", False)
    check(
        isinstance(arithmetic, bool),
        f"{name}: text.arithmetic must be true or false, not {show(arithmetic)}",
    )
    for field in {"length", "charset", "often"} & text.keys():
        check(not arithmetic, f"{name}: text.{field} cannot be used with text.arithmetic = true")
    redraw = document.get("redraw_illegible", True)
    check(
        isinstance(redraw, bool),
        f"{name}: redraw_illegible must be true or false, not {show(redraw)}",
    )
    number = document.get("number", 0)
    check(
        is_int(number, 0, _MAX_NUMBER),
        f"{name}: number must be 0 to {_MAX_NUMBER:,}, not {show(number)}",
    )
    charset = ARITHMETIC if arithmetic else _parse_charset(text.get("charset", "upper-alnum"), name)
    often = _parse_often(text.get("often", ""), charset, name)
    lengths = LONGEST_SUM if arithmetic else _parse_lengths(text.get("length", 4), name)
    return Design(
        name=name,
        document=dict(document),
        canvas=_parse_fields(CANVAS, canvas, f"{name}: canvas"),
        text=_parse_fields(TEXT, text, f"{name}: text"),
        fonts=_parse_fields(FONTS, fonts, f"{name}: fonts"),
        faces=parse_faces(fonts, name)[0],
        texts=Texts(charset, often, lengths, arithmetic),
        redraw_illegible=redraw,
        steps=_parse_steps(document.get("operators", []), name),
    )


def _parse_fields(
    kinds: Mapping[str, Kind], values: Mapping[str, Any], place: str
) -> dict[str, Draw]:
    """Return what draws the value of each field; a field that is left out has its default."""
    draws = {name: kind.draw_default for name, kind in kinds.items()}
    return draws | {
        name: kinds[name].parse(values[name], f"{place}.{name}") for name in values if name in kinds
    }


def _parse_steps(operators: Any, name: str) -> list[Step]:
    check(isinstance(operators, (list, tuple)), f"{name}: operators must be a list: [[operators]]")
    check(
        len(operators) <= _MAX_OPERATORS,
        f"{name}: operators has {len(operators)}; the maximum is {_MAX_OPERATORS}",
    )
    steps = []
    for number, fields in enumerate(operators, 1):
        place = f"{name}: operator {number}"
        check(isinstance(fields, Mapping), f"{place} must be a table: [[operators]]")
        kind = fields.get("kind")
        check(isinstance(kind, str), f'{place} has no kind, such as kind = "lines"')
        _check_names([kind], list(OPERATORS), place, "kind")
        operator, place = OPERATORS[kind], f"{place} ({kind})"
        if "glyph_probability" in fields and operator.stage not in _GLYPH_STAGES:
            raise UsageError(f"{place}.glyph_probability is for operators on single glyphs")
        shares = [
            "probability",
            *(["glyph_probability"] if operator.stage in _GLYPH_STAGES else []),
        ]
        _check_names(fields, ["kind", *shares, *operator.fields], place, "field")
        given = [_parse_probability(fields.get(share, 1), f"{place}.{share}") for share in shares]
        steps.append(Step(operator, _parse_fields(operator.fields, fields, place), *given))
    return steps


def _parse_probability(probability: Any, place: str) -> float:
    if (
        isinstance(probability, (int, float))
        and not isinstance(probability, bool)
        and 0 <= probability <= 1
    ):
        return probability
    raise UsageError(f"{place} must be a number of 0 to 1, not {show(probability)}")


def parse_faces(fonts: Mapping[str, Any], name: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Check the names of the fonts, and return them and their sha256.

    The hash is empty where it does not matter.
    """
    faces = fonts.get("faces", [])
    fine = isinstance(faces, (list, tuple)) and all(isinstance(face, str) for face in faces)
    check(
        fine,
        f'{name}: fonts.faces must be a list of names such as "DejaVuSans.ttf", not {show(faces)}',
    )
    digests = fonts.get("sha256", [""] * len(faces))
    fine = isinstance(digests, (list, tuple)) and all(isinstance(digest, str) for digest in digests)
    check(
        fine and len(digests) == len(faces),
        f"{name}: fonts.sha256 must list a text for each of fonts.faces",
    )
    return tuple(faces), tuple(digests)


def _parse_charset(charset: Any, name: str) -> str:
    named = in_words([*NAMED_ALPHABETS])
    check(
        isinstance(charset, str) and charset != "",
        f"{name}: text.charset must be characters or one of {named}",
    )
    span = re.search("[0-9]-[0-9]|[A-Z]-[A-Z]|[a-z]-[a-z]", charset)
    if span is not None and charset not in NAMED_ALPHABETS:
        raise UsageError(
            f"{name}: text.charset: {span[0]} is not a range; list the characters, or name {named}"
        )
    try:
        characters = Charset(resolve_alphabet(charset)).characters
    except UsageError as error:
        raise UsageError(f"{name}: text.charset: {error}") from None
    check(" " not in characters, f"{name}: text.charset has a space, which cannot be drawn")
    return characters


def _parse_often(often: Any, charset: str, name: str) -> str:
    if not isinstance(often, str):
        raise UsageError(f"{name}: text.often must be characters, not {show(often)}")
    unknown = [each for each in split_characters(often) if each not in split_characters(charset)]
    check(
        not unknown,
        f"{name}: text.often has {show(''.join(unknown))}, which text.charset does not have",
    )
    return often


def _parse_lengths(length: Any, name: str) -> Lengths:
    """Check the number of characters: a number, or a string such as "4-6"."""
    fine = isinstance(length, (int, str)) and not isinstance(length, bool)
    check(
        fine,
        f"{name}: text.length must be a number such as 4 or a string such as "
        f'"4-6", not {show(length)}',
    )
    try:
        return Lengths.parse(str(length))
    except UsageError as error:
        raise UsageError(f"{name}: text.length: {error}") from None


def _check_names(given: Any, known: Sequence[str], place: str, what: str) -> None:
    for name in given:
        if name not in known:
            nearest = difflib.get_close_matches(str(name), known, 1)
            hint = f"did you mean {nearest[0]}?" if nearest else f"there are {in_words(known)}"
            raise UsageError(f"{place}: unknown {what} {show(name)}; {hint}")


def design_names() -> list[str]:
    """Return the names of the designs in the package."""
    return sorted(
        entry.name.removesuffix(".toml")
        for entry in DESIGNS.iterdir()
        if entry.name.endswith(".toml")
    )


def read_document(name: str) -> dict[str, Any]:
    """Read the document of a design of the package, or of a TOML file.

    UsageError that names what is wrong.
    """
    if name in design_names():
        return tomllib.loads((DESIGNS / f"{name}.toml").read_text(encoding="utf-8"))
    if not os.path.exists(name):
        raise UsageError(
            f"there is no design {name!r}: it is no file, and none of {in_words(design_names())}"
        )
    text = read_text(name)
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{name} is not a TOML file: {error}") from None


def read_saved(path: str) -> list[dict[str, Any]]:
    """Read the documents of a file with one in each line, as JSON.

    UsageError that names the file and the line.
    """
    documents = []
    for number, line in enumerate(read_text(path).splitlines(), 1):
        try:
            document = json.loads(line)
        except (ValueError, RecursionError):
            document = None
        check(
            isinstance(document, dict),
            f"{path}, line {number} is not a design as JSON, such as `save_designs` writes",
        )
        documents.append(document)
    check(bool(documents), f"{path} holds no design")
    parse_design(
        documents[0], f"{path}, line 1"
    )  # the others when they are needed, since they may be many
    return documents


def read_text(path: str) -> str:
    """Read a text file; UsageError if it cannot be read."""
    try:
        with open_regular(path) as stream:
            check(
                os.fstat(stream.fileno()).st_size <= MAX_FILE_BYTES,
                f"{path} has more than {MAX_FILE_BYTES:,} bytes",
            )
            return stream.read().decode()
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise UsageError(
            f"{path} is not UTF-8: byte {error.start} is {error.object[error.start]:#x}"
        ) from None

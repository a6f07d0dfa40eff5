"""A design: a document that says how captchas look, checked field by field (docs/designs.md)."""

import difflib
import json
import os
import random
import re
import tomllib
from collections.abc import Collection, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import cache, cached_property, lru_cache
from importlib.resources import files
from itertools import chain
from typing import Any

from captcha_ocr.charset import NAMED_ALPHABETS, Charset, resolve_alphabet, split_characters
from captcha_ocr.errors import Advice, Command, UsageError, check, is_int
from captcha_ocr.generation.operators import glyphs, marks, whole_image
from captcha_ocr.generation.operators.registry import (
    OPERATORS,
    Always,
    Color,
    Draw,
    Flag,
    Kind,
    Number,
    Once,
    Operator,
    Word,
    in_words,
    settle,
    show,
)
from captcha_ocr.options.drawing import MAX_SIDE, MIN_SIDE, OFTEN
from captcha_ocr.options.model import Lengths
from captcha_ocr.system.files import MAX_TOML_BYTES, read_text

OPERATOR_MODULES = (glyphs, marks, whole_image)  # importing them fills OPERATORS
_DESIGNS = files("captcha_ocr.generation.designs")
_KINDS = files("captcha_ocr.generation.fonts") / "kinds.toml"
_MAX_OPERATORS = 64
_MAX_NUMBER = 10**13  # of a random design
ARITHMETIC = "0123456789+-*/=?"
SIGNS = "+-*/=?@&%#$!:"
_TERMS = [*["[0-9]"] * 7, *["[1-9][0-9]"] * 3]  # of sums, each as likely
_SUMS = [f"{one}[+-*/]{two}={end}" for one in _TERMS for two in _TERMS for end in ("", "?")]
_PIECE = re.compile(r"\[.[^\]]*\]|.", re.DOTALL)  # of a pattern


@dataclass(frozen=True)
class CanvasSide(Number):
    """A width or height in pixels, or the word `text`: as wide or high as the text.

    What draws it returns 0 for that word.
    """

    def parse_one(self, value: Any, field: str) -> Draw:
        if isinstance(value, str) and value != "text":
            raise UsageError(
                f"{field} must be a whole number of {self.limits}, a range or "
                f'"text", not {show(value)}'
            )
        return (lambda rng: 0) if value == "text" else super().parse_one(value, field)


_PROBABILITY = Number(0, 1, 1)
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
    "indent": Number(-1, 5, 0),
    "advance": Flag(False),
    "x": Number(0, 1, 0.5),
    "y": Number(0, 1, 0.5),
    "align": Word(("baseline", "middle"), "baseline"),
    "overflow": Word(("squeeze", "clip"), "squeeze"),
    "overlap": Word(("over", "knock out"), "over"),
}
FONTS: dict[str, Kind] = {"per_glyph": Flag(False)}
_OF_CHARACTERS = ("length", "charset", "often")
OF_TEXTS = (*_OF_CHARACTERS, "arithmetic", "pattern")
SECTIONS = {
    "canvas": [*CANVAS],
    "text": [*OF_TEXTS, *TEXT],
    "fonts": ["faces", "kinds", "sha256", *FONTS],
}
_REPLACED = {  # fields of a base that give way to one of a document
    **dict.fromkeys(_OF_CHARACTERS, ("pattern", "arithmetic")),
    "pattern": (*_OF_CHARACTERS, "arithmetic"),
    "arithmetic": (*_OF_CHARACTERS, "pattern"),
    "faces": ("kinds", "sha256"),
    "kinds": ("faces", "sha256"),
}
_OUTSIDE = ("operators", "redraw_illegible", "number")


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
        fixed, varying = self._parts
        return {**fixed, **{name: draw(rng) for name, draw in varying}}

    @cached_property
    def _parts(self) -> tuple[dict[str, Any], list[tuple[str, Draw]]]:
        """The values that are always the same, and what draws the others."""
        fixed = {
            name: draw.args[0] for name, draw in self.draws.items() if isinstance(draw, Always)
        }
        return fixed, [item for item in self.draws.items() if item[0] not in fixed]


@dataclass(frozen=True)
class Texts:
    """The texts of a design.

    patterns: each is as likely, and has the symbols to choose from at each place; a symbol is a
    character with its combining marks, frequent ones come several times.
    """

    charset: str
    lengths: Lengths
    patterns: tuple[tuple[tuple[str, ...], ...], ...]

    def write(self, rng: random.Random) -> str:
        """Draw a text, as it stands in the image, such as `A7KX` or `12+3=?`."""
        pattern = self.patterns[0] if len(self.patterns) == 1 else rng.choice(self.patterns)
        return "".join(map(rng.choice, pattern))


@dataclass(frozen=True)
class Design:
    """A design whose fields were checked.

    name: how messages call it. document: what it was made from, as JSON types. canvas, text, fonts:
    what draws the value of each field. faces: the names of the fonts to choose from; none means all
    that are at hand, or those of the kinds. kinds: of fonts, as fonts/kinds.toml names them. steps:
    the operators, in their order.
    """

    name: str
    document: dict[str, Any]
    canvas: dict[str, Draw]
    text: dict[str, Draw]
    fonts: dict[str, Draw]
    faces: tuple[str, ...]
    kinds: tuple[str, ...]
    texts: Texts
    redraw_illegible: bool
    steps: list[Step]

    @cached_property
    def has_once(self) -> bool:
        """Whether a value is drawn once for all glyphs of an image."""
        tables = [self.text, *(step.draws for step in self.steps)]
        return any(isinstance(draw, Once) for draws in tables for draw in draws.values())

    def for_image(self, rng: random.Random) -> "Design":
        """Return the design with the values that are drawn once for an image."""
        if not self.has_once:
            return self
        text = settle(self.text, rng)
        steps = [replace(step, draws=settle(step.draws, rng)) for step in self.steps]
        return replace(self, text=text, steps=steps)

    def with_fields(self, values: Mapping[str, Any]) -> "Design":
        """Return the design with the values of some fields changed.

        values: by the places of the fields: `text.spacing`, or `operators.lines.count` of the first
        operator of this kind. UsageError for another place, and for a value that it cannot have.
        """
        document = deepcopy(self.document)
        tables = _tables_of(document)
        for place, value in values.items():
            table, _, field = place.rpartition(".")
            check(
                table in tables,
                f"{place!r} is no field of {self.name}, such as text.spacing or"
                " operators.lines.count",
            )
            tables[table][field] = value
        return parse_design(document, self.name)


def _tables_of(document: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the tables of a document by their places; of each kind the first operator."""
    tables = {section: document.setdefault(section, {}) for section in SECTIONS}
    # From the last on, so that the first of a kind stays.
    for fields in reversed(document.get("operators", [])):
        tables[f"operators.{fields['kind']}"] = fields
    return tables


def parse_design(document: Mapping[str, Any], name: str) -> Design:
    """Check a document; UsageError that begins with `name` and names the field."""
    _check_names(document, [*SECTIONS, *_OUTSIDE], name, "section")
    sections = {section: document.get(section, {}) for section in SECTIONS}
    for section, fields in sections.items():
        check(isinstance(fields, Mapping), f"{name}: {section} must be a table: [{section}]")
        check("base" not in fields, f"{name}: base must stand above [{section}]")
        _check_names(fields, SECTIONS[section], f"{name}: [{section}]", "field")
    canvas, text, fonts = sections.values()
    redraw = document.get("redraw_illegible", True)
    if not isinstance(redraw, bool):
        raise UsageError(f"{name}: redraw_illegible must be true or false, not {show(redraw)}")
    number = document.get("number", 0)
    if not is_int(number, 0, _MAX_NUMBER):
        raise UsageError(f"{name}: number must be 0 to {_MAX_NUMBER:,}, not {show(number)}")
    return Design(
        name=name,
        document=dict(document),
        canvas=_parse_fields(CANVAS, canvas, f"{name}: canvas"),
        text=_parse_fields(TEXT, text, f"{name}: text"),
        fonts=_parse_fields(FONTS, fonts, f"{name}: fonts"),
        faces=parse_faces(fonts, name)[0],
        kinds=_parse_kinds(fonts, name),
        texts=_parse_texts(text, name),
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
        # A dict is tested first, since that is quicker.
        check(isinstance(fields, (dict, Mapping)), f"{place} must be a table: [[operators]]")
        kind = fields.get("kind")
        check(isinstance(kind, str), f'{place} has no kind, such as kind = "lines"')
        _check_names([kind], OPERATORS, place, "kind")
        operator, place = OPERATORS[kind], f"{place} ({kind})"
        shares = {"probability": fields.get("probability", 1)}
        if operator.stage in _GLYPH_STAGES:
            shares["glyph_probability"] = fields.get("glyph_probability", 1)
        elif "glyph_probability" in fields:
            raise UsageError(f"{place}.glyph_probability is for operators on single glyphs")
        _check_names(fields, {"kind": None, **shares, **operator.fields}, place, "field")
        for share, probability in shares.items():
            if not _PROBABILITY.holds(probability):
                raise UsageError(
                    f"{place}.{share} must be a number of 0 to 1, not {show(probability)}"
                )
        steps.append(Step(operator, _parse_fields(operator.fields, fields, place), **shares))
    return steps


def _parse_kinds(fonts: Mapping[str, Any], name: str) -> tuple[str, ...]:
    kinds, known = fonts.get("kinds", []), kinds_of_fonts()
    is_list = isinstance(kinds, (list, tuple))
    check(is_list, f'{name}: fonts.kinds must be a list such as ["sans"], not {show(kinds)}')
    check(not (kinds and "faces" in fonts), f"{name}: fonts.faces cannot be used with fonts.kinds")
    _check_names(kinds, known, f"{name}: fonts.kinds", "kind")
    return tuple(kinds)


@cache
def kinds_of_fonts() -> dict[str, list[str]]:
    """Return the names of font files by their kind, such as `sans-bold`."""
    return tomllib.loads(_KINDS.read_text(encoding="utf-8"))


def parse_faces(fonts: Mapping[str, Any], name: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Check the names of the fonts, and return them and their sha256.

    The hash is empty where it does not matter.
    """
    faces = fonts.get("faces", [])
    if not (isinstance(faces, (list, tuple)) and all(isinstance(face, str) for face in faces)):
        raise UsageError(
            f'{name}: fonts.faces must be a list of names such as "DejaVuSans.ttf", not'
            f" {show(faces)}"
        )
    digests = fonts.get("sha256", [""] * len(faces))
    check(
        isinstance(digests, (list, tuple))
        and all(isinstance(digest, str) for digest in digests)
        and len(digests) == len(faces),
        f"{name}: fonts.sha256 must list a text for each of fonts.faces",
    )
    return tuple(faces), tuple(digests)


def _parse_texts(text: Mapping[str, Any], name: str) -> Texts:
    arithmetic, patterns = text.get("arithmetic", False), text.get("pattern")
    if not isinstance(arithmetic, bool):
        raise UsageError(f"{name}: text.arithmetic must be true or false, not {show(arithmetic)}")
    if arithmetic or patterns is not None:
        used = "text.arithmetic = true" if arithmetic else "text.pattern"
        for field in (*_OF_CHARACTERS, "pattern") if arithmetic else _OF_CHARACTERS:
            check(field not in text, f"{name}: text.{field} cannot be used with {used}")
        return _parse_patterns(_SUMS if arithmetic else patterns, f"{name}: text.pattern")
    charset = _parse_charset(text.get("charset", "upper-alnum"), f"{name}: text.charset")
    often, length = text.get("often", ""), text.get("length", 4)
    if not isinstance(often, str):
        raise UsageError(f"{name}: text.often must be characters, not {show(often)}")
    times, frequent = dict.fromkeys(split_characters(charset), 1), split_characters(often)
    unknown = "".join(symbol for symbol in frequent if symbol not in times)
    if unknown:
        raise UsageError(
            f"{name}: text.often has {show(unknown)}, which text.charset does not have"
        )
    times |= dict.fromkeys(frequent, OFTEN)
    if not (isinstance(length, str) or is_int(length, 0, 10**6)):
        raise UsageError(
            f"{name}: text.length must be a number such as 4 or a string such as "
            f'"4-6", not {show(length)}'
        )
    try:
        lengths = Lengths.parse(str(length))
    except UsageError as error:
        raise UsageError(f"{name}: text.length: {error}") from None
    symbols = tuple(symbol for symbol in times for _ in range(times[symbol]))
    numbers = range(lengths.shortest, lengths.longest + 1)
    return Texts(charset, lengths, tuple((symbols,) * number for number in numbers))


def _parse_patterns(patterns: Any, place: str) -> Texts:
    """Read patterns: characters that stand for themselves, and alphabets in brackets."""
    patterns = [patterns] if isinstance(patterns, str) else patterns
    if not (isinstance(patterns, (list, tuple)) and patterns and all(map(_is_text, patterns))):
        raise UsageError(
            f'{place} must be a text such as "[1-9][-+*/][0-9]=?", or a list of such texts, not'
            f" {show(patterns)}"
        )
    return _read_patterns(tuple(patterns), place)


@lru_cache(maxsize=64)  # arithmetic alone has hundreds of patterns, each time the same ones
def _read_patterns(patterns: tuple[str, ...], place: str) -> Texts:
    known = {piece: _symbols_of(piece, place) for piece in _PIECE.findall("".join(patterns))}
    parsed = tuple(tuple(map(known.__getitem__, _PIECE.findall(text))) for text in patterns)
    try:
        lengths = Lengths(min(map(len, parsed)), max(map(len, parsed)))
    except UsageError as error:
        raise UsageError(f"{place}: {error}") from None
    charset = "".join(dict.fromkeys(symbol for symbols in known.values() for symbol in symbols))
    return Texts(_parse_charset(charset, place), lengths, parsed)


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and value != ""


def _symbols_of(piece: str, place: str) -> tuple[str, ...]:
    check(piece not in ("[", "]"), f"{place} has a {piece} without its other bracket")
    if len(piece) == 1:
        return (piece,)
    return tuple(split_characters(_parse_charset(piece[1:-1], place)))


def _parse_charset(charset: Any, place: str) -> str:
    if not _is_text(charset):
        raise UsageError(f"{place} must be characters or one of {in_words([*NAMED_ALPHABETS])}")
    try:
        characters = _resolve(charset)
    except UsageError as error:
        raise UsageError(f"{place}: {error}") from None
    check(" " not in characters, f"{place} has a space, which cannot be drawn")
    return characters


@lru_cache(maxsize=4096)
def _resolve(charset: str) -> str:
    return Charset(resolve_alphabet(charset)).characters


def _check_names(given: Any, known: Collection[str], place: str, what: str) -> None:
    for name in given:
        if name not in known:
            nearest = difflib.get_close_matches(str(name), known, 1)
            hint = f"did you mean {nearest[0]}?" if nearest else f"there are {in_words([*known])}"
            raise UsageError(f"{place}: unknown {what} {show(name)}; {hint}")


def design_names() -> list[str]:
    """Return the names of the designs in the package."""
    return sorted(
        entry.name.removesuffix(".toml")
        for entry in _DESIGNS.iterdir()
        if entry.name.endswith(".toml")
    )


def describe_design(name: str) -> str:
    """Return in a line how a design of the package looks: the first comment in its file."""
    return (_DESIGNS / f"{name}.toml").read_text("utf-8").splitlines()[0].removeprefix("# ")


def read_document(name: str) -> dict[str, Any]:
    """Read the document of a design of the package, or of a TOML file, with what its base says.

    UsageError that names what is wrong.
    """
    if name in design_names():
        return _extended(tomllib.loads((_DESIGNS / f"{name}.toml").read_text("utf-8")), name)
    if not os.path.exists(name):
        raise _no_design(f"there is no design {name!r}, and no file of this name", name)
    try:
        return _extended(tomllib.loads(read_text(name, MAX_TOML_BYTES)), name)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{name} is not a TOML file: {error}") from None


def _no_design(message: str, name: Any) -> UsageError:
    """Return an error with the name that was probably meant, or the command that lists all."""
    nearest = difflib.get_close_matches(str(name), design_names(), 1)
    if nearest:
        return UsageError(f"{message}; did you mean {nearest[0]}?")
    return UsageError(message, Advice("list them with", Command("design list")))


def _extended(document: dict[str, Any], name: str) -> dict[str, Any]:
    """Return a document with the fields that it leaves to its base, a design of the package.

    The first operator of a kind changes the first of this kind in the base, the second the second;
    those beyond follow.
    """
    base = document.pop("base", None)
    if base is None:
        return document
    if base not in design_names():
        raise _no_design(f"{name}: base must be a named design, not {show(base)}", base)
    parse_design(document, name)  # names what is wrong by its place in the file
    whole = read_document(base)
    operators = whole.setdefault("operators", [])
    unchanged = list(operators)
    for fields in document.pop("operators", []):
        changed = next((step for step in unchanged if step["kind"] == fields["kind"]), None)
        if changed is None:
            operators.append(fields)
        else:
            unchanged.remove(changed)
            changed.update(fields)
    for section in SECTIONS:
        given, fields = document.pop(section, {}), whole.setdefault(section, {})
        effective = [field for field, value in given.items() if value]  # arithmetic = false is not
        for replaced in chain.from_iterable(_REPLACED.get(field, ()) for field in effective):
            fields.pop(replaced, None)
        fields.update(given)
    return whole | document


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
    # The others are parsed when they are needed, since they may be many.
    parse_design(documents[0], f"{path}, line 1")
    return documents


def find_texts(documents: Sequence[dict[str, Any]], path: str) -> tuple[str, Lengths]:
    """Return the characters, and the numbers of them, that the texts of saved designs have.

    UsageError that names the file and the line.
    """
    tables: dict[str, tuple[str, dict[str, Any]]] = {}  # each once: to parse one takes long
    for number, document in enumerate(documents, 1):
        fields = document.get("text", {})
        if isinstance(fields, dict):
            fields = {name: value for name, value in fields.items() if name in OF_TEXTS}
        tables.setdefault(json.dumps(fields), (f"{path}, line {number}", {"text": fields}))
    every = [parse_design(document, place).texts for place, document in tables.values()]
    characters = set().union(*(texts.charset for texts in every))
    return "".join(sorted(characters)), Lengths.spanning([texts.lengths for texts in every])

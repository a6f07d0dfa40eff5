"""Draw a design near a named one: its parameters spread, often with other texts and fonts."""

import math
import random
from collections.abc import Mapping, Sequence
from copy import deepcopy
from functools import cache
from typing import Any

from captcha_ocr.generation.designs.design import (
    CANVAS,
    OF_TEXTS,
    TEXT,
    design_names,
    kinds_of_fonts,
    parse_design,
    read_document,
)
from captcha_ocr.generation.fonts.catalogue import Face
from captcha_ocr.generation.operators.registry import OPERATORS, Kind, Number
from captcha_ocr.generation.random_designs.draft import (
    WARP_CHANCES,
    DesignDraft,
    Document,
    add_camera,
    add_marks,
)
from captcha_ocr.generation.random_designs.random_design import add_fonts, add_texts
from captcha_ocr.options.model import Lengths

_AS_IT_IS = 0.3  # part of the designs: most who use a generator leave its settings alone
_REACH = 0.35  # of the logarithm of a factor
_DISTURB = 0.3  # how likely disturbances of random designs come in, 1 being usual there
_MAX_ASPECT = 6  # of the canvas


def draw_neighbour(
    rng: random.Random,
    families: Sequence[Sequence[Face]],
    charset: str | None = None,
    lengths: Lengths | None = None,
) -> Document:
    """Draw the document of a design near a named one, in faces of some families.

    charset, lengths: they replace those that it would draw.
    """
    name = rng.choice(design_names())
    document, own_longest = deepcopy(_read(name))
    draft = DesignDraft(rng, _DISTURB)
    draft.canvas = document.setdefault("canvas", {})
    draft.text = document.setdefault("text", {})
    _choose_fonts(draft, families, document.get("fonts", {}))
    has_texts = charset is not None or lengths is not None
    if not has_texts and draft.chance(_AS_IT_IS):
        return document | {"fonts": draft.fonts}
    if has_texts or draft.chance(0.5):
        _replace_texts(draft, families, charset, lengths)
    _spread(draft, draft.text, TEXT)
    longest = parse_design({"text": draft.text}, name).texts.lengths.longest
    _spread_canvas(draft, longest / own_longest)
    _take_operators(draft, document.get("operators", []))
    return {
        "canvas": draft.canvas,
        "text": draft.text,
        "fonts": draft.fonts,
        "operators": draft.operators,
        "redraw_illegible": document.get("redraw_illegible", True),
    }


@cache
def _read(name: str) -> tuple[Document, int]:
    """Return the document of a named design, and the length of its longest texts."""
    document = read_document(name)
    return document, parse_design(document, name).texts.lengths.longest


def _choose_fonts(
    draft: DesignDraft, families: Sequence[Sequence[Face]], fonts: Mapping[str, Any]
) -> None:
    """Choose faces of the design's kinds where there are some, or any."""
    wanted = {*fonts.get("faces", [])}
    for kind in fonts.get("kinds", []):
        wanted.update(kinds_of_fonts()[kind])
    own = [face.name for family in families for face in family if face.name in wanted]
    if own and draft.chance(0.5):
        draft.fonts |= {"faces": own, "per_glyph": fonts.get("per_glyph", False)}
    else:
        add_fonts(draft, families)


def _replace_texts(
    draft: DesignDraft,
    families: Sequence[Sequence[Face]],
    charset: str | None,
    lengths: Lengths | None,
) -> None:
    """Give the design texts such as random designs have."""
    for field in OF_TEXTS:
        draft.text.pop(field, None)
    names = set(draft.fonts["faces"])
    faces = [face for family in families for face in family if face.name in names]
    add_texts(draft, faces, charset, lengths)


def _take_operators(draft: DesignDraft, operators: Sequence[Document]) -> None:
    """Append nearly all operators of the design, and some of random designs."""
    for fields in operators:
        if not draft.chance(0.1):
            _spread(draft, fields, OPERATORS[fields["kind"]].fields)
            draft.operators.append(fields)
    if draft.chance(0.3):
        add_marks(draft)
        draft.add_some(WARP_CHANCES)
    add_camera(draft)


def _spread_canvas(draft: DesignDraft, growth: float) -> None:
    """Change the sides of the canvas; growth: by which factor texts are longer than its own."""
    canvas = {name: kind.default for name, kind in CANVAS.items()} | draft.canvas
    draft.canvas["width"] = _scale(canvas["width"], CANVAS["width"], growth)
    height = draft.canvas["height"] = canvas["height"]
    if isinstance(height, int) and isinstance(draft.canvas["width"], int):
        draft.canvas["width"] = min(draft.canvas["width"], _MAX_ASPECT * height)


def _spread(draft: DesignDraft, fields: Document, kinds: Mapping[str, Kind]) -> None:
    """Multiply some of the numbers of a table, each by a factor of its own."""
    for name, value in fields.items():
        kind = kinds.get(name)
        if isinstance(kind, Number) and draft.chance(0.5):
            factor = math.exp(draft.number(-_REACH, _REACH))
            fields[name] = _scale(value, kind, factor)


def _scale(value: Any, kind: Kind, factor: float) -> Any:
    """Return a number, a range or a choice of numbers times a factor."""
    assert isinstance(kind, Number)
    if isinstance(value, dict):
        return {word: _scale(part, kind, factor) for word, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [_scale(part, kind, factor) for part in value]
    if isinstance(value, str):
        return value
    number = min(kind.high, max(kind.low, value * factor))
    return round(number) if kind.whole else round(number, 4)

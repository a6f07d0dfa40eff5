"""Draw a design at random, from the union of all operators.

Here its text, canvas, colours, shapes and strokes.

The ranges are for an image 64 pixels high. Each `add_...` function appends the operators of one
kind to a design.
"""

import random
from collections.abc import Sequence

from captcha_ocr.charset import NAMED_ALPHABETS
from captcha_ocr.generation.designs.design import ARITHMETIC, SIGNS
from captcha_ocr.generation.fonts.catalogue import Face
from captcha_ocr.generation.random_designs.draft import (
    HEIGHT,
    WARP_CHANCES,
    Chance,
    DesignDraft,
    Document,
    add_background,
    add_camera,
    add_marks,
    add_under,
)
from captcha_ocr.options.drawing import Level
from captcha_ocr.options.model import Lengths

_SHARES = {"easy": 0.35, "medium": 0.4, "hard": 0.25}  # of `mixed`
_FACTORS = {"easy": 0.45, "medium": 1.0, "hard": 1.5}  # of how likely a disturbance is

_MIN_WIDTH, MAX_WIDTH = 84, 360  # pixels
_SMALLEST = 0.2  # the height of a capital in shares of the canvas
_CAPITAL = 0.72  # the height of a capital in shares of the font size
_ADVANCE = 0.62  # the width of a glyph in shares of the font size, about
LENGTHS = {1: 1, 2: 2, 3: 4, 4: 34, 5: 26, 6: 22, 7: 6, 8: 8, 9: 2, 10: 2, 11: 1, 12: 1}  # weights
_ALPHABETS = {  # weights
    NAMED_ALPHABETS["digits"]: 20,
    NAMED_ALPHABETS["lower"]: 14,
    NAMED_ALPHABETS["upper"]: 12,
    NAMED_ALPHABETS["lower-alnum"]: 14,
    NAMED_ALPHABETS["upper-alnum"]: 22,
    NAMED_ALPHABETS["alnum"]: 13,
    NAMED_ALPHABETS["alnum"] + SIGNS: 3,
    ARITHMETIC: 5,
}
_SPACINGS = {
    "joined": (-0.3, -0.12),
    "touching": (-0.2, -0.02),
    "normal": (0.0, 0.15),
    "wide": (0.15, 0.6),
    "spread": (0, 0.3),
}
_UNCLEAR = "0Oo1lIi"  # characters that many generators leave out
CASE_TWINS = (
    "Cc",
    "Kk",
    "Oo",
    "Pp",
    "Ss",
    "Uu",
    "Vv",
    "Ww",
    "Xx",
    "Zz",
    "0O",
    "0o",
    "1l",
    "1I",
    "Il",
)


def draw_design(
    rng: random.Random,
    families: Sequence[Sequence[Face]],
    level: Level,
    charset: str | None = None,
    lengths: Lengths | None = None,
) -> Document:
    """Draw the document of a design in faces of some families.

    charset, lengths: they replace those that it would draw.
    """
    if level == "mixed":
        level = rng.choices(list(_SHARES), list(_SHARES.values()))[0]  # type: ignore[assignment]
    draft = DesignDraft(rng, _FACTORS[level])
    add_texts(draft, add_fonts(draft, families), charset, lengths)
    _add_canvas(draft)
    _add_colors(draft)
    draft.add_some(_SHAPES)
    draft.add_one(_BENDS)
    for add in (_add_strokes, add_background, add_under):
        add(draft)
    if draft.chance(0.5):
        draft.add_some(WARP_CHANCES)
        add_marks(draft)
    else:
        add_marks(draft)
        draft.add_some(WARP_CHANCES)
    add_camera(draft)
    return {
        "canvas": draft.canvas,
        "text": draft.text,
        "fonts": draft.fonts,
        "operators": draft.operators,
        "redraw_illegible": not draft.hollow,
    }


def add_fonts(draft: DesignDraft, families: Sequence[Sequence[Face]]) -> list[Face]:
    """Choose the fonts of a design, and return them."""
    rng = draft.rng
    draft.fonts["per_glyph"] = draft.chance(0.4)
    count = 1
    if draft.fonts["per_glyph"] or draft.chance(0.3):
        count = min(len(families), rng.randint(2, 6))
    # By family: some have a dozen weights, which look alike.
    faces = [rng.choice(family) for family in rng.sample(families, count)]
    draft.fonts["faces"] = [face.name for face in faces]
    return faces


def add_texts(
    draft: DesignDraft, faces: Sequence[Face], charset: str | None, lengths: Lengths | None
) -> None:
    """Choose characters and lengths.

    Characters that look alike in one of the fonts are not both asked for.
    """
    rng, text = draft.rng, draft.text
    weights = _ALPHABETS if charset is None and lengths is None else {**_ALPHABETS, ARITHMETIC: 0}
    characters = charset or rng.choices(list(weights), list(weights.values()))[0]
    if characters == ARITHMETIC:
        text["arithmetic"] = True
        return
    if any(face.is_unicase for face in faces):
        characters = "".join(dict.fromkeys(characters.upper()))
    if charset is None and draft.chance(0.45):
        characters = "".join(c for c in characters if c not in _UNCLEAR)
    pairs = {pair for face in faces for pair in face.look_alikes}
    if len(faces) > 1:
        pairs.update(CASE_TWINS)
    kept = list(characters)
    for pair in sorted(pairs):
        if len(kept) > 1 and set(pair) <= set(kept):
            kept.remove(rng.choice(pair))
    text["charset"] = "".join(kept)
    if lengths is None:
        shortest = rng.choices(list(LENGTHS), list(LENGTHS.values()))[0]
        longest = shortest + (rng.randint(1, 2) if draft.chance(0.2) else 0)
        lengths = Lengths(shortest, min(max(LENGTHS), longest))
    text["length"] = str(lengths)


def _add_canvas(draft: DesignDraft) -> None:
    rng, text, canvas = draft.rng, draft.text, draft.canvas
    capital = draft.number(1.0, 1.15) if draft.disturbs(0.05) else draft.number(_SMALLEST, 0.9)
    size = capital * HEIGHT / _CAPITAL
    length = int(str(text.get("length", 6)).rpartition("-")[2])
    closeness = min(1, draft.disturb)
    kind = rng.choices([*_SPACINGS], (0.08 * closeness, 0.27 * closeness, 0.25, 0.2, 0.25))[0]
    text |= {"spacing": draft.part(*_SPACINGS[kind]), "spread": kind == "spread"}
    text["advance"] = draft.chance(0.2)
    needed = length * size * _ADVANCE * (1.1 + max(0.0, sum(text["spacing"]) / 2))
    # Most canvases are two to four times as wide as high: a long text is written smaller.
    widest = min(MAX_WIDTH, HEIGHT * draft.rng.triangular(1.5, 6, 2.5))
    if needed > widest:
        shrunk = max(size * widest / needed, min(size, _SMALLEST * HEIGHT / _CAPITAL))
        size, needed = shrunk, needed * shrunk / size
    text["size"] = [round(size, 1)] * 2
    if draft.disturbs(0.1):
        text["overflow"] = "clip"
        text["indent"] = draft.number(-0.3, 0)
    if draft.chance(0.06):
        text["blanks"] = draft.number(0.1, 0.5)
    if kind != "spread" and draft.chance(0.4):
        canvas |= {"width": "text", "padding": rng.randint(1, 24)}
    else:
        room = draft.number(*draft.pick(0.85, (1.0, 1.4), (1.4, 3.0)))
        canvas["width"] = round(min(MAX_WIDTH, max(_MIN_WIDTH, needed * room)))
    for axis in ("x", "y"):
        if draft.chance(0.4):
            text[axis] = [0, 1] if draft.chance(0.5) else draft.number(0, 1)
    if draft.chance(0.1):
        text["align"] = "middle"


def _add_colors(draft: DesignDraft) -> None:
    """Choose the colours of canvas and text.

    Dark on light, light on dark, between, of different hues alone, or any.
    """
    rng, text = draft.rng, draft.text
    polarity = rng.choices(
        ("dark", "light", "middle", "hue", "any"), (0.61, 0.16, 0.06, 0.03, 0.14)
    )[0]
    if polarity == "any":
        _add_any_colors(draft)
        return
    gap = rng.randint(35, 60) if draft.disturbs(0.10) else rng.randint(70, 220)
    if polarity == "hue":
        hue, light = rng.randrange(360), rng.randint(90, 170)
        draft.canvas["color"] = {"hue": hue, "saturation": 0.8, "luminance": light}
        other_hue = (hue + rng.randint(120, 240)) % 360
        text["color"] = {"hue": other_hue, "saturation": 0.9, "luminance": light}
        draft.reach = 15
    else:
        ground = {
            "dark": rng.randint(190, 255),
            "light": rng.randint(0, 60),
            "middle": rng.randint(90, 165),
        }[polarity]
        sign = -1 if polarity == "dark" or (polarity == "middle" and draft.chance(0.5)) else 1
        draft.canvas["color"] = _color_near(draft, ground, 0.35)
        text["color"] = _color_near(draft, min(255, max(0, ground + sign * gap)), 0.9)
        draft.reach, draft.toward = gap // 4, sign
    draft.may_invert = polarity in ("dark", "light") and gap > 100
    draft.hollow = polarity != "hue" and gap > 70 and draft.chance(0.06)
    if draft.hollow:
        text["color"] = "canvas"
        text.pop("overflow", None)  # since nothing tells whether too much is clipped
        return
    text["color_per_glyph"] = draft.chance(0.3)
    if draft.disturbs(0.3):
        text["opacity"] = [draft.number(0.6, 1) if gap > 100 else 0.9, 1]


def _add_any_colors(draft: DesignDraft) -> None:
    """Choose a strong colour for the canvas, and lighter or darker ones for the glyphs.

    Each glyph often has its own.
    """
    ground, gap = draft.rng.randint(0, 255), draft.rng.randint(40, 90)
    darker, lighter = [0, max(0, ground - gap)], [min(255, ground + gap), 255]
    sides = [
        side for side in (darker, lighter) if side[1] - side[0] >= 20
    ]  # one at least: both have 75 together
    draft.canvas["color"] = {
        "hue": draft.rng.randrange(360),
        "saturation": draft.number(0, 1),
        "luminance": ground,
    }
    draft.text["color"] = {"saturation": [0, 1], "luminance": {"one_of": sides}}
    draft.text["color_per_glyph"] = draft.chance(0.7)
    draft.reach = gap // 4
    draft.may_invert = False


def _color_near(draft: DesignDraft, luminance: int, saturation: float) -> Document:
    """Draw a colour of about a luminance: one hue or any, grey in a third of the cases."""
    hue = [0, 360] if draft.chance(0.5) else draft.rng.randrange(360)
    strength = 0 if draft.chance(0.35) else draft.number(0.1, 1) * saturation
    low, high = luminance - draft.rng.randint(0, 15), luminance + draft.rng.randint(0, 15)
    light = [max(0, low), min(255, high)]
    return {"hue": hue, "saturation": round(strength, 3), "luminance": light}


def _around(middle: float, reach: float) -> list[float]:
    return [middle - reach, middle + reach]


def _draw_slant(draft: DesignDraft) -> Document:
    both = _around(0, draft.number(0.05, 0.35))
    return {"factor": both if draft.chance(0.6) else draft.rng.choice(both)}


_SHAPES = (
    Chance(
        "rotation",
        0.7,
        lambda draft: {
            "angle": _around(
                0, draft.rng.choices((8, 15, 30, 45), (3, 3, 2 * draft.disturb, draft.disturb))[0]
            )
        },
        disturbs=False,
    ),
    Chance(
        "scale",
        0.5,
        lambda draft: {"factor": _around(1, draft.rng.choice((0.05, 0.05, 0.18, 0.35)))},
        disturbs=False,
    ),
    Chance(
        "stretch",
        0.3,
        lambda draft: {"factor": draft.pick(0.5, draft.part, draft.number)(0.7, 1.4)},
        disturbs=False,
    ),
    Chance("shear", 0.25, _draw_slant, disturbs=False),
    Chance(
        "corners", 0.2, lambda draft: {side: [0, draft.number(0.05, 0.35)] for side in ("x", "y")}
    ),
    Chance("jitter", 0.45, lambda draft: {"reach": draft.number(0.02, 0.22)}, disturbs=False),
)
_BENDS = (
    Chance("arch", 0.06, lambda draft: {"height": draft.part(-0.35, 0.35)}),
    Chance("slope", 0.06, lambda draft: {"rise": draft.part(-0.35, 0.35)}),
    Chance(
        "wave",
        0.1,
        lambda draft: {"height": draft.number(0.1, 0.5), "period": draft.number(2, 8)},
    ),
)


def _draw_share(draft: DesignDraft) -> Document:
    return {"glyph_probability": draft.number(0.3, 0.7)} if draft.chance(0.2) else {}


def _draw_squares(draft: DesignDraft) -> Document:
    share = draft.number(0.05, 0.075)  # of the font size; capitals have about 0.7 of it
    return {"pitch": max(3, round(share * draft.text["size"][0], 1)), "width": 0.7}


_STROKES = (
    Chance("thicken", 0.12, lambda draft: {**_draw_share(draft), "width": draft.part(1, 3)}),
    Chance("thin", 0.03, lambda draft: {**_draw_share(draft), "width": draft.number(0.5, 1)}),
    Chance("outline", 0.10, lambda draft: {**_draw_share(draft), "width": draft.number(1, 2.5)}),
    Chance(
        "pits",
        0.05,
        lambda draft: {
            **_draw_share(draft),
            "share": draft.number(0.05, 0.3),
            "size": draft.rng.randint(1, 2),
        },
    ),
    Chance(
        "stripes",
        0.04,
        lambda draft: {
            **_draw_share(draft),
            "pitch": draft.rng.randint(3, 5),
            "angle": draft.rng.choice((0, 0, 45, 90)),
        },
    ),
    Chance("dotted", 0.04, lambda draft: {**_draw_share(draft), "pitch": draft.rng.randint(3, 6)}),
    Chance("squares", 0.03, _draw_squares),
)


def _add_strokes(draft: DesignDraft) -> None:
    if draft.hollow:
        return
    # One of them at most, since two leave little of a glyph.
    draft.add_one(_STROKES)
    if draft.disturbs(0.03) and draft.text["spacing"][0] < 0:
        draft.text["overlap"] = "knock out"
    if draft.chance(0.1):
        draft.add("threshold")

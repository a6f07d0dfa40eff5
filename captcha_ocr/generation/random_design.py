"""Draw a design at random, from the union of all operators.

The ranges are for an image 64 pixels high. Each `add_...` function appends the operators of one kind to a design.
"""

import random
from collections.abc import Callable, Sequence
from typing import Any, Literal, get_args

from captcha_ocr.charset import NAMED
from captcha_ocr.config import Lengths
from captcha_ocr.generation.design import ARITHMETIC
from captcha_ocr.generation.fonts import Face
from captcha_ocr.generation.look_alikes import without_twins

Level = Literal["mixed", "easy", "medium", "hard"]
LEVELS: tuple[Level, ...] = get_args(Level)
SHARES = {"easy": 0.4, "medium": 0.4, "hard": 0.2}  # of `mixed`
FACTORS = {"easy": 0.45, "medium": 1.0, "hard": 1.5}  # of how likely a disturbance is

HEIGHT, MIN_WIDTH, MAX_WIDTH = 64, 84, 360  # pixels
SMALLEST = 0.2  # the height of a capital in shares of the canvas
CAPITAL = 0.72  # the height of a capital in shares of the font size
ADVANCE = 0.62  # the width of a glyph in shares of the font size, about
LENGTHS = {1: 1, 2: 2, 3: 4, 4: 34, 5: 26, 6: 22, 7: 6, 8: 8, 9: 1, 10: 1}  # weights
ALPHABETS = {  # weights
    NAMED["digits"]: 20,
    NAMED["lower"]: 14,
    NAMED["upper"]: 12,
    NAMED["lower-alnum"]: 14,
    NAMED["upper-alnum"]: 22,
    NAMED["alnum"]: 13,
    ARITHMETIC: 5,
}
UNCLEAR = "0Oo1lIi"  # characters that many generators leave out
CASE_TWINS = ("Cc", "Kk", "Oo", "Pp", "Ss", "Uu", "Vv", "Ww", "Xx", "Zz", "0O", "0o", "1l", "1I", "Il")

Document = dict[str, Any]


class DesignDraft:
    """A document while it is drawn; disturb: how likely disturbances are, 1 being usual."""

    def __init__(self, rng: random.Random, disturb: float) -> None:
        self.rng, self.disturb = rng, disturb
        self.canvas: Document = {"height": HEIGHT}
        self.text: Document = {}
        self.fonts: Document = {}
        self.operators: list[Document] = []
        self.reach, self.toward = 0, 0
        self.may_invert = True  # of little contrast, or on a background of many colours, nobody reads inverted letters

    def chance(self, probability: float) -> bool:
        """Tell, at random, whether something comes in that does not make the text harder to read."""
        return self.rng.random() < probability

    def disturbs(self, probability: float) -> bool:
        """Tell, at random, whether a disturbance comes in."""
        return self.rng.random() < probability * self.disturb

    def number(self, low: float, high: float) -> float:
        """Draw a number with three decimals."""
        return round(self.rng.uniform(low, high), 3)

    def part(self, low: float, high: float) -> list[float]:
        """Draw a range within a range."""
        return sorted((self.number(low, high), self.number(low, high)))

    def whole_part(self, low: int, high: int) -> list[int]:
        """Draw a range of whole numbers within a range."""
        return sorted((self.rng.randint(low, high), self.rng.randint(low, high)))

    def add(self, kind: str, **fields: Any) -> None:
        """Append an operator."""
        self.operators.append({"kind": kind, **fields})


def draw_design(
    rng: random.Random,
    families: Sequence[Sequence[Face]],
    level: Level,
    charset: str | None = None,
    lengths: Lengths | None = None,
) -> Document:
    """Draw the document of a design in faces of some families; charset and lengths replace those that it would draw."""
    if level == "mixed":
        level = rng.choices(list(SHARES), list(SHARES.values()))[0]  # type: ignore[assignment]
    draft = DesignDraft(rng, FACTORS[level])
    add_text(draft, families, charset, lengths)
    add_canvas(draft)
    add_colors(draft)
    add_shapes(draft)
    add_strokes(draft)
    add_background(draft)
    add_under(draft)
    warp_first = draft.chance(0.5)
    if warp_first:
        add_warps(draft)
    add_marks(draft)
    if not warp_first:
        add_warps(draft)
    add_camera(draft)
    sections = {"canvas": draft.canvas, "text": draft.text, "fonts": draft.fonts}
    return {**sections, "operators": draft.operators}


def add_text(
    draft: DesignDraft, families: Sequence[Sequence[Face]], charset: str | None, lengths: Lengths | None
) -> None:
    """Choose characters, lengths and fonts; characters that look alike in a font are not both asked for."""
    rng, text = draft.rng, draft.text
    weights = ALPHABETS if charset is None and lengths is None else {**ALPHABETS, ARITHMETIC: 0}
    characters = charset or rng.choices(list(weights), list(weights.values()))[0]
    draft.fonts["per_glyph"] = draft.chance(0.4)
    several = draft.fonts["per_glyph"] or draft.chance(0.3)
    # By family: some have a dozen weights, which look alike.
    some = rng.sample(families, min(len(families), rng.randint(2, 6) if several else 1))
    chosen = [rng.choice(family) for family in some]
    draft.fonts["faces"] = [face.name for face in chosen]
    if characters == ARITHMETIC:
        text["arithmetic"] = True
        return
    if any(face.is_unicase for face in chosen):
        characters = "".join(dict.fromkeys(characters.upper()))
    if charset is None and draft.chance(0.45):
        characters = "".join(c for c in characters if c not in UNCLEAR)
    pairs = {pair for face in chosen for pair in face.look_alikes} | set(CASE_TWINS if len(chosen) > 1 else ())
    text["charset"] = without_twins(characters, sorted(pairs), rng)
    if lengths is None:
        shortest = rng.choices(list(LENGTHS), list(LENGTHS.values()))[0]
        lengths = Lengths(shortest, min(max(LENGTHS), shortest + (rng.randint(1, 2) if draft.chance(0.2) else 0)))
    text["length"] = str(lengths)


def add_canvas(draft: DesignDraft) -> None:
    """Choose the size of text and canvas, the spacing, and where the text stands."""
    rng, text, canvas = draft.rng, draft.text, draft.canvas
    capital = draft.number(1.0, 1.15) if draft.disturbs(0.05) else draft.number(SMALLEST, 0.9)
    size = capital * HEIGHT / CAPITAL
    length = int(str(text.get("length", 6)).rpartition("-")[2])
    kind = rng.choices(("touching", "normal", "wide", "spread"), (0.30 * min(1, draft.disturb), 0.25, 0.2, 0.25))[0]
    low, high = {"touching": (-0.2, -0.02), "normal": (0.0, 0.15), "wide": (0.15, 0.6), "spread": (0, 0.3)}[kind]
    text["spacing"] = draft.part(low, high)
    text["spread"] = kind == "spread"
    needed = length * size * ADVANCE * (1.1 + max(0.0, sum(text["spacing"]) / 2))
    # Most canvases are two to four times as wide as high: a long text is written smaller.
    widest = min(MAX_WIDTH, HEIGHT * draft.rng.triangular(1.5, 6, 2.5))
    if needed > widest:
        shrunk = max(size * widest / needed, min(size, SMALLEST * HEIGHT / CAPITAL))
        size, needed = shrunk, needed * shrunk / size
    text["size"] = [round(size, 1)] * 2
    if draft.disturbs(0.05):
        text["overflow"] = "clip"
    if draft.chance(0.06):
        text["blanks"] = draft.number(0.1, 0.5)
    if kind != "spread" and draft.chance(0.4):
        canvas |= {"width": "text", "padding": rng.randint(1, 24)}
    else:
        canvas["width"] = round(min(MAX_WIDTH, max(MIN_WIDTH, needed * draft.number(1.0, 1.4))))
    if draft.chance(0.4):
        text["x"] = [0, 1] if draft.chance(0.5) else draft.number(0, 1)
    if draft.chance(0.4):
        text["y"] = [0, 1] if draft.chance(0.5) else draft.number(0, 1)
    if draft.chance(0.1):
        text["align"] = "middle"


def add_colors(draft: DesignDraft) -> None:
    """Choose the colours of canvas and text: dark on light, light on dark, between, or of different hues alone."""
    rng, text = draft.rng, draft.text
    polarity = rng.choices(("dark", "light", "middle", "hue"), (0.73, 0.18, 0.07, 0.02))[0]
    gap = rng.randint(35, 60) if draft.disturbs(0.10) else rng.randint(70, 220)
    if polarity == "hue":
        hue, light = rng.randrange(360), rng.randint(90, 170)
        draft.canvas["color"] = {"hue": hue, "saturation": 0.8, "luminance": light}
        text["color"] = {"hue": (hue + rng.randint(120, 240)) % 360, "saturation": 0.9, "luminance": light}
    else:
        ground = {"dark": rng.randint(190, 255), "light": rng.randint(0, 60), "middle": rng.randint(90, 165)}[polarity]
        sign = -1 if polarity == "dark" or (polarity == "middle" and draft.chance(0.5)) else 1
        draft.canvas["color"] = color_near(draft, ground, 0.35)
        text["color"] = color_near(draft, min(255, max(0, ground + sign * gap)), 0.9)
    # A background may come closer to the colour of the text by so much.
    draft.reach = 15 if polarity == "hue" else gap // 4
    draft.toward = 0 if polarity == "hue" else sign
    draft.may_invert = polarity in ("dark", "light") and gap > 100
    text["color_per_glyph"] = draft.chance(0.3)
    if draft.disturbs(0.3):
        text["opacity"] = [draft.number(0.6, 1) if gap > 100 else 0.9, 1]


def color_near(draft: DesignDraft, luminance: int, saturation: float) -> Document:
    """Draw a colour of about a luminance: one hue or any, grey in a third of the cases."""
    hue = [0, 360] if draft.chance(0.5) else draft.rng.randrange(360)
    strength = 0 if draft.chance(0.35) else draft.number(0.1, 1) * saturation
    low, high = max(0, luminance - draft.rng.randint(0, 15)), min(255, luminance + draft.rng.randint(0, 15))
    return {"hue": hue, "saturation": round(strength, 3), "luminance": [low, high]}


def add_shapes(draft: DesignDraft) -> None:
    """Add what moves, turns and scales glyphs."""
    rng = draft.rng
    if draft.chance(0.7):
        degrees = rng.choices((8, 15, 30, 45), (3, 3, 2 * draft.disturb, draft.disturb))[0]
        draft.add("rotation", angle=[-degrees, degrees])
    if draft.chance(0.5):
        reach = 0.05 if draft.chance(0.5) else 0.18
        draft.add("scale", factor=[1 - reach, 1 + reach])
    if draft.chance(0.3):
        draft.add("stretch", factor=draft.part(0.7, 1.4) if draft.chance(0.5) else draft.number(0.7, 1.4))
    if draft.chance(0.25):
        reach = draft.number(0.05, 0.35)
        draft.add("shear", factor=[-reach, reach] if draft.chance(0.6) else rng.choice((-reach, reach)))
    if draft.disturbs(0.15):
        draft.add("corners", x=[0, draft.number(0.05, 0.25)], y=[0, draft.number(0.05, 0.25)])
    if draft.chance(0.45):
        draft.add("jitter", reach=draft.number(0.02, 0.22))
    bend = rng.random()
    if bend < 0.05:
        draft.add("arch", height=draft.part(-0.25, 0.25))
    elif bend < 0.1:
        draft.add("slope", rise=draft.part(-0.25, 0.25))
    elif bend < 0.14:
        draft.add("wave", height=draft.number(0.1, 0.3), period=draft.number(3, 8))


def add_strokes(draft: DesignDraft) -> None:
    """Add what changes the strokes of glyphs: one thing at most, since two leave little of a glyph."""
    kinds: dict[str, tuple[float, Callable[[], Document]]] = {
        "thicken": (0.08, lambda: {"width": draft.part(1, 3)}),
        "thin": (0.03, lambda: {"width": draft.number(0.5, 1)}),
        "outline": (0.10, lambda: {"width": draft.number(1, 2.5)}),
        "pits": (0.05, lambda: {"share": draft.number(0.05, 0.3), "size": draft.rng.randint(1, 2)}),
        "stripes": (0.04, lambda: {"pitch": draft.rng.randint(3, 5), "angle": draft.rng.choice((0, 0, 45, 90))}),
        "dotted": (0.03, lambda: {"pitch": draft.rng.randint(3, 4)}),
    }
    point = draft.rng.random()
    for kind, (probability, fields) in kinds.items():
        point -= probability
        if point < 0:
            some = {"glyph_probability": draft.number(0.3, 0.7)} if draft.chance(0.2) else {}
            draft.add(kind, **fields(), **some)
            break
    if draft.disturbs(0.03) and draft.text["spacing"][0] < 0:
        draft.text["overlap"] = "knock out"
    if draft.chance(0.08):
        draft.add("threshold")


def add_background(draft: DesignDraft) -> None:
    """Add a background, and patterns behind the text."""
    rng = draft.rng
    ground = draft.canvas["color"]
    low, high = ground["luminance"] if isinstance(ground["luminance"], list) else [ground["luminance"]] * 2

    def near(reach: int) -> Document:
        darker, lighter = (min(reach, draft.reach) if draft.toward == sign else reach for sign in (-1, 1))
        light = [max(0, low - darker), min(255, high + lighter)]
        return {"hue": [0, 360], "saturation": draft.number(0, 0.6), "luminance": light}

    kind = rng.choices(("flat", "blobs", "gradient", "tiles"), (0.58, 0.22, 0.12, 0.08))[0]
    draft.may_invert &= kind == "flat"
    if kind == "blobs":
        draft.add("blobs", color=near(50), contrast=draft.number(0.4, 3), cells=rng.randint(1, 8), behind=True)
    elif kind == "gradient":
        draft.add("gradient", color=near(60), behind=True)
    elif kind == "tiles":
        draft.add("tiles", color=near(40), behind=True)
    if draft.disturbs(0.08):
        fields = {"rows": draft.chance(0.85), "columns": draft.chance(0.85)}
        draft.add("grid", pitch=draft.number(5, 18), **fields, **mark_fields(draft, behind=0.8))
    if draft.disturbs(0.03):
        draft.add("rings", pitch=draft.number(5, 12), **mark_fields(draft, behind=0.8))
    if draft.disturbs(0.06):
        draft.add("hatching", count=draft.whole_part(5, 30), **mark_fields(draft, behind=0.7, items=True))
    if draft.disturbs(0.03):
        draft.add("texture", pitch=rng.randint(4, 10), **mark_fields(draft, behind=0.9, faint=True))
    if draft.disturbs(0.06):
        draft.add(
            "decoys",
            count=draft.whole_part(4, 20),
            size=rng.choice((8, 12, 18)),
            **mark_fields(draft, 0.9, True, items=True),
        )
    if draft.disturbs(0.01):
        draft.add("ghost", sigma=draft.number(1, 4), **mark_fields(draft, 1, True))
    if draft.disturbs(0.01):
        draft.add("small_print", **mark_fields(draft, 0, True))


def mark_fields(draft: DesignDraft, behind: float, faint: bool = False, items: bool = False) -> Document:
    """Draw the colour and opacity of a mark, and whether it lies behind the text, with a probability.

    items: whether its items may have colours of their own.
    """
    color: Any = "text"
    if not draft.chance(0.45):
        color = {"hue": [0, 360], "saturation": draft.number(0, 1), "luminance": draft.whole_part(0, 255)}
    opacity = draft.number(0.15, 0.45) if faint else draft.number(0.5, 1)
    fields: Document = {"color": color, "opacity": opacity, "behind": draft.chance(behind)}
    if items and color != "text" and draft.chance(0.4):
        fields["color_per_item"] = True
    return fields


def add_under(draft: DesignDraft) -> None:
    """Add a shadow, an extrusion, a glow, a halo, a plate or strokes."""
    rng = draft.rng
    light = draft.whole_part(0, 255)
    look: Document = {"color": {"hue": [0, 360], "saturation": draft.number(0, 0.6), "luminance": light}}
    if draft.text["color_per_glyph"] and draft.chance(0.3):
        look = {"color": "text", "per_glyph": True}
    shift: Document = {"x": rng.choice((-3, -2, -1, 1, 2, 3)), "y": rng.choice((-2, -1, 1, 2))}
    kind = rng.random()
    if kind < 0.08:
        draft.add("shadow", **shift, blur=rng.choice((0, 0, 1, 2)), opacity=draft.number(0.3, 0.8), **look)
    elif kind < 0.11:
        draft.add("extrusion", **shift, **look)
    elif kind < 0.13:
        draft.add("glow", opacity=draft.number(0.4, 0.9), **look)
    elif kind < 0.16:
        draft.add("halo", width=draft.number(1, 2), **look)
    elif kind < 0.18 and look["color"] != "text":
        draft.add("plate", margin=rng.randint(1, 5), **look, per_glyph=draft.chance(0.7))
    elif kind < 0.2:
        draft.add("strokes", count=draft.whole_part(1, 3), **look)


def add_marks(draft: DesignDraft) -> None:
    """Add lines, discs, dots and inversions over the text, or before it."""
    rng = draft.rng
    if draft.disturbs(0.5):
        count = draft.whole_part(1, 3) if draft.chance(0.75) else draft.whole_part(2, 8)
        paths = rng.sample(["straight", "across", "upright", "bent", "bezier", "sine", "arc"], rng.randint(1, 2))
        fields = {"path": {"one_of": paths}, "width": draft.part(0.8, 3.5), "smooth": draft.chance(0.7)}
        if draft.chance(0.05):
            fields["beads"] = draft.number(3, 8)
        draft.add("lines", count=count, **fields, **mark_fields(draft, behind=0.3, items=True))
    if draft.disturbs(0.12):
        ring = 0 if draft.chance(0.6) else 1
        draft.add(
            "discs",
            count=draft.whole_part(4, 30),
            radius=draft.part(1, 5),
            ring=ring,
            **mark_fields(draft, 0.3, items=True),
        )
    if draft.disturbs(0.36):
        share = draft.number(0.06, 0.1) if draft.disturbs(0.04) else draft.number(0.003, 0.05)
        draft.add(
            "dots", share=share, size=rng.choice((1, 1, 1, 2, 2, 3)), **mark_fields(draft, behind=0.4, items=True)
        )
    if draft.disturbs(0.02):
        draft.add("specks", count=draft.whole_part(10, 40), **mark_fields(draft, behind=0.2, items=True))
    if draft.may_invert and draft.disturbs(0.08):
        draft.add("inversion", size=draft.part(20, 48))


def add_warps(draft: DesignDraft) -> None:
    """Add what bends the image."""
    if draft.disturbs(0.22):
        wavelength = draft.number(40, 300) if draft.chance(0.7) else draft.number(18, 40)
        reach = min(4.0, wavelength / 14)  # a short wave with a high amplitude tears strokes apart
        draft.add("sine", x=[0, round(reach, 1)], y=[0, round(reach, 1)], wavelength=wavelength)
    if draft.disturbs(0.14):
        draft.add("elastic", sigma=draft.number(0.8, 2.6))
    if draft.disturbs(0.03):
        draft.add("lens", strength=draft.part(-0.3, 0.35))
    if draft.disturbs(0.03):
        draft.add("swirl", angle=draft.part(-25, 25))
    if draft.chance(0.04):
        draft.add("turn", angle=draft.part(-12, 12))
    if draft.disturbs(0.02):
        draft.add("ripple", x=draft.number(0.5, 2), rows=draft.rng.randint(1, 3))


def add_camera(draft: DesignDraft) -> None:
    """Add noise, blur, loss of resolution and coding: what happens to a finished image."""
    rng = draft.rng
    if draft.disturbs(0.25):
        draft.add("grain", sigma=draft.part(2, 26), colored=draft.chance(0.4))
    if draft.disturbs(0.03):
        draft.add("salt_and_pepper", share=draft.number(0.003, 0.04))
    if draft.chance(0.06):
        draft.add("tone", gamma=draft.part(0.7, 1.4), contrast=draft.number(0.7, 1.1))
    if draft.chance(0.04):
        draft.add("tint", amount=draft.number(0.05, 0.25))
    if draft.disturbs(0.01):
        draft.add("edges", amount=draft.number(0.2, 0.7))
    if draft.disturbs(0.25):
        draft.add("downscale", factor=draft.number(0.4, 0.8), down=rng.choice(("area", "area", "nearest")))
    if draft.disturbs(0.4):
        draft.add("blur", sigma=draft.part(0.4, 1.2))
    elif draft.chance(0.05):
        draft.add("sharpen", amount=draft.number(0.3, 1.5))
    if draft.chance(0.05):
        draft.add("border", width=rng.randint(1, 4), color={"luminance": draft.whole_part(0, 255)})
    if draft.disturbs(0.25):
        draft.add("jpeg", quality=draft.whole_part(25, 95))
    elif draft.chance(0.05):
        draft.add("palette", colors=rng.randint(6, 64), dither=draft.chance(0.3))

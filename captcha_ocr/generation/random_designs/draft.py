"""A random design while it is drawn, and what disturbs reading in it.

Its document so far, the draws that all its parts need, and its backgrounds, marks, warps, noise and
coding. Each `add_...` function appends the operators of one kind. The ranges are for an image 64
pixels high.
"""

import random
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

from captcha_ocr.generation.operators.marks import PATHS

_Value = TypeVar("_Value")
HEIGHT = 64  # pixels of the canvas, for which all ranges are
Document = dict[str, Any]


class Chance(NamedTuple):
    """An operator that a design may get, how likely it is to get it, and what draws its fields.

    disturbs: whether it disturbs reading, so that harder levels have it more often.
    """

    kind: str
    probability: float
    draw_fields: Callable[["DesignDraft"], Document]
    disturbs: bool = True


class DesignDraft:
    """A document while it is drawn; disturb: how likely disturbances are, 1 being usual."""

    def __init__(self, rng: random.Random, disturb: float) -> None:
        self.rng, self.disturb = rng, disturb
        self.canvas: Document = {"height": HEIGHT}
        self.text: Document = {}
        self.fonts: Document = {}
        self.operators: list[Document] = []
        # By how much a background may come closer to the colour of the text, and whether that is
        # darker (-1) or lighter (1).
        self.reach, self.toward = 0, 0
        self.hollow = False  # glyphs of the colour of the canvas, which what lies under them shows
        # Of little contrast, or on a background of many colours, nobody reads inverted letters.
        self.may_invert = True

    def chance(self, probability: float) -> bool:
        """Tell, at random, whether something comes in that does not disturb reading."""
        return self.rng.random() < probability

    def disturbs(self, probability: float) -> bool:
        """Tell, at random, whether a disturbance comes in."""
        return self.rng.random() < probability * self.disturb

    def pick(self, probability: float, value: _Value, otherwise: _Value) -> _Value:
        """Draw one of two values; the first has this probability at all levels."""
        return value if self.chance(probability) else otherwise

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

    def add_first(self, chances: Sequence[Chance]) -> None:
        """Append the first of some operators whose chance comes."""
        for kind, probability, draw_fields, disturbs in chances:
            if self.disturbs(probability) if disturbs else self.chance(probability):
                self.add(kind, **draw_fields(self))
                return

    def add_some(self, chances: Sequence[Chance]) -> None:
        """Append each of some operators by its chance."""
        for chance in chances:
            self.add_first((chance,))

    def add_one(self, chances: Sequence[Chance]) -> None:
        """Append one of some operators at most, each by its chance, the same at all levels."""
        point = self.rng.random()
        for kind, probability, draw_fields, _ in chances:
            point -= probability
            if point < 0:
                self.add(kind, **draw_fields(self))
                return


def add_background(draft: DesignDraft) -> None:
    """Add a background, and patterns behind the text."""
    rng = draft.rng
    kinds = {"flat": 0.58, "blobs": 0.22, "gradient": 0.12, "tiles": 0.08}
    kind = "flat" if draft.hollow else rng.choices([*kinds], [*kinds.values()])[0]
    draft.may_invert &= kind == "flat"
    if kind != "flat":
        reach = {"blobs": 50, "gradient": 60, "tiles": 40}[kind]
        closer = min(reach, draft.reach)
        ground = draft.canvas["color"]["luminance"]
        low, high = ground if isinstance(ground, list) else (ground, ground)
        darkest = low - (closer if draft.toward == -1 else reach)
        lightest = high + (closer if draft.toward == 1 else reach)
        light = [max(0, darkest), min(255, lightest)]
        color = {"hue": [0, 360], "saturation": draft.number(0, 0.9), "luminance": light}
        fields: Document = {}
        if kind == "blobs":
            fields = {"contrast": draft.number(0.4, 3), "cells": rng.randint(1, 8)}
        draft.add(kind, color=color, behind=True, **fields)
    draft.add_some(_PATTERNS)


def mark_fields(
    draft: DesignDraft, behind: float, faint: bool = False, items: bool = False
) -> Document:
    """Draw the colour and opacity of a mark, and whether it lies behind the text.

    items: whether its items may have colours of their own.
    """
    color: Any = "text"
    if not draft.chance(0.5):
        color = {
            "hue": [0, 360],
            "saturation": draft.number(0, 1),
            "luminance": draft.whole_part(0, 255),
        }
    opacity = draft.number(0.15, 0.45) if faint else draft.number(0.5, 1)
    fields: Document = {"color": color, "opacity": opacity, "behind": draft.chance(behind)}
    if items and color != "text" and draft.chance(0.4):
        fields["color_per_item"] = True
    return fields


_PATTERNS = (
    Chance(
        "grid",
        0.08,
        lambda draft: {
            "rows": draft.chance(0.85),
            "columns": draft.chance(0.85),
            "pitch": draft.number(5, 18),
            **mark_fields(draft, behind=0.8),
        },
    ),
    Chance(
        "rings",
        0.03,
        lambda draft: {"pitch": draft.number(5, 12), **mark_fields(draft, behind=0.8)},
    ),
    Chance(
        "spiral",
        0.02,
        lambda draft: {
            "arms": draft.rng.randint(0, 12),
            "pitch": draft.number(5, 12),
            **mark_fields(draft, behind=0.9, faint=True),
        },
    ),
    Chance(
        "hatching",
        0.06,
        lambda draft: {
            "count": draft.whole_part(5, 30),
            **mark_fields(draft, behind=0.7, items=True),
        },
    ),
    Chance(
        "texture",
        0.03,
        lambda draft: {
            "pitch": draft.rng.randint(4, 10),
            **mark_fields(draft, behind=0.9, faint=True),
        },
    ),
    Chance(
        "decoys",
        0.06,
        lambda draft: {
            "count": draft.whole_part(4, 20),
            "size": draft.rng.choice((8, 12, 18)),
            **draft.pick(0.85, {}, {"letters": "*"}),
            **mark_fields(draft, behind=0.9, faint=True, items=True),
        },
    ),
    Chance(
        "ghost",
        0.01,
        lambda draft: {"sigma": draft.number(1, 4), **mark_fields(draft, behind=1, faint=True)},
    ),
    Chance("small_print", 0.01, lambda draft: mark_fields(draft, behind=0, faint=True)),
)


def add_under(draft: DesignDraft) -> None:
    """Add a shadow, an extrusion, a glow, a halo, a plate or strokes."""
    rng = draft.rng
    if draft.hollow:
        _add_relief(draft)
        return
    light = draft.whole_part(0, 255)
    look: Document = {
        "color": {"hue": [0, 360], "saturation": draft.number(0, 0.6), "luminance": light}
    }
    if draft.text["color_per_glyph"] and draft.chance(0.3):
        look = {"color": "text", "per_glyph": True}
    shift: Document = {"x": rng.choice((-3, -2, -1, 1, 2, 3)), "y": rng.choice((-2, -1, 1, 2))}
    plates = 0 if look["color"] == "text" else 0.02  # of that colour, a plate would hide the text
    draft.add_one(
        (
            Chance(
                "shadow",
                0.08,
                lambda draft: {
                    **shift,
                    "blur": rng.choice((0, 0, 1, 2)),
                    "opacity": draft.number(0.3, 0.8),
                    **look,
                },
            ),
            Chance(  # as dark as the text
                "shadow",
                0.03,
                lambda draft: {
                    **shift,
                    "blur": draft.number(1, 3),
                    "opacity": draft.number(0.7, 1),
                },
            ),
            Chance("extrusion", 0.03, lambda draft: shift | look),
            Chance("glow", 0.02, lambda draft: {"opacity": draft.number(0.4, 0.9), **look}),
            Chance("halo", 0.03, lambda draft: {"width": draft.number(1, 2), **look}),
            Chance("spray", 0.03, lambda draft: {"share": draft.number(0.1, 0.4), **look}),
            Chance(
                "plate",
                plates,
                lambda draft: {
                    "margin": rng.randint(1, 5),
                    "shape": rng.choice(("box", "ellipse")),
                    **look,
                    "per_glyph": draft.chance(0.7),
                },
            ),
            Chance(
                "strokes", 0.08 - plates, lambda draft: {"count": draft.whole_part(1, 3), **look}
            ),
        )
    )


def _add_relief(draft: DesignDraft) -> None:
    """Add what shows glyphs of the colour of the canvas.

    Their edge, their shadow, both, or plates under them.
    """
    rng, ground = draft.rng, draft.canvas["color"]["luminance"][0]
    light = [0, max(10, ground - 90)] if ground > 127 else [min(245, ground + 90), 255]
    look: Document = {
        "color": {"hue": [0, 360], "saturation": draft.number(0, 0.9), "luminance": light},
        "per_glyph": draft.chance(0.3),
    }

    def draw_shift() -> Document:
        return {"x": rng.choice((-3, -2, 2, 3)), "y": rng.choice((-2, 1, 2, 3))}

    draws: dict[str, Callable[[], Document]] = {
        "halo": lambda: {"width": draft.number(1, 2)},
        "extrusion": draw_shift,
        "shadow": draw_shift,
        "plate": lambda: {
            "shape": rng.choice(("box", "ellipse")),
            "margin": draft.whole_part(2, 7),
            "per_glyph": draft.chance(0.8),
        },
    }
    kinds = (("halo",), ("extrusion",), ("shadow",), ("halo", "extrusion"), ("plate",))
    for kind in rng.choice(kinds):
        draft.add(kind, **look | draws[kind]())


def _draw_lines(draft: DesignDraft) -> Document:
    fields = {
        "count": draft.whole_part(*draft.pick(0.75, (1, 3), (2, 8))),
        "path": {"one_of": draft.rng.sample(PATHS, draft.rng.randint(1, 2))},
        "width": draft.part(0.5, 5),
        "smooth": draft.chance(0.7),
    }
    if draft.chance(0.05):
        fields["beads"] = draft.number(3, 8)
    fields |= mark_fields(draft, behind=0.3, items=True)
    if draft.chance(0.08):
        short = {"path": "straight", "length": draft.part(5, 40), "count": draft.whole_part(8, 50)}
        fields |= short | {"width": draft.part(0.5, 2)}
    if fields["behind"] and draft.chance(0.2):
        fields["width"] = draft.part(5, 12)
    return fields


_MARKS = (
    Chance("lines", 0.5, _draw_lines),
    Chance(
        "discs",
        0.12,
        lambda draft: {
            "ring": draft.pick(0.6, 0, 1),
            "count": draft.whole_part(4, 30),
            "radius": draft.part(*draft.pick(0.85, (1, 5), (3, 16))),
            "flatness": draft.pick(0.7, 1, draft.number(1, 4)),
            "shape": draft.pick(0.85, "ellipse", "box"),
            **mark_fields(draft, behind=0.3, items=True),
        },
    ),
    Chance(
        "dots",
        0.36,
        lambda draft: {
            "share": draft.number(0.06, 0.1) if draft.disturbs(0.04) else draft.number(0.003, 0.05),
            "size": draft.rng.choice((1, 1, 1, 2, 2, 3)),
            **mark_fields(draft, behind=0.4, items=True),
        },
    ),
    Chance(
        "specks",
        0.02,
        lambda draft: {
            "count": draft.whole_part(10, 40),
            **mark_fields(draft, behind=0.2, items=True),
        },
    ),
)


def add_marks(draft: DesignDraft) -> None:
    """Add lines, discs, dots, specks and inversions over the text, or behind it."""
    draft.add_some(_MARKS)
    if draft.may_invert and draft.disturbs(0.08):
        draft.add("inversion", size=draft.part(20, 48))


def _draw_sine(draft: DesignDraft) -> Document:
    wavelength = draft.number(*draft.pick(0.7, (40, 300), (18, 40)))
    # A short wave with a high amplitude tears strokes apart.
    amplitude = round(min(draft.number(3, 12), wavelength / 14), 1)
    return {"x": [0, amplitude], "y": [0, amplitude], "wavelength": wavelength}


WARP_CHANCES = (
    Chance("sine", 0.22, _draw_sine),
    Chance("elastic", 0.14, lambda draft: {"sigma": draft.number(0.8, 2.6)}),
    Chance("lens", 0.03, lambda draft: {"strength": draft.part(-0.3, 0.35)}),
    Chance(
        "lens",
        0.02,
        lambda draft: {"strength": draft.number(0.2, 0.5), "width": draft.number(0.2, 0.7)},
    ),
    Chance("swirl", 0.03, lambda draft: {"angle": draft.part(-25, 25)}),
    Chance("turn", 0.04, lambda draft: {"angle": draft.part(-12, 12)}, disturbs=False),
    Chance(
        "ripple",
        0.05,
        lambda draft: {"x": draft.number(0.5, 3), "rows": draft.rng.randint(1, 4)},
    ),
)
_NOISES = (
    Chance("grain", 0.25, lambda draft: {"sigma": draft.part(2, 26), "colored": draft.chance(0.4)}),
    Chance("salt_and_pepper", 0.03, lambda draft: {"share": draft.number(0.003, 0.04)}),
    Chance(
        "tone",
        0.06,
        lambda draft: {"gamma": draft.part(0.7, 1.4), "contrast": draft.number(0.7, 1.1)},
        disturbs=False,
    ),
    Chance("tint", 0.04, lambda draft: {"amount": draft.number(0.05, 0.25)}, disturbs=False),
    Chance("edges", 0.01, lambda draft: {"amount": draft.number(0.2, 0.7)}),
    Chance(
        "downscale",
        0.3,
        lambda draft: {
            "up": draft.pick(0.15, "nearest", "smooth"),
            "factor": draft.number(0.35, 0.8),
            "down": draft.rng.choice(("area", "area", "nearest")),
        },
    ),
)


_CAMERA = (  # of each row one at most
    (
        Chance("blur", 0.4, lambda draft: {"sigma": draft.part(0.4, 1.5)}),
        Chance("sharpen", 0.05, lambda draft: {"amount": draft.number(0.3, 1.5)}, disturbs=False),
    ),
    (
        Chance(
            "border",
            0.05,
            lambda draft: {
                "width": draft.rng.randint(1, 4),
                "color": {"luminance": draft.whole_part(0, 255)},
            },
            disturbs=False,
        ),
    ),
    (
        Chance("jpeg", 0.25, lambda draft: {"quality": draft.whole_part(25, 95)}),
        Chance(
            "palette",
            0.05,
            lambda draft: {"colors": draft.rng.randint(6, 64), "dither": draft.chance(0.3)},
            disturbs=False,
        ),
    ),
)


def add_camera(draft: DesignDraft) -> None:
    """Add noise, blur, loss of resolution and coding: what happens to a finished image."""
    draft.add_some(_NOISES)
    for chances in _CAMERA:
        draft.add_first(chances)

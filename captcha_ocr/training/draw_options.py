"""The options of train --draw; the command line imports them for its help."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from captcha_ocr.errors import check, is_int

MAX_DRAWINGS = 10**6  # of an epoch; there are at most a million epochs


@dataclass(frozen=True)
class DrawOptions:
    """The options of train --draw; each field but `designs` is the option of its name.

    designs: what is drawn, as for generate; several take turns, and one that is named twice has two turns.
    length, charset: None leaves them to the design. fonts: those of random designs if there is one, else of all.
    size: width and height of the network's input, which prepare's rules choose if it is None, as they choose the
    channels. images: the drawings of an epoch. repeat: the number of epochs that show the same ones. workers: the
    processes that draw, which change nothing in the images.
    """

    designs: tuple[str, ...] = ("captcha",)
    length: str | None = None
    charset: str | None = None
    case_sensitive: bool = False
    fonts: tuple[str, ...] = ()
    size: tuple[int, int] | None = None
    channels: int | None = None
    images: int = 20_000
    repeat: int = 4
    workers: int | None = None

    def __post_init__(self) -> None:
        check(
            is_int(self.images, 2, MAX_DRAWINGS),
            f"--images must be 2 to {MAX_DRAWINGS:,} with --draw",
        )
        check(is_int(self.repeat, 1, 10**6), "--repeat must be 1 to 1,000,000")

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> "DrawOptions":
        """Invert `asdict`, whose tuples JSON makes lists."""
        options: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value
            for name, value in document.items()
        }
        return cls(**options)

    def different(self, epochs: int) -> int:
        """Return how many different images so many epochs show."""
        return self.images * math.ceil(epochs / self.repeat)

    @property
    def rhythm(self) -> str:
        """How often other images are drawn, in words."""
        return "epoch" if self.repeat == 1 else f"{self.repeat:,} epochs"

    @property
    def words(self) -> list[str]:
        """The options as they are given on the command line; those that have their default are left out."""
        words = [word for design in self.designs for word in ("--draw", design)]
        for item in fields(self)[1:]:
            value = getattr(self, item.name)
            values = value if item.name == "fonts" else [] if value == item.default else [value]
            for each in values:
                words.append(draw_option(item.name))
                words += (
                    []
                    if each is True
                    else ["x".join(map(str, each)) if isinstance(each, tuple) else str(each)]
                )
        return words


def draw_option(name: str) -> str:
    """Return the option of a field of DrawOptions; another name is returned unchanged."""
    if name in ("design", "designs"):  # the first in the description of a run
        return "--draw"
    return (
        f"--{name.replace('_', '-')}"
        if name in {item.name for item in fields(DrawOptions)}
        else name
    )

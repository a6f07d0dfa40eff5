"""The size of a network's input, and what width an image gets."""

import re
from dataclasses import asdict, dataclass, replace
from typing import NamedTuple

from captcha_ocr.errors import check, is_int

_CODE = re.compile("#[0-9a-fA-F]{6}")
MIN_INPUT_SIDE, MAX_INPUT_SIDE = 8, 1024  # pixels of a network's input


@dataclass(frozen=True)
class InputSize:
    """The size of a network's input, in pixels, and its channels: 1 is grey, 3 is colour.

    step: None gives every image this width. Otherwise an image keeps its aspect: it gets the
    nearest width that is a multiple of `step`, from that of the height to `width`. ink: the colour
    of the characters that count, or several with commas; only they are shown, in black on white.
    """

    height: int
    width: int
    channels: int
    step: int | None = None
    ink: str | None = None

    def __post_init__(self) -> None:
        for side in (self.height, self.width):
            check(
                is_int(side, MIN_INPUT_SIDE, MAX_INPUT_SIDE),
                f"a side of the input (`size`) must be {MIN_INPUT_SIDE} to {MAX_INPUT_SIDE} "
                f"pixels, not {side}",
            )
        check(
            self.channels in (1, 3), f"the number of channels must be 1 or 3, not {self.channels}"
        )
        check(
            self.step is None or (is_int(self.step, 1, self.width) and self.width % self.step == 0),
            f"the step of the widths must divide {self.width}, not be {self.step}",
        )

        if self.ink is not None:
            from PIL import ImageColor  # no other command needs it at its start

            for ink in self.ink.split(","):
                check(
                    ink.lower() in ImageColor.colormap or _CODE.fullmatch(ink) is not None,
                    f"`ink` {ink!r} is no colour; name one, such as red, or write #RRGGBB",
                )

    def __str__(self) -> str:
        ink = f" ({self.ink} ink)" if self.ink else ""
        sides = f"{self.width}x{self.height}, {self.colours}{ink}"
        return sides if self.step is None else f"up to {sides}"

    def to_dict(self) -> dict[str, int]:
        """Return the size as JSON types.

        Without a step as before there were steps, so that hashes are the same.
        """
        return {name: value for name, value in asdict(self).items() if value is not None}

    def width_of(self, width: int, height: int) -> int:
        """Return the input's width for an image of this width and height."""
        return self.nearest(width * self.height / height)

    def nearest(self, width: float) -> int:
        """Return the nearest of the widths that an image may get."""
        if self.step is None:
            return self.width
        return min(
            self.width, max(-(-self.height // self.step), round(width / self.step)) * self.step
        )

    def fixed(self, width: int, height: int) -> "InputSize":
        """Return the size for images that all have about this width and height."""
        return replace(self, width=self.width_of(width, height), step=None)

    @property
    def colours(self) -> str:
        """The channels in a word: `grey` or `colour`."""
        return "grey" if self.channels == 1 else "colour"


class ImageKind(NamedTuple):
    """What most images of a data set are like: their size, and 3 channels if their colours carry
    information.

    doubts: what they are not fit for, in sentences.
    """

    height: int
    width: int
    channels: int
    doubts: tuple[str, ...] = ()


GENERATED = ImageKind(height=60, width=160, channels=1)

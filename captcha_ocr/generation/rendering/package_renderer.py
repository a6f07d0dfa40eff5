"""Draw a captcha with the code of the `captcha` package, from a seed."""

import random
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import captcha.image
from PIL import Image, ImageDraw

from captcha_ocr.options.drawing import CLASSIC_WARP

_package: Any = captcha.image  # its attribute `secrets` is replaced while it draws


class _ClassicCaptcha(captcha.image.ImageCaptcha):
    """The captchas of captcha 0.3 to 0.7.0.

    Version 0.7.1 replaced `w * uniform(low, high)` by `w * u * (high - low) + low`, which weakens
    the warp, and lets the noise arc end anywhere to the right of the first fifth instead of in the
    last fifth. This class reverts both.
    """

    @staticmethod
    def create_noise_curve(image: Image.Image, color: Any) -> Image.Image:
        """Draw an arc from the first fifth of the width to the last."""
        draw_below = _package.secrets.randbelow
        width, height = image.size
        left = draw_below(width // 5 + 1)
        right = width - draw_below(width // 5 + 1)
        top = height // 5 + draw_below(height - 2 * (height // 5) + 1)
        bottom = top + draw_below(height - height // 5 - top + 1)
        end, start = 160 + draw_below(41), draw_below(21)
        ImageDraw.Draw(image).arc([left, top, right, bottom], start, end, fill=color)
        return image

    def _draw_character(self, c: str, draw: ImageDraw.ImageDraw, color: Any) -> Image.Image:
        source = _package.secrets

        def uniform(low: float, high: float) -> float:
            return low + int(source.randbits(32)) / 2**32 * (high - low)

        font = source.choice(self.truefonts)
        _, _, width, height = draw.multiline_textbbox((1, 1), c, font=font)
        shift = (source.randbelow(5), source.randbelow(7))
        glyph = Image.new("RGBA", (int(width) + shift[0], int(height) + shift[1]))
        ImageDraw.Draw(glyph).text(shift, c, font=font, fill=color)
        angle = uniform(*self.character_rotate)
        glyph = glyph.crop(glyph.getbbox()).rotate(angle, Image.Resampling.BILINEAR, expand=True)

        reach_x = width * uniform(*self.character_warp_dx)
        reach_y = height * uniform(*self.character_warp_dy)
        x1, y1 = int(uniform(-reach_x, reach_x)), int(uniform(-reach_y, reach_y))
        x2, y2 = int(uniform(-reach_x, reach_x)), int(uniform(-reach_y, reach_y))
        wide, high = int(width) + abs(x1) + abs(x2), int(height) + abs(y1) + abs(y2)
        corners = (x1, y1, -x1, high - y2, wide + x2, high + y2, wide - x2, -y1)
        glyph = glyph.resize((wide, high))
        return glyph.transform((int(width), int(height)), Image.Transform.QUAD, corners)


class PackageRenderer:
    """Draws texts with the code of the captcha package.

    design: one of `WARPS`. fonts: paths of files. sizes: of fonts, in pixels; none means the
    package's own.
    """

    def __init__(
        self, design: str, size: tuple[int, int], fonts: Sequence[str], sizes: Sequence[int]
    ) -> None:
        kind = _ClassicCaptcha if design == CLASSIC_WARP else _package.ImageCaptcha
        self._captcha = kind(*size, list(fonts), tuple(sizes))

    def draw(self, text: Sequence[str], rng: random.Random) -> Image.Image:
        """Draw the characters of a text, from left to right; return an RGB image.

        Not thread-safe: the package's random source is replaced while it draws.
        """
        original = _package.secrets
        _package.secrets = SimpleNamespace(
            randbelow=rng.randrange, choice=rng.choice, randbits=rng.getrandbits
        )
        try:
            return self._captcha.generate_image(text)  # type: ignore[arg-type]  # it iterates
        finally:
            _package.secrets = original

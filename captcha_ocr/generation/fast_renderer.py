"""One seeded captcha, text and image: drawn by the `captcha` package, or by our own renderer in half the time."""

import random
from collections.abc import Callable
from functools import lru_cache

import captcha.image
import numpy as np
from PIL import Image, ImageDraw, ImageFilter, ImageFont

from captcha_ocr.generation.config import GeneratorConfig, Renderer
from captcha_ocr.generation.package_renderer import render_by_package, seeded_text

MASK_TABLE = bytes(min(255, entry) for entry in captcha.image.ImageCaptcha.lookup_table)
DOTS = 30  # of noise in an image

Color = tuple[int, int, int]


def render(config: GeneratorConfig, index: int) -> tuple[str, Image.Image]:
    """The text and the RGB image number `index`: the same for the same seed, wherever it is drawn."""
    text, rng = seeded_text(config, index)
    return text, fast_renderer(config).draw(text, rng)


RENDERERS: dict[Renderer, Callable[[GeneratorConfig, int], tuple[str, Image.Image]]] = {
    "fast": render,
    "package": render_by_package,
}


class RandomSource:
    """What is drawn from `rng`, exactly as SeededSecrets would, without its many calls."""

    def __init__(self, rng: random.Random) -> None:
        self.bits = rng.getrandbits

    def below(self, bound: int) -> int:
        """A whole number in [0, bound), as `random.Random` takes it from its bits."""
        length = bound.bit_length()
        number = self.bits(length)
        while number >= bound:
            number = self.bits(length)
        return number

    def color(self, low: int, high: int) -> Color:
        """A colour with every channel in [low, high]."""
        span = high - low + 1
        return low + self.below(span), low + self.below(span), low + self.below(span)

    def share(self) -> float:
        """A number in [0, 1)."""
        return self.bits(32) / 2**32

    def uniform(self, low: float, high: float) -> float:
        """A number in [low, high)."""
        return low + self.bits(32) / 2**32 * (high - low)

    def places(self, count: int, width: int, height: int) -> list[int]:
        """`count` places as x, y, x, y, ..., each in [0, width] and [0, height]: `below`, without its calls."""
        bits = self.bits
        bounds = [(side, (side + 1).bit_length()) for side in (width, height)] * count
        numbers = []
        for bound, length in bounds:
            number = bits(length)
            while number > bound:
                number = bits(length)
            numbers.append(number)
        return numbers


class Glyph:
    """A character of one font at one size: the box that it takes, and its ink, drawn once.

    The package draws it up to (4, 6) pixels from the corner and crops it to its ink. That changes
    nothing, unless the glyph begins left of or above its place and is cut off there.
    """

    def __init__(self, font: ImageFont.FreeTypeFont, character: str) -> None:
        self.font, self.character = font, character
        _, _, self.width, self.height = ImageDraw.Draw(Image.new("L", (1, 1))).multiline_textbbox(
            (1, 1), character, font=font
        )
        left, top, _, _ = font.getbbox(character)
        self.overhang = (max(0, -int(left // 1)), max(0, -int(top // 1)))
        self.inks: dict[tuple[int, int], np.ndarray | None] = {}

    def ink(self, x: int, y: int) -> np.ndarray | None:
        """The coverage, (H, W) uint8, of the glyph drawn at (x, y) and cropped; None for a blank."""
        place = min(x, self.overhang[0]), min(y, self.overhang[1])
        if place not in self.inks:
            image = Image.new("RGBA", (int(self.width) + place[0], int(self.height) + place[1]))
            ImageDraw.Draw(image).text(place, self.character, font=self.font, fill=(255, 255, 255, 255))
            box = image.getbbox()
            self.inks[place] = np.asarray(image.crop(box).getchannel("A")) if box else None
        return self.inks[place]


class FastRenderer:
    """Draws as `captcha.image.ImageCaptcha` 0.7.1 (or ClassicCaptcha) does, from the same chance the same pixels.

    Glyphs are rasterised once, the blanks between them are only measured, and each kind of noise
    is one call.
    """

    def __init__(self, config: GeneratorConfig) -> None:
        self.size = config.width, config.height
        self.warp_reach = {"package": package_reach, "classic": classic_reach}[config.warp]
        self.classic = config.warp == "classic"
        fonts = [
            ImageFont.truetype(font, size)
            for font in config.fonts or captcha.image.DEFAULT_FONTS
            for size in config.font_sizes
        ]
        self.glyphs = [{character: Glyph(font, character) for character in {*config.charset, " "}} for font in fonts]
        self.dot = dot_pixels()

    def draw(self, text: str, rng: random.Random) -> Image.Image:
        """The RGB image of a text."""
        chance = RandomSource(rng)
        background = chance.color(238, 255)
        opacity = 220 + chance.below(36)
        color = chance.color(10, 200)
        palette = ink_palette(color, opacity)
        parts = []
        for character in text:
            if chance.share() > 0.5:
                parts.append(self.draw_glyph(" ", palette, chance))
            parts.append(self.draw_glyph(character, palette, chance))
        image = self.join(parts, len(text), background, chance)
        self.draw_noise(image, color, chance)
        return image.filter(ImageFilter.SMOOTH)

    def draw_glyph(self, character: str, palette: np.ndarray, chance: RandomSource) -> tuple[int, Image.Image | None]:
        """The width of a warped glyph, and its RGBA image unless it is blank."""
        glyph = self.glyphs[chance.below(len(self.glyphs))][character]
        ink = glyph.ink(chance.below(5), chance.below(7))
        if ink is None:
            chance.bits(7 * 32)  # an angle and a warp, of nothing
            return int(glyph.width), None
        angle = chance.uniform(-30, 30)
        reach_x, reach_y = self.warp_reach(glyph, chance)
        x1, y1 = int(chance.uniform(-reach_x, reach_x)), int(chance.uniform(-reach_y, reach_y))
        x2, y2 = int(chance.uniform(-reach_x, reach_x)), int(chance.uniform(-reach_y, reach_y))
        box = int(glyph.width), int(glyph.height)
        image = Image.frombytes("RGBa", ink.shape[::-1], palette[ink].tobytes())
        image = image.rotate(angle, Image.Resampling.BILINEAR, expand=True).convert("RGBA")
        wide, high = box[0] + abs(x1) + abs(x2), box[1] + abs(y1) + abs(y2)
        corners = (x1, y1, -x1, high - y2, wide + x2, high + y2, wide - x2, -y1)
        return box[0], image.resize((wide, high)).transform(box, Image.Transform.QUAD, corners)

    def join(
        self, parts: list[tuple[int, Image.Image | None]], length: int, background: Color, chance: RandomSource
    ) -> Image.Image:
        """Paste the glyphs side by side, overlapping a little; a text that is too wide is squeezed."""
        width, height = self.size
        text_width = sum(part_width for part_width, _ in parts)
        image = Image.new("RGB", (max(text_width, width), height), background)
        average = int(text_width / length)
        offset = int(average * 0.1)
        for part_width, glyph in parts:
            if glyph is not None:
                grey = glyph.convert("L")
                mask = Image.frombytes("L", grey.size, grey.tobytes().translate(MASK_TABLE))
                image.paste(glyph, (offset, int((height - glyph.height) / 2)), mask)
            offset += part_width - chance.below(int(0.25 * average) + 1)
        return image if image.width == width else image.resize((width, height))

    def draw_noise(self, image: Image.Image, color: Color, chance: RandomSource) -> None:
        """Thirty dots and an arc."""
        width, height = image.size
        draw = ImageDraw.Draw(image)
        places = np.array(chance.places(DOTS, width, height)).reshape(-1, 1, 2)
        draw.point((places + self.dot).ravel().tolist(), color)
        below = chance.below
        left = below(width // 5 + 1)
        right = width - below(width // 5 + 1) if self.classic else width // 5 + below(width - width // 5 + 1)
        top = height // 5 + below(height - 2 * (height // 5) + 1)
        bottom = top + below(height - top - height // 5 + 1)
        end, start = 160 + below(41), below(21)
        draw.arc([left, top, right, bottom], start, end, fill=color)


@lru_cache(maxsize=1)
def fast_renderer(config: GeneratorConfig) -> FastRenderer:
    """The artist for a configuration, who keeps the glyphs."""
    return FastRenderer(config)


def package_reach(glyph: Glyph, chance: RandomSource) -> tuple[float, float]:
    """How far a glyph's corners may move, as 0.7.1 has it (see ClassicCaptcha)."""
    # In the package's own order of operations: the same floats.
    return glyph.width * chance.share() * (0.3 - 0.1) + 0.1, glyph.height * chance.share() * (0.3 - 0.2) + 0.2


def classic_reach(glyph: Glyph, chance: RandomSource) -> tuple[float, float]:
    """How far a glyph's corners may move, as 0.7.0 and earlier had it."""
    return glyph.width * chance.uniform(0.1, 0.3), glyph.height * chance.uniform(0.2, 0.3)


def ink_palette(color: Color, opacity: int) -> np.ndarray:
    """A text's pixel, (256,) uint32 of four bytes RGBa (colour times alpha), for each coverage from 0 to 255."""
    pixels = np.empty((256, 4), np.uint8)
    alpha = divide_by_255(np.arange(256) * opacity)[:, None]
    pixels[:, :3], pixels[:, 3:] = divide_by_255(alpha * np.array(color)), alpha
    palette: np.ndarray = pixels.view(np.uint32)[:, 0]
    return palette


def divide_by_255(product: np.ndarray) -> np.ndarray:
    """Divided by 255 and rounded, as Pillow does."""
    rounded: np.ndarray = product + 128
    rounded += rounded >> 8
    rounded >>= 8
    return rounded


def dot_pixels() -> np.ndarray:
    """The pixels (P, 2), x and y from its place, of the package's noise dot: a line two pixels long, three wide."""
    image = Image.new("L", (16, 16))
    ImageDraw.Draw(image).line(((8, 8), (7, 7)), fill=255, width=3)
    rows, columns = np.nonzero(np.asarray(image))
    return np.stack([columns, rows], 1) - 8

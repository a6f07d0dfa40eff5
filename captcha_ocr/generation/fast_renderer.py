"""Draw a captcha from a seed: the pixels of the `captcha` package in half the time."""

import random
from collections.abc import Callable
from functools import lru_cache

import captcha.image
import numpy as np
from PIL import Image, ImageDraw, ImageFilter, ImageFont

from captcha_ocr.charset import in_visual_order
from captcha_ocr.generation.config import FONT_SIZES, GeneratorConfig, Renderer
from captcha_ocr.generation.font_choice import choose_faces
from captcha_ocr.generation.package_renderer import render_by_package, seeded_text

MASK_TABLE = bytes(min(255, entry) for entry in captcha.image.ImageCaptcha.lookup_table)
DOTS = 30  # of noise in an image

Color = tuple[int, int, int]


def render(config: GeneratorConfig, index: int) -> tuple[str, Image.Image]:
    """Return the text and the RGB image number `index`; they depend only on the configuration and the number."""
    text, rng = seeded_text(config, index)
    return text, fast_renderer(config).draw(in_visual_order(text), rng)


RENDERERS: dict[Renderer, Callable[[GeneratorConfig, int], tuple[str, Image.Image]]] = {
    "fast": render,
    "package": render_by_package,
}


class RandomSource:
    """Random numbers from the bits of `rng`: the same as those of SeededSecrets, in fewer calls."""

    def __init__(self, rng: random.Random) -> None:
        self.bits = rng.getrandbits

    def below(self, bound: int) -> int:
        """Return an integer in [0, bound), with the algorithm of `random.Random`."""
        length = bound.bit_length()
        number = self.bits(length)
        while number >= bound:
            number = self.bits(length)
        return number

    def color(self, low: int, high: int) -> Color:
        """Return a colour with every channel in [low, high]."""
        span = high - low + 1
        return low + self.below(span), low + self.below(span), low + self.below(span)

    def random(self) -> float:
        """Return a number in [0, 1)."""
        return self.bits(32) / 2**32

    def uniform(self, low: float, high: float) -> float:
        """Return a number in [low, high)."""
        return low + self.bits(32) / 2**32 * (high - low)

    def points(self, count: int, width: int, height: int) -> list[int]:
        """Return `count` points as x, y, x, y, ..., in [0, width] and [0, height]; `below` in fewer calls."""
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
    """A character in one font and size: its box, and its ink, which is drawn once.

    The package draws a glyph at up to (4, 6) pixels from the corner and crops it to its ink. The result depends on that
    position only if the glyph extends to the left of it or above it, where the corner cuts it off.
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
        """Return the coverage, (H, W) uint8, of the glyph drawn at (x, y) and cropped; None for a blank."""
        position = min(x, self.overhang[0]), min(y, self.overhang[1])
        if position not in self.inks:
            image = Image.new("RGBA", (int(self.width) + position[0], int(self.height) + position[1]))
            ImageDraw.Draw(image).text(position, self.character, font=self.font, fill=(255, 255, 255, 255))
            box = image.getbbox()
            self.inks[position] = np.asarray(image.crop(box).getchannel("A")) if box else None
        return self.inks[position]


class FastRenderer:
    """A renderer that draws the pixels of `captcha.image.ImageCaptcha` 0.7.1, or of ClassicCaptcha.

    It is faster because it rasterises each glyph once, only measures blanks, and draws each kind of noise in one call.
    """

    def __init__(self, config: GeneratorConfig) -> None:
        self.size = config.width, config.height
        self.warp_reach = {"package": package_reach, "classic": classic_reach}[config.warp]
        self.classic = config.warp == "classic"
        sizes = config.font_sizes or FONT_SIZES
        fonts = [ImageFont.truetype(face.path, size) for face in choose_faces(config) for size in sizes]
        self.glyphs = [{character: Glyph(font, character) for character in {*config.symbols, " "}} for font in fonts]
        self.dot = dot_pixels()

    def draw(self, text: list[str], rng: random.Random) -> Image.Image:
        """Draw the RGB image of the characters of a text, from left to right."""
        source = RandomSource(rng)
        background = source.color(238, 255)
        opacity = 220 + source.below(36)
        color = source.color(10, 200)
        palette = ink_palette(color, opacity)
        parts = []
        for character in text:
            if source.random() > 0.5:
                parts.append(self.draw_glyph(" ", palette, source))
            parts.append(self.draw_glyph(character, palette, source))
        image = self.join(parts, len(text), background, source)
        self.draw_noise(image, color, source)
        return image.filter(ImageFilter.SMOOTH)

    def draw_glyph(self, character: str, palette: np.ndarray, source: RandomSource) -> tuple[int, Image.Image | None]:
        """Return the width of a warped glyph, and its RGBA image, None for a blank."""
        glyph = self.glyphs[source.below(len(self.glyphs))][character]
        ink = glyph.ink(source.below(5), source.below(7))
        if ink is None:
            source.bits(7 * 32)  # the package draws an angle and a warp for a blank, too
            return int(glyph.width), None
        angle = source.uniform(-30, 30)
        reach_x, reach_y = self.warp_reach(glyph, source)
        x1, y1 = int(source.uniform(-reach_x, reach_x)), int(source.uniform(-reach_y, reach_y))
        x2, y2 = int(source.uniform(-reach_x, reach_x)), int(source.uniform(-reach_y, reach_y))
        box = int(glyph.width), int(glyph.height)
        image = Image.frombytes("RGBa", ink.shape[::-1], palette[ink].tobytes())
        image = image.rotate(angle, Image.Resampling.BILINEAR, expand=True).convert("RGBA")
        wide, high = box[0] + abs(x1) + abs(x2), box[1] + abs(y1) + abs(y2)
        corners = (x1, y1, -x1, high - y2, wide + x2, high + y2, wide - x2, -y1)
        return box[0], image.resize((wide, high)).transform(box, Image.Transform.QUAD, corners)

    def join(
        self, parts: list[tuple[int, Image.Image | None]], length: int, background: Color, source: RandomSource
    ) -> Image.Image:
        """Paste the glyphs side by side with a little overlap; shrink a text that is too wide."""
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
            offset += part_width - source.below(int(0.25 * average) + 1)
        return image if image.width == width else image.resize((width, height))

    def draw_noise(self, image: Image.Image, color: Color, source: RandomSource) -> None:
        """Draw the dots and an arc."""
        width, height = image.size
        draw = ImageDraw.Draw(image)
        points = np.array(source.points(DOTS, width, height)).reshape(-1, 1, 2)
        draw.point((points + self.dot).ravel().tolist(), color)
        below = source.below
        left = below(width // 5 + 1)
        right = width - below(width // 5 + 1) if self.classic else width // 5 + below(width - width // 5 + 1)
        top = height // 5 + below(height - 2 * (height // 5) + 1)
        bottom = top + below(height - top - height // 5 + 1)
        end, start = 160 + below(41), below(21)
        draw.arc([left, top, right, bottom], start, end, fill=color)


@lru_cache(maxsize=1)
def fast_renderer(config: GeneratorConfig) -> FastRenderer:
    """Return the renderer for a configuration; it keeps the glyphs."""
    return FastRenderer(config)


def package_reach(glyph: Glyph, source: RandomSource) -> tuple[float, float]:
    """Return how far a glyph's corners may move, (x, y), in captcha 0.7.1 (see ClassicCaptcha)."""
    # The package's order of operations gives the package's floats.
    return glyph.width * source.random() * (0.3 - 0.1) + 0.1, glyph.height * source.random() * (0.3 - 0.2) + 0.2


def classic_reach(glyph: Glyph, source: RandomSource) -> tuple[float, float]:
    """Return how far a glyph's corners may move, (x, y), in captcha 0.7.0 and earlier."""
    return glyph.width * source.uniform(0.1, 0.3), glyph.height * source.uniform(0.2, 0.3)


def ink_palette(color: Color, opacity: int) -> np.ndarray:
    """Return a text's pixels, (256,) uint32 of four bytes RGBa (colour times alpha), for the coverages 0 to 255."""
    pixels = np.empty((256, 4), np.uint8)
    alpha = divide_by_255(np.arange(256) * opacity)[:, None]
    pixels[:, :3], pixels[:, 3:] = divide_by_255(alpha * np.array(color)), alpha
    palette: np.ndarray = pixels.view(np.uint32)[:, 0]
    return palette


def divide_by_255(product: np.ndarray) -> np.ndarray:
    """Divide by 255 and round like Pillow."""
    rounded: np.ndarray = product + 128
    rounded += rounded >> 8
    rounded >>= 8
    return rounded


def dot_pixels() -> np.ndarray:
    """Return the pixels of the package's noise dot, a line two pixels long and three wide: (P, 2), x and y offsets."""
    image = Image.new("L", (16, 16))
    ImageDraw.Draw(image).line(((8, 8), (7, 7)), fill=255, width=3)
    rows, columns = np.nonzero(np.asarray(image))
    return np.stack([columns, rows], 1) - 8

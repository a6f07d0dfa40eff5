"""The options of generate."""

from dataclasses import dataclass
from functools import cached_property
from typing import Literal, get_args

from captcha_ocr.charset import NAMED, Charset, characters_of, split_characters
from captcha_ocr.config import MAX_AREA, Lengths, check_seed
from captcha_ocr.errors import check, is_int

Warp = Literal["package", "classic"]
Renderer = Literal["fast", "package"]

FOUR_CHARACTERS = Lengths(4, 4)
MIN_WIDTH_PER_CHARACTER = 16  # pixels


@dataclass(frozen=True)
class GeneratorConfig:
    """The options of generate. Image `i` depends on `i` and on all of them but `count` and `start`.

    warp: `package` draws like the installed version of captcha, `classic` like 0.7.0 and earlier.
    width: 0 takes 40 pixels for each character of the longest text, at least 160.
    """

    count: int = 50_000
    start: int = 0
    lengths: Lengths = FOUR_CHARACTERS
    charset: str = NAMED["upper-alnum"]
    width: int = 0
    height: int = 60
    fonts: tuple[str, ...] = ()
    font_sizes: tuple[int, ...] = (42, 50, 56)
    warp: Warp = "package"
    seed: int = 0

    @cached_property
    def symbols(self) -> list[str]:
        """The characters of `charset`, each with its combining marks."""
        return split_characters(self.charset)

    def __post_init__(self) -> None:
        object.__setattr__(self, "charset", Charset(characters_of(self.charset)).characters)
        object.__setattr__(self, "width", self.width or max(160, 40 * self.lengths.longest))
        check(" " not in self.charset, "--charset has a space, which generate cannot draw")
        check(is_int(self.count, 1, 10**9), f"--count must be 1 to 1,000,000,000, not {self.count}")
        check(is_int(self.start, 0, 10**12), f"--start must be 0 to 1,000,000,000,000, not {self.start}")
        check(is_int(self.height, 16, 4096), f"the height in --size must be 16 to 4096 pixels, not {self.height}")
        min_width = MIN_WIDTH_PER_CHARACTER * self.lengths.longest
        limits = f"{self.lengths.longest} characters need at least {min_width} pixels, and the maximum is 4096"
        check(is_int(self.width, min_width, 4096), f"the width in --size cannot be {self.width} pixels: {limits}")
        check(
            self.width * self.height <= MAX_AREA, f"--size {self.width}x{self.height} is more than {MAX_AREA:,} pixels"
        )
        check(bool(self.font_sizes), "--font-sizes names no size")
        check(all(is_int(size, 4, 512) for size in self.font_sizes), "--font-sizes must be 4 to 512, such as 42,50")
        check(self.warp in get_args(Warp), f"unknown warp {self.warp!r}")
        check_seed(self.seed)

"""Open images: a path, bytes, base64, an open file, an array or a PIL image becomes a uint8 array.

`prepare`, `train --draw` and `eval` all call `fit_to_input`, so that a model reads the same pixels
as in training.
"""

import base64
import errno
import html
import io
import os
import re
import struct
from collections import Counter
from collections.abc import Iterable, Iterator, Set
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import reduce
from pathlib import Path, PurePosixPath
from statistics import median_low
from typing import Protocol, TypeGuard, cast
from urllib.parse import unquote_to_bytes

import numpy as np
from PIL import Image, ImageChops, ImageStat
from PIL.ImageFile import ImageFile
from PIL.PngImagePlugin import PngImageFile

from captcha_ocr.data.sanitize import (
    START,
    check_sides,
    check_size,
    find_svg,
    is_image,
    open_sanitized,
    read_orientation,
)
from captcha_ocr.errors import ImageError, check
from captcha_ocr.input_size import GENERATED, ImageKind, InputSize
from captcha_ocr.options.shared import MAX_AREA, MAX_BYTES
from captcha_ocr.system.files import open_regular, sha256, walk_files


class Readable(Protocol):
    """An open file, or the object that a web framework hands over as one."""

    def read(self, size: int, /) -> bytes:
        """Return at most `size` bytes."""


ImageSource = (
    str | os.PathLike[str] | bytes | bytearray | memoryview | Readable | Image.Image | np.ndarray
)

_IMAGE_EXTENSIONS = (
    *(".png", ".jpg", ".jpeg", ".jpe", ".jfif", ".gif"),
    *(".bmp", ".dib", ".webp", ".tif", ".tiff", ".svg"),
)
LUMINANCE = (0.299, 0.587, 0.114)  # of red, green and blue: ITU-R BT.601, as in Pillow
_GREY_SUFFICES = 0.5  # of the contrast, in 95 % of the images
# Of each format
_BASE64_STARTS = (
    *(b"iVBORw0KGgo", b"/9j/", b"R0lGOD", b"Qk", b"UklGR", b"SUkqA", b"TU0AK"),
    *(b"PHN2Z", b"PD94b"),  # markup
)
_MARKUP_STARTS = (b"<svg", b"<?xml", b"data:image/svg")
ONE_COLOUR = "of one colour, which is no text"
# Doubts about most images of a folder
PAGE = (
    "the images show much that is too small to be read, as pages do: cut the captcha out of each, "
    "unless it fills the image"
)
ONE_ROW = (
    "the images have several rows of characters: only one row is learnt and read; cut each image "
    "into its rows, or put them side by side"
)
TURNED = (
    "the images are higher than wide: turn them, or put characters that stand one below the other "
    "side by side, since texts are read from left to right"
)
TOO_SMALL = "the images are less than 10 pixels high, too few for characters: take larger ones"
_LEAST_HEIGHT, _HIGH = 10, 1.6  # pixels; and times the width, more than one character has
_FLAT = 10  # of 256: the difference of pixels below which an image has one colour
_COMMON = 0.2  # of the images; and of a side, the difference that shows
_HAS_HUE, _FULL, _SAME_HUE = 48, 128, 14  # of 256: limits of chroma, and of a difference of hues
_LEAST_COLOURED = 0.02  # of the pixels; fewer are noise
_HAS_NO_HUE, _SAME_GREY = 24, 64  # of 256: of what is grey or black
_LEAST_ROW, _NEXT_ROW = 0.08, 0.5  # of the height: a row of characters; of that, a second one
_LEAST_PAGE_HEIGHT, _KEPT_EDGES = 150, 0.4  # pixels; of the edges: docs/decisions.md, Files
_COMMON_HUE, _RARE_HUE = 0.12, 0.08  # of the coloured pixels; the second: on average
_LEAST_PAGE = 20_000  # pixels; a smaller image may be of one character
_WHOLE_OF_PART = 6  # how much larger a page is than the captcha on it, at least
_SHOWS = (2, 24)  # differences from the colour of a border: all, or without what JPEG blurs
# Of the height of what is inside: a border around a rectangle, and one around a text
_FRAME, _WIDE_BORDER = 0.12, 0.5
_EDGE = 0.5  # of each side of a rectangle, which has another colour than the border around it
_DEPTHS = (1, 3, 15, 255, 1023, 4095, 16383, 65535)  # the largest numbers of 1 to 16 bits
_DARK = 15  # all pixels of an image up to this: it holds numbers of 4 bits or fewer
_CHANNELS = (1, 2, 3, 4)  # of an array; 2 and 4: the last is alpha
_MAX_SAMPLED = 100_000  # pixels, by which the background of transparent ones is chosen
_ANIMATED, _MAX_FRAMES = ("GIF", "PNG", "WEBP"), 100
_BESIDE_BASE64 = b" \t\r\n\\\"'();,"  # around a `data:` URI in a page
_BASE64_MARK = re.compile(rb"\A.{,200}?base64,\s*", re.DOTALL | re.IGNORECASE)
_FROM_URL_ALPHABET = bytes.maketrans(b"-_", b"+/")  # the alphabet that URLs have
_LONGEST_HEAD = 200  # characters before the image in a `data:` URI
# Of JSON, and what they are in a URL or as they are
_ESCAPES = {rb"\\+u00": b"%", rb"\\+[nrt]": b"\n", rb"\\+/": b"/", rb'\\+"': b'"'}
_ESCAPES_AND_BLANKS = (b"%", b"&", b"\\", b" ", b"\t", b"\r", b"\n")
_LEAST_BASE64 = 50  # characters; no image file is smaller
_LONGEST_NAME = 200  # characters of a path in a message
_UNREADABLE = {  # what is wrong, by the number of the error
    errno.EISDIR: "a folder, not an image",
    errno.ENAMETOOLONG: "neither a path nor base64 of an image",
}
_TURNS = {  # EXIF orientation -> the operation that turns the image upright
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
# What Pillow raises for damaged data; a Warning where a program has made warnings errors.
_DECODING_ERRORS = (
    *(OSError, SyntaxError, ValueError, EOFError, LookupError, TypeError, OverflowError),
    *(struct.error, Image.DecompressionBombError, Warning),
)


def to_array(source: ImageSource, size: InputSize, max_bytes: int = MAX_BYTES) -> np.ndarray:
    """Return any image as (C, H, W) uint8 of the given size, or of its width among these.

    ImageError, of one line, if it cannot be read.

    Transparent pixels turn white, or black where the text would vanish on white. 16-bit grey is
    scaled to 8 bits, the EXIF orientation is applied, and the frame of an animation with the most
    contrast is used. An array is (H, W), (H, W, 3) or (H, W, 4), in the order RGB, of 0 to 255, or
    of float or bool. A file of more than `max_bytes` is refused; sanitize.py has other limits.
    """
    return fit_to_input(open_image(source, max_bytes), size)


def fit_to_input(image: Image.Image, size: InputSize) -> np.ndarray:
    """Return an opened image as (C, H, W) uint8 of the given size."""
    if size.ink is not None:
        image = _keep_ink(image, size.ink)
        check(
            bool(np.asarray(image).min() < _FULL),
            f"no pixel has the `ink` {size.ink}; write it as the image has it: #RRGGBB",
            ImageError,
        )
    image = _crop_border(flatten(image, "L" if size.channels == 1 else "RGB"))
    sides = size.width_of(*image.size), size.height
    pixels = np.asarray(image.resize(sides, Image.Resampling.BILINEAR))
    return pixels[None] if pixels.ndim == 2 else np.ascontiguousarray(pixels.transpose(2, 0, 1))


def _split_hue(image: Image.Image) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return hue, chroma and brightness of an image's pixels, (H, W) each, from 0 to 255."""
    pixels = np.asarray(flatten(image, "RGB").convert("HSV"), np.int32)
    hue, saturation, value = pixels.transpose(2, 0, 1)
    return hue, saturation * value // 255, value


def _keep_ink(image: Image.Image, ink: str) -> Image.Image:
    """Return an image in grey that shows only what has the hue of a colour, in black on white.

    Of a colour without a hue, such as black, what has none and is about as light. ink: one colour,
    or several with commas.
    """
    if "," in ink:
        return reduce(ImageChops.darker, (_keep_ink(image, one) for one in ink.split(",")))
    hue, chroma, value = _split_hue(image)
    ink_hue, ink_chroma, ink_value = _split_hue(Image.new("RGB", (1, 1), ink))
    if ink_chroma > _HAS_HUE:
        is_ink = np.abs((hue - ink_hue + 128) % 256 - 128) <= _SAME_HUE
        shown = chroma / np.minimum(ink_chroma, _FULL)
    else:
        is_ink, shown = chroma <= _HAS_NO_HUE, 1 - np.abs(value - ink_value) / _SAME_GREY
    return Image.fromarray(np.uint8(255 - 255 * np.where(is_ink, shown, 0).clip(0, 1)))


def _crop_border(image: Image.Image) -> Image.Image:
    """Return the part of an image that is inside a border of one colour, such as the page around a
    captcha.

    Captchas as sites show them stay whole: docs/decisions.md, Files.
    """
    area = image.width * image.height
    if area < _LEAST_PAGE and _has_no_border(image):
        return image
    ground = Image.new(image.mode, image.size, cast(int, image.getpixel((0, 0))))
    difference = ImageChops.difference(image, ground)
    for least in _SHOWS:
        grey = Image.new(image.mode, image.size, (least,) * len(image.getbands()))
        shown = ImageChops.subtract(difference, grey)
        left, top, right, bottom = box = shown.getbbox() or (0, 0, *image.size)
        height = bottom - top
        border = min(left, top, image.width - right, image.height - bottom) / height
        if border >= _FRAME and _is_rectangle(shown.crop(box)):
            return image.crop(box)
        is_small = area >= _LEAST_PAGE and (right - left) * height * _WHOLE_OF_PART <= area
        if border == 0 and area < _LEAST_PAGE:
            break
        if is_small or border >= _WIDE_BORDER:
            margin = height // 4
            sides = min(image.width, right + margin), min(image.height, bottom + margin)
            return image.crop((max(0, left - margin), max(0, top - margin), *sides))
    return image


def _has_no_border(image: Image.Image) -> bool:
    """Tell whether a pixel on an edge differs from the first one more than JPEG blurs: a quick
    look, which most captchas need alone.
    """
    pixels = np.asarray(image)
    edges = pixels[0], pixels[-1], pixels[:, 0], pixels[:, -1]
    ground = pixels[0, 0].astype(np.int16)
    return any(np.abs(edge - ground).max() > _SHOWS[-1] for edge in edges)


def _is_rectangle(shown: Image.Image) -> bool:
    """Tell whether what is shown reaches each side of an image along a part of it."""
    is_shown = np.asarray(shown.convert("L")) > 0
    top_and_bottom, sides = is_shown[[0, -1]].mean(axis=1), is_shown[:, [0, -1]].mean(axis=0)
    return bool(min(*top_and_bottom, *sides) >= _EDGE)


def resize_width(pixels: np.ndarray, width: int) -> np.ndarray:
    """Return an image (C, H, W) uint8 at another width."""
    sides = width, pixels.shape[1]
    planes = (Image.fromarray(plane).resize(sides, Image.Resampling.BILINEAR) for plane in pixels)
    return np.stack([*map(np.asarray, planes)])


def survey(images: Iterable[ImageSource], max_bytes: int = MAX_BYTES) -> ImageKind:
    """Return the median size of some images, with 3 channels if grey loses contrast or may mix up
    colours.

    If none can be read, what generated images are like.
    """
    kinds, doubts = [], Counter[str]()
    for source in images:
        with suppress(ImageError):
            image = _crop_border(flatten(open_image(source, max_bytes), "RGB"))
            doubts.update(_doubt(image))
            kinds.append((*image.size, _measure_grey_contrast(image), _count_hues(image)))
    if not kinds:
        return GENERATED
    widths, heights, kept, hues = zip(*kinds, strict=True)
    colour_tells = sorted(kept)[len(kept) // 20] < _GREY_SUFFICES or _have_palette(np.array(hues))
    return ImageKind(
        median_low(heights),
        median_low(widths),
        3 if colour_tells else 1,
        tuple(doubt for doubt, count in doubts.items() if count > len(kinds) / 2),
    )


def _doubt(image: Image.Image) -> list[str]:
    """Return what an image is not fit for; the first doubt alone, since it explains the others."""
    considered = {
        PAGE: _is_page(image),
        TURNED: image.height > _HIGH * image.width,
        ONE_ROW: _has_rows(image),
        TOO_SMALL: image.height < _LEAST_HEIGHT,
    }
    return list(filter(considered.get, considered))[:1]


def _is_page(image: Image.Image) -> bool:
    """Tell whether most edges in a large image vanish at the height that networks read."""
    if image.height < _LEAST_PAGE_HEIGHT:
        return False
    scale = GENERATED.height / image.height
    sides = max(1, round(scale * image.width)), GENERATED.height
    kept = _measure_edges(image.resize(sides, Image.Resampling.BILINEAR))
    return kept < scale * _KEPT_EDGES * _measure_edges(image)


def _measure_edges(image: Image.Image) -> float:
    """Return the sum of the differences between neighbouring pixels in grey."""
    grey = np.asarray(image.convert("L"), np.int32)
    return float(sum(np.abs(np.diff(grey, axis=axis)).sum() for axis in (0, 1)))


def describe_mixture(images: Iterable[ImageSource], max_bytes: int = MAX_BYTES) -> str:
    """Return, for people, the sizes of images that may be of several designs; empty for one design.

    These are the sizes that a fifth of the images have each, if a side differs by a fifth. Images
    that cannot be read are left out.
    """
    counts: Counter[tuple[int, int]] = Counter()
    for image in images:
        with suppress(ImageError):
            counts[open_image(image, max_bytes).size] += 1
    least = _COMMON * counts.total()
    frequent = [size for size, count in counts.most_common() if count >= least]
    others = [size for size in frequent if _is_other_size(size, frequent[0])]
    if not others:
        return ""
    names = " and ".join(f"{width}x{height}" for width, height in [frequent[0], *others])
    return f"many images have {names} pixels, perhaps of several designs; take each alone"


def _is_other_size(one: tuple[int, int], other: tuple[int, int]) -> bool:
    return any(min(sides) < (1 - _COMMON) * max(sides) for sides in zip(one, other, strict=True))


def _measure_grey_contrast(image: Image.Image) -> float:
    """Return the share of the contrast of an RGB image that grey keeps, 0 to 1: its deviation over
    that along the main colour.
    """
    pixels = np.array(image, np.float32).reshape(-1, 3)
    pixels -= pixels.mean(0)
    covariance = (pixels.T @ pixels).astype(np.float64) / len(pixels)
    grey = np.array(LUMINANCE)
    along_grey = max(0.0, grey @ covariance @ grey / (grey @ grey))  # rounding may take it below
    along_main = np.linalg.eigvalsh(covariance)[-1]
    return float(np.sqrt(along_grey / along_main)) if along_main > 1 else 1.0


def _has_rows(image: Image.Image) -> bool:
    """Tell whether there are several bands of ink, one above the other, with gaps between them."""
    grey = np.asarray(flatten(image, "L"), np.int32)
    has_ink = (np.abs(grey - np.median(grey)) > _HAS_HUE).mean(axis=1) > _LEAST_COLOURED
    bands = "".join("#" if ink else " " for ink in has_ink).split()
    *_, second, highest = sorted([0, 0, *map(len, bands)])
    return highest > _LEAST_ROW * len(grey) and second > _NEXT_ROW * highest


def _count_hues(image: Image.Image) -> np.ndarray:
    """Return which part of the coloured pixels has each of six hues, from red on, (6,)."""
    hue, chroma, _ = _split_hue(image)
    sixths = (hue[chroma > _HAS_HUE] + 21) // 43 % 6
    counts = np.bincount(sixths, minlength=6)
    counts[counts > hue.size / 2] = 0  # the background
    return np.asarray(counts / max(counts.sum(), _LEAST_COLOURED * hue.size))


def _have_palette(hues: np.ndarray) -> bool:
    """Tell whether images, (B, 6), have the same two to five hues, and each has several of them.

    Then colour may tell which characters count. Random colours have all hues.
    """
    mean = hues.mean(0)
    common = mean > _COMMON_HUE
    several = np.median((hues[:, common] > _COMMON_HUE).sum(1)) >= 2
    return bool(several and mean[~common].sum() < _RARE_HUE * (~common).sum())


def open_image(source: ImageSource, max_bytes: int = MAX_BYTES) -> Image.Image:
    """Return a decoded, upright image."""
    if isinstance(source, np.ndarray):
        return _convert_array(source)
    if isinstance(source, Image.Image):
        exif = source.info.get("exif", b"")
        return _load_pixels(source, read_orientation(exif) if isinstance(exif, bytes) else 1)
    return decode(read_source(source, max_bytes), max_bytes)


def read_source(
    source: str | os.PathLike[str] | bytes | bytearray | memoryview | Readable, max_bytes: int
) -> bytes:
    """Return the bytes of an image file, given as a path, an open file, bytes or base64."""
    if isinstance(source, (str, os.PathLike)):
        source = decode_text(source, max_bytes) or read_bytes(source, max_bytes)
    if is_file(source) and not isinstance(source, io.TextIOBase):
        source = _read_stream(source, 2 * max_bytes)  # it may be base64, which is a third longer
    if not isinstance(source, (bytes, bytearray, memoryview)):
        raise TypeError(
            "an image is a path, a file opened in binary mode, its bytes or pixels, "
            f"not {type(source).__name__}"
        )
    data = bytes(source)
    return from_base64(data, max_bytes) or data


def is_file(source: object) -> TypeGuard[Readable]:
    """Tell whether `source` is an open file, or an object that hands its attributes on."""
    return hasattr(source, "read")


def _read_stream(stream: Readable, most: int) -> bytes:
    """Read at most `most` bytes of an open file; a raw file or a pipe returns a part at a time."""
    data = bytearray()
    try:
        while len(data) < most and (part := stream.read(most - len(data))):
            data += part
    except (OSError, ValueError) as error:  # such as a closed file
        raise ImageError(f"the file cannot be read: {error}") from None
    check(
        bool(data),
        "an empty file, or it was read to its end before; rewind it with seek(0)",
        ImageError,
    )
    return bytes(data)


def decode_text(source: str | os.PathLike[str], max_bytes: int = MAX_BYTES) -> bytes | None:
    """Return the image file that a text contains as base64 or as a `data:` URI; None for a path."""
    data = (
        from_base64(source.encode("ascii", "replace"), max_bytes)
        if isinstance(source, str)
        else None
    )
    # `exists` runs only if it may be base64
    return None if data is None or os.path.exists(source) else data


def from_base64(text: bytes, max_bytes: int = MAX_BYTES) -> bytes | None:
    """Decode an image file from base64, of either alphabet, or from a `data:` URI.

    None for anything else.

    The text may be escaped once or twice, as `_unescape` undoes it. A `data:` URI without an image
    is returned unchanged, since it is not a path either.
    """
    text = text.strip()
    # Of an image file, too: the whole would take long
    head = _unescape(text[:_LONGEST_HEAD]).lstrip(_BESIDE_BASE64)
    start = _BASE64_MARK.sub(b"", head).translate(_FROM_URL_ALPHABET)
    seems_encoded = len(text) >= _LEAST_BASE64 and start.startswith(_BASE64_STARTS)
    # Base64 needs fewer escapes and blanks: more would take a hundred times their size of memory
    if seems_encoded and 4 * sum(map(text.count, _ESCAPES_AND_BLANKS)) <= len(text):
        encoded = _BASE64_MARK.sub(b"", _unescape(text).strip(_BESIDE_BASE64))
        check_size(len(encoded) // 2, max_bytes)
        encoded = _join_lines(encoded).translate(_FROM_URL_ALPHABET).rstrip(b"=")
        with suppress(ValueError):
            return base64.b64decode(encoded + b"=" * (-len(encoded) % 4), validate=True)
    if head.lower().startswith(_MARKUP_STARTS) and (markup := find_svg(_unescape(text))):
        return markup
    return text if head[:5].lower() == b"data:" else None


def _unescape(text: bytes) -> bytes:
    """Undo the escapes of URLs (%2B), JSON (\\/, \\n, \\u002b) and HTML (&#43;, &#x2B;), also of an
    escaped text.
    """
    for _ in range(2):
        for escape, plain in _ESCAPES.items():
            text = re.sub(escape, plain, text)
        with suppress(ValueError):  # a number of thousands of digits
            text = unquote_to_bytes(html.unescape(text.decode("latin-1")))
    return text


def _join_lines(encoded: bytes) -> bytes:
    """Join the lines of base64.

    A blank is a + that the decoding of a form lost, unless it indents or ends lines.
    """
    lines = encoded.strip().splitlines()
    if all(line[:1].isspace() for line in lines[1:]):
        lines = [line.lstrip() for line in lines]
    text = b"".join(lines)
    parts = text.split(b" ")
    are_lines = len(parts) > 2 and len({len(part) for part in parts[:-1]}) == 1
    fits_without = len(text) % 4 > 0 and sum(map(len, parts)) % 4 == 0
    return (b"" if b"+" in text or are_lines or fits_without else b"+").join(parts)


def name_source(source: ImageSource) -> str:
    """Return the name of an image for a message: its path, or an empty text."""
    path = getattr(source, "name", "") if is_file(source) else source
    with suppress(ImageError):  # base64 of too large an image
        if isinstance(path, (str, os.PathLike)) and decode_text(path) is None:
            name = str(path)
            return name if len(name) <= _LONGEST_NAME else name[:_LONGEST_NAME] + "…"
    return ""


def read_bytes(source: str | os.PathLike[str], max_bytes: int = MAX_BYTES) -> bytes:
    """Return the content of a regular file of at most `max_bytes`."""
    try:
        with open_regular(source) as stream:
            size = os.fstat(stream.fileno()).st_size
            check_size(size, max_bytes)
            return stream.read(size) or b""  # a file of the kernel may return None
    except OSError as error:
        reason = _UNREADABLE.get(error.errno or 0, error.strerror)
        if os.path.islink(source) and not os.path.exists(source):
            reason = f"a link to {os.readlink(source)}, which is missing"
        if re.match("(https?|ftp):/", os.fspath(source), re.IGNORECASE):
            reason = (
                "an address; captcha-ocr talks to no website: save the image, and read the file"
            )
        raise ImageError(reason or str(error)) from None
    except ValueError as error:  # a NUL in the path
        raise ImageError(str(error)) from None


def decode(data: bytes, max_bytes: int = MAX_BYTES) -> Image.Image:
    """Decode the first frame of an image file."""
    check_size(len(data), max_bytes)
    with _translate_errors():
        images, orientation = open_sanitized(data)
        first = _choose_frame(next(images), orientation)
        for other in images:
            check(
                ImageChops.difference(first, _load_pixels(other, orientation)).getbbox() is None,
                "damaged image: it is truncated",
                ImageError,
            )
        return first


def _choose_frame(image: ImageFile, orientation: int) -> Image.Image:
    """Return the frame with the most contrast: a text that appears letter by letter is complete
    there.

    Its `info` has the number of frames that were looked at: as many as have the area of the largest
    image.
    """
    first = _load_pixels(image, orientation)
    is_plain_png = isinstance(image, PngImageFile) and not image.is_animated
    if image.format not in _ANIMATED or is_plain_png:
        return first
    frames = [first.copy()]  # which also frees a decoder's memory
    most = min(_MAX_FRAMES, MAX_AREA // (image.width * image.height))
    # EOFError after the last frame; a damaged one ends it, too
    with suppress(*_DECODING_ERRORS, ImageError):
        for number in range(1, most):
            image.seek(number)
            frames.append(_load_pixels(image, orientation).copy())
    best = max(frames, key=_measure_contrast)
    best.info["frames"] = len(frames)
    return best


def describe_oddities(image: Image.Image) -> Iterator[str]:
    """Yield what is odd about an opened image, and how it is read."""
    if image.info.get("frames", 1) > 1:
        yield "animated, read by the frame with the most contrast"
    if image.has_transparency_data and _choose_background(image) == "black":
        yield "light on transparency, read on black"
    pixels = np.asarray(flatten(image, "RGB"))
    # One axis after the other, which numpy does many pixels at a time
    highest, lowest = pixels.max(axis=0).max(axis=0), pixels.min(axis=0).min(axis=0)
    if (highest - lowest).max() < _FLAT:
        yield ONE_COLOUR


def _measure_contrast(image: Image.Image) -> float:
    """Return the deviation of an image's grey values, 0 to 128."""
    return ImageStat.Stat(_fill_background(image).convert("L")).stddev[0]


def _load_pixels(image: Image.Image, orientation: int = 1) -> Image.Image:
    """Decode the pixels of an opened image within the limits, and turn it upright."""
    check_sides(*image.size)
    with _translate_errors():
        image.load()
        check(
            image.mode != "P" or image.palette is not None,
            "damaged image: it has no palette",
            ImageError,
        )
        return image.transpose(_TURNS[orientation]) if orientation in _TURNS else image


@contextmanager
def _translate_errors(what: str = "damaged image") -> Iterator[None]:
    try:
        yield
    except _DECODING_ERRORS as error:
        raise ImageError(f"{what}: {error}") from None


def _convert_array(pixels: np.ndarray) -> Image.Image:
    what, kind = f"{pixels.shape} {pixels.dtype}", pixels.dtype.kind
    if pixels.ndim == 3 and pixels.shape[0] in _CHANNELS and pixels.shape[2] not in _CHANNELS:
        pixels = pixels.transpose(1, 2, 0)
    if pixels.shape[2:] == (1,):
        pixels = pixels[:, :, 0]
    is_image = pixels.ndim > 1 and pixels.shape[2:] in ((), *zip(_CHANNELS, strict=True))
    most = {"b": 1, "f": 1, "u": _DEPTHS[-1], "i": _DEPTHS[-1]}.get(kind)
    check(
        is_image
        and pixels.size > 0
        and most is not None
        and 0 <= pixels.min() <= pixels.max() <= most,
        "an array must be (H, W), (H, W, 3) or (H, W, 4), of whole numbers from 0 to 255, or of "
        f"float from 0 to 1, not {what}",
        ImageError,
    )
    check_sides(pixels.shape[1], pixels.shape[0])
    pixels = np.rint(pixels * 255.0).astype(np.uint8) if most == 1 else _to_8_bits(pixels)
    return Image.fromarray(pixels)


def _to_8_bits(pixels: np.ndarray) -> np.ndarray:
    """Return whole numbers as uint8, scaled from as many bits, 1 to 16, as the largest has."""
    depth = next(most for most in _DEPTHS if pixels.max() <= most)
    return (pixels.astype(np.uint32) * 255 // depth).astype(np.uint8)


def encode_png(image: Image.Image) -> bytes:
    """Return an image as a PNG file."""
    stream = io.BytesIO()
    image.save(stream, "PNG")
    return stream.getvalue()


def flatten(image: Image.Image, mode: str) -> Image.Image:
    """Convert any Pillow mode to `mode` (L or RGB) of 8 bits: transparent pixels turn white or
    black, and numbers of another depth are scaled. An image that is so already is returned itself.
    """
    with _translate_errors(f"an image of mode {image.mode} that is not read"):
        if image.mode[0] in "IF":
            numbers = np.asarray(image).clip(0, _DEPTHS[-1])  # Pillow's own clips at 255
            image = _convert_array(numbers if numbers.max() <= 1 else numbers.astype(np.int32))
        image = _fill_background(image)
        image = image if image.mode == mode else image.convert(mode)
    corner = cast("int | tuple[int, ...]", image.getpixel((0, 0)))
    if max(corner if isinstance(corner, tuple) else (corner,)) <= _DARK:  # most are light here
        pixels = np.asarray(image)
        if pixels.min() < pixels.max() <= _DARK:
            return Image.fromarray(_to_8_bits(pixels))
    return image


def _fill_background(image: Image.Image) -> Image.Image:
    """Return an image whose transparent pixels are white or black."""
    if not image.has_transparency_data:
        return image
    background = Image.new("RGBA", image.size, _choose_background(image))
    image = image.convert("RGBA")
    is_hidden = image.getchannel("A").getextrema() == (0, 0)
    if is_hidden and _measure_contrast(image.convert("RGB")) > 0:
        image.putalpha(255)  # some programs forget to set it
    return Image.alpha_composite(background, image)


def hash_pixels(image: Image.Image) -> str:
    """Return a hash of what an image shows, whatever its format, mode and metadata are."""
    return sha256(f"{image.size} ".encode() + flatten(image, "RGB").tobytes())


def _choose_background(image: Image.Image) -> str:
    """Return the colour for transparent pixels: white, or black if that has twice the contrast, as
    for white text.
    """
    step = 1 + image.width * image.height // _MAX_SAMPLED
    sides = -(-image.width // step), image.height
    image = image.resize(sides, Image.Resampling.NEAREST).convert("RGBA")
    grounds = [Image.new("RGBA", sides, colour) for colour in ("white", "black")]
    on_white, on_black = (
        _measure_contrast(Image.alpha_composite(ground, image).convert("L")) for ground in grounds
    )
    return "black" if on_black > 2 * on_white else "white"


@dataclass(frozen=True)
class ImageFiles:
    """The files below a folder: images, and others. Both are sorted POSIX paths relative to it."""

    images: list[str]
    others: list[str]

    def kinds(self, used: Set[str] = frozenset()) -> dict[str, int]:
        """Return the number of other files by their extension, the most frequent first, without
        those that are used.
        """
        suffixes = (PurePosixPath(file).suffix.lower() for file in self.others if file not in used)
        return dict(Counter(suffix or "without an extension" for suffix in suffixes).most_common())


def find_images(folder: Path) -> ImageFiles:
    """Find the images below a folder, also through links: by their extension, else by their first
    bytes.

    Hidden files and folders are passed over.
    """
    files = ImageFiles([], [])
    for file in sorted(walk_files(folder)):
        is_image = file.lower().endswith(_IMAGE_EXTENSIONS) or _starts_as_image(folder / file)
        (files.images if is_image else files.others).append(file)
    return files


def _starts_as_image(path: Path) -> bool:
    with suppress(OSError), open_regular(path) as stream:
        return is_image(stream.read(START) or b"")
    return False

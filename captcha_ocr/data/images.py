"""Open images: a path, bytes, base64, an open file, an array or a PIL image becomes a uint8 array.

`prepare` and `eval` both call `to_array`, so that a model reads the same pixels as in training.
"""

import base64
import io
import os
import struct
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Protocol, TypeGuard

import numpy as np
from PIL import Image, ImageChops

from captcha_ocr.config import MAX_BYTES, ImageKind, InputSize
from captcha_ocr.data.sanitize import check_sides, check_size, open_sanitized, orientation_of
from captcha_ocr.errors import ImageError
from captcha_ocr.system.files import open_regular


class Readable(Protocol):
    """An open file, or the object that a web framework hands over as one."""

    def read(self, size: int, /) -> bytes:
        """Return at most `size` bytes."""


Source = str | os.PathLike[str] | bytes | bytearray | memoryview | Readable | Image.Image | np.ndarray

EXTENSIONS = (".png", ".jpg", ".jpeg", ".gif", ".bmp", ".webp")
GREY_SUFFICES = 0.5  # of the contrast, in 95 % of the images
BASE64_STARTS = (b"iVBORw0KGgo", b"/9j/", b"R0lGOD", b"Qk", b"UklGR")  # the first bytes of the five formats, in base64
LEAST_BASE64 = 50  # characters; no image file is smaller
LONGEST_NAME = 200  # characters of a path in a message
TURNS = {  # EXIF orientation -> the operation that turns the image upright
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
# What Pillow raises for damaged data; a Warning where a program has made warnings errors.
DECODING_ERRORS = (
    *(OSError, SyntaxError, ValueError, EOFError, LookupError, TypeError, OverflowError),
    *(struct.error, Image.DecompressionBombError, Warning),
)


def to_array(source: Source, size: InputSize, max_bytes: int = MAX_BYTES) -> np.ndarray:
    """Return any image as (C, H, W) uint8 of the given size; ImageError, of one line, if it cannot be read.

    Transparent pixels turn white, 16-bit grey is scaled to 8 bits, the EXIF orientation is applied, and the first frame
    of an animation is used. An array is (H, W), (H, W, 1), (H, W, 3) or (H, W, 4) uint8. A file of more than
    `max_bytes` is refused; sanitize.py has the other limits.
    """
    image = flatten(open_image(source, max_bytes), "L" if size.channels == 1 else "RGB")
    if image.size != (size.width, size.height):
        with pillow_errors():
            image = image.resize((size.width, size.height), Image.Resampling.BILINEAR)
    pixels = np.asarray(image)
    return pixels[None] if pixels.ndim == 2 else np.ascontiguousarray(pixels.transpose(2, 0, 1))


def survey(files: Iterable[Path], max_bytes: int = MAX_BYTES) -> ImageKind | None:
    """Return the median size of some images, with 3 channels if grey loses contrast; None if none can be read."""
    sizes, kept = [], []
    for file in files:
        with suppress(ImageError):
            image = open_image(file, max_bytes)
            kept.append(contrast_in_grey(image))
            sizes.append(image.size)
    if not sizes:
        return None
    widths, heights = zip(*sizes, strict=True)
    kept.sort()
    colour_tells = kept[len(kept) // 20] < GREY_SUFFICES
    height, width = (sorted(sides)[(len(sides) - 1) // 2] for sides in (heights, widths))
    return ImageKind(height, width, 3 if colour_tells else 1)


def contrast_in_grey(image: Image.Image) -> float:
    """Return the share of the contrast that grey keeps, 0 to 1: its deviation over that along the main colour."""
    pixels = np.asarray(flatten(image, "RGB"), dtype=np.float64).reshape(-1, 3)
    if len(pixels) < 2:
        return 1.0
    covariance = np.cov(pixels, rowvar=False)
    grey = np.array([0.299, 0.587, 0.114])  # as Pillow weighs them
    variance, most = grey @ covariance @ grey / (grey @ grey), np.linalg.eigvalsh(covariance)[-1]
    return float(np.sqrt(variance / most)) if most > 1 else 1.0


def open_image(source: Source, max_bytes: int = MAX_BYTES) -> Image.Image:
    """Return a decoded, upright image."""
    if isinstance(source, np.ndarray):
        return image_of(source)
    if isinstance(source, Image.Image):
        exif = source.info.get("exif", b"")
        return load(source, orientation_of(exif) if isinstance(exif, bytes) else 1)
    return decode(file_in(source, max_bytes), max_bytes)


def file_in(source: str | os.PathLike[str] | bytes | bytearray | memoryview | Readable, max_bytes: int) -> bytes:
    """Return the bytes of an image file, given as a path, an open file, bytes or base64."""
    if isinstance(source, (str, os.PathLike)):
        encoded = bytes_of_text(source, max_bytes)
        return read_bytes(source, max_bytes) if encoded is None else encoded
    if is_file(source) and not isinstance(source, io.TextIOBase):
        source = all_of(source, 2 * max_bytes)  # it may be base64, which is a third longer
    if not isinstance(source, (bytes, bytearray, memoryview)):
        raise TypeError(
            f"an image is a path, a file opened in binary mode, its bytes or pixels, not {type(source).__name__}"
        )
    data = bytes(source)
    encoded = from_base64(data, max_bytes)
    return data if encoded is None else encoded


def is_file(source: object) -> TypeGuard[Readable]:
    """Tell whether `source` is an open file."""
    return hasattr(source, "read")


def all_of(stream: Readable, most: int) -> bytes:
    """Read at most `most` bytes of an open file; a raw file or a pipe returns a part at a time."""
    found = bytearray()
    while len(found) < most and (part := stream.read(most - len(found))):
        found += part
    return bytes(found)


def bytes_of_text(source: str | os.PathLike[str], max_bytes: int = MAX_BYTES) -> bytes | None:
    """Return the image file that a text contains as base64 or as a `data:` URI; None for a path."""
    data = from_base64(source.encode("ascii", "replace"), max_bytes) if isinstance(source, str) else None
    return None if data is None or os.path.exists(source) else data  # `exists` runs only if it may be base64


def from_base64(text: bytes, max_bytes: int = MAX_BYTES) -> bytes | None:
    """Decode an image file from base64, of either alphabet, or from a `data:` URI; None for anything else.

    A `data:` URI without an image is returned unchanged, since it is not a path either.
    """
    text = text.strip()
    is_uri = text[:5].lower() == b"data:"
    encoded = text.partition(b";base64,")[2] if is_uri else text
    if len(encoded) >= LEAST_BASE64 and encoded.startswith(BASE64_STARTS):
        check_size(len(encoded) // 2, max_bytes)
        encoded = b"".join(encoded.split()).translate(bytes.maketrans(b"-_", b"+/"))
        with suppress(ValueError):
            return base64.b64decode(encoded + b"=" * (-len(encoded) % 4), validate=True)
    return text if is_uri else None


def name_of(source: Source) -> str:
    """Return the name of an image for a message: its path, or an empty text."""
    if is_file(source):
        source = str(getattr(source, "name", ""))
    try:
        is_path = isinstance(source, (str, os.PathLike)) and bytes_of_text(source) is None
    except ImageError:  # base64 of too large an image
        is_path = False
    name = str(source) if is_path else ""
    return name if len(name) <= LONGEST_NAME else name[:LONGEST_NAME] + "…"


def read_bytes(source: str | os.PathLike[str], max_bytes: int = MAX_BYTES) -> bytes:
    """Return the content of a regular file of at most `max_bytes`."""
    if not os.fspath(source):  # Path("") is the current folder
        raise ImageError("no path")
    try:
        with open_regular(source) as stream:
            check_size(os.fstat(stream.fileno()).st_size, max_bytes)
            return stream.read(max_bytes + 1) or b""  # it may grow meanwhile; a file of the kernel may return None
    except IsADirectoryError:
        raise ImageError("a folder, not an image") from None
    except OSError as error:
        raise ImageError(error.strerror or str(error)) from None
    except ValueError as error:  # a NUL in the path
        raise ImageError(str(error)) from None


def decode(data: bytes, max_bytes: int = MAX_BYTES) -> Image.Image:
    """Decode the first frame of an image file."""
    check_size(len(data), max_bytes)
    with pillow_errors():
        images, orientation = open_sanitized(data)
        first = load(next(images), orientation)
        for other in images:
            if ImageChops.difference(first, load(other, orientation)).getbbox():
                raise ImageError("damaged image: it is truncated")
        return first


def load(image: Image.Image, orientation: int = 1) -> Image.Image:
    """Decode the pixels of an opened image within the limits, and turn it upright."""
    check_sides(*image.size)
    with pillow_errors():
        image.load()
        if image.mode == "P" and image.palette is None:
            raise ImageError("damaged image: it has no palette")
        return image.transpose(TURNS[orientation]) if orientation in TURNS else image


@contextmanager
def pillow_errors(what: str = "damaged image") -> Iterator[None]:
    """Turn what Pillow raises for damaged data into ImageError."""
    try:
        yield
    except DECODING_ERRORS as error:
        raise ImageError(f"{what}: {error}") from None


def image_of(pixels: np.ndarray) -> Image.Image:
    """Return the PIL image of an (H, W), (H, W, 1), (H, W, 3) or (H, W, 4) uint8 array."""
    if pixels.ndim == 3 and pixels.shape[2] == 1:
        pixels = pixels[:, :, 0]
    fits = pixels.ndim == 2 or (pixels.ndim == 3 and pixels.shape[2] in (3, 4))
    if pixels.dtype != np.uint8 or not fits or 0 in pixels.shape:
        raise ImageError(f"an array must be (H, W), (H, W, 3) or (H, W, 4) uint8, not {pixels.shape} {pixels.dtype}")
    check_sides(pixels.shape[1], pixels.shape[0])
    return Image.fromarray(pixels)


def flatten(image: Image.Image, mode: str) -> Image.Image:
    """Convert any Pillow mode to `mode` (L or RGB): transparent pixels turn white, 16 bits become 8."""
    with pillow_errors(f"an image of mode {image.mode} that is not read"):
        if image.mode.startswith("I"):
            # Pillow's own conversion clips at 255. A 16-bit file is "I;16…" or "I", which may also hold 8 bits.
            wide = np.asarray(image).clip(0, 65535)
            is_8_bit = image.mode == "I" and wide.max() <= 255
            image = Image.fromarray((wide if is_8_bit else wide // 257).astype(np.uint8))
        if image.has_transparency_data:
            image = image.convert("RGBA")
            image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image)
        return image if image.mode == mode else image.convert(mode)


def image_files(folder: Path) -> list[str]:
    """List the files below `folder` with an image's extension, as sorted POSIX paths relative to it."""
    found: list[str] = []
    for parent, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".")]
        below = Path(parent).relative_to(folder)
        prefix = "" if below == Path() else below.as_posix() + "/"
        found += [prefix + name for name in names if has_image_extension(name)]
    return sorted(found)


def has_image_extension(name: str) -> bool:
    """Tell whether a file name has an image's extension and is not hidden (`._x.png`)."""
    return name.lower().endswith(EXTENSIONS) and not name.startswith(".")

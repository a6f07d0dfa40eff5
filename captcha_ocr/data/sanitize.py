"""Keep the parts of an image file that make the pixels of its first frame, and open them with Pillow.

Pillow also reads texts, colour profiles and camera data. In a file under 2 MB they can cost it a second or 78 MB, and
one that is damaged makes it refuse an image that every browser shows (docs/lab-notebook.md).
"""

import io
import re
import struct
import zlib
from collections.abc import Callable, Iterator
from typing import Literal

from PIL.BmpImagePlugin import BmpImageFile
from PIL.GifImagePlugin import GifImageFile
from PIL.ImageFile import ImageFile
from PIL.JpegImagePlugin import JpegImageFile
from PIL.PngImagePlugin import PngImageFile
from PIL.WebPImagePlugin import WebPImageFile

from captcha_ocr.config import MAX_AREA
from captcha_ocr.errors import ImageError

MAX_IMAGE_SIDE = 4096
MOST_PARTS = 10_000  # chunks, segments or blocks of a file; encoders write some hundred into 2 MB
MOST_TABLES = 100_000  # bytes of a JPEG before its pixels; encoders write some hundred
MOST_SCANS = 32  # of a progressive JPEG, each of which costs as much as a whole image; encoders write up to 18
MOST_RUNS = 300_000  # pixels plus bytes of a run-length BMP, which Pillow decodes in Python
MOST_TAGS = 100  # of EXIF data, in which the orientation is searched
ORIENTATION = 0x0112
PNG_TRANSPARENCY = {0: {2}, 2: {6}, 3: set(range(1, 257))}  # bytes of tRNS, by the colour type
JPEG_SEGMENT = re.compile(rb"\xff([\xc0-\xcf\xda-\xfe])(..)", re.DOTALL)  # its marker and its length
JPEG_PIXELS = {*range(0xC0, 0xD0), 0xDB, 0xDD, 0xE0, 0xEE}  # frame, tables, restart interval; JFIF and Adobe: colours
JPEG_SCAN, JPEG_END = b"\xff\xda", b"\xff\xd9"
JPEG_FILLS = (b"\0" * 16, b"\x55" * 16, b"\xaa" * 16)  # a missing block looks different with each
BMP_RUN_LENGTHS = (1, 2)
WEBP_PIXELS = (b"VP8X", b"ANIM", b"ANMF", b"ALPH", b"VP8 ", b"VP8L")

Kept = tuple[list[bytes], bytes]  # a smaller file of the same format, or several with equal pixels; the EXIF data


def open_sanitized(data: bytes) -> tuple[Iterator[ImageFile], int]:
    """Open an image file without decoding it, and find its orientation (EXIF, 1 to 8).

    If there are several images, their pixels must be equal. Image.open is not used: it warns about large sides before
    anyone can check them.
    """
    for start, (keep, image_file) in FORMATS.items():
        if data.startswith(start):
            try:
                files, exif = keep(data)
            except (IndexError, struct.error):
                raise ImageError("damaged image: it is truncated") from None
            return (image_file(io.BytesIO(file)) for file in files), orientation_of(exif)
    raise ImageError("not a PNG, JPEG, GIF, BMP or WEBP image" if data else "an empty file")


def check_size(size: int, max_bytes: int) -> None:
    """Refuse a file of more bytes."""
    if size > max_bytes:
        raise ImageError(f"larger than {max_bytes:,} bytes; --max-bytes admits more")


def check_sides(width: int, height: int) -> None:
    """Refuse an image whose sides or area, in pixels, are out of bounds."""
    if not (0 < width <= MAX_IMAGE_SIDE and 0 < height <= MAX_IMAGE_SIDE and width * height <= MAX_AREA):
        raise ImageError(f"{width}x{height} pixels; at most {MAX_IMAGE_SIDE} a side and {MAX_AREA:,} in all are read")


def too_many(most: int = MOST_PARTS) -> ImageError:
    """Name the limit that an image exceeds."""
    return ImageError(f"damaged image: it has more than {most:,} parts")


def keep_png(data: bytes) -> Kept:
    """Keep the pixels, and the first header, palette and transparency whose checksum is right."""
    first, pixels, place = dict.fromkeys((b"IHDR", b"PLTE", b"tRNS", b"eXIf"), b""), [], 8
    for _ in range(MOST_PARTS):
        kind, end = data[place + 4 : place + 8], place + 12 + int.from_bytes(data[place : place + 4])
        chunk = data[place:end]
        if kind in (b"IEND", b""):
            break
        intact = zlib.crc32(chunk[4:-4]) == int.from_bytes(chunk[-4:])
        if kind == b"IDAT":
            if not intact and end <= len(data):  # Pillow finds out whether a cut file lacks pixels
                raise ImageError("damaged image: the checksum of its pixels is wrong")
            pixels.append(chunk)
        elif intact and kind in first and not first[kind]:
            first[kind] = chunk
        place = end
    else:
        raise too_many()
    header, palette, transparency, exif = first.values()
    if len(transparency) - 12 not in PNG_TRANSPARENCY.get(header[17], ()):
        transparency = b""
    return [b"".join([data[:8], header, palette, transparency, *pixels])], exif[8:-4]


def keep_jpeg(data: bytes) -> Kept:
    """Keep the segments that make pixels, up to the end of the image.

    A file without that end is completed in three ways. If the pixels are equal, none is missing. Pillow refuses a file
    that lacks more than a block or two, and a progressive one.
    """
    kept, exif, place = [data[:2]], b"", 2
    for _ in range(MOST_PARTS):
        found = JPEG_SEGMENT.search(data, place)
        if found is None:
            raise ImageError("damaged image: it has no pixels")
        place, marker = found.start(), found[1][0]
        if marker == JPEG_SCAN[1]:
            end = data.find(JPEG_END, place)
            pixels = data[place : end + 2] if end >= 0 else data[place:].rstrip(b"\xff")
            if pixels.count(JPEG_SCAN) > MOST_SCANS:
                raise too_many(MOST_SCANS)
            if sum(map(len, kept)) > MOST_TABLES:
                raise ImageError(f"damaged image: it has more than {MOST_TABLES:,} bytes of tables")
            return [b"".join([*kept, pixels, fill]) for fill in (JPEG_FILLS if end < 0 else (b"",))], exif
        segment = data[place : place + 2 + int.from_bytes(found[2])]
        if segment[4:10] == b"Exif\0\0":
            exif = exif or segment[10:]
        elif marker in JPEG_PIXELS:
            kept.append(segment)
        place += len(segment)
    raise too_many()


def keep_gif(data: bytes) -> Kept:
    """Keep the header, the last graphic control extension before the first frame, and all from that frame on."""
    place = 13 + (3 << (data[10] & 7) + 1 if data[10] & 0x80 else 0)  # after the colour table
    header, control, start = data[:place], b"", 0
    for _ in range(MOST_PARTS):
        byte = data[place]
        if start:  # in an extension: the length of its next block, of which the last is empty
            place += 1 + byte
            if byte == 0:
                control = data[start:place] if data[start + 1] == 0xF9 else control
                start = 0
        elif byte == 0x21:
            start, place = place, place + 2
        elif byte == 0x2C:
            screen, frame = struct.unpack_from("<2H", data, 6), struct.unpack_from("<4H", data, place + 1)
            check_sides(max(screen[0], frame[0] + frame[2]), max(screen[1], frame[1] + frame[3]))
            return [header + control + data[place:]], b""
        else:
            place += 1
    raise too_many()


def keep_bmp(data: bytes) -> Kept:
    """Keep the whole file: it contains nothing but pixels."""
    if data[14] > 12:  # the oldest kind of header has no compression
        width, height, compression = struct.unpack_from("<ii4xI", data, 18)
        if compression in BMP_RUN_LENGTHS and abs(width * height) + len(data) > MOST_RUNS:
            raise ImageError("a run-length encoded BMP that takes too long to decode; save it as PNG")
    return [data], b""


def keep_webp(data: bytes) -> Kept:
    """Keep the first whole chunk of each kind that makes pixels: of an animation, the first frame."""
    kept, exif, place = dict[bytes, bytes](), b"", 12
    for _ in range(MOST_PARTS):
        if place >= len(data):
            body = data[8:12] + b"".join(kept.values())
            return [b"RIFF" + struct.pack("<I", len(body)) + body], exif
        kind, end = data[place : place + 4], place + 8 + int.from_bytes(data[place + 4 : place + 8], "little")
        if kind == b"EXIF":
            exif = exif or data[place + 8 : end]
        elif kind in WEBP_PIXELS and end <= len(data):
            kept.setdefault(kind, data[place:end] + bytes((end - place) % 2))
        place = end + (end - place) % 2
    raise too_many()


def orientation_of(exif: bytes) -> int:
    """Find the orientation in EXIF data: 1 to 8, or another number if there is none.

    Pillow's own reader warns about damaged data, and takes 0.4 s for 60,000 tags.
    """
    exif = exif.removeprefix(b"Exif\0\0")
    order: Literal["little", "big"] = "little" if exif.startswith(b"II") else "big"

    def number(place: int, size: int) -> int:
        return int.from_bytes(exif[place : place + size], order)

    first = number(4, 4)
    tags = range(first + 2, first + 2 + 12 * min(number(first, 2), MOST_TAGS), 12)
    return next((number(tag + 8, 2) for tag in tags if number(tag, 2) == ORIENTATION), 1)


FORMATS: dict[bytes, tuple[Callable[[bytes], Kept], type[ImageFile]]] = {
    b"\x89PNG\r\n\x1a\n": (keep_png, PngImageFile),
    b"\xff\xd8": (keep_jpeg, JpegImageFile),
    b"GIF87a": (keep_gif, GifImageFile),
    b"GIF89a": (keep_gif, GifImageFile),
    b"BM": (keep_bmp, BmpImageFile),
    b"RIFF": (keep_webp, WebPImageFile),
}

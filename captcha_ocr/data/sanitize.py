"""Keep the parts of an image file that make its pixels, and open them with Pillow.

Pillow also reads texts, colour profiles and camera data. In a file under 2 MB they can cost it a
second or 78 MB, and one that is damaged makes it refuse an image that every browser shows
(docs/decisions.md, Files).
"""

import io
import re
import struct
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import chain
from operator import gt
from typing import Literal
from xml.etree import ElementTree

from PIL.BmpImagePlugin import BmpImageFile
from PIL.GifImagePlugin import GifImageFile
from PIL.ImageFile import ImageFile
from PIL.JpegImagePlugin import JpegImageFile
from PIL.PngImagePlugin import PngImageFile
from PIL.TiffImagePlugin import TiffImageFile
from PIL.WebPImagePlugin import WebPImageFile

from captcha_ocr.errors import ImageError, check
from captcha_ocr.options.shared import MAX_AREA
from captcha_ocr.system.files import GIT_LFS, NO_LFS_FILE

_MAX_SIDE = 4096
START = 16  # bytes that tell the kind of a file
MOST_PARTS = 10_000  # chunks, segments or blocks of a file; encoders write some hundred into 2 MB
MOST_TABLES = 100_000  # bytes of a JPEG before its pixels; encoders write some hundred
# Of a progressive JPEG, each of which costs as much as a whole image; encoders write up to 18
MOST_SCANS = 32
_MOST_RUNS = 300_000  # pixels plus bytes of a run-length BMP, which Pillow decodes in Python
_MOST_TAGS = 100  # of a TIFF, or of EXIF data, in which the orientation is searched
_ORIENTATION = 0x0112
# What starts as a WebP or a BMP, and is none
_OTHER_FILES = re.compile(rb"RIFF(?!....WEBP)|BM(?!....\0{4})", re.DOTALL)
_PNG_TRANSPARENCY = {0: {2}, 2: {6}, 3: set(range(1, 257))}  # bytes of tRNS, by the colour type
_PNG_FRAMES = (b"fcTL", b"fdAT")  # of an animation
# Its marker and its length
_JPEG_SEGMENT = re.compile(rb"\xff([\xc0-\xcf\xda-\xfe])(..)", re.DOTALL)
# Frame, tables, restart interval; JFIF and Adobe: colours
_JPEG_PIXELS = {*range(0xC0, 0xD0), 0xDB, 0xDD, 0xE0, 0xEE}
_JPEG_SCAN, _JPEG_END = b"\xff\xda", b"\xff\xd9"
_JPEG_FILLS = (b"\0" * 16, b"\x55" * 16, b"\xaa" * 16)  # a missing block looks different with each
_GIF_FRAME, _GIF_CONTROL = b",\xf9"
_GIF_HEADS = {0x21: 2, _GIF_FRAME: 11}  # bytes before the blocks of an extension, of a frame
_GIF_SHORT = 128  # bytes of a block; of longer ones a file cannot have many
_BMP_RUN_LENGTHS = (1, 2)
_TIFF_PIXELS = {
    *(*range(256, 260), 262, 266, 273, 277, 278, 279, 284),
    *(*range(317, 326), 338, 339, 347, *range(529, 533)),
}
# Of a value, by its type; others: 1
_TIFF_BYTES = {3: 2, 4: 4, 5: 8, 8: 2, 9: 4, 10: 8, 11: 4, 12: 8, 13: 4, 16: 8}
_TIFF_SINGLE = {256, 257, 259, 262, 266, 277, 278, 284, 317, 322, 323, 531}  # tags of one value
_TIFF_TILE = (322, 323)  # its width and height
_NO_IMAGES = {  # how others begin, in lower case, and what they are
    b"data:": "a data: URI that holds no image in base64",
    GIT_LFS: NO_LFS_FILE,
    b"/annex/objects/": "a pointer of git-annex, not the file itself; run: git annex get",
    b"\x1f\x8b": "compressed by gzip, as .svgz is; unpack it with gunzip",
}
_BEFORE_MARKUP = b"\xef\xbb\xbf \t\r\n"
_SVG_START, _SVG_END = re.compile(rb"<svg\b", re.IGNORECASE), b"</svg"
_LONGEST_SVG, _DEEPEST_SVG = 200_000, 20  # bytes; levels of groups: resvg crashes at 10,000
_SVG_SHAPES = {
    *("svg", "g", "path", "rect", "line", "circle", "ellipse", "polyline", "polygon"),
    *("defs", "linearGradient", "radialGradient", "stop", "title", "desc"),
}
_WEBP_PIXELS = (b"VP8X", b"ANIM", b"ANMF", b"ALPH", b"VP8 ", b"VP8L")

# A smaller file of the same format, or several with equal pixels; the EXIF data
_Kept = tuple[list[bytes], bytes]


def open_sanitized(data: bytes) -> tuple[Iterator[ImageFile], int]:
    """Open an image file without decoding it, and find its orientation (EXIF, 1 to 8).

    If there are several images, their pixels must be equal. Image.open is not used: it warns about
    large sides before anyone can check them.
    """
    for start, (keep, image_file) in FORMATS.items():
        if data.startswith(start):
            try:
                files, exif = keep(data)
            except (IndexError, struct.error):
                raise ImageError("damaged image: it is truncated") from None
            return (image_file(io.BytesIO(file)) for file in files), read_orientation(exif)
    for start, what in _NO_IMAGES.items():
        check(data[: len(start)].lower() != start, what, ImageError)
    markup = find_svg(data) if data.lstrip(_BEFORE_MARKUP).startswith(b"<") else None
    if markup is not None:
        return open_sanitized(_draw_svg(markup))
    raise ImageError("not a PNG, JPEG, GIF, BMP, WEBP or TIFF image" if data else "an empty file")


def find_svg(data: bytes) -> bytes | None:
    """Return the markup from the first `<svg` to the last `</svg>`; each byte is looked at once."""
    start, end = _SVG_START.search(data), data.lower().rfind(_SVG_END)
    close = data.find(b">", end)
    if start is None or not start.end() <= end < close:
        return None
    return data[start.start() : close + 1]


def _draw_svg(markup: bytes) -> bytes:
    """Return an SVG of plain shapes as a PNG file.

    Text would need fonts, and links other files; filters and copies may take long.
    """
    try:
        import resvg_py  # the extra `svg`
    except ImportError:
        raise ImageError(
            "an SVG; to read it: pip install resvg-py; or convert it to PNG: resvg a.svg a.png"
        ) from None
    check(len(markup) <= _LONGEST_SVG, f"an SVG of more than {_LONGEST_SVG:,} bytes", ImageError)
    depth = 0
    for event, element in ElementTree.iterparse(io.BytesIO(markup), ("start", "end")):
        depth += 1 if event == "start" else -1
        name = element.tag.rpartition("}")[2]
        is_plain = name in _SVG_SHAPES and depth <= _DEEPEST_SVG
        check(is_plain, f"an SVG with more than plain shapes: {name[:40]!r}", ImageError)
    sides = element.get("viewBox") or f"{element.get('width')} {element.get('height')}"
    numbers = re.findall(r"[\d.]+(?=px|[\s,]|$)", sides)[-2:]
    check(len(numbers) == 2, "an SVG without its size in pixels", ImageError)
    width, height = (round(float(side)) for side in numbers)
    check_sides(width, height)
    picture = resvg_py.svg_to_bytes(
        markup.decode(), width=width, height=height, skip_system_fonts=True
    )
    return bytes(picture)


def is_image(start: bytes) -> bool:
    """Tell whether a file that starts with these `START` bytes is an image."""
    is_known = len(start) == START and start.startswith(tuple(FORMATS))
    return is_known and not _OTHER_FILES.match(start)


def check_size(size: int, max_bytes: int) -> None:
    """Refuse a file of more bytes."""
    check(
        size <= max_bytes,
        f"larger than {max_bytes:,} bytes; a larger `max_bytes` admits it",
        ImageError,
    )


def check_sides(width: int, height: int) -> None:
    """Refuse an image whose sides or area, in pixels, are out of bounds."""
    check(
        0 < width <= _MAX_SIDE and 0 < height <= _MAX_SIDE and width * height <= MAX_AREA,
        f"{width}x{height} pixels; at most {_MAX_SIDE} a side and {MAX_AREA:,} in all are read",
        ImageError,
    )


def _check_parts(number: int, most: int = MOST_PARTS) -> None:
    check(number <= most, f"damaged image: it has more than {most:,} parts", ImageError)


def _count_parts(most: int = MOST_PARTS) -> Iterator[int]:
    """Count the parts of a file while they are read; ImageError if there are more."""
    yield from range(most)
    _check_parts(most + 1, most)


def _keep_png(data: bytes) -> _Kept:
    """Keep the pixels, and the first header, palette and transparency whose checksum is right."""
    first = dict.fromkeys((b"IHDR", b"PLTE", b"tRNS", b"acTL", b"eXIf"), b"")
    pixels, place = list[bytes](), 8
    for _ in _count_parts():
        end = place + 12 + int.from_bytes(data[place : place + 4])
        chunk = data[place:end]
        kind = chunk[4:8]
        if kind in (b"IEND", b""):
            break
        intact = zlib.crc32(chunk[4:-4]) == int.from_bytes(chunk[-4:])
        check(
            kind != b"IDAT" or intact or end > len(data),  # Pillow knows if a cut file lacks pixels
            "damaged image: the checksum of its pixels is wrong",
            ImageError,
        )
        if kind == b"IDAT" or (intact and kind in _PNG_FRAMES):
            pixels.append(chunk)
        elif intact and first.get(kind) == b"":
            first[kind] = chunk
        place = end
    header, palette, transparency, animation, exif = first.values()
    if len(transparency) - 12 not in _PNG_TRANSPARENCY.get(header[17], ()):
        transparency = b""
    if not _is_animation(header, animation, [part for part in pixels if part[4:8] in _PNG_FRAMES]):
        animation, pixels = b"", [part for part in pixels if part[4:8] == b"IDAT"]
    return [b"".join([data[:8], header, palette, transparency, animation, *pixels])], exif[8:-4]


def _is_animation(header: bytes, animation: bytes, frames: list[bytes]) -> bool:
    """Tell whether these chunks of a PNG are an animation: Pillow warns of others, or refuses the
    whole image.
    """
    right, bottom = struct.unpack_from(">2I", header, 8)

    def fits(control: bytes) -> bool:
        width, height, x, y = struct.unpack_from(">4I", control, 12)
        return len(control) == 38 and x + width <= right and y + height <= bottom

    has_count = len(animation) == 20 and 0 < int.from_bytes(animation[8:12]) <= MOST_PARTS
    numbers = [int.from_bytes(part[8:12]) for part in frames]
    has_frames = bool(frames) and numbers == list(range(len(frames)))
    return has_count and has_frames and all(fits(part) for part in frames if part[4:8] == b"fcTL")


def _keep_jpeg(data: bytes) -> _Kept:
    """Keep the segments that make pixels, up to the end of the image.

    A file without that end is completed in three ways. If the pixels are equal, none is missing.
    Pillow refuses a file that lacks more than a block or two, and a progressive one.
    """
    kept, exif, place = [data[:2]], b"", 2
    for _ in _count_parts():
        match = _JPEG_SEGMENT.search(data, place)
        if match is None:
            raise ImageError("damaged image: it has no pixels")
        place, marker = match.start(), match[1][0]
        if marker == _JPEG_SCAN[1]:
            break
        segment = data[place : place + 2 + int.from_bytes(match[2])]
        if segment[4:10] == b"Exif\0\0":
            exif = exif or segment[10:]
        elif marker in _JPEG_PIXELS:
            kept.append(segment)
        place += len(segment)
    end = data.find(_JPEG_END, place)
    pixels = data[place : end + 2] if end >= 0 else data[place:].rstrip(b"\xff")
    fills = (b"",) if end >= 0 else _JPEG_FILLS
    _check_parts(pixels.count(_JPEG_SCAN), MOST_SCANS)
    check(
        sum(map(len, kept)) <= MOST_TABLES,
        f"damaged image: it has more than {MOST_TABLES:,} bytes of tables",
        ImageError,
    )
    return [b"".join([*kept, pixels, fill]) for fill in fills], exif


def _keep_gif(data: bytes) -> _Kept:
    """Keep the header, and the frames within the screen with their graphic control extensions.

    For a frame beyond the screen of the first one, Pillow enlarges the image.
    """
    kept = [data[: 13 + _measure_colours(data[10])]]
    parts = _list_gif_parts(data, len(kept[0]))
    for part in parts:
        kept.append(part)
        if part[0] == _GIF_FRAME:
            break
    check(kept[-1][0] == _GIF_FRAME, "damaged image: it is truncated", ImageError)
    right, bottom = map(max, struct.unpack_from("<2H", data, 6), _measure_gif_frame(kept[-1]))
    check_sides(right, bottom)
    with suppress(ImageError):  # too many parts after the first frame are left out
        for part in parts:
            if part[0] == _GIF_FRAME and any(map(gt, _measure_gif_frame(part), (right, bottom))):
                break
            kept.append(part)
    return [b"".join(kept)], b""


def _list_gif_parts(data: bytes, place: int) -> Iterator[bytes]:
    """Yield the frames and graphic control extensions of a GIF, up to a cut or what is neither: for
    browsers, too, the file ends there.
    """
    parts = _count_parts()
    while place + 10 < len(data) and data[place] in _GIF_HEADS:
        next(parts)
        start, place = place, place + _GIF_HEADS[data[place]]
        if data[start] == _GIF_FRAME:
            place += _measure_colours(data[start + 9])
        while place < len(data) and data[place]:
            if data[place] < _GIF_SHORT:
                next(parts)
            place += 1 + data[place]
        place += 1
        if data[start] == _GIF_FRAME or data[start + 1] == _GIF_CONTROL:
            yield data[start:place]


def _measure_gif_frame(part: bytes) -> tuple[int, int]:
    x, y, width, height = struct.unpack_from("<4H", part, 1)
    return x + width, y + height


def _measure_colours(flags: int) -> int:
    """Return the bytes of the colour table that these flags announce in a GIF."""
    return 3 << (flags & 7) + 1 if flags & 0x80 else 0


def _keep_bmp(data: bytes) -> _Kept:
    """Keep the whole file: it contains nothing but pixels."""
    if data[14] > 12:  # the oldest kind of header has no compression
        width, height, compression = struct.unpack_from("<ii4xI", data, 18)
        check(
            compression not in _BMP_RUN_LENGTHS or abs(width * height) + len(data) <= _MOST_RUNS,
            "a run-length encoded BMP that takes too long to decode; save it as PNG",
            ImageError,
        )
    return [data], b""


def _keep_webp(data: bytes) -> _Kept:
    """Keep the first whole chunk of each kind that makes pixels, and all frames of an animation."""
    kept, place = defaultdict[bytes, list[bytes]](list), 12
    parts = _count_parts()
    while place < len(data):
        next(parts)
        kind = data[place : place + 4]
        end = place + 8 + int.from_bytes(data[place + 4 : place + 8], "little")
        if end <= len(data) and (kind == b"ANMF" or kind not in kept):
            kept[kind].append(data[place:end] + bytes((end - place) % 2))
        place = end + (end - place) % 2
    chunks = chain.from_iterable(kept[kind] for kind in _WEBP_PIXELS)
    body = b"".join([data[8:12], *chunks])
    return [b"RIFF" + struct.pack("<I", len(body)) + body], b"".join(kept[b"EXIF"])[8:]


def _keep_tiff(data: bytes) -> _Kept:
    """Keep the tags of the first image that make its pixels.

    The file keeps its length, and its pixels their place.
    """
    order: Literal["<", ">"] = "<" if data.startswith(b"II") else ">"
    (place,) = struct.unpack_from(f"{order}I", data, 4)
    (count,) = struct.unpack_from(f"{order}H", data, place)
    _check_parts(count, _MOST_TAGS)
    entries = data[place + 2 : place + 2 + 12 * count]
    entries = entries[: len(entries) // 12 * 12]
    kept = [tag for tag in struct.iter_unpack(f"{order}HHII", entries) if tag[0] in _TIFF_PIXELS]
    tile: list[int] = []
    for number, kind, values, start in kept:
        _check_parts(values)  # strips of pixels
        size = _TIFF_BYTES.get(kind, 1) * values
        lies_inside = size <= 4 or start + size <= len(data)
        is_whole = lies_inside and (values == 1 or number not in _TIFF_SINGLE)
        check(is_whole, "damaged image: its tags are damaged", ImageError)  # Pillow warns
        if number in _TIFF_TILE:  # a number of 16 bits, at the beginning of the field, or of 32
            field = struct.pack(f"{order}I", start)
            tile += struct.unpack_from(f"{order}{'H' if kind == 3 else 'I'}", field)
    if tile:  # the decoder holds a whole tile, however small the image is
        check_sides(*tile)
    body = b"".join(struct.pack(f"{order}HHII", *tag) for tag in kept) + bytes(4)
    body = struct.pack(f"{order}H", len(kept)) + body
    return [data[:place] + body + data[place + len(body) :]], data


def read_orientation(exif: bytes) -> int:
    """Find the orientation in EXIF data: 1 to 8, or another number if there is none.

    Pillow's own reader warns about damaged data, and takes 0.4 s for 60,000 tags.
    """
    exif = exif.removeprefix(b"Exif\0\0")
    order: Literal["little", "big"] = "little" if exif.startswith(b"II") else "big"

    def number(place: int, size: int) -> int:
        return int.from_bytes(exif[place : place + size], order)

    first = number(4, 4)
    tags = range(first + 2, first + 2 + 12 * min(number(first, 2), _MOST_TAGS), 12)
    return next((number(tag + 8, 2) for tag in tags if number(tag, 2) == _ORIENTATION), 1)


FORMATS: dict[bytes, tuple[Callable[[bytes], _Kept], type[ImageFile]]] = {
    b"\x89PNG\r\n\x1a\n": (_keep_png, PngImageFile),
    b"\xff\xd8": (_keep_jpeg, JpegImageFile),
    b"GIF87a": (_keep_gif, GifImageFile),
    b"GIF89a": (_keep_gif, GifImageFile),
    b"BM": (_keep_bmp, BmpImageFile),
    b"RIFF": (_keep_webp, WebPImageFile),
    b"II*\0": (_keep_tiff, TiffImageFile),
    b"MM\0*": (_keep_tiff, TiffImageFile),
}

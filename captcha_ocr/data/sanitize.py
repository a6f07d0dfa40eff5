"""What is let in of an image file, before a decoder sees any of it.

The file is walked part by part: its format, its sides, its checksums, and whether it is whole. On goes only what makes
the pixels of the first frame. Texts, colour profiles and camera data stay behind: a decoder reads them, too, and files
under 2 MB were made that cost Pillow 13 a third of a second or 80 MB so (docs/reliability.md).

The formats: PNG (https://www.w3.org/TR/png/), JPEG (ITU T.81), GIF (GIF89a), BMP and WebP (RFC 9649).
"""

import re
import struct
import zlib
from collections.abc import Callable, Iterator
from typing import NamedTuple

from captcha_ocr.config import MAX_AREA, MAX_BYTES
from captcha_ocr.errors import ImageError

MAX_SIDE = 4096
MOST_PARTS = 5_000  # chunks, segments or blocks of a file; encoders write some hundred into 2 MB
MOST_SCANS = 32  # of a progressive JPEG, each of which costs as much as the whole image; encoders write ten
MOST_TABLES = 50_000  # bytes of a JPEG's tables, which take long to read; encoders write some hundred a scan
MOST_TAGS = 100  # of EXIF data, among which the orientation is looked for
ORIENTATION = 0x0112
PNG_PIXELS = (b"IHDR", b"PLTE", b"tRNS", b"IDAT", b"IEND")
PNG_ONCE = (b"PLTE", b"tRNS")
JPEG_SIZES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}  # the segments that begin a frame
JPEG_ALONE = frozenset({0x01, *range(0xD0, 0xD9)})  # markers without a segment
JPEG_METADATA = frozenset({*range(0xE1, 0xEE), 0xEF, 0xFE})  # but for APP0 and APP14, which say what the colours are
JPEG_TABLES = JPEG_SIZES | {0xC4, 0xCC, 0xDB}  # the header of a frame is one, too: of its components
JPEG_SCAN, JPEG_END = 0xDA, 0xD9
JPEG_RESTARTS = range(0xD0, 0xD8)  # which part the pixels of a scan
JPEG_MARKER = re.compile(rb"\xff[^\x00\xd0-\xd7]")  # what ends them, or fills up to a marker
MOST_COLOURS = 256  # in the table of a BMP
BMP_RUN_LENGTHS = (1, 2)  # of BMP's ways to store pixels those that Pillow decodes in Python, pixel by pixel
WEBP_PIXELS = (b"VP8X", b"ANIM", b"ALPH", b"VP8 ", b"VP8L")
WEBP_FLAGS = 0x12  # of those in VP8X: whether there is transparency, and animation


class Admitted(NamedTuple):
    """An image file's pixels, as a file of the same format, and how they are to be turned (EXIF, 1 to 8)."""

    data: bytes
    orientation: int = 1


def admit(data: bytes, max_bytes: int = MAX_BYTES) -> Admitted:
    """What is let in of an image file; ImageError, in one sentence, where it is out of bounds, damaged or none."""
    check_size(len(data), max_bytes)
    if not data:
        raise ImageError("an empty file")
    for start, walk in WALKS.items():
        if data.startswith(start):
            try:
                return walk(data)
            except (struct.error, IndexError):
                raise truncated() from None
    raise ImageError("not a PNG, JPEG, GIF, BMP or WEBP image")


def check_size(size: int, max_bytes: int) -> None:
    """Refuse a file of more bytes."""
    if size > max_bytes:
        raise ImageError(f"larger than {max_bytes:,} bytes; --max-bytes admits more")


def check_sides(width: int, height: int) -> None:
    """Refuse an image whose sides or area, in pixels, are out of bounds."""
    if not (0 < width <= MAX_SIDE and 0 < height <= MAX_SIDE and width * height <= MAX_AREA):
        raise ImageError(f"{width}x{height} pixels; at most {MAX_SIDE} a side and {MAX_AREA:,} in all are read")


def truncated() -> ImageError:
    """What is said of a file that ends too soon."""
    return ImageError("damaged image: it is truncated")


def too_many(most: int = MOST_PARTS) -> ImageError:
    """What is said of a file of too many parts."""
    return ImageError(f"more than the {most:,} parts that an image may have")


def admit_png(data: bytes) -> Admitted:
    """The chunks that make the pixels; every checksum is looked at."""
    kept, place, exif, seen = [data[:8]], 8, b"", set[bytes]()
    for _ in range(MOST_PARTS):
        (length,) = struct.unpack_from(">I", data, place)
        kind, end = data[place + 4 : place + 8], place + length + 12
        if end > len(data):
            raise truncated()
        if zlib.crc32(data[place + 4 : end - 4]) != int.from_bytes(data[end - 4 : end]):
            raise ImageError(f"damaged image: the checksum of its part {kind.decode('latin-1')!a} is wrong")
        if (kind == b"IHDR") != (place == 8):  # for what follows is made for the first header, not for another
            raise ImageError("damaged image: its header is not its first part, or not the only one")
        if kind == b"IHDR":
            check_sides(*struct.unpack_from(">II", data, place + 8))
        if kind == b"eXIf":
            exif = exif or data[place + 8 : end - 4]
        if kind in PNG_ONCE and kind in seen:
            raise ImageError(f"damaged image: it has two parts {kind.decode()}")
        seen.add(kind)
        if kind in PNG_PIXELS:
            kept.append(data[place:end])
        if kind == b"IEND":
            return Admitted(b"".join(kept), orientation_of(exif))
        place = end
    raise too_many()


def admit_jpeg(data: bytes) -> Admitted:
    """The segments that make the pixels."""
    kept, exif, sizes, scans, tables = [data[:2]], b"", 0, 0, 0
    for marker, segment in jpeg_segments(data):
        if marker in JPEG_SIZES:
            height, width = struct.unpack_from(">HH", segment, 5)
            check_sides(width, height)
            sizes += 1
        scans += marker == JPEG_SCAN
        tables += len(segment) if marker in JPEG_TABLES else 0
        if scans > MOST_SCANS:
            raise too_many(MOST_SCANS)
        if tables > MOST_TABLES:
            raise ImageError(f"more than the {MOST_TABLES:,} bytes of tables that a JPEG may have")
        if marker == 0xE1 and segment[4:10] == b"Exif\0\0":
            exif = exif or segment[10:]
        if marker not in JPEG_METADATA:
            kept.append(segment)
    if sizes != 1:
        raise ImageError("damaged image: it does not say, or more than once, how large it is")
    return Admitted(b"".join(kept), orientation_of(exif))


def jpeg_segments(data: bytes) -> Iterator[tuple[int, bytes]]:
    """The marker and the whole of every segment, that of a scan with its pixels, to the image's end or the file's."""
    place, in_pixels = 2, False
    for _ in range(MOST_PARTS):
        if in_pixels and place >= len(data):
            return  # as of many a file that was cut in its last bytes; a decoder sees what is missing
        if data[place] == 0:  # between two segments, where some encoders pad
            place += 1
            continue
        if data[place] != 0xFF:
            raise ImageError("damaged image: a part of it does not begin as it should")
        marker = data[place + 1]
        if marker == JPEG_END and in_pixels:
            yield marker, data[place : place + 2]
            return
        restarts = in_pixels and marker in JPEG_RESTARTS
        if marker == 0xFF or (marker in JPEG_ALONE and not restarts):  # the first is there to fill
            place += 1 if marker == 0xFF else 2
            continue
        end = place + 2 + (0 if restarts else int.from_bytes(data[place + 2 : place + 4]))
        if end > len(data) or (end < place + 4 and not restarts):
            raise truncated()
        if marker == JPEG_SCAN or restarts:
            in_pixels = True
            following = JPEG_MARKER.search(data, end)
            end = following.start() if following else len(data)
        yield marker, data[place:end]
        place = end
    raise too_many()


def admit_gif(data: bytes) -> Admitted:
    """The header, and the first frame with the block that says what is transparent in it."""
    screen = struct.unpack_from("<HH", data, 6)
    if screen != (0, 0):  # which some encoders write: then it is as large as the frame
        check_sides(*screen)
    place = 13 + colour_table_bytes(data[10])
    kept = [data[:place]]
    for _ in range(MOST_PARTS):
        if data[place] == 0x2C:
            left, top, width, height, flags = struct.unpack_from("<HHHHB", data, place + 1)
            check_sides(left + width, top + height)
            end = end_of_blocks(data, place + 11 + colour_table_bytes(flags))
            return Admitted(b"".join([*kept, data[place:end], b";"]))
        if data[place] != 0x21:
            raise ImageError("damaged image: it has no frame")
        end = end_of_blocks(data, place + 2)
        if data[place + 1] == 0xF9:
            kept[1:] = [data[place:end]]
        place = end
    raise too_many()


def colour_table_bytes(flags: int) -> int:
    """How long the colour table is that these flags of a GIF announce."""
    return 3 * 2 ** ((flags & 7) + 1) if flags & 0x80 else 0


def end_of_blocks(data: bytes, place: int) -> int:
    """Where a GIF's blocks of data that begin at `place` end."""
    most = MOST_PARTS + len(data) // 255  # which is what a whole block has, and with --max-bytes a file may have many
    for _ in range(most):
        length = data[place]
        place += length + 1
        if length == 0:
            return place
    raise too_many(most)


def admit_bmp(data: bytes) -> Admitted:
    """The whole file, which has nothing but pixels."""
    (header,) = struct.unpack_from("<I", data, 14)
    width, height = struct.unpack_from("<HH" if header == 12 else "<ii", data, 18)
    check_sides(width, abs(height))
    if header != 12:
        if struct.unpack_from("<I", data, 30)[0] in BMP_RUN_LENGTHS:
            raise ImageError("a run-length encoded BMP, which takes too long to decode; save it as PNG")
        if struct.unpack_from("<I", data, 46)[0] > MOST_COLOURS:
            raise ImageError(f"damaged image: it says that it has more than {MOST_COLOURS} colours in its table")
    return Admitted(data)


def admit_webp(data: bytes) -> Admitted:
    """The chunks that make the pixels of the first frame."""
    if data[8:12] != b"WEBP":
        raise ImageError("not a PNG, JPEG, GIF, BMP or WEBP image")
    kept, exif, framed = [b"WEBP"], b"", False
    for kind, chunk in webp_chunks(data):
        if kind == b"VP8X":
            width, height = (1 + int.from_bytes(part, "little") for part in (chunk[12:15], chunk[15:18]))
            check_sides(width, height)
            chunk = chunk[:8] + bytes([chunk[8] & WEBP_FLAGS]) + chunk[9:]
        if kind == b"VP8L":
            (bits,) = struct.unpack_from("<I", chunk, 9)
            check_sides((bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1)
        if kind == b"VP8 ":
            check_sides(*(side & 0x3FFF for side in struct.unpack_from("<HH", chunk, 14)))
        if kind == b"EXIF":
            exif = exif or chunk[8:]
        is_frame = kind == b"ANMF" and not framed
        framed |= is_frame
        if kind in WEBP_PIXELS or is_frame:
            kept.append(chunk)
    body = b"".join(kept)
    return Admitted(b"RIFF" + struct.pack("<I", len(body)) + body, orientation_of(exif))


def webp_chunks(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    """The kind and the whole of every chunk, filled up to an even length."""
    place, stop = 12, 8 + int.from_bytes(data[4:8], "little")  # what follows is no part of it
    for _ in range(MOST_PARTS):
        if place + 8 > stop:
            return
        (length,) = struct.unpack_from("<I", data, place + 4)
        end = place + 8 + length
        if end > len(data):
            raise truncated()
        yield data[place : place + 4], data[place:end] + b"\0" * (length % 2)
        place = end + length % 2
    raise too_many()


def orientation_of(exif: bytes) -> int:
    """How an image is to be turned, 1 to 8, by its EXIF data; 1 where these say nothing of it."""
    exif = exif.removeprefix(b"Exif\0\0")
    order = "<" if exif.startswith(b"II") else ">"
    try:
        (first,) = struct.unpack_from(order + "I", exif, 4)
        (count,) = struct.unpack_from(order + "H", exif, first)
        for place in range(first + 2, first + 2 + 12 * min(count, MOST_TAGS), 12):
            tag, _, _, value = struct.unpack_from(order + "HHIH", exif, place)
            if tag == ORIENTATION:
                return value if 1 <= value <= 8 else 1
    except struct.error:
        return 1
    return 1


WALKS: dict[bytes, Callable[[bytes], Admitted]] = {
    b"\x89PNG\r\n\x1a\n": admit_png,
    b"\xff\xd8": admit_jpeg,
    b"GIF87a": admit_gif,
    b"GIF89a": admit_gif,
    b"BM": admit_bmp,
    b"RIFF": admit_webp,
}

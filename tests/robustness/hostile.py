"""Image files that were made to hurt: few bytes that cost a decoder much time or memory."""

import io
import struct
import zlib

from PIL import Image

FORMATS = ("PNG", "JPEG", "GIF", "BMP", "WEBP")
PNG = b"\x89PNG\r\n\x1a\n"


def encoded(image_format, mode="L", size=(16, 16), **options) -> bytes:
    """A plain image as a file."""
    stream = io.BytesIO()
    Image.new(mode, size).save(stream, image_format, **options)
    return stream.getvalue()


def chunk(kind: bytes, data: bytes) -> bytes:
    """One part of a PNG."""
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png(width: int, height: int, *extra: bytes, first: bytes = b"", colour: int = 0, depth: int = 8) -> bytes:
    """A grey PNG that says it has such sides, and is black as far as it goes."""
    header = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, 0))
    pixels = chunk(b"IDAT", zlib.compress(bytes(min(height * (width + 1), 20_000_000))))
    return PNG + first + header + b"".join(extra) + pixels + chunk(b"IEND", b"")


def changed(data: bytes, place: int, new: bytes) -> bytes:
    """`data` with other bytes at a place."""
    return data[:place] + new + data[place + len(new) :]


def jpeg_claiming(width: int, height: int, **options) -> bytes:
    """A JPEG of 16x16 that says it has other sides."""
    data = encoded("JPEG", **options)
    frame = data.index(b"\xff\xc2" if options.get("progressive") else b"\xff\xc0")
    return changed(data, frame + 5, struct.pack(">HH", height, width))


def jpeg_of_many_scans() -> bytes:
    """A progressive JPEG of 1.9 MB whose first scan comes again and again: each costs as much as an image."""
    data = encoded("JPEG", size=(2000, 2000), progressive=True)
    first = data.index(b"\xff\xda")
    scan = data[first : data.index(b"\xff", first + 2)]
    return data[:first] + scan * (1_900_000 // len(scan)) + data[-2:]


def gif_with(extension: bytes) -> bytes:
    """A GIF with a further block before its frame."""
    data = encoded("GIF", "P")
    return data[: data.index(b",")] + extension + data[data.index(b",") :]


def bmp_in_runs(width: int, height: int, runs: bytes, bits: int) -> bytes:
    """A run-length encoded BMP, which Pillow decodes in Python."""
    header = struct.pack("<IiiHHIIiiII", 40, width, height, 1, bits, 1 if bits == 8 else 2, len(runs), 0, 0, 16, 0)
    return b"BM" + struct.pack("<IHHI", 118 + len(runs), 0, 0, 118) + header + bytes(64) + runs


def webp_of_frames(count: int) -> bytes:
    """An animation of so many frames of 2000x2000 that are all the first one."""
    data = encoded("WEBP", "RGB", (2000, 2000), save_all=True, append_images=[Image.new("RGB", (2000, 2000), "red")])
    first = data.index(b"ANMF")
    frame = data[first : first + 8 + int.from_bytes(data[first + 4 : first + 8], "little")]
    body = data[8:first] + frame * count
    return b"RIFF" + struct.pack("<I", len(body)) + body


def webp_canvas(width: int, height: int, frame: bytes = b"") -> bytes:
    """A WebP in the extended format that says it has such sides."""
    sides = (width - 1).to_bytes(3, "little") + (height - 1).to_bytes(3, "little")
    body = b"WEBPVP8X" + struct.pack("<I", 10) + bytes(4) + sides + frame
    return b"RIFF" + struct.pack("<I", len(body)) + body


def webp_lossless(width: int, height: int) -> bytes:
    """A lossless WebP that says it has such sides."""
    bits = width - 1 | (height - 1) << 14
    return changed(encoded("WEBP", "RGB", lossless=True), 21, struct.pack("<I", bits))


def exif(entries: int, region: int) -> bytes:
    """EXIF data whose entries all name the same bytes, of which a decoder makes copies."""
    rows = b"".join(struct.pack("<HHII", 300 + number, 1, region, 0) for number in range(entries))
    return b"II*\0" + struct.pack("<IH", 8, entries) + rows + bytes(4) + bytes(region)


TEXT = zlib.compress(bytes(900_000), 9)  # under the limit that Pillow has for one text

# What has to be refused: name -> bytes.
BOMBS = {
    "png: 20000x1 in 99 bytes": png(20_000, 1),
    "png: 1x20000": png(1, 20_000),
    "png: 4096x4096": png(4096, 4096),
    "png: 9000x9000, at which Pillow is silent": png(9000, 9000),
    "png: 65500x65500": png(65_500, 65_500),
    "png: the largest sides there are": png(2**31 - 1, 2**31 - 1),
    "png: no sides": png(0, 0),
    "png: a small size in what is no header": png(9000, 9000, first=chunk(b"junk", b"\0\0\0\x10" * 4)),
    "png: a second header": png(16, 16, chunk(b"IHDR", struct.pack(">IIBBBBB", 9000, 9000, 8, 0, 0, 0, 0))),
    "png: 100,000 empty parts": png(16, 16, chunk(b"teXt", b"") * 100_000),
    "png: 3 MB of what is no pixel": png(16, 16, chunk(b"junk", bytes(3_000_000))),
    "jpeg: 65500x65500": jpeg_claiming(65_500, 65_500),
    "jpeg: 65500x65500, progressive": jpeg_claiming(65_500, 65_500, progressive=True),
    "jpeg: no lines": jpeg_claiming(16, 0),
    "jpeg: the same scan 242 times": jpeg_of_many_scans(),
    "jpeg: 400,000 empty segments": b"\xff\xd8" + b"\xff\xfe\0\x02" * 400_000 + encoded("JPEG")[2:],
    "jpeg: a million bytes that fill": b"\xff\xd8" + b"\xff" * 1_000_000 + encoded("JPEG")[2:],
    "gif: a screen of 65535x65535": changed(encoded("GIF", "P"), 6, b"\xff" * 4),
    "gif: a frame of 65535x65535": changed(encoded("GIF", "P"), encoded("GIF", "P").index(b",") + 5, b"\xff" * 4),
    "gif: a comment in 900,000 blocks": gif_with(b"\x21\xfe" + b"\x01a" * 900_000 + b"\0"),
    "gif: 400,000 comments": gif_with(b"\x21\xfe\x01a\0" * 390_000),
    "gif: no end": encoded("GIF", "P")[:-20],
    "bmp: 60000x60000": changed(encoded("BMP"), 18, struct.pack("<ii", 60_000, 60_000)),
    "bmp: 60000 wide, upside down": changed(encoded("BMP"), 18, struct.pack("<ii", 60_000, -60_000)),
    "bmp: a million runs of a pixel": bmp_in_runs(4096, 976, b"\x01\x55" * 990_000, 4),
    "bmp: 160x60 in a million runs": bmp_in_runs(160, 60, b"\0\x02\0\0" * 490_000, 8),
    "jpeg: 30 frames of 22,000 components": encoded("JPEG")[:2]
    + (b"\xff\xc0" + struct.pack(">H", 65_534) + b"\x08\0\x10\0\x10\x03" + b"\1\x11\0" * 21_842) * 30
    + encoded("JPEG")[2:],
    "png: 2,400 palettes": png(16, 16, chunk(b"PLTE", bytes(768)) * 2_400, colour=3),
    "bmp: a table of 60,000 colours": changed(encoded("BMP", "P"), 46, struct.pack("<I", 60_000)) + bytes(240_000),
    "jpeg: 28,000 tables": b"\xff\xd8"
    + (b"\xff\xdb" + struct.pack(">H", 2 + 65 * 1000) + (b"\0" + b"\x01" * 64) * 1000) * 28
    + encoded("JPEG")[2:],
    "webp: a canvas of 16383x16383": webp_canvas(16_383, 16_383),
    "webp: a canvas of 16383x16383 with a frame": webp_canvas(16_383, 16_383, encoded("WEBP", "RGB")[12:]),
    "webp: lossless, 16383x16383": webp_lossless(16_383, 16_383),
    "webp: lossy, 16383x16383": changed(encoded("WEBP", "RGB"), 26, struct.pack("<HH", 16_383, 16_383)),
    "webp: 240,000 empty parts": webp_canvas(16, 16, b"junk\0\0\0\0" * 240_000),
    "tiff": encoded("TIFF"),
    "eps, which Pillow would have another program draw": b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 99999 99999\n",
    "svg": b'<svg xmlns="http://www.w3.org/2000/svg" width="99999" height="99999"/>',
    "gzip": zlib.compress(bytes(100_000_000), wbits=31),
}

# What is harmless but for texts, profiles or camera data, on which a decoder would spend time: read without these.
BURDENED = {
    "png: 200 compressed texts": png(16, 16, chunk(b"zTXt", b"a\0\0" + TEXT) * 200),
    "png: a colour profile of 100 MB": png(16, 16, chunk(b"iCCP", b"a\0\0" + zlib.compress(bytes(100_000_000), 9))),
    "png: EXIF data that stand for 20 GB": png(16, 16, chunk(b"eXIf", exif(20_000, 1_000_000))),
    "jpeg: EXIF data that stand for 80 MB": changed(
        encoded("JPEG"), 2, b"\xff\xe1" + struct.pack(">H", 8 + len(exif(2_600, 30_000))) + b"Exif\0\0"
    )[:12]
    + exif(2_600, 30_000)
    + encoded("JPEG")[2:],
    "jpeg: 600,000 scans after its end": encoded("JPEG") + b"\xff\xda\0" * 600_000,
    "gif: a comment of 1.9 MB": gif_with(b"\x21\xfe" + (b"\xff" + bytes(255)) * 7_400 + b"\0"),
}

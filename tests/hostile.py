"""Image files that an attacker makes: few bytes that cost a decoder much time or memory."""

import io
import struct
import zlib

from PIL import Image

FORMATS = ("PNG", "JPEG", "GIF", "BMP", "WEBP", "TIFF")
PNG = b"\x89PNG\r\n\x1a\n"


def in_format(image: Image.Image, image_format="PNG", **options) -> bytes:
    """An image as a file."""
    stream = io.BytesIO()
    image.save(stream, image_format, **options)
    return stream.getvalue()


def encoded(image_format, mode="L", size=(16, 16), **options) -> bytes:
    """A plain image as a file."""
    return in_format(Image.new(mode, size), image_format, **options)


def chunk(kind: bytes, data: bytes) -> bytes:
    """One part of a PNG."""
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png(
    width, height, *extra: bytes, first=b"", colour=0, depth=8, interlaced=False, most=20_000_000
) -> bytes:
    """A PNG that says it has such sides, and is all zeros, of which it has `most` bytes at most."""
    header = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, interlaced))
    row = 1 + (width * {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}[colour] * depth + 7) // 8
    pixels = chunk(b"IDAT", zlib.compress(bytes(min((1 + interlaced) * height * row, most))))
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
    """A progressive JPEG of 1.9 MB whose first scan comes again and again, at an image's cost."""
    data = encoded("JPEG", size=(2000, 2000), progressive=True)
    first = data.index(b"\xff\xda")
    scan = data[first : data.index(b"\xff", first + 2)]
    return data[:first] + scan * (1_900_000 // len(scan)) + data[-2:]


def segment(marker: int, data: bytes) -> bytes:
    """One segment of a JPEG."""
    return struct.pack(">BBH", 0xFF, marker, len(data) + 2) + data


def jpeg_with(segments: bytes) -> bytes:
    """A JPEG with further segments at its beginning."""
    data = encoded("JPEG")
    return data[:2] + segments + data[2:]


def gif_with(extension: bytes) -> bytes:
    """A GIF with a further block before its frame."""
    data = encoded("GIF", "P")
    return data[: data.index(b",")] + extension + data[data.index(b",") :]


def gif_saying(screen: tuple[int, int], frame: tuple[int, int], disposal: int = 0) -> bytes:
    """A GIF that says that its screen and its frame have such sides, and what becomes of these."""
    data = changed(encoded("GIF", "P"), 6, struct.pack("<HH", *screen))
    start = data.index(b",")
    data = changed(data, start + 5, struct.pack("<HH", *frame))
    return data[:start] + bytes([0x21, 0xF9, 4, disposal << 2, 0, 0, 0, 0]) + data[start:]


def bmp_in_runs(width: int, height: int, runs: bytes, bits: int) -> bytes:
    """A run-length encoded BMP, which Pillow decodes in Python."""
    header = struct.pack(
        "<IiiHHIIiiII", 40, width, height, 1, bits, 1 if bits == 8 else 2, len(runs), 0, 0, 16, 0
    )
    return b"BM" + struct.pack("<IHHI", 118 + len(runs), 0, 0, 118) + header + bytes(64) + runs


def webp_of_frames(count: int, size: tuple[int, int]) -> bytes:
    """An animation of so many frames that are all the first one."""
    data = encoded(
        "WEBP", "RGB", size, save_all=True, append_images=[Image.new("RGB", size, "red")]
    )
    first = data.index(b"ANMF")
    frame = data[first : first + 8 + int.from_bytes(data[first + 4 : first + 8], "little")]
    body = data[8:first] + frame * count
    return b"RIFF" + struct.pack("<I", len(body)) + body


def webp_canvas(width: int, height: int, frame: bytes = b"") -> bytes:
    """A WebP in the extended format that says it has such sides."""
    sides = (width - 1).to_bytes(3, "little") + (height - 1).to_bytes(3, "little")
    body = b"WEBPVP8X" + struct.pack("<I", 10) + bytes(4) + sides + frame
    return b"RIFF" + struct.pack("<I", len(body)) + body


def gif_of_frames(
    count: int, frame: tuple[int, int] = (16, 16), size: tuple[int, int] = (16, 16)
) -> bytes:
    """An animation of so many frames, all but the first of which say that they have such sides."""
    data = encoded("GIF", "P", size)
    first = data.index(b",")
    return data[:-1] + changed(data[first:-1], 5, struct.pack("<HH", *frame)) * (count - 1) + b";"


def tiff(*tags: tuple[int, int, int, int], pixels: bytes = bytes(256)) -> bytes:
    """A grey TIFF of 16x16 with other tags: (number, type, count, value).

    Its pixels are at byte 1000.
    """
    usual = [
        (256, 3, 1, 16),
        (257, 3, 1, 16),
        (258, 3, 1, 8),
        (259, 3, 1, 1),
        (262, 3, 1, 1),
        (273, 4, 1, 1000),
        (277, 3, 1, 1),
        (278, 3, 1, 16),
        (279, 4, 1, len(pixels)),
    ]
    rows = sorted({number: (number, *rest) for number, *rest in (*usual, *tags)}.values())
    entries = b"".join(struct.pack("<HHII", *row) for row in rows)
    directory = struct.pack("<H", len(rows)) + entries + bytes(4)
    if len(directory) < 990:
        return (b"II*\0" + struct.pack("<I", 8) + directory).ljust(1000, b"\0") + pixels
    header = b"II*\0" + struct.pack("<I", 1000 + len(pixels))
    return header.ljust(1000, b"\0") + pixels + directory


def exif(entries: int, region: int) -> bytes:
    """EXIF data whose entries all name the same bytes, of which a decoder makes copies."""
    rows = b"".join(struct.pack("<HHII", 300 + number, 1, region, 0) for number in range(entries))
    return b"II*\0" + struct.pack("<IH", 8, entries) + rows + bytes(4) + bytes(region)


TEXT = zlib.compress(bytes(900_000), 9)  # under the limit that Pillow has for one text

# What is refused: name -> bytes.
BOMBS = {
    "png: 20000x1 in 99 bytes": png(20_000, 1),
    "png: 1x20000": png(1, 20_000),
    "png: 4096x4096": png(4096, 4096),
    "png: 9000x9000, at which Pillow is silent": png(9000, 9000),
    "png: 10000x10000, at which Pillow warns": png(10_000, 10_000),
    "png: 65500x65500": png(65_500, 65_500),
    "png: the largest sides there are": png(2**31 - 1, 2**31 - 1),
    "png: no sides": png(0, 0),
    "png: a small size in what is no header": png(
        9000, 9000, first=chunk(b"junk", b"\0\0\0\x10" * 4)
    ),
    "png: 100,000 empty texts": png(16, 16, chunk(b"teXt", b"") * 100_000),
    "png: 160,000 empty parts of pixels": png(16, 16, chunk(b"IDAT", b"") * 160_000),
    "png: 48,000 frames": png(
        16,
        16,
        chunk(b"acTL", struct.pack(">II", 48_000, 0)),
        *(
            chunk(b"fcTL", struct.pack(">IIIIIHHBB", number, 16, 16, 0, 0, 1, 1, 2, 0))
            for number in range(48_000)
        ),
    ),
    "png: a palette of 1.9 MB": png(16, 16, chunk(b"PLTE", bytes(1_900_000)), colour=3),
    "png: a text of 4 GB": png(16, 16, b"\xff\xff\xff\xfftEXt"),
    "png: 3 MB of what is no pixel": png(16, 16, chunk(b"junk", bytes(3_000_000))),
    "jpeg: 65500x65500": jpeg_claiming(65_500, 65_500),
    "jpeg: 65500x65500, progressive": jpeg_claiming(65_500, 65_500, progressive=True),
    "jpeg: no lines": jpeg_claiming(16, 0),
    "jpeg: the same scan 242 times": jpeg_of_many_scans(),
    "jpeg: 400,000 empty segments": jpeg_with(b"\xff\xfe\0\x02" * 400_000),
    "jpeg: 30 frames of 21,842 components": jpeg_with(
        segment(0xC0, b"\x08\0\x10\0\x10\x03" + b"\1\x11\0" * 21_842) * 29
    ),
    "jpeg: 140,000 frames": jpeg_with(segment(0xC0, b"\x08\0\x10\0\x10\x01\1\x11\0") * 140_000),
    "jpeg: 300,000 restart intervals": jpeg_with(segment(0xDD, b"\0\1") * 300_000),
    "jpeg: 28,000 tables": jpeg_with(segment(0xDB, (b"\0" + b"\x01" * 64) * 1000) * 28),
    "gif: a screen of 65535x65535": gif_saying((65_535, 65_535), (16, 16)),
    "gif: a frame of 65535x65535": gif_saying((16, 16), (65_535, 65_535)),
    "gif: a frame of 9450x9450, at which Pillow warns": gif_saying((16, 16), (9450, 9450)),
    "gif: a screen of 30000x1 and a frame of 1x4096, likewise": gif_saying((30_000, 1), (1, 4096)),
    "gif: 13000x13000, which Pillow fills": gif_saying(
        (13_000, 13_000), (13_000, 13_000), disposal=2
    ),
    "gif: a comment in 900,000 blocks": gif_with(b"\x21\xfe" + b"\x01a" * 900_000 + b"\0"),
    "gif: 390,000 comments": gif_with(b"\x21\xfe\x01a\0" * 390_000),
    "gif: 230,000 control blocks": gif_with(b"\x21\xf9\x04\x08\0\0\0\0" * 230_000),
    "gif: no end": encoded("GIF", "P")[:-20],
    "bmp: 60000x60000": changed(encoded("BMP"), 18, struct.pack("<ii", 60_000, 60_000)),
    "bmp: 60000 wide, upside down": changed(
        encoded("BMP"), 18, struct.pack("<ii", 60_000, -60_000)
    ),
    "bmp: a million runs of a pixel": bmp_in_runs(4096, 976, b"\x01\x55" * 990_000, 4),
    "bmp: 160x60 in a million runs": bmp_in_runs(160, 60, b"\0\x02\0\0" * 490_000, 8),
    "bmp: 4096x976 in long runs": bmp_in_runs(4096, 976, b"\xff\x12" * 17 * 976, 4),
    "bmp: 4096x976 of short rows": bmp_in_runs(4096, 976, b"\x01\x01\0\0" * 976, 8),
    "bmp: 1x4096 in a million ends of rows": bmp_in_runs(1, 4096, b"\0\0" * 990_000, 8),
    "bmp: a header of 4 GB": changed(encoded("BMP"), 14, b"\xff\xff\xff\xff"),
    "bmp: a table of 65,536 colours": changed(encoded("BMP", "P"), 46, struct.pack("<I", 65_536))
    + bytes(300_000),
    "webp: a canvas of 16383x16383": webp_canvas(16_383, 16_383),
    "webp: a canvas of 16383x16383 with a frame": webp_canvas(
        16_383, 16_383, encoded("WEBP", "RGB")[12:]
    ),
    "webp: a canvas of 9450x9450, at which Pillow warns": webp_canvas(
        9450, 9450, encoded("WEBP", "RGB")[12:]
    ),
    "webp: lossless, 16383x16383": changed(
        encoded("WEBP", "RGB", lossless=True), 21, struct.pack("<I", 16_382 | 16_382 << 14)
    ),
    "webp: lossy, 16383x16383": changed(
        encoded("WEBP", "RGB"), 26, struct.pack("<HH", 16_383, 16_383)
    ),
    "webp: 240,000 empty parts": webp_canvas(16, 16, b"junk\0\0\0\0" * 240_000),
    "webp: 12,000 frames": webp_of_frames(12_000, (16, 16)),
    "tiff: 65500x65500": tiff((256, 4, 1, 65_500), (257, 4, 1, 65_500)),
    "tiff: no sides": tiff((256, 3, 1, 0)),
    "tiff: a tile of 65536x65536": tiff(
        (322, 4, 1, 65_536), (323, 4, 1, 65_536), (324, 4, 1, 1000), (325, 4, 1, 256)
    ),
    "tiff: 4 billion strips": tiff((273, 4, 2**32 - 1, 1000), (279, 4, 2**32 - 1, 1000)),
    "tiff: 4 billion bits a sample": tiff((258, 4, 1, 2**32 - 1)),
    "tiff: 60,000 samples": tiff((277, 3, 1, 60_000), (258, 3, 60_000, 1000)),
    "tiff: 60,000 tags": tiff(*((number, 2, 1_000_000, 0) for number in range(600, 60_600))),
    "tiff: tags beyond its end": b"II*\0\xff\xff\xff\xff" + bytes(100),
    "ico": encoded("ICO"),
    "icns": b"icns\0\0\0\x08",
    "eps, which Pillow would have another program draw": b"%!PS-Adobe-3.0 EPSF-3.0\n"
    b"%%BoundingBox: 0 0 99999 99999\n",
    "svg": b'<svg xmlns="http://www.w3.org/2000/svg" width="99999" height="99999"/>',
    "gzip": zlib.compress(bytes(100_000_000), wbits=31),
}

LONG_EXIF = b"Exif\0\0" + exif(60_000, 1_100_000)

# What is read, although it has parts that cost a decoder time or memory: name -> bytes.
BURDENED = {
    "png: 200 compressed texts": png(16, 16, chunk(b"zTXt", b"a\0\0" + TEXT) * 200),
    "png: 1,800 compressed texts of 1 MB": png(
        16, 16, chunk(b"iTXt", b"a\0\1\0\0\0" + TEXT) * 1_800
    ),
    "png: a colour profile of 100 MB": png(
        16, 16, chunk(b"iCCP", b"a\0\0" + zlib.compress(bytes(100_000_000), 9))
    ),
    "png: 1,800 colour profiles of 1 MB": png(
        16, 16, chunk(b"iCCP", b"a\0\0" + zlib.compress(bytes(1_000_000), 9)) * 1_800
    ),
    "png: EXIF data that stand for 20 GB": png(16, 16, chunk(b"eXIf", exif(20_000, 1_000_000))),
    "png: a second header": png(
        16, 16, chunk(b"IHDR", struct.pack(">IIBBBBB", 9000, 9000, 8, 0, 0, 0, 0))
    ),
    "png: 2,400 palettes": png(16, 16, chunk(b"PLTE", bytes(768)) * 2_400, colour=3),
    "png: transparency of 1.9 MB": png(
        16, 16, chunk(b"PLTE", bytes(768)), chunk(b"tRNS", bytes(1_900_000)), colour=3
    ),
    "png: an animation of no frames, at which Pillow warns": png(16, 16, chunk(b"acTL", bytes(8))),
    "png: pixels of 200 MB for 16x16": png(
        16, 16, chunk(b"IDAT", zlib.compress(bytes(200_000_000), 9))
    ),
    "png: 4096x1, interlaced": png(4096, 1, colour=6, depth=16, interlaced=True),
    "png: 1x4096, interlaced": png(1, 4096, colour=6, depth=16, interlaced=True),
    "jpeg: EXIF data that stand for 80 MB": jpeg_with(
        segment(0xE1, b"Exif\0\0" + exif(2_600, 30_000))
    ),
    "jpeg: EXIF data in 29 segments that stand for 66 GB": jpeg_with(
        b"".join(
            segment(0xE1, b"Exif\0\0" + LONG_EXIF[start : start + 65_000])
            for start in range(0, len(LONG_EXIF), 65_000)
        )
    ),
    "jpeg: 145,000 Photoshop resources": jpeg_with(
        segment(0xED, b"Photoshop 3.0\0" + b"8BIM\0\1\0\0\0\0\0\0" * 5_000) * 29
    ),
    "jpeg: a picture index of 4 billion": jpeg_with(
        segment(
            0xE2, b"MPF\0II*\0" + struct.pack("<IHHHII", 8, 1, 0xB001, 4, 1, 2**32 - 1) + bytes(4)
        )
    ),
    "jpeg: 1,200 pictures": encoded(
        "MPO",
        "RGB",
        save_all=True,
        append_images=[Image.new("RGB", (16, 16)) for _ in range(1_199)],
    ),
    "jpeg: a million bytes that fill": jpeg_with(b"\xff" * 1_000_000),
    "jpeg: a million bytes of no segment": jpeg_with(b"\xff\0" * 500_000),
    "jpeg: a million restart markers in no scan": jpeg_with(b"\xff\xd0" * 950_000),
    "jpeg: 600,000 scans after its end": encoded("JPEG") + b"\xff\xda\0" * 600_000,
    "gif: a comment of 1.9 MB": gif_with(b"\x21\xfe" + (b"\xff" + bytes(255)) * 7_400 + b"\0"),
    "gif: 45,000 frames": encoded("GIF", "P")
    + encoded("GIF", "P")[encoded("GIF", "P").index(b",") : -1] * 45_000,
    "bmp: 160x60 in 72,000 jumps": bmp_in_runs(
        160, 60, b"\0\2\0\0" * 72_000 + b"\xa0\5\0\0" * 60, 8
    ),
    "bmp: 300x330 in runs of a pixel": bmp_in_runs(300, 330, (b"\1\5" * 300 + b"\0\0") * 330, 4),
    "png: 4,900 frames": png(
        16,
        16,
        chunk(b"acTL", struct.pack(">II", 4_900, 0)),
        *(
            chunk(b"fcTL", struct.pack(">IIIIIHHBB", number, 16, 16, 0, 0, 1, 1, 2, 0))
            for number in range(4_900)
        ),
    ),
    "gif: 160,000 blocks of a byte after its frame": encoded("GIF", "P")[:-1]
    + b"\x21\xfe"
    + b"\1a" * 800_000
    + b"\0;",
    "gif: 300 frames": gif_of_frames(300),
    "gif: 99 frames of 65535x1365": gif_of_frames(100, (65_535, 1365)),
    "gif: 100 frames of 200x200": gif_of_frames(100, (200, 200), (200, 200)),
    "webp: 500 frames of 200x200": webp_of_frames(500, (200, 200)),
    "tiff: 60 texts of 1.9 MB": tiff(
        *((number, 2, 1_900_000, 0) for number in range(600, 660)), pixels=bytes(1_900_000)
    ),
    "tiff: pixels of 200 MB for 16x16": tiff(
        (259, 3, 1, 8), pixels=zlib.compress(bytes(200_000_000), 9)
    ),
    "webp: EXIF data that stand for 66 GB": encoded("WEBP", "RGB", exif=LONG_EXIF),
}

# What is as large as an image may be, and costs what its pixels cost: name -> bytes.
LARGEST = {
    "png: 2000x2000, 16-bit grey": png(2000, 2000, depth=16),
    "png: 2000x2000, RGBA": png(2000, 2000, colour=6),
    "png: 976x4096, interlaced 16-bit RGBA": png(
        976, 4096, colour=6, depth=16, interlaced=True, most=70_000_000
    ),
    "jpeg: 2000x2000, progressive CMYK": encoded("JPEG", "CMYK", (2000, 2000), progressive=True),
    "jpeg: 2000x2000, without its end": encoded("JPEG", "RGB", (2000, 2000))[:-2],
    "gif: 2000x2000": encoded("GIF", "P", (2000, 2000)),
    "bmp: 2000x2000": encoded("BMP", "1", (2000, 2000)),
    "tiff: 2000x2000, deflate": encoded("TIFF", "RGBA", (2000, 2000), compression="tiff_deflate"),
    "gif: 100 frames of 2000x2000": gif_of_frames(100, (2000, 2000), (2000, 2000)),
    "webp: 2000x2000, lossless": encoded("WEBP", "RGBA", (2000, 2000), lossless=True),
    "webp: 20 frames of 2000x2000": webp_of_frames(20, (2000, 2000)),
}

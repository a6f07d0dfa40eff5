import io
import random
import struct
import zlib

import numpy as np
import pytest
from hostile import FORMATS as HONEST
from hostile import changed, chunk, in_format, segment
from PIL import Image

from captcha_ocr.data.images import decode, flatten
from captcha_ocr.data.sanitize import (
    FORMATS,
    MOST_PARTS,
    MOST_SCANS,
    MOST_TABLES,
    START,
    check_size,
    is_image,
    read_orientation,
)
from captcha_ocr.errors import ImageError

NOISE = random.Random(0).randbytes(5000)  # which cannot be compressed
PNG = b"\x89PNG\r\n\x1a\n"
GRADIENT = Image.linear_gradient("L").resize((40, 20))


def encoded(image_format, image=GRADIENT, **options):
    return in_format(image, image_format, **options)


def kept(file):
    """The smaller file that is given to Pillow, and the EXIF data."""
    keep, _ = next(FORMATS[start] for start in FORMATS if file.startswith(start))
    (smaller,), exif = keep(file)
    return smaller, exif


def spoilt(part, place=-1):
    """A part of a PNG with another byte at a place, by default in the checksum at its end."""
    return changed(part, place % len(part), bytes([part[place] ^ 1]))


def with_chunk(*more, image=GRADIENT):
    """A PNG with more chunks before its pixels."""
    file = encoded("PNG", image)
    place = file.index(b"IDAT") - 4
    return file[:place] + b"".join(more) + file[place:]


def with_segment(more):
    """A JPEG with more bytes before its second segment."""
    file = encoded("JPEG")
    place = file.index(b"\xff\xdb")
    return file[:place] + more + file[place:]


def palette_image():
    image = Image.new("P", (40, 20))
    image.putdata([number % 3 for number in range(800)])
    image.putpalette([10, 20, 30, 200, 100, 50, 0, 255, 0])
    return image


def bmp_in_runs(image, bits):
    """A run-length encoded BMP of a palette image, each run of one pixel."""
    runs = b""
    for row in np.asarray(image)[::-1]:
        runs += b"".join(bytes([1, pixel << (8 - bits)]) for pixel in row) + b"\0\0"
    runs += b"\0\1"
    palette = np.array(image.getpalette(), np.uint8).reshape(-1, 3)[:, ::-1]
    colours = b"".join(bytes(colour) + b"\0" for colour in palette)
    place = 54 + len(colours)
    numbers = (40, *image.size, 1, bits, 1 if bits == 8 else 2, len(runs), 0, 0, len(palette), 0)
    header = struct.pack("<2sIHHIIiiHHIIiiII", b"BM", place + len(runs), 0, 0, place, *numbers)
    return header + colours + runs


def exif_saying(orientation, order="<", tags=1):
    rows = [struct.pack(order + "HHIHH", 0x300 + number, 3, 1, 7, 0) for number in range(tags - 1)]
    rows.append(struct.pack(order + "HHIHH", 0x112, 3, 1, orientation, 0))
    return (
        (b"II*\0" if order == "<" else b"MM\0*")
        + struct.pack(order + "IH", 8, tags)
        + b"".join(rows)
    )


P, PLAIN = (
    palette_image(),
    {image_format: encoded(image_format) for image_format in ("PNG", "JPEG", "GIF", "WEBP")},
)
WEBP_WITH_EXIF = encoded("WEBP", exif=b"Exif\0\0" + exif_saying(1) + NOISE)
NOISY = Image.fromarray(np.random.default_rng(0).integers(0, 256, (600, 800), np.uint8))

# Files that browsers show, although something is wrong or unusual with them:
# name -> the file, and the same in order.
SHOWN = {
    "png: no IEND": (PLAIN["PNG"][:-12], PLAIN["PNG"]),
    "png: no checksum of the pixels": (PLAIN["PNG"][:-16], PLAIN["PNG"]),
    "png: IEND with a wrong checksum": (PLAIN["PNG"][:-1] + b"\0", PLAIN["PNG"]),
    "png: bytes after its end": (PLAIN["PNG"] + NOISE, PLAIN["PNG"]),
    "png: a text with a wrong checksum": (
        with_chunk(spoilt(chunk(b"tEXt", b"a\0b"))),
        PLAIN["PNG"],
    ),
    "png: transparency with a wrong checksum": (
        with_chunk(spoilt(chunk(b"tRNS", b"\0\0"))),
        PLAIN["PNG"],
    ),
    "png: a text of 1.9 MB": (with_chunk(chunk(b"tEXt", b"a\0" + bytes(1_900_000))), PLAIN["PNG"]),
    "png: a compressed text of 2 MB": (
        with_chunk(chunk(b"zTXt", b"a\0\0" + zlib.compress(bytes(2_000_000)))),
        PLAIN["PNG"],
    ),
    "png: a profile that is not compressed": (
        with_chunk(chunk(b"iCCP", b"a\0\1" + NOISE)),
        PLAIN["PNG"],
    ),
    "png: an empty profile": (with_chunk(chunk(b"iCCP", b"")), PLAIN["PNG"]),
    "png: damaged EXIF data": (with_chunk(chunk(b"eXIf", b"MM\0*" + NOISE)), PLAIN["PNG"]),
    "png: a damaged animation": (
        with_chunk(chunk(b"acTL", b""), chunk(b"fcTL", NOISE)),
        PLAIN["PNG"],
    ),
    "png: grey with transparency of a byte": (with_chunk(chunk(b"tRNS", b"\0")), PLAIN["PNG"]),
    "png: a palette with no transparency": (
        with_chunk(chunk(b"tRNS", b""), image=P),
        encoded("PNG", P),
    ),
    "png: a palette with transparency for 257": (
        with_chunk(chunk(b"tRNS", bytes(257)), image=P),
        encoded("PNG", P),
    ),
    "jpeg: no end": (PLAIN["JPEG"][:-2], PLAIN["JPEG"]),
    "jpeg: half an end": (PLAIN["JPEG"][:-1], PLAIN["JPEG"]),
    "jpeg: bytes after its end": (PLAIN["JPEG"] + b"\xff\xda" * 100 + NOISE, PLAIN["JPEG"]),
    "jpeg: zeros between segments": (with_segment(bytes(1000)), PLAIN["JPEG"]),
    "jpeg: fill bytes between segments": (with_segment(b"\xff" * 20_000), PLAIN["JPEG"]),
    "jpeg: text between segments": (with_segment(b"no segment\r\n" * 1000), PLAIN["JPEG"]),
    "jpeg: damaged EXIF data": (
        with_segment(segment(0xE1, b"Exif\0\0MM\0*" + NOISE)),
        PLAIN["JPEG"],
    ),
    "jpeg: an incomplete profile": (
        with_segment(segment(0xE2, b"ICC_PROFILE\0\1\2" + NOISE)),
        PLAIN["JPEG"],
    ),
    "jpeg: a profile of 1.3 MB": (
        with_segment(segment(0xE2, b"ICC_PROFILE\0" + bytes(65_000)) * 20),
        PLAIN["JPEG"],
    ),
    "jpeg: 7,499 restart markers": (
        encoded("JPEG", NOISY, restart_marker_blocks=1),
        encoded("JPEG", NOISY),
    ),
    "gif: no trailer": (PLAIN["GIF"][:-1], PLAIN["GIF"]),
    "gif: no end of its frame": (PLAIN["GIF"][:-2], PLAIN["GIF"]),
    "gif: bytes after its end": (PLAIN["GIF"] + NOISE, PLAIN["GIF"]),
    "gif: a screen without sides": (PLAIN["GIF"][:6] + bytes(4) + PLAIN["GIF"][10:], PLAIN["GIF"]),
    "gif: a frame larger than its screen": (
        PLAIN["GIF"][:6] + b"\1\0\1\0" + PLAIN["GIF"][10:],
        PLAIN["GIF"],
    ),
    "gif: a second frame that is cut": (
        encoded("GIF", save_all=True, append_images=[NOISY])[:-500],
        PLAIN["GIF"],
    ),
    "bmp: runs of 8 bits": (bmp_in_runs(P, 8), encoded("BMP", P)),
    "bmp: runs of 4 bits": (bmp_in_runs(P, 4), encoded("BMP", P)),
    "bmp: no padding of its last row": (
        encoded("BMP", GRADIENT.crop((0, 0, 37, 20)))[:-3],
        encoded("PNG", GRADIENT.crop((0, 0, 37, 20))),
    ),
    "webp: bytes after its end": (PLAIN["WEBP"] + NOISE, PLAIN["WEBP"]),
    "webp: a wrong length": (
        PLAIN["WEBP"][:4] + b"\xff\xff\xff\0" + PLAIN["WEBP"][8:],
        PLAIN["WEBP"],
    ),
    "webp: cut after its pixels": (WEBP_WITH_EXIF[:-100], PLAIN["WEBP"]),
    "webp: a second frame that is cut": (
        encoded("WEBP", lossless=True, save_all=True, append_images=[NOISY.resize((40, 20))])[:-20],
        encoded("WEBP", lossless=True),
    ),
}


@pytest.mark.parametrize("name", SHOWN)
def test_a_file_that_browsers_show_is_read(name):
    unusual, plain = (flatten(decode(file), "RGB") for file in SHOWN[name])
    assert np.array_equal(unusual, plain)


@pytest.mark.parametrize(
    ("image_format", "options"),
    [
        ("PNG", {}),
        ("PNG", {"interlace": 1}),
        ("JPEG", {}),
        ("JPEG", {"quality": 100, "optimize": True}),
        ("JPEG", {"progressive": True}),
        ("JPEG", {"restart_marker_blocks": 1}),
        ("GIF", {}),
        ("GIF", {"save_all": True, "append_images": [Image.new("L", (40, 20))]}),
        ("BMP", {}),
        ("WEBP", {}),
        ("WEBP", {"lossless": True}),
        ("TIFF", {}),
        ("TIFF", {"compression": "tiff_lzw"}),
    ],
)
def test_a_file_that_is_cut_within_its_pixels_is_refused_wherever_it_is_cut(image_format, options):
    image = Image.fromarray(np.random.default_rng(1).integers(0, 256, (12, 20, 3), np.uint8))
    file = encoded(image_format, image, **options)
    whole, refused = np.asarray(decode(file).convert("RGB")), 0
    for length in range(len(file)):
        try:
            assert np.array_equal(decode(file[:length]).convert("RGB"), whole), length
        except ImageError:
            refused += 1
    assert refused > len(file) / 3


@pytest.mark.parametrize(
    ("image_format", "options"),
    [
        ("PNG", {"icc_profile": NOISE, "dpi": (72, 72)}),
        ("JPEG", {"icc_profile": NOISE, "comment": NOISE}),
        ("GIF", {"comment": NOISE}),
        ("WEBP", {"icc_profile": NOISE, "exif": b"Exif\0\0" + NOISE, "xmp": NOISE}),
        ("WEBP", {"icc_profile": NOISE, "lossless": True}),
    ],
)
def test_what_makes_no_pixels_is_dropped(image_format, options):
    file = encoded(image_format, **options)
    smaller, _ = kept(file)
    assert len(smaller) < 4000 < len(file)
    with Image.open(io.BytesIO(smaller)) as image, Image.open(io.BytesIO(file)) as whole:
        assert np.array_equal(image, whole)
        assert not {"icc_profile", "comment", "exif"} & set(image.info)


@pytest.mark.parametrize(
    "start",
    [
        *(in_format(GRADIENT, image_format) for image_format in HONEST),
        PLAIN["PNG"][:START],
        PLAIN["GIF"][:START],
    ],
)
def test_an_image_is_known_by_its_first_bytes_and_so_are_other_files(start):
    assert is_image(start[:START])
    for other in (
        *(b"", b"\xff\xd8", b"BM, a text of letters", b"filename,text\n", b"II*"),
        b"RIFF\x10\0\0\0WAVEfmt ",
    ):
        assert not is_image(other[:START])


@pytest.mark.parametrize(
    ("mode", "another"),
    [
        *(("L", "jpeg"), ("RGB", "jpeg"), ("1", "group4")),
        *((mode, "raw") for mode in ("RGBA", "P", "CMYK", "I;16")),
    ],
)
def test_a_tiff_has_the_pixels_that_pillow_reads(mode, another):
    image = GRADIENT.convert(mode if mode != "I;16" else "I").convert(mode)
    for compression in (
        "raw",
        "tiff_lzw",
        "tiff_deflate",
        "tiff_adobe_deflate",
        "packbits",
        another,
    ):
        file = encoded("TIFF", image, compression=compression, description="a text")
        with Image.open(io.BytesIO(file)) as whole:
            assert np.array_equal(decode(file), whole)


@pytest.mark.parametrize("image_format", ["PNG", "GIF", "WEBP"])
def test_transparency_is_kept(image_format):
    image = Image.merge("LA", [Image.linear_gradient("L"), Image.radial_gradient("L")]).convert(
        "RGBA"
    )
    file = encoded(
        image_format, image if image_format == "WEBP" else palette_image(), transparency=0
    )
    assert decode(file).has_transparency_data
    with Image.open(io.BytesIO(file)) as whole:
        assert np.array_equal(decode(file).convert("RGBA"), whole.convert("RGBA"))


def jpeg_of_scans(count):
    """A progressive JPEG whose first scan is repeated."""
    file = encoded("JPEG", progressive=True)
    start = file.index(b"\xff\xda")
    end = file.index(b"\xff", start + 2)
    return file[:end] + file[start:end] * (count - file.count(b"\xff\xda")) + file[end:]


@pytest.mark.parametrize(
    ("within", "beyond", "most"),
    [
        (
            with_chunk(chunk(b"tEXt", b"") * 9_000),
            with_chunk(chunk(b"tEXt", b"") * MOST_PARTS),
            MOST_PARTS,
        ),
        (
            with_segment(segment(0xFE, b"") * 9_000),
            with_segment(segment(0xFE, b"") * MOST_PARTS),
            MOST_PARTS,
        ),
        (
            with_segment(segment(0xDB, b"\0" + b"\1" * 64) * 1_000),
            with_segment(segment(0xDB, b"\0" + b"\1" * 64) * 1_500),
            MOST_TABLES,
        ),
        (jpeg_of_scans(MOST_SCANS), jpeg_of_scans(MOST_SCANS + 1), MOST_SCANS),
        (
            PLAIN["GIF"][:-1] + b"\x21\xfe" + b"\1a" * 20_000 + b"\0;",
            b"GIF89a" + bytes(7) + b"\x21\xfe" + b"\1a" * MOST_PARTS + PLAIN["GIF"][13:],
            MOST_PARTS,
        ),
        (
            PLAIN["WEBP"] + b"junk\0\0\0\0" * 9_000,
            PLAIN["WEBP"] + b"junk\0\0\0\0" * MOST_PARTS,
            MOST_PARTS,
        ),
    ],
    ids=["chunks of a PNG", "segments", "tables", "scans", "blocks of a GIF", "chunks of a WebP"],
)
def test_an_image_has_no_more_parts_than_the_limit(within, beyond, most):
    assert decode(within).size == (40, 20)
    with pytest.raises(ImageError, match=f"{most:,}"):
        decode(beyond)


def test_a_larger_file_is_read_if_the_limit_is_larger():
    check_size(10, 10)
    with pytest.raises(ImageError, match=r"1,876.*`max_bytes`"):
        check_size(1877, 1876)


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("image_format", ["PNG", "JPEG", "WEBP"])
def test_the_orientation_is_found_in_both_byte_orders(image_format, order):
    _, exif = kept(encoded(image_format, exif=b"Exif\0\0" + exif_saying(6, order, tags=9)))
    assert read_orientation(exif) == 6


@pytest.mark.parametrize(
    "exif",
    [
        b"",
        b"II",
        b"II*\0\xff\xff\xff\xff",
        exif_saying(0),
        exif_saying(9),
        exif_saying(6)[:-6],
        exif_saying(6, tags=200),
    ],
    ids=["empty", "cut", "leads nowhere", "0", "9", "cut entry", "after 199 other tags"],
)
def test_exif_data_without_an_orientation_leave_an_image_as_it_is(exif):
    assert read_orientation(exif) not in range(2, 9)
    assert decode(encoded("PNG", exif=b"Exif\0\0" + exif)).size == (40, 20)


@pytest.mark.parametrize(
    "file",
    [
        b"",
        b"\xff\xd8\xff\xda\0\x02",
        b"\xff\xd8\xff\xe0\0\x01",
        b"\xff\xd8\0\0\0\0",
        PLAIN["JPEG"][:-2] + PLAIN["JPEG"][2:],
        encoded("JPEG", progressive=True)[:-2],
        b"GIF89a\x10\0\x10\0\0\0\0;",
        b"GIF89a",
        b"RIFF\x10\0\0\0WAVEfmt ",
        b"RIFF",
        b"BM",
        PNG,
        PNG + PLAIN["PNG"][33:],
        # Changed in its header, its pixels and the checksum of these:
        *(spoilt(PLAIN["PNG"], place) for place in (20, 50, -13)),
    ],
    ids=repr,
)
def test_a_file_that_begins_like_an_image_and_is_none_is_refused(file):
    with pytest.raises(ImageError, match=r"damaged|empty"):
        decode(file)

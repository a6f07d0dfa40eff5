import io
import random
import struct

import numpy as np
import pytest
from PIL import Image

from captcha_ocr.data.sanitize import MOST_PARTS, admit, orientation_of
from captcha_ocr.errors import ImageError

NOISE = random.Random(0).randbytes(5000)  # which cannot be compressed


def encoded(image_format, **options):
    stream = io.BytesIO()
    Image.linear_gradient("L").resize((40, 20)).save(stream, image_format, **options)
    return stream.getvalue()


def exif_saying(orientation, order="<", tags=1):
    rows = [struct.pack(order + "HHIHH", 0x300 + number, 3, 1, 7, 0) for number in range(tags - 1)]
    rows.append(struct.pack(order + "HHIHH", 0x112, 3, 1, orientation, 0))
    return (b"II*\0" if order == "<" else b"MM\0*") + struct.pack(order + "IH", 8, tags) + b"".join(rows)


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
def test_what_makes_no_pixels_stays_behind(image_format, options):
    file = encoded(image_format, **options)
    data = admit(file).data
    assert len(data) < 4000 < len(file)
    with Image.open(io.BytesIO(data)) as admitted, Image.open(io.BytesIO(file)) as whole:
        assert np.array_equal(admitted, whole)
        assert not {"icc_profile", "comment", "exif"} & set(admitted.info)


@pytest.mark.parametrize("image_format", ["GIF", "WEBP"])
def test_only_the_first_frame_goes_on_and_is_the_same(image_format):
    file = encoded(image_format, save_all=True, append_images=[Image.new("L", (40, 20), grey) for grey in (10, 20, 30)])
    with Image.open(io.BytesIO(admit(file).data)) as admitted, Image.open(io.BytesIO(file)) as whole:
        assert (admitted.n_frames, whole.n_frames) == (1, 4)
        assert np.array_equal(admitted, whole)


@pytest.mark.parametrize("image_format", ["PNG", "GIF", "WEBP"])
def test_transparency_goes_on(image_format):
    stream = io.BytesIO()
    image = Image.merge("LA", [Image.linear_gradient("L"), Image.radial_gradient("L")]).convert("RGBA")
    (image if image_format == "WEBP" else Image.new("P", (40, 20))).save(stream, image_format, transparency=0)
    with Image.open(io.BytesIO(admit(stream.getvalue()).data)) as admitted, Image.open(stream) as whole:
        assert admitted.has_transparency_data
        assert np.array_equal(admitted, whole)


@pytest.mark.parametrize("place", [20, 50, -13, -2], ids=["header", "pixels", "pixels' checksum", "end"])
def test_a_png_with_a_wrong_checksum_is_refused(place):
    file = bytearray(encoded("PNG"))
    file[place] ^= 1
    with pytest.raises(ImageError, match="checksum"):
        admit(bytes(file))


@pytest.mark.parametrize("image_format", ["PNG", "JPEG", "GIF", "WEBP"])
def test_a_file_that_ends_too_soon_is_refused_wherever_it_ends(image_format):
    file = encoded(image_format)
    last = file.index(b"\xff\xda") if image_format == "JPEG" else len(file) - 2
    for length in range(16 if image_format == "WEBP" else 8, last):
        with pytest.raises(ImageError, match="truncated"):
            admit(file[:length])


@pytest.mark.parametrize("more", [b"more", b"\xff\xda" * 100, NOISE])
@pytest.mark.parametrize("image_format", ["PNG", "JPEG", "GIF", "WEBP"])
def test_what_follows_the_end_of_an_image_does_no_harm_and_goes_no_further(image_format, more):
    assert admit(encoded(image_format) + more).data == admit(encoded(image_format)).data


@pytest.mark.parametrize("options", [{}, {"progressive": True}, {"restart_marker_blocks": 1}, {"quality": 100}])
def test_every_scan_of_a_jpeg_goes_on(options):
    file = encoded("JPEG", **options)
    assert admit(file).data == file


def test_a_jpeg_may_be_padded_and_filled_where_pillow_reads_on():
    file = encoded("JPEG", restart_marker_blocks=1)
    second = file.index(b"\xff\xdb")
    restart = file.index(b"\xff\xd0", file.index(b"\xff\xda"))
    padded = file[:second] + b"\0\0" + file[second:restart] + b"\xff\xff" + file[restart:-2] + b"\xff" + file[-2:]
    with Image.open(io.BytesIO(admit(padded).data)) as admitted, Image.open(io.BytesIO(padded)) as whole:
        assert np.array_equal(admitted, whole)


def test_a_jpeg_that_has_lost_its_end_is_left_to_the_decoder():
    file = encoded("JPEG")
    assert [admit(file[:-lost]).data for lost in (1, 2)] == [file[:-1], file[:-2]]


def test_a_jpeg_has_no_more_tables_than_encoders_write():
    file = encoded("JPEG")
    table = file[file.index(b"\xff\xdb") :][:69]
    assert admit(file[:2] + table * 100 + file[2:]).data.count(table) == 101
    with pytest.raises(ImageError, match="more than the 50,000 bytes of tables"):
        admit(file[:2] + table * 1000 + file[2:])


def test_a_gif_whose_screen_has_no_sides_is_as_large_as_its_frame():
    file = encoded("GIF")
    assert Image.open(io.BytesIO(admit(file[:6] + bytes(4) + file[10:]).data)).size == (40, 20)


def test_a_png_has_one_header_and_it_comes_first():
    file = encoded("PNG")
    start, header, rest, end = file[:8], file[8:33], file[33:-12], file[-12:]
    for parts in ((start, rest, header, end), (start, header, header, rest, end), (start, rest, end)):
        with pytest.raises(ImageError, match="its header is not its first part, or not the only one"):
            admit(b"".join(parts))


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("image_format", ["PNG", "JPEG", "WEBP"])
def test_the_orientation_is_found_in_either_order_of_bytes(image_format, order):
    assert admit(encoded(image_format, exif=b"Exif\0\0" + exif_saying(6, order, tags=9))).orientation == 6


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
    ids=["empty", "cut", "leads nowhere", "0", "9", "cut entry", "hidden among many"],
)
def test_exif_data_that_say_nothing_of_it_leave_an_image_as_it_is(exif):
    assert orientation_of(exif) == 1


def test_a_larger_file_is_admitted_where_that_is_asked_for():
    file = encoded("BMP")
    assert admit(file, len(file)).data == file
    with pytest.raises(ImageError, match="larger than 1,877 bytes; --max-bytes"):
        admit(file, len(file) - 1)


def test_a_jpeg_may_fill_between_segments_but_not_for_ever():
    file = encoded("JPEG")
    assert admit(file[:2] + b"\xff" * 9 + file[2:]).data == file
    with pytest.raises(ImageError, match="more than the 5,000 parts"):
        admit(file[:2] + b"\xff" * MOST_PARTS + file[2:])


@pytest.mark.parametrize(
    ("file", "why"),
    [
        (b"\xff\xd8\xff\xda\0\x02", "how large"),
        (b"\xff\xd8\xff\xe0\0\x01", "truncated"),
        (b"\xff\xd8\0\0\0\0", "truncated"),
        (b"\xff\xd8\x01\0\0\0", "does not begin"),
        (encoded("BMP")[:46] + b"\x01\x01" + encoded("BMP")[48:], "more than 256 colours"),
        (encoded("JPEG")[:-2] + encoded("JPEG")[2:], "more than once, how large"),
        (b"GIF89a\x10\0\x10\0\0\0\0;", "no frame"),
        (b"RIFF\x10\0\0\0WAVEfmt ", "not a PNG"),
        (b"BM", "truncated"),
    ],
)
def test_a_file_that_begins_like_an_image_and_is_none_is_refused(file, why):
    with pytest.raises(ImageError, match=why):
        admit(file)

import io
import os
import random
import re
import struct
import zlib
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from captcha_ocr.config import ImageKind, InputSize
from captcha_ocr.errors import ImageError
from captcha_ocr.images import MAX_BYTES, contrast_in_grey, image_files, open_image, survey, to_array

GREY, COLOUR = InputSize(8, 16, 1), InputSize(8, 16, 3)
# A picture without any symmetry: a black corner on a grey that falls off to the right.
PICTURE = np.tile(np.linspace(240, 120, 16).astype(np.uint8), (8, 1))
PICTURE[:3, :5] = 0


def encoded(image, image_format="PNG", **options):
    stream = io.BytesIO()
    image.save(stream, image_format, **options)
    return stream.getvalue()


def flat(mode, colour):
    return Image.new(mode, (16, 8), colour)


def png_claiming(width, height):
    """A PNG that claims a size but holds no pixels."""
    return png_of([(b"IHDR", struct.pack(">2I5B", width, height, 8, 0, 0, 0, 0)), (b"IDAT", b""), (b"IEND", b"")])


def png_of(chunks):
    """A PNG of such parts."""
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data)) for name, data in chunks
    )


def palette_image(**options):
    image = flat("P", 0)
    image.putpalette([0, 0, 0, 255, 0, 0])
    return encoded(image, **options)


@pytest.mark.parametrize("image_format", ["PNG", "JPEG", "GIF", "BMP", "WEBP"])
def test_all_five_formats_are_read(image_format):
    pixels = to_array(encoded(flat("RGB", (200, 200, 200)), image_format), GREY)
    assert np.abs(pixels.astype(int) - 200).max() <= 2


def test_grey_is_one_channel_of_the_asked_height_and_width():
    pixels = to_array(encoded(Image.fromarray(PICTURE)), InputSize(height=10, width=30, channels=1))
    assert (pixels.shape, pixels.dtype) == ((1, 10, 30), np.uint8)


def test_colour_is_three_channels_in_the_order_red_green_blue():
    assert to_array(encoded(flat("RGB", (10, 20, 30))), COLOUR)[:, 0, 0].tolist() == [10, 20, 30]


def test_an_image_of_the_right_size_is_not_resampled():
    assert np.array_equal(to_array(encoded(Image.fromarray(PICTURE)), GREY)[0], PICTURE)


@pytest.mark.parametrize(
    "data",
    [
        encoded(flat("RGBA", (0, 0, 0, 0))),
        encoded(flat("LA", (0, 0))),
        palette_image(transparency=0),
        palette_image(transparency=b"\x00\xff"),
        palette_image(image_format="GIF", transparency=0),
        encoded(flat("L", 0), transparency=0),
        encoded(flat("RGBA", (0, 0, 0, 0)), "WEBP", lossless=True),
    ],
    ids=["RGBA", "LA", "palette index", "palette alphas", "GIF", "grey key", "WEBP"],
)
@pytest.mark.parametrize("size", [GREY, COLOUR], ids=["grey", "colour"])
def test_what_is_transparent_is_white(data, size):
    assert (to_array(data, size) == 255).all()


def test_what_is_half_transparent_is_mixed_with_white():
    assert abs(int(to_array(encoded(flat("RGBA", (0, 0, 0, 128))), GREY)[0, 0, 0]) - 127) <= 1


def test_what_is_opaque_in_a_palette_keeps_its_colour():
    image = flat("P", 1)
    image.putpalette([0, 0, 0, 255, 0, 0])
    assert to_array(encoded(image, transparency=0), COLOUR)[:, 0, 0].tolist() == [255, 0, 0]


@pytest.mark.parametrize(("value", "expected"), [(0, 0), (257 * 100, 100), (65535, 255)])
def test_16_bit_grey_is_scaled_and_not_clipped(value, expected):
    image = Image.fromarray(np.full((8, 16), value, np.uint16))
    assert (to_array(encoded(image), GREY) == expected).all()


def test_wide_pixels_that_hold_8_bits_are_what_they_were():
    grey = Image.fromarray(np.arange(128, dtype=np.uint8).reshape(8, 16))
    assert (to_array(grey.convert("I"), GREY) == to_array(grey, GREY)).all()


@pytest.mark.parametrize("image_format", ["PNG", "JPEG", "WEBP"])
@pytest.mark.parametrize(("orientation", "quarter_turns"), [(1, 0), (3, 2), (6, -1), (8, 1)])
def test_an_image_is_turned_as_its_exif_says(image_format, orientation, quarter_turns):
    exif = Image.Exif()
    exif[0x0112] = orientation
    corners = np.zeros((16, 16), np.uint8)
    corners[:8, :8] = 255
    pixels = to_array(encoded(Image.fromarray(corners), image_format, exif=exif), InputSize(16, 16, 1))
    assert np.array_equal(pixels[0] > 128, np.rot90(corners, quarter_turns) > 128)


def test_of_an_animation_the_first_frame_is_used():
    data = encoded(flat("L", 255), "GIF", save_all=True, append_images=[flat("L", 0)], duration=100)
    assert (to_array(data, GREY) == 255).all()


@pytest.mark.parametrize("name", ["a.jpg", "a.txt", "a"])
def test_the_content_counts_and_not_the_extension(tmp_path, name):
    (tmp_path / name).write_bytes(encoded(Image.fromarray(PICTURE)))
    assert np.array_equal(to_array(tmp_path / name, GREY)[0], PICTURE)


@pytest.mark.parametrize("kind", ["str", "path", "bytes", "bytearray", "memoryview", "PIL", "array"])
def test_one_image_is_the_same_from_every_kind_of_source(tmp_path, kind):
    path, data = tmp_path / "a.png", encoded(Image.fromarray(PICTURE))
    path.write_bytes(data)
    sources = {
        "str": str(path),
        "path": path,
        "bytes": data,
        "bytearray": bytearray(data),
        "memoryview": memoryview(data),
        "PIL": Image.fromarray(PICTURE),
        "array": PICTURE,
    }
    assert np.array_equal(to_array(sources[kind], GREY)[0], PICTURE)


@pytest.mark.parametrize("shape", [(8, 16), (8, 16, 1), (8, 16, 3), (8, 16, 4)])
def test_arrays_of_grey_colour_and_transparency_are_read(shape):
    assert (to_array(np.full(shape, 255, np.uint8), COLOUR) == 255).all()


def test_the_fourth_channel_of_an_array_is_transparency():
    assert (to_array(np.zeros((8, 16, 4), np.uint8), GREY) == 255).all()


@pytest.mark.parametrize(
    "array",
    [
        np.zeros((8, 16), np.float32),
        np.zeros((8, 16), np.uint16),
        np.zeros((8, 16), bool),
        np.zeros(16, np.uint8),
        np.zeros((8, 16, 2), np.uint8),
        np.zeros((3, 8, 16), np.uint8),
        np.zeros((1, 8, 16, 3), np.uint8),
        np.zeros((0, 16), np.uint8),
    ],
    ids=lambda array: f"{array.shape}-{array.dtype}",
)
def test_an_array_of_another_type_or_shape_is_refused(array):
    with pytest.raises(ImageError, match=re.escape(str(array.shape))):
        to_array(array, GREY)


def test_a_tiff_is_refused_whatever_its_name(tmp_path):
    (tmp_path / "a.png").write_bytes(encoded(Image.fromarray(PICTURE), "TIFF"))
    with pytest.raises(ImageError, match="PNG"):
        to_array(tmp_path / "a.png", GREY)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"hello",
        b"\x89PNG\r\n\x1a\n",
        "",
        "data:image/svg+xml;base64,PHN2Zz48L3N2Zz4=",
        "data:image/png;base64,iVBORw0KGgo!" + 50 * "A",
    ],
)
def test_what_is_no_image_is_refused(data):
    with pytest.raises(ImageError):
        to_array(data, GREY)


@pytest.mark.parametrize("image_format", ["PNG", "JPEG", "GIF", "BMP", "WEBP"])
def test_a_truncated_image_is_refused(image_format):
    data = encoded(Image.fromarray(np.random.default_rng(0).integers(0, 256, (60, 160), np.uint8)), image_format)
    with pytest.raises(ImageError):
        to_array(data[: len(data) // 2], GREY)


def test_a_truncated_image_that_pillow_opened_is_refused():
    data = encoded(Image.fromarray(np.random.default_rng(0).integers(0, 256, (60, 160), np.uint8)))
    with pytest.raises(ImageError):
        to_array(Image.open(io.BytesIO(data[: len(data) // 2])), GREY)


def test_an_image_that_pillow_opened_is_turned_as_its_exif_says():
    exif = Image.Exif()
    exif[0x0112] = 3
    data = encoded(Image.fromarray(PICTURE), exif=exif)
    assert np.array_equal(to_array(Image.open(io.BytesIO(data)), GREY), to_array(data, GREY))


@pytest.mark.filterwarnings("ignore")  # Pillow's, about the damage
@pytest.mark.parametrize("image_format", ["PNG", "JPEG", "GIF", "BMP", "WEBP"])
def test_damaged_bytes_are_read_or_refused_but_never_crash(image_format):
    whole, rng = encoded(Image.fromarray(PICTURE), image_format), random.Random(0)
    refused = 0
    for _ in range(200):
        damaged = bytearray(whole)
        for _ in range(3):
            damaged[rng.randrange(len(damaged))] = rng.randrange(256)
        try:
            assert to_array(bytes(damaged), GREY).shape == (1, 8, 16)
        except ImageError:
            refused += 1
    assert refused


def test_a_long_thin_image_is_refused_before_it_costs_memory():
    with pytest.raises(ImageError, match="20000x1"):
        to_array(encoded(Image.new("1", (20_000, 1))), GREY)


@pytest.mark.parametrize("side", [5_000, 10_000, 60_000], ids=["silent", "Pillow warns", "Pillow refuses"])
def test_a_decompression_bomb_is_refused_without_a_warning(side):
    with pytest.raises(ImageError, match=f"{side}x{side}"):
        to_array(png_claiming(side, side), GREY)


@pytest.mark.parametrize(("shape", "fits"), [((1, 4096), True), ((1, 4097), False), ((2000, 2000), True)])
def test_images_up_to_the_limits_are_read(shape, fits):
    try:
        assert to_array(np.zeros(shape, np.uint8), GREY).shape == (1, 8, 16)
        assert fits
    except ImageError:
        assert not fits


def test_an_image_with_too_many_pixels_in_all_is_refused():
    with pytest.raises(ImageError, match="2001x2000"):
        to_array(np.zeros((2000, 2001), np.uint8), GREY)


def test_a_file_too_large_for_an_image_is_not_even_read(tmp_path):
    with open(tmp_path / "a.png", "wb") as stream:
        stream.truncate(MAX_BYTES + 1)
    with pytest.raises(ImageError, match="2,000,000"):
        to_array(tmp_path / "a.png", GREY)


def test_a_folder_is_no_image(tmp_path):
    with pytest.raises(ImageError):
        to_array(tmp_path, GREY)


def test_a_missing_file_is_an_image_error(tmp_path):
    with pytest.raises(ImageError):
        to_array(tmp_path / "gone.png", GREY)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are FIFOs on POSIX only")
def test_a_fifo_is_refused_and_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "a.png")
    with pytest.raises(ImageError):
        to_array(tmp_path / "a.png", GREY)


@pytest.mark.parametrize("path", ["a\0b.png", "x" * 5000])
def test_a_path_that_no_file_can_have_is_an_image_error(path):
    with pytest.raises(ImageError):
        to_array(path, GREY)


def test_image_files_are_found_at_any_depth_and_sorted_by_path(tmp_path):
    names = ["b.png", "a/z.JPG", "a.gif", "c/d/e.webp", "f.bmp", "g.jpeg"]
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    assert image_files(tmp_path) == sorted(names)


@pytest.mark.parametrize("name", [".hidden.png", "._a.png", ".git/a.png", "labels.csv", "a.tiff", "a.png.tmp", "png"])
def test_hidden_files_and_those_with_other_extensions_are_no_image_files(tmp_path, name):
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).touch()
    assert image_files(tmp_path) == []


@pytest.mark.parametrize("mode", ["LAB", "La"])
def test_a_mode_that_cannot_be_converted_is_an_image_error(mode):
    with pytest.raises(ImageError, match=mode):
        to_array(Image.new(mode, (8, 8)), GREY)


class Dripping(io.RawIOBase):
    """A raw file that gives a thousand bytes at a time, as a pipe may."""

    def __init__(self, data: bytes) -> None:
        self.rest = data

    def read(self, size: int = -1, /) -> bytes:
        given, self.rest = self.rest[: min(size, 1000)], self.rest[min(size, 1000) :]
        return given


def test_an_open_file_is_read_to_its_end_however_little_it_gives_at_a_time():
    stream = io.BytesIO()
    Image.effect_noise((100, 100), 50).save(stream, "PNG")
    assert np.array_equal(to_array(Dripping(stream.getvalue()), GREY), to_array(stream.getvalue(), GREY))


def test_an_endless_file_is_too_large():
    with open("/dev/zero", "rb", buffering=0) as endless, pytest.raises(ImageError, match="2,000,000"):
        to_array(endless, GREY)


# --- what a set of images is like -----------------------------------------------------------------


def saved(folder, name, image) -> Path:
    image.save(folder / name)
    return folder / name


def test_the_kind_of_images_has_their_median_sides_and_passes_over_what_is_none(tmp_path):
    files = [saved(tmp_path, f"{w}.png", Image.new("L", (w, 10 + w))) for w in (20, 30, 100)]
    (tmp_path / "bad.png").write_bytes(b"no image")
    assert survey([*files, tmp_path / "bad.png"]) == ImageKind(height=40, width=30, channels=1)


def test_of_no_image_there_is_no_kind(tmp_path):
    assert survey([tmp_path / "none.png"]) is None


@pytest.mark.parametrize(
    ("ink", "ground", "channels"),
    [
        ((0, 0, 0), (255, 255, 255), 1),
        ((40, 60, 200), (250, 240, 255), 1),
        ((200, 0, 0), (0, 102, 0), 3),  # as light as each other
        ((255, 255, 0), (0, 0, 255), 1),  # colours that grey tells apart
    ],
)
def test_colour_is_kept_where_grey_loses_the_contrast(tmp_path, ink, ground, channels):
    image = Image.new("RGB", (40, 20), ground)
    image.paste(ink, (10, 5, 30, 15))
    assert survey([saved(tmp_path, "a.png", image)]).channels == channels


def test_few_images_whose_contrast_is_only_in_colour_do_not_make_a_set_coloured(tmp_path):
    telling = Image.new("RGB", (40, 20), (0, 102, 0))
    telling.paste((200, 0, 0), (10, 5, 30, 15))
    files = [saved(tmp_path, "colour.png", telling)]
    files += [saved(tmp_path, "grey.png", Image.linear_gradient("L").convert("RGB"))] * 39
    assert survey(files).channels == 1
    assert survey(files * 3).channels == 1
    assert survey(files[:1] * 4 + files).channels == 3


def test_an_image_of_palette_colours_without_a_palette_is_refused():
    header = (b"IHDR", struct.pack(">2I5B", 16, 8, 8, 3, 0, 0, 0))
    rest = [(b"IDAT", zlib.compress(bytes(17 * 8))), (b"IEND", b"")]
    assert to_array(png_of([header, (b"PLTE", bytes(768)), *rest]), GREY).shape == (1, 8, 16)
    with pytest.raises(ImageError):
        to_array(png_of([header, *rest]), GREY)


@pytest.mark.parametrize("colour", [0, 2, 3])
@pytest.mark.parametrize("length", [0, 1, 2, 3, 6, 256, 257, 771])
def test_odd_transparency_is_read_or_refused(colour, length):
    parts = [
        (b"IHDR", struct.pack(">2I5B", 16, 8, 8, colour, 0, 0, 0)),
        (b"PLTE", bytes(768)),
        (b"tRNS", bytes(length)),
        (b"IDAT", zlib.compress(bytes((1 + 16 * (3 if colour == 2 else 1)) * 8))),
        (b"IEND", b""),
    ]
    for size in (GREY, COLOUR):
        with suppress(ImageError):
            to_array(png_of(parts), size)
    with suppress(ImageError):
        contrast_in_grey(open_image(png_of(parts)))

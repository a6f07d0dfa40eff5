import base64
import gzip
import io
import json
import os
import random
import re
import sys
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock
from urllib.parse import quote

import numpy as np
import pytest
from conftest import naming
from hostile import FORMATS, chunk, in_format, png
from PIL import Image, ImageColor, ImageOps

from captcha_ocr.data.images import (
    MAX_BYTES,
    ONE_COLOUR,
    ONE_ROW,
    TOO_SMALL,
    TURNED,
    decode_text,
    describe_mixture,
    describe_oddities,
    find_images,
    hash_pixels,
    open_image,
    read_bytes,
    read_source,
    survey,
    to_array,
)
from captcha_ocr.errors import ImageError
from captcha_ocr.input_size import GENERATED, ImageKind, InputSize

GREY, COLOUR = InputSize(8, 16, 1), InputSize(8, 16, 3)
# A picture without any symmetry: a black corner on a grey that falls off to the right.
PICTURE = np.tile(np.linspace(240, 120, 16).astype(np.uint8), (8, 1))
PICTURE[:3, :5] = 0


def flat(mode, colour):
    return Image.new(mode, (16, 8), colour)


def palette_image(index=0, **options):
    """Encode an image of one colour from the palette black, red."""
    image = flat("P", index)
    image.putpalette([0, 0, 0, 255, 0, 0])
    return in_format(image, **options)


@pytest.mark.parametrize("image_format", FORMATS)
@pytest.mark.parametrize(("channels", "colour"), [(1, [124]), (3, [200, 100, 50])])
def test_every_format_is_read_in_grey_and_colour_at_the_asked_size(image_format, channels, colour):
    data = in_format(flat("RGB", (200, 100, 50)), image_format)
    pixels = to_array(data, InputSize(height=10, width=30, channels=channels))
    assert (pixels.shape, pixels.dtype) == ((channels, 10, 30), np.uint8)
    assert list(describe_oddities(open_image(data))) == [ONE_COLOUR]
    assert np.abs(pixels - np.array(colour)[:, None, None]).max() <= 3


@pytest.mark.parametrize(
    "data",
    [
        in_format(flat("RGBA", (0, 0, 0, 0))),
        in_format(flat("LA", (0, 0))),
        palette_image(transparency=0),
        palette_image(transparency=b"\x00\xff"),
        palette_image(image_format="GIF", transparency=0),
        in_format(flat("L", 0), transparency=0),
        in_format(flat("RGBA", (0, 0, 0, 0)), "WEBP", lossless=True),
        np.zeros((8, 16, 4), np.uint8),
    ],
    ids=["RGBA", "LA", "palette index", "palette alphas", "GIF", "grey key", "WEBP", "array"],
)
def test_transparent_pixels_are_white_if_all_are(data):
    for size in (GREY, COLOUR):
        assert (to_array(data, size) == 255).all()


@pytest.mark.parametrize(
    ("ink", "ground"),
    [
        *(
            ((0, 0, 0), 255),
            ((255, 255, 255), 0),
            ((250, 250, 200), 0),
            ((255, 255, 0), 0),
            ((200, 30, 30), 255),
        ),
        *(((60, 200, 255), 255), ((90, 90, 90), 255)),
    ],
)
def test_transparent_pixels_take_the_colour_that_keeps_the_contrast(ink, ground):
    image = Image.new("RGBA", (16, 8), (*ink, 0))
    for box in ((4, 1, 6, 7), (6, 6, 12, 7)):
        image.paste((*ink, 255), box)
    for variant in (image, image.convert("LA"), image.quantize(2)):
        opened = open_image(in_format(variant))
        pixels = to_array(opened, GREY)[0]
        assert (pixels[0, 0], abs(int(pixels[4, 5]) - ground) > 80) == (ground, True)
        assert any("black" in oddity for oddity in describe_oddities(opened)) == (ground == 0)


NOISE = Image.fromarray(np.random.default_rng(0).integers(0, 256, (60, 160), np.uint8))
WHOLE = Image.fromarray((np.random.default_rng(3).random((8, 16)) > 0.3).astype(np.uint8) * 255)


def growing(count):
    """Frames on which a picture appears from the left, and a last one that is blank."""
    frames = [Image.new("L", (16, 8), 255) for _ in range(count + 2)]
    for number in range(count):
        columns = 16 * (number + 1) // count
        frames[number + 1].paste(WHOLE.crop((0, 0, columns, 8)), (0, 0))
    return frames


@pytest.mark.parametrize("image_format", ["GIF", "PNG", "WEBP"])
@pytest.mark.parametrize("count", [1, 4, 16])
def test_of_an_animation_the_frame_with_the_most_contrast_is_read(image_format, count):
    first, *others = growing(count)
    options = {"save_all": True, "append_images": others, "duration": 90, "lossless": True}
    image = open_image(in_format(first, image_format, **options))
    assert np.array_equal(image.convert("L"), WHOLE)
    assert image.info["frames"] > 1
    assert ["frame" in oddity for oddity in describe_oddities(image)] == [True]


def test_a_gif_whose_second_frame_is_cut_anywhere_is_read_by_its_first():
    first, second = (NOISE.crop((place, 0, place + 20, 9)) for place in (0, 20))
    both = in_format(first, "GIF", save_all=True, append_images=[second])
    place = both.rindex(b"\x2c" + bytes(4))
    for end in range(place, place + 60):
        assert np.array_equal(open_image(both[:end]).convert("L"), first), end


def test_other_pixels_keep_their_share_of_colour():
    assert abs(int(to_array(in_format(flat("RGBA", (0, 0, 0, 128))), GREY)[0, 0, 0]) - 127) <= 1
    assert to_array(palette_image(1, transparency=0), COLOUR)[:, 0, 0].tolist() == [255, 0, 0]


@pytest.mark.parametrize("mode", ["RGBA", "LA"])
def test_alpha_that_is_zero_everywhere_is_no_alpha(mode):
    image = Image.fromarray(PICTURE).convert(mode)
    image.putalpha(0)
    for source in (image, in_format(image), np.asarray(image)):
        assert np.array_equal(to_array(source, GREY)[0], PICTURE)


@pytest.mark.parametrize(
    "change",
    [
        *(lambda p: p.astype(np.int64), lambda p: p.astype(np.uint16)),
        *(lambda p: p.astype(np.uint16) * 257, lambda p: p.astype(np.int32) * 257),
        *(lambda p: p / 255, lambda p: (p / 255).astype(np.float32), lambda p: p > 60),
        *(lambda p: p[None], lambda p: p[..., None], lambda p: np.stack([p, p, p])),
        *(lambda p: np.stack([p, p * 0 + 255], -1), lambda p: np.stack([p] * 3, -1)[..., ::-1]),
        lambda p: np.stack([p, p, p, p * 0 + 255]),
    ],
)
def test_an_array_of_other_numbers_or_axes_is_read_as_the_image(change):
    pixels = np.where(PICTURE > 60, 255, 0).astype(np.uint8)
    assert np.array_equal(to_array(change(pixels), GREY)[0], pixels)


@pytest.mark.parametrize("bits", [1, 2, 4, 8, 10, 12, 14, 16])
def test_numbers_of_any_depth_are_scaled_to_8_bits(bits):
    most = 2**bits - 1
    numbers = np.rint(PICTURE / 240 * most).astype(np.uint16)
    expected = np.uint8(numbers.astype(int) * 255 // most)
    wide = Image.fromarray(numbers)
    sources = [
        numbers,
        in_format(wide),
        in_format(wide, "TIFF"),
        Image.fromarray(np.int32(numbers)),
    ]
    if bits <= 8:
        narrow = Image.fromarray(np.uint8(numbers))
        sources += [narrow, narrow.convert("RGB"), in_format(narrow)]
    for source in sources:
        assert np.array_equal(to_array(source, GREY)[0], expected)


@pytest.mark.parametrize("scale", [1, 255])
def test_a_file_of_floats_holds_0_to_1_or_0_to_255(scale):
    floats = Image.fromarray(np.float32(PICTURE / 255 * scale))
    for source in (floats, in_format(floats, "TIFF")):
        assert np.abs(to_array(source, GREY)[0] - PICTURE.astype(int)).max() <= 1


@pytest.mark.parametrize("image_format", ["PNG", "JPEG", "WEBP"])
@pytest.mark.parametrize(("orientation", "quarter_turns"), [(1, 0), (3, 2), (6, -1), (8, 1)])
def test_an_image_is_turned_by_its_exif_data(image_format, orientation, quarter_turns):
    exif = Image.Exif()
    exif[0x0112] = orientation
    corners = np.zeros((16, 16), np.uint8)
    corners[:8, :8] = 255
    data = in_format(Image.fromarray(corners), image_format, exif=exif)
    for source in (data, Image.open(io.BytesIO(data))):
        pixels = to_array(source, InputSize(16, 16, 1))
        assert np.array_equal(pixels[0] > 128, np.rot90(corners, quarter_turns) > 128)


class Dripping(io.BytesIO):
    """A file that gives ten bytes at a time, like a pipe."""

    def read(self, size: int | None = -1, /) -> bytes:
        return super().read(min(size, 10))


PNG = in_format(Image.fromarray(PICTURE))
SOURCES = [
    *(PNG, bytearray(PNG), memoryview(PNG), Dripping(PNG)),
    *(Image.fromarray(PICTURE), PICTURE, PICTURE[..., None]),
    # A file is known by its content and not by its extension.
    *(kind(name) for name in ("a.png", "a.jpg", "a.txt", "a") for kind in (Path, str)),
]


@pytest.mark.parametrize("source", SOURCES, ids=lambda source: type(source).__name__)
def test_every_kind_of_source_gives_the_same_pixels(source):
    for name in ("a.png", "a.jpg", "a.txt", "a"):
        Path(name).write_bytes(PNG)
    assert np.array_equal(to_array(source, GREY)[0], PICTURE)


FORMS = {
    "as it is": lambda text: text,
    "percent-encoded": lambda text: quote(text, safe=""),
    "a percent-encoded data: URI": lambda text: quote("data:image/png;base64," + text, safe=""),
    "percent-encoded twice": lambda text: quote(
        quote("data:image/png;base64," + text, safe=""), safe=""
    ),
    "escaped slashes": lambda text: "data:image\\/png;base64," + text.replace("/", "\\/"),
    "a value of JSON": lambda text: json.dumps("data:image/png;base64," + text),
    "a value of JSON in JSON": lambda text: json.dumps(json.dumps(text.replace("/", "\\/"))),
    "JSON of PHP": lambda text: (
        '"' + text.replace("/", "\\/").replace("+", "\\u002b").replace("=", "\\u003D") + '"'
    ),
    "HTML": lambda text: text.replace("=", "&#x3D;").replace("/", "&#x2F;").replace("+", "&#43;"),
    "line breaks": lambda text: re.sub("(.{76})", r"\1\r\n", text),
    "escaped line breaks": lambda text: re.sub("(.{64})", r"\1\\r\\n", text),
    "percent-encoded line breaks": lambda text: quote(re.sub("(.{76})", r"\1\n", text), safe=""),
    "indented lines": lambda text: "\n      " + re.sub("(.{60})", r"\1\n      ", text) + "\n    ",
    "lines joined by blanks": lambda text: re.sub("(.{76})", r"\1 ", text),
    "blanks for +": lambda text: text.replace("+", " "),
    "blanks for +, in lines": lambda text: re.sub("(.{76})", r"\1\r\n", text).replace("+", " "),
    "blanks for +, in a data: URI": lambda text: "data:image/png;base64," + text.replace("+", " "),
    "the alphabet of URLs, without =": lambda text: (
        text.replace("+", "-").replace("/", "_").rstrip("=")
    ),
    "the first characters of JPEG in the alphabet of URLs": lambda text: text.replace(
        "/", "_"
    ).replace("+", "-"),
    "escaped first characters": lambda text: "\\u00" + f"{ord(text[0]):02x}" + text[1:],
    "without data:": lambda text: "image/png;base64," + text,
    "only base64,": lambda text: "base64," + text,
    "a blank after the comma": lambda text: "data:image/png;base64, " + text,
    "parameters": lambda text: "data:image/png;charset=utf-8;BASE64," + text,
    "CSS": lambda text: f"url('data:image/png;base64,{text}');",
}


@pytest.mark.parametrize("form", FORMS)
def test_base64_is_read_in_every_form_that_pages_have(form):
    for seed, length in product(range(10), [38, 39, 40, 400, 1501]):
        start = (b"\x89PNG\r\n\x1a\n\0", b"\xff\xd8\xff\xe0\0")[seed % 2]
        data = start + random.Random(seed).randbytes(length)
        text = FORMS[form](base64.b64encode(data).decode())
        assert decode_text(text) == data
        assert read_source(text.encode(), MAX_BYTES) == data


@pytest.mark.parametrize("shape", [(1, 4096), (2000, 2000)])
def test_images_up_to_the_limits_are_read(shape):
    assert to_array(np.zeros(shape, np.uint8), GREY).shape == (1, 8, 16)
    with pytest.raises(ImageError, match=f"{shape[1] + 1}x{shape[0]}"):
        to_array(np.zeros((shape[0], shape[1] + 1), np.uint8), GREY)


def test_a_file_too_large_for_an_image_is_refused(tmp_path):
    (tmp_path / "a.png").write_bytes(bytes(MAX_BYTES + 1))
    with open("/dev/zero", "rb", buffering=0) as endless:
        for source in (tmp_path / "a.png", endless):
            with pytest.raises(ImageError, match="2,000,000"):
                to_array(source, GREY)


def test_a_path_of_no_regular_file_is_refused(tmp_path):
    if hasattr(os, "mkfifo"):
        os.mkfifo(tmp_path / "pipe.png")
    for path in (tmp_path, tmp_path / "missing.png", tmp_path / "pipe.png"):
        with pytest.raises(ImageError):
            to_array(path, GREY)


NAMES = [
    "b.png",
    "a/z.JPG",
    "a.gif",
    "c/d/e.webp",
    "f.bmp",
    "g.jpeg",
    "h.jpe",
    "i.JFIF",
    "j.tif",
    "k.TIFF",
    "l.dib",
]


def test_images_are_found_at_any_depth_by_their_extension_and_sorted(tmp_path):
    others = ["labels.csv", "a.avif", "a.png.tmp", "png"]
    for name in [*NAMES, *others, ".hidden.png", "._a.png", ".git/a.png"]:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    found = find_images(tmp_path)
    assert (found.images, found.others) == (sorted(NAMES), sorted(others))
    assert found.kinds({"a.avif"}) == {".csv": 1, ".tmp": 1, "without an extension": 1}


def test_an_image_of_another_name_is_found_by_its_first_bytes(tmp_path):
    for image_format, name in product(FORMATS, ["a", "a.dat", "a.png.bak", "a.htm", "a.7z"]):
        (tmp_path / f"{image_format}{name}").write_bytes(in_format(WHOLE, image_format))
    assert len(find_images(tmp_path).images) == 5 * len(FORMATS)


@pytest.mark.skipif(os.name != "posix", reason="Windows asks for a privilege to make a link")
@pytest.mark.parametrize(
    ("links", "found"),
    [
        ({"link": "../elsewhere"}, ["link/b.png", "real/a.png"]),  # a folder elsewhere
        ({"link.png": "../elsewhere/b.png"}, ["link.png", "real/a.png"]),
        ({"again": "real"}, ["real/a.png"]),  # a folder that is searched anyway
        ({"real/up": ".."}, ["real/a.png"]),  # round and round
        ({"one": "../elsewhere", "two": "../elsewhere"}, ["one/b.png", "real/a.png"]),
        ({"gone": "nowhere"}, ["real/a.png"]),
    ],
)
def test_images_behind_links_are_found_once(tmp_path, links, found):
    for name in ("raw/real/a.png", "elsewhere/b.png"):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).touch()
    for name, target in links.items():
        (tmp_path / "raw" / name).symlink_to(target)
    (tmp_path / "start").symlink_to("raw")
    for start in ("raw", "start"):
        assert find_images(tmp_path / start).images == found


@pytest.mark.skipif(os.name != "posix", reason="Windows asks for a privilege to make a link")
def test_a_link_to_a_file_that_is_gone_names_it(tmp_path):
    (tmp_path / "a.png").symlink_to("../.git/annex/objects/b.png")
    with pytest.raises(ImageError, match=naming("annex/objects/b.png")):
        read_bytes(tmp_path / "a.png")


def test_the_kind_of_a_set_has_its_median_sides_and_ignores_unreadable_files():
    files = [in_format(Image.new("L", (width, 10 + width))) for width in (20, 30, 100)]
    assert survey([*files, Path("none.png")]) == ImageKind(height=40, width=30, channels=1)
    assert survey([Path("none.png")]) == GENERATED


@pytest.mark.parametrize(
    ("widths", "found"),
    [
        ([100, 100, 100, 60], ["100x50", "60x50"]),
        ([100, 100, 90, 90], []),  # as if cut a little otherwise
        ([100] * 5 + [60], []),  # a few others
        ([20, 40, 60, 80, 100, 120], []),  # as long as their texts
    ],
)
def test_two_sizes_that_are_frequent_may_be_two_designs(widths, found):
    images = [Path("none.png"), *(Image.new("L", (width, 50)) for width in widths)]
    described = describe_mixture(images)
    assert re.findall(r"\d+x\d+", described) == found


@pytest.mark.parametrize(
    ("ink", "ground", "channels"),
    [
        ((0, 0, 0), (255, 255, 255), 1),
        ((40, 60, 200), (250, 240, 255), 1),
        ((200, 0, 0), (0, 102, 0), 3),  # as light as each other
        ((255, 255, 0), (0, 0, 255), 1),  # colours that differ in grey
    ],
)
def test_colour_is_kept_if_grey_loses_the_contrast(ink, ground, channels):
    image = Image.new("RGB", (40, 20), ground)
    for left in (4, 30):
        image.paste(ink, (left, 2, left + 6, 18))
    file = in_format(image)
    assert survey([file]).channels == channels
    grey = in_format(Image.linear_gradient("L").resize((40, 20)).convert("RGB"))
    assert survey([file] + [grey] * 39).channels == 1  # too few images lose their contrast
    assert survey([file] * 5 + [grey] * 39).channels == channels


@pytest.mark.parametrize(
    ("bands", "ink", "ground", "has_rows"),
    [
        ([(4, 36)], "black", "white", False),
        ([(4, 16), (24, 36)], "black", "white", True),
        ([(2, 12), (15, 25), (28, 38)], "navy", "#ddeeff", True),
        ([(1, 6), (9, 14), (17, 22), (25, 30), (33, 38)], "black", "white", True),  # a column
        ([(4, 16), (24, 36)], "white", "black", True),
        ([(4, 24), (9, 29)], "black", "white", False),
        ([(3, 7), (12, 30)], "black", "white", False),  # dots of letters such as i
        ([(3, 5), (12, 15), (30, 32)], "black", "white", False),  # lines
        ([], "black", "white", False),
    ],
)
def test_characters_in_several_rows_are_found(bands, ink, ground, has_rows):
    images = []
    for seed in range(10):
        image = Image.new("RGB", (60, 40), ground)
        for top, bottom in bands:
            for left in (5 + seed, 25, 45):
                image.paste(ImageColor.getrgb(ink), (left, top, left + 7, bottom))
        images.append(in_format(image))
    assert (ONE_ROW in survey(images).doubts) is has_rows
    assert survey([*images[:4], *[in_format(Image.new("RGB", (60, 40)))] * 5]).doubts == ()


@pytest.mark.parametrize(
    ("sides", "doubts"),
    [
        *(((20, 5), (TOO_SMALL,)), ((60, 9), (TOO_SMALL,)), ((60, 10), ())),
        *(((5, 20), (TURNED,)), ((35, 140), (TURNED,)), ((60, 90), ()), ((28, 28), ())),
    ],
)
def test_images_of_odd_sides_are_doubted(sides, doubts):
    assert survey([Image.effect_noise(sides, 90)] * 3).doubts == doubts


def coloured(inks, seed, ground="white"):
    """Draw bars in colours that are chosen at random, but for the first."""
    image, random_ink = Image.new("RGB", (80, 20), ground), random.Random(seed)
    for left in range(5, 75, 10):
        ink = inks[0] if left == 5 else random_ink.choice(inks)
        image.paste(ImageColor.getrgb(ink), (left, 3 + left % 3, left + 6, 15 + left % 3))
    return image


def any_colours(seed):
    values = random.Random(seed)
    return [f"hsl({values.randrange(360)}, 100%, 40%)" for _ in range(20)]


@pytest.mark.parametrize(
    ("inks", "ground", "channels"),
    [
        (["#c80000", "#006600"], "white", 3),
        (["red", "blue"], "white", 3),
        (["red", "blue", "black"], "#ddeeff", 3),
        (["orange", "purple"], "lightgray", 3),
        (["red", "green", "blue", "orange"], "white", 3),
        (["red"], "white", 1),
        (["navy", "blue"], "white", 1),
        (["black", "gray"], "yellow", 1),
        ([], "white", 1),
    ],
)
@pytest.mark.parametrize("image_format", ["PNG", "JPEG"])
def test_the_same_few_hues_in_all_images_need_colour(inks, ground, channels, image_format):
    images = [coloured(inks or any_colours(seed), seed, ground) for seed in range(30)]
    assert survey([in_format(image, image_format) for image in images]).channels == channels


@pytest.mark.parametrize(
    ("ink", "others", "ground"),
    [
        ("red", ["green", "blue", "black"], "white"),
        ("#FF0000", ["#006600", "#808080"], "#ddeeff"),
        ("Blue", ["red", "yellow"], "lightgray"),
        ("orange", ["purple", "green"], "white"),
        ("black", ["red", "blue", "gray"], "white"),
        ("gray", ["black", "navy", "olive"], "white"),
        ("white", ["yellow", "red"], "#202020"),
    ],
)
def test_only_the_ink_of_a_colour_is_shown_in_black_on_white(ink, others, ground):
    image = coloured([ink, *others], 1, ground)
    counts = np.all(np.asarray(image) == ImageColor.getrgb(ink), axis=-1)
    for channels in (1, 3):
        shown = to_array(image, InputSize(20, 80, channels, ink=ink))
        assert (shown[:, counts] < 60).all()
        assert (shown[:, ~counts] > 225).all()


TEXTURE = Image.effect_noise((120, 40), 90).convert("RGB")
LETTERS = Image.new("RGB", (120, 40), "white")
for place in range(10, 110, 10):
    LETTERS.paste("black", (place, 9 + place % 4, place + 3, 29 + place % 4))


@pytest.mark.parametrize(
    ("captcha", "sides", "ground"),
    [
        *((TEXTURE, (20,) * 4, ground) for ground in ("white", "black", "#ddeeff")),
        *((TEXTURE, (width,) * 4, "white") for width in (6, 12, 40, 90)),
        *((TEXTURE, sides, "gray") for sides in ((6, 30, 60, 9), (300, 400, 30, 200))),
        *((LETTERS, sides, "white") for sides in ((30,) * 4, (20, 40, 60, 25), (300, 20, 9, 300))),
    ],
)
def test_a_border_or_a_page_around_a_captcha_is_cropped(captcha, sides, ground):
    size = InputSize(40, 120, 1)
    inside = captcha if captcha is TEXTURE else captcha.crop((5, 4, 108, 36))
    expected = np.asarray(inside.convert("L").resize((120, 40), Image.Resampling.BILINEAR))
    page = ImageOps.expand(captcha, sides, ground)
    files = [in_format(page), in_format(page, "JPEG", quality=95)]
    for file in files if sides == (20,) * 4 else files[:1]:
        assert np.abs(to_array(file, size)[0].astype(int) - expected).mean() < 5


def test_a_captcha_in_the_corner_of_a_page_is_cropped():
    page = Image.new("RGB", (800, 500), "#f0f0f0")  # its own ground is white
    page.paste(LETTERS)
    pixels = to_array(page, InputSize(40, 120, 1))
    assert (pixels < 128).mean() > 0.1  # else less than 1 in 100


def test_an_image_of_16_bits_has_more_than_one_colour():
    numbers = 20_000 + np.asarray(TEXTURE.convert("L"), np.uint16) * 150
    assert not list(describe_oddities(open_image(in_format(Image.fromarray(numbers)))))


@pytest.mark.parametrize(
    ("sides", "content"),
    [((160, 60), (10, 10)), ((400, 200), (200, 80)), ((640, 160), (640, 60)), ((300, 300), None)],
)
def test_an_image_that_is_no_page_stays_whole(sides, content):
    image = Image.new("L", sides, "white")
    if content:
        image.paste(0, (0, 20, content[0], 20 + content[1]))
    assert np.array_equal(to_array(image, InputSize(*sides[::-1], 1))[0], np.asarray(image))


def test_an_image_of_palette_colours_without_a_palette_is_refused():
    assert to_array(png(16, 8, chunk(b"PLTE", bytes(768)), colour=3), GREY).shape == (1, 8, 16)
    with pytest.raises(ImageError):
        to_array(png(16, 8, colour=3), GREY)


SVG = '<svg xmlns="http://www.w3.org/2000/svg" width="48" height="16"{}>{}</svg>'
STROKE = '<path d="M4 2V14H12" stroke="#000" stroke-width="2" fill="none"/>'
MARKUP = SVG.format("", f'<rect width="100%" height="100%" fill="#eee"/><g>{STROKE}</g>')
IN_BASE64 = base64.b64encode(MARKUP.encode()).decode()


@pytest.mark.parametrize(
    "source",
    [
        *(MARKUP, MARKUP.encode(), f"\ufeff<?xml version='1.0'?>\n<!-- a -->\n{MARKUP}\n".encode()),
        *(IN_BASE64, f"data:image/svg+xml;base64,{IN_BASE64}", f"data:image/svg+xml;utf8,{MARKUP}"),
        f"data:image/svg+xml,{quote(MARKUP)}",
        *(json.dumps(MARKUP), json.dumps(MARKUP)[1:-1], json.dumps(json.dumps(MARKUP))),
        MARKUP.replace('"', "'"),
        MARKUP.replace('"48"', '"48px"').replace('"16"', '"16px"'),
        MARKUP.replace('width="48" height="16"', 'viewBox="0 0 48 16"'),
        MARKUP.replace('width="48" height="16"', 'viewBox="0,0,48,16" width="100%"'),
        MARKUP.replace('<rect width="100%" height="100%" fill="#eee"/>', ""),
    ],
)
def test_markup_of_plain_shapes_is_drawn(source, tmp_path):
    pytest.importorskip("resvg_py")
    pixels = to_array(source, InputSize(16, 48, 1))[0]
    assert (pixels[4:12, 4] < 100).all()
    assert (pixels[:, 14:] > 230).all()
    if isinstance(source, str) and source.startswith("<"):
        (tmp_path / "a.svg").write_text(source)
        assert find_images(tmp_path).images == ["a.svg"]
        assert np.array_equal(to_array(tmp_path / "a.svg", InputSize(16, 48, 1))[0], pixels)


@pytest.mark.parametrize(
    ("markup", "named"),
    [
        *(
            (SVG.format("", f"<{tag}/>"), tag)
            for tag in ("text", "image", "use", "filter", "style")
        ),
        (SVG.format("", "<g>" * 20_000 + "</g>" * 20_000), "'g'"),
        (SVG.format("", "<path/>" * 30_000), "200,000"),
        (SVG.format(' id="a" id="b"', ""), "attribute"),
        (MARKUP.replace('"48"', '"99999"'), "99999x16"),
        (MARKUP.replace('"48"', '"0"'), "0x16"),
        (MARKUP.replace('"48"', '"4.8.1"'), "4.8.1"),
        (MARKUP.replace('width="48" height="16"', ""), "size"),
        (f'<!DOCTYPE svg [<!ENTITY a "b">]>{SVG.format("", "&a;")}', "entity"),
    ],
)
def test_other_markup_is_refused(markup, named):
    pytest.importorskip("resvg_py")
    with pytest.raises(ImageError, match=re.escape(named)):
        open_image(markup.encode())


def test_without_a_renderer_markup_names_what_makes_it_readable(monkeypatch):
    monkeypatch.setitem(sys.modules, "resvg_py", None)
    for source in (MARKUP, MARKUP.encode(), IN_BASE64):
        with pytest.raises(ImageError, match=r"resvg-py.*resvg a\.svg a\.png"):
            open_image(source)


def file_reading(result):
    """An open file whose read() fails, or returns what it is given."""
    return SimpleNamespace(read=Mock(side_effect=[result]))


URIS = [
    "data:image/svg+xml;base64,PHN2Zz48L3N2Zz4=",
    "data:image/png;base64,iVBORw0KGgo!" + 50 * "A",
    *("data:image/png;base64,iVBORw0KGgo" + 1000 * sign for sign in ("%41", "A ", "A\\n")),
    *("data:", "data:image/png;base64,", "DATA:,", b"data:image/png;base64,"),
]
SHAPES = [
    *(((8, 16), "c8"), ((8, 16), "U1"), ((16,), "u1"), ((), "u1")),
    *(((8, 16, 5), "u1"), ((2, 3, 8, 16), "u1"), ((0, 16), "u1")),
]
TOO_LARGE = [np.full((8, 16), value) for value in (-1, 65536, -0.1, 1.5, 128.0, np.nan, np.inf)]


def halved(image_format):
    """An image that Pillow has opened, although half of its file is missing."""
    data = in_format(NOISE, image_format)
    return Image.open(io.BytesIO(data[: len(data) // 2]))


@pytest.mark.parametrize(
    ("source", "error", "words"),
    [
        (file_reading(OSError(5, "no disk")), ImageError, "no disk"),
        (file_reading(ValueError("I/O operation on closed file")), ImageError, "closed"),
        (file_reading("text"), TypeError, "str"),
        (io.BytesIO(), ImageError, "no PNG|empty"),
        (io.StringIO("text"), TypeError, "StringIO"),
        ("aGVsbG8g" * 100, ImageError, "path.*base64"),
        *((b"hello", ImageError, "not a PNG"), (b"\x89PNG\r\n\x1a\n", ImageError, "truncated")),
        *(
            ("", ImageError, "No such file"),
            ("a\0b.png", ImageError, "null"),
            ("x" * 5000, ImageError, "path"),
        ),
        (b"", ImageError, "empty"),
        (in_format(Image.fromarray(PICTURE), "PPM"), ImageError, "PNG, JPEG"),
        *((uri, ImageError, "data: URI") for uri in URIS),
        *((np.zeros(*shape), ImageError, re.escape(str(shape[0]))) for shape in SHAPES),
        *((array, ImageError, f"0 to 1.*{array.dtype}") for array in TOO_LARGE),
        (b"version https://git-lfs.github.com/spec/v1\noid", ImageError, "git lfs pull"),
        (b"/annex/objects/SHA256E-s1824--6f.png\n", ImageError, "git annex get"),
        (gzip.compress(MARKUP.encode()), ImageError, "gunzip"),
        *((f"{scheme}://a.b/c.png", ImageError, "website") for scheme in ("https", "HTTP", "ftp")),
        (Path("https://a.b/c.png"), ImageError, "website"),
        *((Image.new(mode, (8, 8)), ImageError, mode) for mode in ("LAB", "La")),
        # Pillow refuses to open half a WEBP
        *((halved(name), ImageError, "damaged") for name in ("PNG", "JPEG", "GIF", "BMP")),
    ],
    ids=lambda value: value if isinstance(value, str) and len(value) < 30 else type(value).__name__,
)
def test_what_cannot_be_read_is_refused_in_one_sentence(source, error, words):
    with pytest.raises(error, match=words):
        to_array(source, GREY)


@pytest.mark.parametrize(
    "save",
    [
        lambda image, path: image.save(path.with_suffix(".bmp")),
        lambda image, path: image.save(path.with_suffix(".png"), compress_level=1),
        lambda image, path: image.convert("L").convert("P").save(path.with_suffix(".gif")),
        lambda image, path: image.convert("RGBA").save(path.with_suffix(".tiff")),
        lambda image, path: image.convert("L").save(path.with_suffix(".png"), dpi=(72, 72)),
        lambda image, path: image.save(path.with_suffix(".webp"), lossless=True, xmp=b"<x/>"),
    ],
    ids=["BMP", "compression", "palette", "RGBA", "grey", "metadata"],
)
def test_the_same_pixels_in_another_file_have_the_same_hash(tmp_path, save):
    pixels = np.arange(64, dtype=np.uint8).reshape(8, 8)
    image = Image.fromarray(pixels).convert("RGB")
    save(image, tmp_path / "again")
    (path,) = tmp_path.iterdir()
    assert hash_pixels(open_image(path)) == hash_pixels(image)
    assert hash_pixels(Image.fromarray(pixels.reshape(4, 16))) != hash_pixels(image)


def test_a_survey_is_of_the_captchas_on_pages():
    captcha = Image.fromarray(np.random.default_rng(0).integers(0, 255, (50, 200), np.uint8))
    page = Image.new("RGB", (800, 600), "white")
    page.paste(captcha, (300, 250))
    kind = survey([page] * 3)
    assert (200 <= kind.width < 300, 50 <= kind.height < 100) == (True, True)

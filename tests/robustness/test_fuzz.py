"""Mutated images are read or refused with ImageError; with --soak a million, which are measured."""

import random
import re
import time
import warnings
from contextlib import suppress
from itertools import product

import numpy as np
from conftest import MOST_GROWTH_MB, resident_mb
from hostile import BURDENED, PNG, chunk, in_format
from PIL import Image

from captcha_ocr.data.images import to_array
from captcha_ocr.errors import ImageError
from captcha_ocr.input_size import InputSize

SIZES = (InputSize(60, 160, 1), InputSize(60, 160, 3))
MOST_MS = 20
INTERESTING = (0, 1, 0x7F, 0x80, 0xFF)
NUMBERS = (b"\xff\xff\xff\xff", b"\0\0\0\0", b"\x7f\xff\xff\xff", b"\0\0\x10\0")


def seeds() -> list[bytes]:
    """Small images in every format and many of their variants."""
    picture = Image.fromarray(
        np.random.default_rng(0).integers(0, 256, (30, 80, 3), np.uint8)
    ).resize((160, 60))
    files = []
    for mode, (image_format, options) in product(MODES, VARIANTS):
        grey_or_colour = picture.convert("L") if mode == "I;16" else picture
        with suppress(OSError, ValueError):  # a mode that the format does not have
            files.append(in_format(grey_or_colour.convert(mode), image_format, **options))
    return files


MODES = ("1", "L", "P", "RGB", "RGBA", "CMYK", "I;16")
EXIF = b"Exif\0\0II*\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0\x06\0\0\0\0\0\0\0"
SECOND = Image.new("RGB", (160, 60))
ANIMATED = {"save_all": True, "append_images": [SECOND]}
VARIANTS = [
    ("PNG", {}),
    ("PNG", {"exif": EXIF, "icc_profile": b"profile"}),
    ("PNG", {"interlace": 1}),
    ("PNG", ANIMATED),
    ("JPEG", {}),
    ("JPEG", {"progressive": True, "exif": EXIF}),
    ("JPEG", {"restart_marker_blocks": 3, "comment": b"text"}),
    ("GIF", {}),
    ("GIF", {"transparency": 0, "comment": b"text"}),
    ("GIF", ANIMATED),
    ("BMP", {}),
    ("WEBP", {}),
    ("WEBP", {"lossless": True, "exif": EXIF}),
    ("WEBP", ANIMATED),
    ("TIFF", {}),
    ("TIFF", {"compression": "tiff_lzw"}),
    ("TIFF", {"compression": "jpeg"}),
    ("TIFF", {"compression": "group4"}),
]


def mutated(data: bytes, others: list[bytes], chance: random.Random) -> bytes:
    """Change a few bytes of a file, remove or double them, or take them from another file."""
    changed = bytearray(data)
    for _ in range(chance.choice((1, 1, 2, 4, 16))):
        if not changed:
            break
        # Headers rather than pixels
        place = min(chance.randrange(len(changed)), chance.randrange(len(changed)))
        length, other = chance.randrange(1, 64), chance.choice(others)
        start = chance.randrange(len(other))
        replaced, new = chance.choice(
            [
                (1, bytes([changed[place] ^ 1 << chance.randrange(8)])),
                (1, bytes([chance.choice(INTERESTING)])),
                (4, chance.choice(NUMBERS)),
                (length // 2 + 1, b""),
                (0, changed[place : place + length]),
                (32, other[start : start + 32]),
                (len(changed), b""),
            ]
        )
        changed[place : place + replaced] = new
    return bytes(changed)


def split_png(png: bytes) -> list[tuple[bytes, bytes]]:
    """Return the parts of a PNG, perhaps a damaged one: their kinds and contents."""
    place, parts = 8, []
    while place + 12 <= len(png):
        end = place + 8 + int.from_bytes(png[place : place + 4])
        parts.append((png[place + 4 : place + 8], png[place + 8 : end]))
        place = end + 4
    return parts


def rebuilt(png: bytes, pngs: list[bytes], changes: int, chance: random.Random) -> bytes:
    """Make a PNG of the parts of one, with the right checksums, so that a decoder sees them.

    Each change removes a part, adds one of another PNG, or gives one another length.
    """
    parts = split_png(png)
    for _ in range(changes):
        place, length = chance.randrange(len(parts)), chance.choice((0, 1, 3, 6, 257, 768, 771))
        kind, body = parts[place]
        resized = (kind, ((body or b"a") * length)[:length])
        another = chance.choice(split_png(chance.choice(pngs)))
        parts[place : place + 1] = chance.choice([[], [resized], [another, (kind, body)]])
        parts = parts or [(b"IEND", b"")]
    return PNG + b"".join(chunk(kind, body) for kind, body in parts)


def test_mutated_images_are_read_or_refused_without_a_warning(soak, figure):
    chance, count, read, times, before = random.Random(0), 5_000, 0, [], 0.0
    files = seeds() + [data for data in BURDENED.values() if len(data) < 100_000]
    pngs = [data for data in files if data.startswith(PNG)]
    with warnings.catch_warnings(record=True) as escaped:
        warnings.simplefilter("always")
        for number in range(1_000_000 if soak else count):
            data = mutated(chance.choice(files), files, chance)
            if not chance.randrange(10):
                data = rebuilt(chance.choice(pngs), pngs, chance.randrange(1, 4), chance)
            elif data.startswith(PNG) and chance.randrange(2):
                data = rebuilt(data, pngs, 0, chance)
            if number == count:  # by now all libraries are loaded
                before = resident_mb()
            size = SIZES[number % 2]
            started = time.process_time()
            try:
                assert to_array(data, size).shape == (size.channels, 60, 160)
                read += 1
            except ImageError as error:
                line = str(error)
                assert re.fullmatch(".+", line)
            times.append(1e3 * (time.process_time() - started))
    assert not escaped
    assert read
    if soak:
        growth, slow = resident_mb() - before - len(times) * 32e-6, np.percentile(times, 99)
        figure(
            f"{len(times):,} images, {read:,} read, the others refused; 99th percentile "
            f"{slow:.2f} ms, slowest {max(times):.0f} ms; memory grew by {growth:.1f} MB"
        )
        assert slow < MOST_MS
        assert growth < MOST_GROWTH_MB

"""Mutated images are read or refused with ImageError; with --soak a million, whose time and memory are measured."""

import random
import time
import warnings
import zlib
from contextlib import suppress

import numpy as np
from conftest import MOST_GROWTH_MB, resident_mb
from hostile import BURDENED, FORMATS, PNG, chunk, in_format
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
    found = []
    for image_format in FORMATS:
        for mode in ("1", "L", "P", "RGB", "RGBA", "CMYK", "I;16"):
            image = (
                picture.convert("RGBA")
                if mode == "RGBA"
                else picture.convert("L" if mode == "I;16" else mode)
            )
            for options in VARIANTS[image_format]:
                with suppress(OSError, ValueError):  # a mode that the format does not have
                    found.append(in_format(image.convert(mode), image_format, **options))
    return found


EXIF = b"Exif\0\0II*\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0\x06\0\0\0\0\0\0\0"
SECOND = Image.new("RGB", (160, 60))
VARIANTS = {
    "PNG": [
        {},
        {"exif": EXIF, "icc_profile": b"profile"},
        {"interlace": 1},
        {"save_all": True, "append_images": [SECOND]},
    ],
    "JPEG": [
        {},
        {"progressive": True, "exif": EXIF},
        {"restart_marker_blocks": 3, "comment": b"text"},
    ],
    "GIF": [
        {},
        {"transparency": 0, "comment": b"text"},
        {"save_all": True, "append_images": [SECOND]},
    ],
    "BMP": [{}],
    "WEBP": [{}, {"lossless": True, "exif": EXIF}, {"save_all": True, "append_images": [SECOND]}],
    "TIFF": [{}, {"compression": "tiff_lzw"}, {"compression": "jpeg"}, {"compression": "group4"}],
}


def mutated(data: bytes, others: list[bytes], chance: random.Random) -> bytes:
    """A few bytes of a file changed, removed, doubled, or taken from another file."""
    changed = bytearray(data)
    for _ in range(chance.choice((1, 1, 2, 4, 16))):
        place = min(
            chance.randrange(len(changed)), chance.randrange(len(changed))
        )  # headers rather than pixels
        way = chance.randrange(7)
        if way == 0:
            changed[place] ^= 1 << chance.randrange(8)
        elif way == 1:
            changed[place] = chance.choice(INTERESTING)
        elif way == 2:
            changed[place : place + 4] = chance.choice(NUMBERS)
        elif way == 3:
            del changed[place : place + chance.randrange(1, 32)]
        elif way == 4:
            changed[place:place] = changed[place : place + chance.randrange(1, 64)]
        elif way == 5:
            other = chance.choice(others)
            start = chance.randrange(len(other))
            changed[place : place + 32] = other[start : start + 32]
        else:
            del changed[max(8, place) :]
        if not changed:
            return b""
    return bytes(changed)


def with_right_checksums(data: bytes) -> bytes:
    """A PNG whose parts have the checksums of what they hold, so that a decoder comes to see it."""
    place, fixed = 8, bytearray(data)
    while place + 12 <= len(fixed):
        end = place + 12 + int.from_bytes(fixed[place : place + 4])
        if end > len(fixed):
            break
        fixed[end - 4 : end] = zlib.crc32(fixed[place + 4 : end - 4]).to_bytes(4)
        place = end
    return bytes(fixed)


def recombined(pngs: list[bytes], chance: random.Random) -> bytes:
    """A PNG with parts of others, removed ones and ones of another length, all with the right checksums."""
    parts = parts_of(chance.choice(pngs))
    for _ in range(chance.randrange(1, 4)):
        place, way = chance.randrange(len(parts)), chance.randrange(4)
        if way == 0:
            del parts[place]
            parts = parts or [chunk(b"IEND", b"")]
        elif way == 1:
            kind, body = parts[place][4:8], parts[place][8:-4] or b"a"
            length = chance.choice((0, 1, 2, 3, 6, 256, 257, 768, 771))
            parts[place] = chunk(kind, (body * length)[:length])
        else:
            parts.insert(place, chance.choice(parts_of(chance.choice(pngs))))
    return PNG + b"".join(parts)


def parts_of(png: bytes) -> list[bytes]:
    """The parts of a whole PNG."""
    place, parts = 8, []
    while place < len(png):
        end = place + 12 + int.from_bytes(png[place : place + 4])
        parts.append(png[place:end])
        place = end
    return parts


def test_mutated_images_are_read_or_refused_without_a_warning(soak, figure):
    files, chance, count = seeds(), random.Random(0), 5_000
    files += [data for data in BURDENED.values() if len(data) < 100_000]
    pngs = [data for data in files if data.startswith(PNG)]
    read, times, before = 0, [], 0.0
    with warnings.catch_warnings(record=True) as escaped:
        warnings.simplefilter("always")
        for number in range(1_000_000 if soak else count):
            data = (
                mutated(chance.choice(files), files, chance)
                if chance.randrange(10)
                else recombined(pngs, chance)
            )
            if data.startswith(PNG) and chance.randrange(2):
                data = with_right_checksums(data)
            if number == count:  # by now all libraries are loaded
                before = resident_mb()
            started = time.process_time()
            try:
                size = SIZES[number % 2]
                assert to_array(data, size).shape == (size.channels, 60, 160)
                read += 1
            except ImageError as error:
                sentence = str(error)
                assert sentence
                assert "\n" not in sentence
            if soak:
                times.append(1e3 * (time.process_time() - started))
    assert not escaped
    assert read
    if soak:
        growth, slow, slowest = (
            resident_mb() - before - len(times) * 32e-6,
            float(np.percentile(times, 99)),
            max(times),
        )
        figure(
            f"{len(times):,} images, {read:,} read, the others refused; 99th percentile {slow:.2f} ms, "
            f"slowest {slowest:.0f} ms; memory grew by {growth:.1f} MB"
        )
        assert slow < MOST_MS
        assert growth < MOST_GROWTH_MB

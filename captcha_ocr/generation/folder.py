"""Write a folder of captchas with many processes."""

import csv
import io
import os
import re
from collections.abc import Callable, Sequence
from dataclasses import asdict, fields
from importlib.metadata import version
from pathlib import Path
from typing import Any

import captcha.image
from PIL import ImageFont

from captcha_ocr.charset import shorten
from captcha_ocr.config import Lengths
from captcha_ocr.data.images import find_images
from captcha_ocr.data.labels import LABELS_FILE, OPTIONS_FILE
from captcha_ocr.data.tables import excerpt
from captcha_ocr.errors import DamagedError, UsageError
from captcha_ocr.generation.config import GeneratorConfig, Renderer
from captcha_ocr.generation.fast_renderer import RENDERERS
from captcha_ocr.generation.package_renderer import seeded_text
from captcha_ocr.system.documents import read_json, to_json
from captcha_ocr.system.files import remove_files, sha256, write_atomic, writing_to
from captcha_ocr.system.parallel import map_jobs

COMPRESS_LEVEL = 3  # of a PNG: 0.77 ms an image; Pillow's 6 takes 1.04 ms and saves 4 %
IMAGES_PER_JOB = 250  # half a second of work
WAY_OUT = "remove the folder, or choose another --out"
OPTIONS_FORMAT = "captcha-ocr generator"


def generate(
    config: GeneratorConfig,
    out: Path,
    workers: int | None = None,
    force: bool = False,
    progress: Callable[[int, int], None] = lambda done, total: None,
    renderer: Renderer = "fast",
) -> int:
    """Write generator.json, the images and then labels.csv into `out`; return how many images were drawn.

    Images that exist are not drawn again. progress: called with the number of images that exist and the total.
    UsageError if `out` holds something else; with `force` the files of another generate are removed first.
    """
    check_fonts(config)
    with writing_to(out):
        names, labels = names_and_labels(config)
        make_room(config, out, labels, force)
        # A power cut may leave an empty file, and the folder may hold links to nowhere.
        present = {entry.name for entry in os.scandir(out) if entry.stat(follow_symlinks=False).st_size}
        if OPTIONS_FILE not in present:
            write_atomic(out / OPTIONS_FILE, to_json(image_options(config)))
        missing = [index for index, name in enumerate(names, config.start) if name not in present]
        starts = range(0, len(missing), IMAGES_PER_JOB)
        jobs = [(config, out, missing[start : start + IMAGES_PER_JOB], renderer) for start in starts]
        done = config.count - len(missing)
        progress(done, config.count)
        for drawn in map_jobs(write_images, jobs, workers):
            done += drawn
            progress(done, config.count)
        if missing and hasattr(os, "sync"):
            os.sync()  # once; to wait for each of 60,000 images would take minutes
        if LABELS_FILE not in present:
            write_atomic(out / LABELS_FILE, labels)
    return len(missing)


def check_fonts(config: GeneratorConfig) -> None:
    """Raise UsageError for a font that cannot be read, or that has no glyph for a character."""
    for path in config.fonts or tuple(captcha.image.DEFAULT_FONTS):
        try:
            font = ImageFont.truetype(path, 48)
        except OSError as error:
            raise UsageError(f"the font {path} cannot be read: {error}") from None
        missing_glyph = bytes(font.getmask("\U0010ffff"))  # what a font draws for a noncharacter
        missing = [character for character in config.charset if bytes(font.getmask(character)) == missing_glyph]
        if missing:
            raise UsageError(f"the font {Path(path).name} has no glyph for {shorten(''.join(missing))!r}")


def names_and_labels(config: GeneratorConfig) -> tuple[list[str], bytes]:
    """Return the names of the images and the content of labels.csv: `filename,text` and a row for each image."""
    texts = (seeded_text(config, index)[0] for index in range(config.start, config.start + config.count))
    rows = [(file_name(index, text), text) for index, text in enumerate(texts, config.start)]
    table = io.StringIO()
    csv.writer(table, lineterminator="\n").writerows([("filename", "text"), *rows])
    return [name for name, _ in rows], table.getvalue().encode()


def file_name(index: int, text: str) -> str:
    """Return a name such as `00000-R865.png`; characters that no file name may have become %XX."""
    safe = "".join(c if c not in '%/\\:*?"<>|.' else f"%{ord(c):02X}" for c in text)
    return f"{index:05d}-{safe}.png"


def image_options(config: GeneratorConfig) -> dict[str, Any]:
    """Return the options that determine the images as JSON types, for generator.json."""
    options = {"format": OPTIONS_FORMAT, "captcha": version("captcha"), **asdict(config)}
    del options["lengths"]
    return {
        **options,
        "length": str(config.lengths),
        "fonts": [[Path(font).name, sha256(Path(font).read_bytes())] for font in config.fonts],
        "font_sizes": list(config.font_sizes),
    }


def write_images(job: tuple[GeneratorConfig, Path, Sequence[int], Renderer]) -> int:
    """Draw and write the images of one job; return their number."""
    config, out, indices, renderer = job
    for index in indices:
        text, image = RENDERERS[renderer](config, index)
        stream = io.BytesIO()
        image.save(stream, format="PNG", compress_level=COMPRESS_LEVEL)
        write_atomic(out / file_name(index, text), stream.getvalue(), durable=False)
    return len(indices)


def make_room(config: GeneratorConfig, out: Path, labels: bytes, force: bool) -> None:
    """Raise UsageError if `out` holds something else; with `force` remove what another generate wrote."""
    options_path, labels_path = out / OPTIONS_FILE, out / LABELS_FILE
    if not options_path.exists():
        candidates = (out / file for file in [LABELS_FILE, *find_images(out).images])
        foreign = next((path for path in candidates if path.exists()), None)
        if foreign is not None:
            raise UsageError(f"{foreign} was not written by generate; choose another --out")
        return
    try:
        old = read_json(options_path)
    except DamagedError as error:
        raise DamagedError(f"{error}; {WAY_OUT}") from None
    if old.get("format") != OPTIONS_FORMAT:
        raise UsageError(f"{options_path} was not written by generate; choose another --out")
    new = image_options(config)
    changed = [
        f"{key} {excerpt(str(old.get(key)))} -> {excerpt(str(new[key]))}" for key in new if old.get(key) != new[key]
    ]
    if not changed and labels_path.exists() and labels_path.read_bytes() != labels:
        changed = [f"{LABELS_FILE} was edited"]
    if not changed:
        return
    if not force:
        way_out = "choose another --out, or replace them with --force"
        raise UsageError(f"{out} holds images made with other options ({', '.join(changed)}); {way_out}")
    kept = {item.name: old[item.name] for item in fields(config) if item.name in old}
    try:
        kept |= {"fonts": (), "font_sizes": (42,), "lengths": Lengths.parse(str(old.get("length")))}
        written = written_with(GeneratorConfig(**kept), out)
    except UsageError as error:
        raise DamagedError(f"{options_path} was changed ({error}); {WAY_OUT}") from None
    # generator.json last: without it an interrupted removal would leave files that nobody may replace.
    remove_files([*written, labels_path, options_path])


def written_with(config: GeneratorConfig, out: Path) -> list[Path]:
    """Return the images in `out` that `generate` wrote with these options."""
    found = []
    for entry in os.scandir(out):  # not over the indices, of which there may be a billion
        number = re.match(r"[0-9]{5,13}(?=-)", entry.name)
        index = int(number[0]) if number else -1
        is_one = config.start <= index < config.start + config.count
        if is_one and entry.name == file_name(index, seeded_text(config, index)[0]):
            found.append(out / entry.name)
    return found

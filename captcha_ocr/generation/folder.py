"""A folder of seeded captchas, written by many processes."""

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

from captcha_ocr.config import Lengths
from captcha_ocr.data.images import image_files
from captcha_ocr.data.labels import LABELS_FILE, shortened
from captcha_ocr.errors import DamagedError, UsageError
from captcha_ocr.generation.config import GeneratorConfig, Renderer
from captcha_ocr.generation.fast_renderer import RENDERERS
from captcha_ocr.generation.package_renderer import seeded_text
from captcha_ocr.system.documents import read_json, to_json
from captcha_ocr.system.files import remove_files, sha256, write_atomic, writing_to
from captcha_ocr.system.parallel import map_jobs

COMPRESS_LEVEL = 3  # of a PNG: 0.77 ms an image; Pillow's 6 takes 1.04 ms and saves 4 %
WAY_OUT = "remove the folder, or choose another --out"
OPTIONS_FILE, OPTIONS_FORMAT = "generator.json", "captcha-ocr generator"


def image_options(config: GeneratorConfig) -> dict[str, Any]:
    """The options that shape the images, as `generator.json` keeps them: no folder, no machine."""
    options = {"format": OPTIONS_FORMAT, "captcha": version("captcha"), **asdict(config)}
    del options["lengths"]
    return {
        **options,
        "length": str(config.lengths),
        "fonts": [[Path(font).name, sha256(Path(font).read_bytes())] for font in config.fonts],
        "font_sizes": list(config.font_sizes),
    }


def check_fonts(config: GeneratorConfig) -> None:
    """Refuse a font that cannot be read, and a character that one of the fonts has no glyph for."""
    for path in config.fonts or tuple(captcha.image.DEFAULT_FONTS):
        try:
            font = ImageFont.truetype(path, 48)
        except OSError as error:
            raise UsageError(f"the font {path} cannot be read: {error}") from None
        # A noncharacter, so that every font draws its "no such glyph" box.
        box = bytes(font.getmask("\U0010ffff"))
        missing = [character for character in config.charset if bytes(font.getmask(character)) == box]
        if missing:
            raise UsageError(f"the font {Path(path).name} has no glyph for {''.join(missing)!r}")


def file_name(index: int, text: str) -> str:
    """`00000-R865.png`; what no file name may hold is written as %XX (labels.csv has it plain)."""
    safe = "".join(c if c not in '%/\\:*?"<>|.' else f"%{ord(c):02X}" for c in text)
    return f"{index:05d}-{safe}.png"


def labels_csv(config: GeneratorConfig) -> bytes:
    """The whole of labels.csv: `filename,text` and a row an image."""
    table = io.StringIO()
    writer = csv.writer(table, lineterminator="\n")
    writer.writerow(["filename", "text"])
    for index in range(config.start, config.start + config.count):
        text, _ = seeded_text(config, index)
        writer.writerow([file_name(index, text), text])
    return table.getvalue().encode()


def generate(
    config: GeneratorConfig,
    out: Path,
    workers: int | None = None,
    force: bool = False,
    progress: Callable[[int, int], None] = lambda done, total: None,
    renderer: Renderer = "fast",
) -> int:
    """Write the images, labels.csv (last) and generator.json (first) into `out`.

    Returns how many images were drawn: 0 where all were there. `progress` is told, now and
    then, how many of how many are there.
    UsageError where `out` holds something else, unless `force`, which removes what generate wrote.
    """
    check_fonts(config)
    with writing_to(out):
        return fill(config, out, workers, force, progress, renderer)


def fill(
    config: GeneratorConfig,
    out: Path,
    workers: int | None,
    force: bool,
    progress: Callable[[int, int], None],
    renderer: Renderer,
) -> int:
    """As `generate`, nobody else writing to `out`."""
    labels = labels_csv(config)
    make_room(config, out, labels, force)
    # A power cut can leave an empty file; a link to nowhere, a stranger's, is no error.
    present = {entry.name for entry in os.scandir(out) if entry.stat(follow_symlinks=False).st_size}
    if OPTIONS_FILE not in present:
        write_atomic(out / OPTIONS_FILE, to_json(image_options(config)))
    missing = [index for index, name in enumerate(names_in(labels), config.start) if name not in present]
    size = 250  # images a job: half a second of work
    jobs = [(config, out, missing[at : at + size], renderer) for at in range(0, len(missing), size)]
    done = config.count - len(missing)
    progress(done, config.count)
    for drawn in map_jobs(write_images, jobs, workers):
        done += drawn
        progress(done, config.count)
    if missing and hasattr(os, "sync"):
        os.sync()  # once, for no image was waited for by itself: with 60,000 that would take minutes
    if LABELS_FILE not in present:
        write_atomic(out / LABELS_FILE, labels)
    return len(missing)


def write_images(job: tuple[GeneratorConfig, Path, Sequence[int], Renderer]) -> int:
    """Draw and write the images of one job; returns their number."""
    config, out, indices, renderer = job
    for index in indices:
        text, image = RENDERERS[renderer](config, index)
        stream = io.BytesIO()
        image.save(stream, format="PNG", compress_level=COMPRESS_LEVEL)
        write_atomic(out / file_name(index, text), stream.getvalue(), durable=False)
    return len(indices)


def names_in(labels: bytes) -> list[str]:
    """The file names in a labels.csv that `labels_csv` made."""
    return [row[0] for row in csv.reader(io.StringIO(labels.decode(), newline=""))][1:]


def read_options(path: Path) -> dict[str, Any]:
    """The content of a generator.json; DamagedError, with a way out, if it is none."""
    try:
        return read_json(path)
    except DamagedError as error:
        raise DamagedError(f"{error}; {WAY_OUT}") from None


def shown(value: Any) -> str:
    """A value of a file that anybody may have written, in a sentence."""
    text = shortened(str(value))
    return text if text.isprintable() else repr(text)


def make_room(config: GeneratorConfig, out: Path, labels: bytes, force: bool) -> None:
    """Refuse a folder that holds something else; with `force` remove what another generate wrote."""
    options_path, labels_path = out / OPTIONS_FILE, out / LABELS_FILE
    if not options_path.exists():
        candidates = (out / file for file in [LABELS_FILE, *image_files(out)])
        foreign = next((path for path in candidates if path.exists()), None)
        if foreign is not None:
            raise UsageError(f"{foreign} was not written by generate; choose another --out")
        return
    old, new = read_options(options_path), image_options(config)
    if old.get("format") != OPTIONS_FORMAT:
        raise UsageError(f"{options_path} was not written by generate; choose another --out")
    changed = [f"{key} {shown(old.get(key))} -> {value}" for key, value in new.items() if old.get(key) != value]
    if not changed and labels_path.exists() and labels_path.read_bytes() != labels:
        changed = [f"{LABELS_FILE} was edited"]
    if not changed:
        return
    if not force:
        raise UsageError(
            f"{out} holds images made with other options ({', '.join(changed)}); "
            "choose another --out, or replace them with --force"
        )
    kept = {item.name: old[item.name] for item in fields(config) if item.name in old}
    try:
        kept |= {"fonts": (), "font_sizes": (42,), "lengths": Lengths.parse(str(old.get("length")))}
        written = written_with(GeneratorConfig(**kept), out)
    except UsageError as error:
        raise DamagedError(f"{options_path} was changed ({error}); {WAY_OUT}") from None
    # generator.json last: without it the rest would be a stranger's, should this be interrupted.
    remove_files([*written, labels_path, options_path])


def written_with(config: GeneratorConfig, out: Path) -> list[Path]:
    """The images in `out` that `generate` wrote with such options: what is there is asked, however many it may be."""
    found = []
    for entry in os.scandir(out):
        number = re.match(r"[0-9]{5,13}(?=-)", entry.name)
        index = int(number[0]) if number else -1
        is_one = config.start <= index < config.start + config.count
        if is_one and entry.name == file_name(index, seeded_text(config, index)[0]):
            found.append(out / entry.name)
    return found

"""Write a folder of captchas with many processes."""

import io
import json
import os
import re
from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote

from captcha_ocr.charset import split_characters
from captcha_ocr.data.images import find_images
from captcha_ocr.data.label_sources.tables import excerpt, to_csv
from captcha_ocr.data.labels import LABELS_FILE, OPTIONS_FILE
from captcha_ocr.errors import DamagedError, UsageError, check
from captcha_ocr.generation.drawer import DrawingPlan, drawer_of
from captcha_ocr.options.drawing import WARPS
from captcha_ocr.options.model import Lengths
from captcha_ocr.system.documents import read_json, to_json
from captcha_ocr.system.files import remove_files, write_atomic, writing_to
from captcha_ocr.system.parallel import map_jobs
from captcha_ocr.version import __version__

_COMPRESS_LEVEL = 3  # of a PNG: 0.77 ms an image; Pillow's 6 takes 1.04 ms and saves 4 %
_IMAGES_PER_JOB = 250  # that one process draws: half a second of work
_WAY_OUT = "remove the folder, or choose another `out`"
_OPTIONS_FORMAT = "captcha-ocr generator"
_NAME = re.compile(r"([0-9]{5,13})-.+\.png")  # such as `00000-R865.png`


class Generated(NamedTuple):
    """What generate did.

    drawn: images that were written. redrawn: images that could not be read and were drawn again.
    illegible: images that were written though they could not be read either.
    """

    drawn: int
    redrawn: int
    illegible: int


def generate(
    plan: DrawingPlan,
    out: Path,
    workers: int | None = None,
    force: bool = False,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Generated:
    """Write generator.json, the images and then labels.csv into `out`.

    Images that exist are not drawn again. progress: called with the number of images that exist and
    the total. UsageError if `out` holds something else; with `force` the files of another generate
    are removed first.
    """
    options, numbers = image_options(plan), plan.numbers
    drawer_of(plan).draw(numbers.start)  # refuses what cannot be drawn before anything is written
    with writing_to(out):
        _make_room(options, out, force)
        if not (out / OPTIONS_FILE).exists():
            write_atomic(out / OPTIONS_FILE, to_json(options))
        names = _find_drawn(out, options)
        missing = [number for number in numbers if number not in names]
        starts = range(0, len(missing), _IMAGES_PER_JOB)
        jobs = [(plan, out, missing[start : start + _IMAGES_PER_JOB]) for start in starts]
        redrawn = illegible = 0
        progress(len(names), len(numbers))
        for written in map_jobs(_write_images, jobs, workers):
            for number, name, tries, is_illegible in written:
                names[number] = name
                redrawn += tries
                illegible += is_illegible
            progress(len(names), len(numbers))
        if missing and hasattr(os, "sync"):
            os.sync()  # once; to wait for each of 60,000 images would take minutes
        _write_labels(out / LABELS_FILE, names, force)
    return Generated(len(missing), redrawn, illegible)


def save_designs(
    plan: DrawingPlan,
    path: Path,
    workers: int | None = None,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> None:
    """Write the random designs of a plan to a file, one in each line, as JSON."""
    numbers = range(plan.options.random_designs) if plan.options.random_designs else plan.numbers
    starts = range(0, len(numbers), _IMAGES_PER_JOB)
    jobs = [(plan, numbers[start : start + _IMAGES_PER_JOB]) for start in starts]
    lines: list[str] = []
    for documents in map_jobs(_find_designs, jobs, workers):
        lines += documents
        progress(len(lines), len(numbers))
    write_atomic(path, "".join(f"{line}\n" for line in lines).encode())


def _find_designs(job: tuple[DrawingPlan, Sequence[int]]) -> list[str]:
    plan, numbers = job
    return [drawer_of(plan).random_document(number) for number in numbers]


def _write_labels(path: Path, names: dict[int, str], force: bool) -> None:
    """Write labels.csv, `filename,text` and a row for each image; UsageError if it was edited."""
    rows = [(name, _text_in(name)) for _, name in sorted(names.items())]
    labels = to_csv([("filename", "text"), *rows]).encode()
    written = path.read_bytes() if path.exists() else None
    if written != labels:
        check(
            written is None or force,
            f"{path} was edited; choose another `out`, or replace it with `force`",
        )
        write_atomic(path, labels)


def _text_in(name: str) -> str:
    """Return the text in the name of an image, in which %XX is a character."""
    return unquote(name.partition("-")[2].removesuffix(".png"))


def image_options(plan: DrawingPlan) -> dict[str, Any]:
    """Return the options that determine the images as JSON types, for generator.json.

    They name every font.
    """
    options = plan.options
    drawn_by = {"captcha_ocr": __version__}  # which may draw a design otherwise than others do
    if options.renderer == "package":
        drawn_by = {"captcha": version("captcha")}
    warp = {"warp": WARPS[options.design]} if options.design in WARPS else {}
    name = plan.digest or [options.design, options.random_designs]
    design = json.loads(plan.document) if plan.document else name
    return {
        "format": _OPTIONS_FORMAT,
        "count": options.count,
        "start": options.start,
        "seed": options.seed,
        "charset": plan.charset,
        "length": str(plan.lengths),
        "renderer": options.renderer,
        **drawn_by,
        **warp,
        "design": design,
        "fonts": [[face.name, face.sha256] for face in drawer_of(plan).faces],
    }


def _write_images(
    job: tuple[DrawingPlan, Path, Sequence[int]],
) -> list[tuple[int, str, int, bool]]:
    """Draw and write the images of one job.

    Return the number and name of each, and how its drawing went.
    """
    plan, out, indices = job
    drawer, written = drawer_of(plan), []
    for index in indices:
        drawn = drawer.draw(index)
        stream = io.BytesIO()
        drawn.image.save(stream, format="PNG", compress_level=_COMPRESS_LEVEL)
        # Some characters cannot be in the name of a file.
        text = re.sub(r'[%/\\:*?"<>|.]', lambda unsafe: f"%{ord(unsafe[0]):02X}", drawn.text)
        name = f"{index:05d}-{text}.png"
        write_atomic(out / name, stream.getvalue(), durable=False)
        written.append((index, name, drawn.redrawn, drawn.illegible is not None))
    return written


def _make_room(options: dict[str, Any], out: Path, force: bool) -> None:
    """Raise UsageError if `out` holds something else.

    With `force` remove what another generate wrote.
    """
    options_path, labels_path = out / OPTIONS_FILE, out / LABELS_FILE
    if not options_path.exists():
        for file in (LABELS_FILE, *find_images(out).images):
            check(
                not (out / file).exists(),
                f"{out / file} was not written by generate; choose another `out`",
            )
        return
    try:
        old = read_json(options_path)
    except DamagedError as error:
        raise DamagedError(f"{error}; {_WAY_OUT}") from None
    check(
        old.get("format") == _OPTIONS_FORMAT,
        f"{options_path} was not written by generate; choose another `out`",
    )
    changes = _list_changes(old, options)
    if not changes:
        return
    check(
        force,
        f"{out} holds images made with other options ({', '.join(changes)});"
        " choose another `out`, or replace them with `force`",
    )
    try:
        written = _find_drawn(out, old).values()
    except (UsageError, TypeError, ValueError) as error:
        raise DamagedError(f"{options_path} was changed ({error}); {_WAY_OUT}") from None
    # generator.json last: without it an interrupted removal would leave files that nobody may
    # replace.
    remove_files([*(out / name for name in written), labels_path, options_path])


def _list_changes(old: dict[str, Any], new: dict[str, Any], place: str = "") -> list[str]:
    """Return what differs between the options of two drawings, as `name: old -> new`."""
    changes = []
    for key in dict.fromkeys([*new, *old]):
        before, after = old.get(key), new.get(key)
        if isinstance(before, dict) and isinstance(after, dict):
            changes += _list_changes(before, after, f"{place}{key}.")
        elif before != after:
            changes.append(f"{place}{key} {excerpt(str(before))} -> {excerpt(str(after))}")
    return changes


def _find_drawn(out: Path, options: dict[str, Any]) -> dict[int, str]:
    """Return the images in `out` that generate wrote with these options: number -> name.

    A power cut may leave an empty file, and the folder may hold files and links of others: their
    names say a number that generate does not have, or a text that it would not write.
    """
    numbers = range(int(options["start"]), int(options["start"]) + int(options["count"]))
    symbols = {*split_characters(str(options["charset"]))}
    lengths = Lengths.parse(str(options["length"]))
    drawn = {}
    for entry in os.scandir(out):  # not over the numbers, of which there may be a billion
        match = _NAME.fullmatch(entry.name)
        if match is None or not entry.stat(follow_symlinks=False).st_size:
            continue
        number, text = int(match[1]), split_characters(_text_in(entry.name))
        if number in numbers and len(text) in lengths and symbols.issuperset(text):
            drawn[number] = entry.name
    return drawn

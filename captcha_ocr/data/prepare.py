"""A folder of images and their labels to split, shuffled shards.

Images are decoded once, by all workers, into one temporary file of pixels; only then is it known
which can be read and which are copies of one another, so only then are splits drawn and shards cut.
"""

import math
import os
import shlex
import shutil
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np

from captcha_ocr.config import GENERATED, MAX_BYTES, ImageKind, InputSize, PrepareConfig, Split
from captcha_ocr.data.images import read_bytes, survey, to_array
from captcha_ocr.data.labels import Label, Problems, find_labels, select_labels
from captcha_ocr.data.shards import (
    MANIFEST_FILE,
    MANIFEST_FORMAT,
    SAMPLES_PER_SHARD,
    SHARD_FILE,
    Manifest,
    Shard,
    check_shards,
    read_manifest,
    write_manifest,
    write_shard,
)
from captcha_ocr.data.splits import drop_copies, split_rows
from captcha_ocr.errors import CaptchaOcrError, DamagedError, ImageError, UsageError
from captcha_ocr.system.console import counted
from captcha_ocr.system.documents import is_ours
from captcha_ocr.system.files import TEMPORARY, remove_files, room_for, sha256, sync_folder, writing_to
from captcha_ocr.system.parallel import map_in_threads, map_jobs

PIXELS_FILE, STAGING = "pixels", "new" + TEMPORARY
IMAGES_PER_JOB = 250
SURVEYED = 300  # images, at most, whose size and colours are looked at


@dataclass(frozen=True)
class PrepareOptions:
    """Where labels come from besides names and labels.csv, and how to carry out a preparation.

    corrections: a table whose rows come before all other labels. workers: processes; None means one a processor.
    progress: is called now and then with the number of decoded images and of all.
    """

    labels_file: Path | None = None
    corrections: Path | None = None
    workers: int | None = None
    force: bool = False
    progress: Callable[[int, int], None] = lambda done, total: None


@dataclass(frozen=True)
class Prepared:
    """The outcome: the manifest, why which files were left out, and whether the shards were there already."""

    manifest: Manifest
    problems: Problems
    copies: int = 0
    already_there: bool = False


@dataclass(frozen=True)
class Plan:
    """What is known before an image is decoded: labels, why files are left out, and the manifest without shards."""

    images: Path
    labels: list[Label]
    problems: Problems
    config: PrepareConfig
    manifest: Manifest

    def fingerprint(self, hashes: list[str | None]) -> str:
        """Return a hash of what goes in: names, contents, texts and splits."""
        rows = zip(self.labels, hashes, strict=True)
        lines = [f"{label.file}\t{file_sha256}\t{label.text}\t{label.split}" for label, file_sha256 in rows]
        return sha256("\n".join(lines + sorted(self.problems)).encode("utf-8", "surrogateescape"))


class Decoded(NamedTuple):
    """The hash of an image file, None if it cannot be opened; and why it cannot be read, None if it can."""

    sha256: str | None
    reason: str | None = None


@dataclass(frozen=True)
class PixelsFile:
    """The temporary file of decoded images: (N, C, H, W) uint8, written by many processes."""

    path: Path
    count: int
    size: InputSize

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """(N, C, H, W)."""
        return self.count, self.size.channels, self.size.height, self.size.width

    def create(self) -> None:
        """Make the file at its full size; CaptchaOcrError where the disk has no room for it."""
        size = math.prod(self.shape)
        with room_for(self.path, size), open(self.path, "wb") as stream:
            stream.truncate(size)
            if hasattr(os, "posix_fallocate"):  # a hole that cannot be filled later would end us by a signal
                os.posix_fallocate(stream.fileno(), 0, size)

    def open(self, mode: Literal["r+", "r"]) -> np.ndarray:
        """Map the file, to change it or to read."""
        return np.memmap(self.path, dtype=np.uint8, mode=mode, shape=self.shape)


def prepare(images: Path, out: Path, config: PrepareConfig, options: PrepareOptions = PrepareOptions()) -> Prepared:
    """Turn the labelled images below `images` into shards and a manifest in `out`.

    Files that cannot be read or labelled are left out and listed in the result. A finished folder of the same images
    and options is left as it is; UsageError for one of other images or options, unless `force`.
    """
    plan = plan_preparation(images, config, options)
    with writing_to(out):
        if (out / MANIFEST_FILE).exists():
            inputs = plan.fingerprint(hash_files(plan))
            existing = finished_manifest(out, replace(plan.manifest, inputs_sha256=inputs), options.force)
            if existing is not None:
                return Prepared(existing, {}, already_there=True)
        return carry_out(plan, out, options)


def plan_preparation(images: Path, config: PrepareConfig, options: PrepareOptions) -> Plan:
    """Find the labels, and what follows from them: alphabet, lengths and input size."""
    labels, unlabelled = find_labels(images, options.labels_file, config.label_pattern, options.corrections)
    selected = select_labels(labels, config)
    size = config.input_size(selected.lengths.longest, kind_of(images, selected.labels, config.max_bytes))
    manifest = Manifest(
        charset=selected.charset,
        lengths=selected.lengths,
        size=size,
        source=printable(images),
        labels=None if options.labels_file is None else printable(options.labels_file),
        options=options_of(config),
        inputs_sha256="",
        left_out=0,
    )
    return Plan(images, selected.labels, unlabelled | selected.problems, config, manifest)


def carry_out(plan: Plan, out: Path, options: PrepareOptions) -> Prepared:
    """Decode the images and split them; the new shards replace what is in `out` once all of them are written."""
    labels, manifest = plan.labels, plan.manifest
    staging = out / STAGING
    staging.mkdir()
    try:
        pixels = PixelsFile(staging / PIXELS_FILE, len(labels), manifest.size)
        decoded = decode_all(plan, pixels, options)
        unreadable = {label.file: image.reason for label, image in zip(labels, decoded, strict=True) if image.reason}
        readable = [None if image.reason else image.sha256 for image in decoded]
        kept = drop_copies(labels, readable, manifest.charset)
        problems = plan.problems | unreadable | kept.problems
        rows_of = split_rows(kept.rows, labels, plan.config)
        check_split(rows_of, len(kept.rows), problems)
        shards = write_shards(staging, pixels, rows_of, encode_rows(manifest, labels, kept.rows), options.workers)
        inputs = plan.fingerprint([image.sha256 for image in decoded])
        manifest = replace(manifest, inputs_sha256=inputs, left_out=len(problems), shards=tuple(shards))
        write_manifest(staging, manifest)
        move_in(staging, out, [*(shard.file for shard in shards), MANIFEST_FILE])
    finally:
        shutil.rmtree(staging)
    return Prepared(manifest, problems, kept.copies)


def check_split(rows_of: dict[Split, list[int]], usable: int, problems: Problems) -> None:
    """Refuse a split without a training image."""
    if not rows_of["train"]:
        why = "; ".join(f"{file}: {reason}" for file, reason in list(problems.items())[:3])
        raise CaptchaOcrError(
            f"{counted(usable, 'usable image')} are too few for training, validation and test sets"
            + (f" ({why})" if why else "")
        )


def move_in(staging: Path, out: Path, files: Iterable[str]) -> None:
    """Remove what an unfinished or replaced preparation left in `out`, and move `files` there, the manifest last.

    That asks for no room: had the disk been full, the shards that were there would still be.
    """
    clear(out)
    for file in files:
        os.replace(staging / file, out / file)
    sync_folder(out)


def kind_of(folder: Path, labels: list[Label], max_bytes: int) -> ImageKind:
    """What the labelled images below a folder are like, by a sample; as the generator's where none can be read."""
    some = (folder / label.file for label in labels[:: 1 + len(labels) // SURVEYED])
    return survey(some, max_bytes) or GENERATED


def printable(path: Path) -> str:
    """A path as text that every file and terminal takes."""
    return os.fsencode(path.as_posix()).decode("utf-8", "backslashreplace")


def options_of(config: PrepareConfig) -> dict[str, object]:
    """The options of a preparation as JSON types, for the manifest."""
    sizes = ("preset", "width", "height", "channels")  # the manifest has the size itself
    words = {
        "length": None if config.lengths is None else str(config.lengths),
        "split": list(config.split),
        "fold": None if config.fold is None else list(config.fold),
    }
    left = {name: value for name, value in asdict(config).items() if name not in (*sizes, "lengths")}
    if config.max_bytes == MAX_BYTES:  # as folders have it that were made before there was a choice
        del left["max_bytes"]
    return {**left, **words}


def prepare_command(manifest: Manifest, out: Path, preset: str) -> str:
    """The command that makes the same shards in `out` again, at the input size of `preset`."""
    usual, words = options_of(PrepareConfig()), ["--preset", preset]
    if manifest.labels is not None:
        words += ["--labels", manifest.labels]
    fold = manifest.options.get("fold")
    if isinstance(fold, list) and len(fold) == 2:
        out, words = out.parent, [*words, "--folds", str(fold[1])]
    for name, default in {**usual, "max_bytes": MAX_BYTES}.items():
        value = manifest.options.get(name, default)
        if value != default and name != "fold":
            words.append("--" + name.replace("_", "-"))
            if not isinstance(value, bool):
                words.append("/".join(map(str, value)) if isinstance(value, list) else str(value))
    return shlex.join(["captcha-ocr", "prepare", manifest.source, "--out", str(out), *words, "--force"])


def hash_files(plan: Plan) -> list[str | None]:
    """Return the hash of each labelled file, None for one that cannot be opened."""

    def hash_of(label: Label) -> str | None:
        try:
            return sha256(read_bytes(plan.images / label.file, plan.config.max_bytes))
        except ImageError:
            return None

    return list(map_in_threads(lambda some: [hash_of(label) for label in some], plan.labels))


def finished_manifest(out: Path, planned: Manifest, force: bool) -> Manifest | None:
    """The manifest in `out` if it is of the same preparation and its shards are whole.

    UsageError if it is of another, DamagedError if not whole; with `force` None.
    """
    path = out / MANIFEST_FILE
    if force and not is_ours(path, MANIFEST_FORMAT):
        raise UsageError(f"{path} was not written by prepare; choose another --out")
    try:
        existing = read_manifest(out)
        if replace(existing, shards=(), left_out=0, source=planned.source, labels=planned.labels) == planned:
            check_shards(out, existing.shards)
            return existing
    except DamagedError as error:
        if force:
            return None
        way_out = "make the shards anew with --force" if is_ours(path, MANIFEST_FORMAT) else "choose another --out"
        raise DamagedError(f"{error}; {way_out}") from None
    if force:
        return None
    changed = ["the images or labels"] if existing.inputs_sha256 != planned.inputs_sha256 else []
    changed += ["the input size"] if existing.size != planned.size else []
    changed += ["the options"] if existing.options != planned.options else []
    raise UsageError(
        f"{out} holds shards made otherwise ({' and '.join(changed)} differ); "
        "choose another --out, or replace them with --force"
    )


def clear(out: Path) -> None:
    """Remove what an unfinished or replaced preparation left in `out`."""
    leftovers = [path for path in out.iterdir() if SHARD_FILE.fullmatch(path.name)]
    remove_files([out / MANIFEST_FILE, *leftovers])


def decode_all(plan: Plan, pixels: PixelsFile, options: PrepareOptions) -> list[Decoded]:
    """Decode every labelled image into its row of `pixels`."""
    pixels.create()
    jobs = []
    for first in range(0, len(plan.labels), IMAGES_PER_JOB):
        files = [label.file for label in plan.labels[first : first + IMAGES_PER_JOB]]
        jobs.append((plan.images, files, plan.config.max_bytes, pixels, first))
    decoded: list[Decoded] = []
    for results in map_jobs(decode_job, jobs, options.workers):
        decoded += results
        options.progress(len(decoded), len(plan.labels))
    return decoded


def decode_job(job: tuple[Path, list[str], int, PixelsFile, int]) -> list[Decoded]:
    """Decode some files into their rows of the pixels."""
    images, files, max_bytes, pixels, first = job
    rows = pixels.open("r+")
    results = []
    for row, file in enumerate(files, first):
        file_sha256 = reason = None
        try:
            data = read_bytes(images / file, max_bytes)
            file_sha256 = sha256(data)
            rows[row] = to_array(data, pixels.size, max_bytes)
        except ImageError as error:
            reason = str(error)
        results.append(Decoded(file_sha256, reason))
    return results


def encode_rows(manifest: Manifest, labels: list[Label], rows: list[int]) -> np.ndarray:
    """Return the class ids of all labels, (N, L) int16; those of other rows are 0."""
    ids = np.zeros((len(labels), manifest.lengths.longest), dtype=np.int16)
    ids[rows] = manifest.charset.encode([labels[row].text for row in rows], manifest.lengths.longest)
    return ids


def write_shards(
    out: Path, pixels: PixelsFile, rows_of: dict[Split, list[int]], ids: np.ndarray, workers: int | None
) -> list[Shard]:
    """Cut every split into shards and write them, each by one worker."""
    jobs = []
    for split, rows in rows_of.items():
        for number, first in enumerate(range(0, len(rows), SAMPLES_PER_SHARD)):
            part = rows[first : first + SAMPLES_PER_SHARD]
            jobs.append((out / f"{split}-{number:05d}.safetensors.gz", split, pixels, part, ids[part]))
    return list(map_jobs(shard_job, jobs, workers))


def shard_job(job: tuple[Path, Split, PixelsFile, list[int], np.ndarray]) -> Shard:
    """Write one shard from its rows of the pixels."""
    path, split, pixels, rows, labels = job
    return write_shard(path, split, pixels.open("r")[rows], labels)

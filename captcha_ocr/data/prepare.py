"""Turn a folder of images and their labels into split, shuffled shards.

The workers decode each image once, into one temporary file of pixels. Only then is it known which images can be read
and which are copies, so the images are split and written to shards after that.
"""

import math
import os
import shutil
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np

from captcha_ocr.config import ANY_DESIGN, FEWEST, MAX_BYTES, Lengths, PrepareConfig, Split
from captcha_ocr.data.images import decode, fit, oddities_of, read_bytes, survey
from captcha_ocr.data.labels import Found, Label, Problems, find_labels
from captcha_ocr.data.selection import Selection, select_labels
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
from captcha_ocr.errors import Command, DamagedError, ImageError, UsageError, in_one_line
from captcha_ocr.input_size import GENERATED, MAX_INPUT_SIDE, MIN_INPUT_SIDE, ImageKind, InputSize
from captcha_ocr.system.console import counted, in_groups
from captcha_ocr.system.documents import is_ours
from captcha_ocr.system.files import (
    TEMPORARY,
    remove_files,
    room_for,
    sha256,
    sync_folder,
    writing_to,
)
from captcha_ocr.system.parallel import Workers, map_in_threads, processes_for

Progress = Callable[[int, int], None]  # called with the number of decoded images and the total

PIXELS_FILE, STAGING = "pixels", "new" + TEMPORARY
IMAGES_PER_JOB = 250
MAX_REASONS, MAX_REASON = 20, 300  # lines, and characters of one, that the manifest keeps
MAX_SURVEYED = 300  # images whose size and colours are looked at
PIXELS_PER_CHARACTER = GENERATED.height * GENERATED.width // 4  # of a network's input
MIN_INPUT_WIDTH_PER_CHARACTER = 16  # pixels: two columns of the network's last feature map
MIN_RESIZING = (
    0.85  # an image that would be scaled by a factor between this and its inverse keeps its size
)


@dataclass(frozen=True)
class PrepareOptions:
    """Where else labels come from, and how to run a preparation.

    labels_file: a table instead of labels.csv. corrections: a table whose rows replace other labels.
    workers: processes; None takes one for each processor. force: replace shards of other images or options.
    """

    labels_file: Path | None = None
    corrections: Path | None = None
    workers: int | None = None
    force: bool = False
    progress: Progress = lambda done, total: None


@dataclass(frozen=True)
class Prepared:
    """The result: the manifest, what was found, why files were left out now, and whether the shards existed before.

    oddities: how animated or transparent images were read.
    """

    manifest: Manifest
    found: Found
    problems: Problems
    oddities: Counter[str] = field(default_factory=Counter)
    already_there: bool = False


@dataclass(frozen=True)
class Plan:
    """What is known before the images are decoded; the manifest lacks its shards."""

    images: Path
    found: Found
    labels: list[Label]
    problems: Problems
    config: PrepareConfig
    manifest: Manifest

    def fingerprint(self, hashes: list[str | None]) -> str:
        """Return a hash of the inputs: the names, contents, texts and splits of the images."""
        rows = zip(self.labels, hashes, strict=True)
        lines = [
            f"{label.file}\t{file_sha256}\t{label.text}\t{label.split}"
            for label, file_sha256 in rows
        ]
        return sha256("\n".join(lines + sorted(self.problems)).encode("utf-8", "surrogateescape"))


class Decoded(NamedTuple):
    """The hash of an image file, None if it cannot be opened; why it cannot be read, None if it can; what is odd."""

    sha256: str | None
    reason: str | None = None
    oddities: tuple[str, ...] = ()


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
        """Create the file at its full size; CaptchaOcrError if the disk is full."""
        size = math.prod(self.shape)
        with room_for(self.path, size), open(self.path, "wb") as stream:
            stream.truncate(size)
            if hasattr(os, "posix_fallocate"):  # a full disk would raise SIGBUS in a mapped file
                os.posix_fallocate(stream.fileno(), 0, size)

    def open(self, mode: Literal["r+", "r"]) -> np.ndarray:
        """Map the file for reading and writing, or for reading; as an array, whose rows take less time."""
        return np.memmap(self.path, dtype=np.uint8, mode=mode, shape=self.shape).view(np.ndarray)


def prepare(
    images: Path, out: Path, config: PrepareConfig, options: PrepareOptions = PrepareOptions()
) -> Prepared:
    """Turn the labelled images below `images` into shards and a manifest in `out`.

    The result lists the files that cannot be read or have no label. A finished folder of the same images and options
    stays as it is; UsageError for a folder of others, unless `force` is set.
    """
    found = find_labels(images, options.labels_file, options.corrections, config).check()
    processes = processes_for(-(-len(found.labels) // IMAGES_PER_JOB), options.workers)
    with Workers(max(0, processes - 1)) as workers:  # this process works, too
        if not (out / MANIFEST_FILE).exists():  # else there may be nothing to do for them
            workers.start(start_up, range(processes - 1))
        plan = plan_preparation(images, found, config, options)
        with writing_to(out):
            if (out / MANIFEST_FILE).exists():
                inputs = plan.fingerprint(hash_files(plan))
                existing = finished_manifest(
                    out, replace(plan.manifest, inputs_sha256=inputs), options.force
                )
                if existing is not None:
                    return Prepared(existing, plan.found, {}, already_there=True)
            return carry_out(plan, out, workers, options.progress)


def plan_preparation(
    images: Path, found: Found, config: PrepareConfig, options: PrepareOptions
) -> Plan:
    """Derive the alphabet, the lengths and the input size from the labels."""
    selected = select_labels(found.labels, config)
    kind = kind_of(images, selected.labels, config.max_bytes)
    config = with_preset(config, selected, kind)
    manifest = Manifest(
        charset=selected.charset,
        lengths=selected.lengths,
        size=config.input_size(derived_size(kind, selected.lengths.longest)),
        source=printable(images),
        labels=None if options.labels_file is None else printable(options.labels_file),
        options=options_of(config),
        inputs_sha256="",
        left_out=0,
        corrections=None if options.corrections is None else printable(options.corrections),
    )
    return Plan(
        images, found, selected.labels, found.problems | selected.problems, config, manifest
    )


def carry_out(plan: Plan, out: Path, workers: Workers, progress: Progress) -> Prepared:
    """Decode the images, split them and write the shards; they replace those in `out` once all are complete."""
    labels, manifest = plan.labels, plan.manifest
    staging = out / STAGING
    staging.mkdir()
    try:
        pixels = PixelsFile(staging / PIXELS_FILE, len(labels), manifest.size)
        decoded = decode_all(plan, pixels, workers, progress)
        unreadable = {
            label.file: image.reason
            for label, image in zip(labels, decoded, strict=True)
            if image.reason
        }
        readable = [None if image.reason else image.sha256 for image in decoded]
        kept = drop_copies(labels, readable, manifest.charset)
        problems = plan.problems | unreadable | kept.problems
        rows_of = split_rows(kept.rows, labels, plan.config)
        if not rows_of["train"]:
            why = "; ".join(f"{file}: {reason}" for file, reason in list(problems.items())[:3])
            few = f"{counted(len(kept.rows), 'usable image')}, too few for training, validation and test sets"
            raise UsageError(f"{few} ({why})" if why else few)
        shards = write_shards(staging, pixels, rows_of, plan, workers)
        inputs = plan.fingerprint([image.sha256 for image in decoded])
        reasons = tuple(
            in_one_line(line[:MAX_REASON]) for line in in_groups(problems)[:MAX_REASONS]
        )
        manifest = replace(manifest, left_out=len(problems), reasons=reasons, copies=kept.copies)
        manifest = replace(manifest, inputs_sha256=inputs, shards=tuple(shards))
        write_manifest(staging, manifest)
        move_in(staging, out, [*(shard.file for shard in shards), MANIFEST_FILE])
    finally:
        workers.close()  # after an error they may still write there
        shutil.rmtree(staging)
    oddities = Counter(oddity for image in decoded for oddity in image.oddities)
    return Prepared(manifest, plan.found, problems, oddities)


def move_in(staging: Path, out: Path, files: Iterable[str]) -> None:
    """Replace the shards in `out` by `files`, in their order; this needs no disk space."""
    clear(out)
    for file in files:
        os.replace(staging / file, out / file)
    sync_folder(out)


def kind_of(folder: Path, labels: list[Label], max_bytes: int) -> ImageKind:
    """Return what a sample of the labelled images is like; if none can be read, what generated images are like."""
    sample = (folder / label.file for label in labels[:: 1 + len(labels) // MAX_SURVEYED])
    return survey(sample, max_bytes) or GENERATED


def with_preset(config: PrepareConfig, selected: Selection, kind: ImageKind) -> PrepareConfig:
    """Return a copy with the preset whose input size to use, if it names none."""
    learnt = sum(label.split != "test" for label in selected.labels)
    return replace(
        config, preset=config.preset or preset_of(config, learnt, selected.lengths, kind)
    )


def preset_of(config: PrepareConfig, labels: int, lengths: Lengths, kind: ImageKind) -> str:
    """Return the preset whose input size to use: few images train from the model in the package, if it fits them."""
    is_free = config.size is None and config.channels is None
    is_wide = (
        ANY_DESIGN.width_of(kind.width, kind.height)
        >= MIN_INPUT_WIDTH_PER_CHARACTER * lengths.longest
    )
    return "finetune" if labels < FEWEST and is_free and is_wide else "default"


def derived_size(images: ImageKind, longest: int) -> ImageKind:
    """Return an input size with the images' proportions and as many pixels per character as generated images have.

    Small images are enlarged: the network would otherwise have fewer columns than the text has characters.
    """
    budget = PIXELS_PER_CHARACTER * max(4, longest)
    scale = math.sqrt(budget / (images.width * images.height))
    if MIN_RESIZING < scale < 1 / MIN_RESIZING:
        scale = 1.0
    width = max(round(images.width * scale), MIN_INPUT_WIDTH_PER_CHARACTER * longest)
    height, width = (
        max(MIN_INPUT_SIDE, min(MAX_INPUT_SIDE, side))
        for side in (round(images.height * scale), width)
    )
    return ImageKind(height, width, images.channels)


def printable(path: Path) -> str:
    """Return a path as text that every file and terminal can hold."""
    return os.fsencode(path.as_posix()).decode("utf-8", "backslashreplace")


def options_of(config: PrepareConfig) -> dict[str, object]:
    """Return the options of a preparation as JSON types, for the manifest."""
    elsewhere = ("preset", "size", "channels", "lengths")  # the manifest has the size itself
    options = {name: value for name, value in asdict(config).items() if name not in elsewhere}
    if config.max_bytes == MAX_BYTES:  # manifests written before --max-bytes existed do not have it
        del options["max_bytes"]
    return {
        **options,
        "length": None if config.lengths is None else str(config.lengths),
        "split": list(config.split),
        "fold": None if config.fold is None else list(config.fold),
    }


def prepare_command(manifest: Manifest, out: Path, preset: str) -> Command:
    """Return the command that makes the same shards in `out` again, with the input size of `preset`."""
    options: dict[str, object] = {"preset": preset}
    fold = manifest.options.get("fold")
    if isinstance(fold, list) and len(fold) == 2:
        out = out.parent
        options["folds"] = fold[1]
    options |= label_options(manifest) | given_options(manifest, ("split", "seed"))
    return Command("prepare", (manifest.source,), {"out": out, **options, "force": True})


def label_options(manifest: Manifest) -> dict[str, object]:
    """Return the options with which prepare found the labels, which are also options of inspect."""
    names = ("max_bytes", "label_pattern", "charset", "length", "case_sensitive")
    tables = {"labels": manifest.labels, "corrections": manifest.corrections}
    return {**tables, **given_options(manifest, names)}


def given_options(manifest: Manifest, names: Iterable[str]) -> dict[str, object]:
    """Return those of the named options that do not have their defaults, as they were given."""
    defaults = {**options_of(PrepareConfig()), "max_bytes": MAX_BYTES}
    given = {}
    for name in names:
        value = manifest.options.get(name, defaults[name])
        if value != defaults[name]:
            given[name] = "/".join(map(str, value)) if isinstance(value, list) else value
    return given


def hash_files(plan: Plan) -> list[str | None]:
    """Return the hash of each labelled file, None for one that cannot be opened."""

    def hash_of(label: Label) -> str | None:
        try:
            return sha256(read_bytes(plan.images / label.file, plan.config.max_bytes))
        except ImageError:
            return None

    return list(map_in_threads(lambda some: [hash_of(label) for label in some], plan.labels))


def finished_manifest(out: Path, planned: Manifest, force: bool) -> Manifest | None:
    """Return the manifest in `out` if it belongs to the same preparation and its shards are not damaged.

    Otherwise return None with `force`; without it UsageError for another preparation, DamagedError for damage.
    """
    path = out / MANIFEST_FILE
    if force and not is_ours(path, MANIFEST_FORMAT):
        raise UsageError(f"{path} was not written by prepare; choose another --out")
    try:
        existing = read_manifest(out)
        if replace(existing.content, shards=(), left_out=0) == planned.content:
            check_shards(out, existing.shards)
            return existing
    except DamagedError as error:
        if force:
            return None
        way_out = (
            "make the shards again with --force"
            if is_ours(path, MANIFEST_FORMAT)
            else "choose another --out"
        )
        raise DamagedError(f"{error}; {way_out}") from None
    if force:
        return None
    both = existing.options | planned.options
    names = [name for name in both if existing.options.get(name) != planned.options.get(name)]
    changed = []
    for name in names:
        old, new = existing.options.get(name), planned.options.get(name)
        changed.append(f"`{name}`: {shown(old)} -> {shown(new)}")
    changed += (
        [f"input size: {existing.size} -> {planned.size}"] if existing.size != planned.size else []
    )
    if (
        existing.inputs_sha256 != planned.inputs_sha256 and not names
    ):  # other options choose other labels
        changed.append("the images or labels differ")
    raise UsageError(
        f"{out} holds the shards of another preparation ({', '.join(changed)}); "
        "choose another --out, or replace them with --force"
    )


def shown(value: object) -> str:
    """Return an option's value in a manifest as it is given to prepare."""
    if isinstance(value, list):
        return "/".join(map(str, value))
    return "unset" if value is None or value is False else "set" if value is True else str(value)


def clear(out: Path) -> None:
    """Remove the manifest and all shards in `out`."""
    leftovers = [path for path in out.iterdir() if SHARD_FILE.fullmatch(path.name)]
    remove_files([out / MANIFEST_FILE, *leftovers])


def decode_all(
    plan: Plan, pixels: PixelsFile, workers: Workers, progress: Progress
) -> list[Decoded]:
    """Decode every labelled image into its row of the pixels file."""
    pixels.create()
    jobs = []
    for first in range(0, len(plan.labels), IMAGES_PER_JOB):
        files = [label.file for label in plan.labels[first : first + IMAGES_PER_JOB]]
        jobs.append((plan.images, files, plan.config.max_bytes, pixels, first))
    total = len(plan.labels)
    results = workers.start(decode_job, jobs).finish(
        lambda missing: progress(max(0, total - missing * IMAGES_PER_JOB), total)
    )
    progress(total, total)
    return [image for some in results for image in some]


def start_up(number: int) -> None:
    """Do nothing: a worker that has done it has imported what it needs, which takes as long as to find the labels."""


def decode_job(job: tuple[Path, list[str], int, PixelsFile, int]) -> list[Decoded]:
    """Decode some files into their rows of the pixels file."""
    images, files, max_bytes, pixels, first = job
    rows = pixels.open("r+")
    results = []
    for row, file in enumerate(files, first):
        file_sha256 = reason = None
        oddities: tuple[str, ...] = ()
        try:
            data = read_bytes(os.path.join(images, file), max_bytes)
            file_sha256 = sha256(data)
            image = decode(data, max_bytes)
            rows[row] = fit(image, pixels.size)
            oddities = tuple(oddities_of(image))
        except ImageError as error:
            reason = str(error)
        results.append(Decoded(file_sha256, reason, oddities))
    return results


def write_shards(
    out: Path, pixels: PixelsFile, rows_of: dict[Split, list[int]], plan: Plan, workers: Workers
) -> list[Shard]:
    """Write the shards of every split; each worker writes whole shards."""
    jobs = []
    for split, rows in rows_of.items():
        for number, first in enumerate(range(0, len(rows), SAMPLES_PER_SHARD)):
            part = rows[first : first + SAMPLES_PER_SHARD]
            ids = plan.manifest.charset.encode(
                [plan.labels[row].text for row in part], plan.manifest.lengths.longest
            )
            jobs.append((out / f"{split}-{number:05d}.safetensors.gz", split, pixels, part, ids))
    return workers.start(shard_job, jobs).finish()


def shard_job(job: tuple[Path, Split, PixelsFile, list[int], np.ndarray]) -> Shard:
    """Write one shard from its rows of the pixels file."""
    path, split, pixels, rows, labels = job
    return write_shard(path, split, pixels.open("r")[rows], labels)

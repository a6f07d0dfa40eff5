"""Turn a folder of images and their labels into split, shuffled shards.

The workers decode each image once, into one temporary file of pixels. Only then is it known which
images can be read and which are copies, so the images are split and written to shards after that.
"""

import math
import os
import shutil
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np

from captcha_ocr.data.images import decode, describe_oddities, fit_to_input, read_bytes, survey
from captcha_ocr.data.labels import Found, Label, Problems, find_labels
from captcha_ocr.data.selection import Selection, drop_copies, select_labels, split_rows
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
from captcha_ocr.errors import Command, DamagedError, ImageError, UsageError, check, in_one_line
from captcha_ocr.input_size import GENERATED, MAX_INPUT_SIDE, MIN_INPUT_SIDE, ImageKind, InputSize
from captcha_ocr.options.preparation import (
    PrepareConfig,
    PrepareOptions,
    ProgressCallback,
    Split,
)
from captcha_ocr.options.shared import MAX_BYTES
from captcha_ocr.options.training import ANY_DESIGN, FEWEST
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

STAGING = "new" + TEMPORARY  # a folder
IMAGES_PER_JOB = 250
_MAX_REASONS, _MAX_REASON = 20, 300  # lines, and characters of one, that the manifest keeps
MAX_SURVEYED = 300  # images whose size and colours are looked at
_PIXELS_PER_CHARACTER = GENERATED.height * GENERATED.width // 4  # of a network's input
_MIN_WIDTH_PER_CHARACTER = 16  # pixels: two columns of the network's last feature map
# An image that would be scaled by a factor between this and its inverse keeps its size
_MIN_RESIZING = 0.85


@dataclass(frozen=True)
class Prepared:
    """The result: the manifest, what was found, why files were left out now, and whether the shards
    existed before.

    oddities: how animated or transparent images were read.
    """

    manifest: Manifest
    found: Found
    problems: Problems
    oddities: Counter[str] = field(default_factory=Counter)
    already_there: bool = False


@dataclass(frozen=True)
class _Plan:
    """What is known before the images are decoded; the manifest lacks its shards."""

    images: Path
    found: Found
    labels: list[Label]
    problems: Problems
    config: PrepareConfig
    manifest: Manifest

    def fingerprint(self, hashes: list[str | None]) -> str:
        """Return a hash of the inputs: the names, contents, texts and splits of the images."""
        lines = [
            f"{label.file}\t{file_sha256}\t{label.text}\t{label.split}"
            for label, file_sha256 in zip(self.labels, hashes, strict=True)
        ]
        return sha256("\n".join(lines + sorted(self.problems)).encode("utf-8", "surrogateescape"))


class _DecodedImage(NamedTuple):
    """The hash of an image file, None if it cannot be opened.

    Why it cannot be read, None if it can; what is odd.
    """

    sha256: str | None
    reason: str | None = None
    oddities: tuple[str, ...] = ()


class _PixelsFile(NamedTuple):
    """The temporary file of decoded images: (N, C, H, W) uint8, written by many processes."""

    path: Path
    images: int
    size: InputSize

    @property
    def shape(self) -> tuple[int, int, int, int]:
        return self.images, self.size.channels, self.size.height, self.size.width

    def open(self, mode: Literal["r+", "r"]) -> np.ndarray:
        """Map the file as an array, whose rows take less time than those of a memmap."""
        return np.memmap(self.path, dtype=np.uint8, mode=mode, shape=self.shape).view(np.ndarray)


def prepare(
    images: Path, out: Path, config: PrepareConfig, options: PrepareOptions = PrepareOptions()
) -> Prepared:
    """Turn the labelled images below `images` into shards and a manifest in `out`.

    The result lists the files that cannot be read or have no label. A finished folder of the same
    images and options stays as it is; UsageError for a folder of others, unless `force` is set.
    """
    found = find_labels(images, options.labels_file, options.corrections, config).check()
    processes = processes_for(-(-len(found.labels) // IMAGES_PER_JOB), options.workers)
    with Workers(max(0, processes - 1)) as workers:  # this process works, too
        if not (out / MANIFEST_FILE).exists():  # else there may be nothing to do for them
            workers.start(_start_up, range(processes - 1))
        selected = select_labels(found.labels, config)
        kind = survey_labelled(images, selected.labels, config.max_bytes)
        config = set_preset(config, selected, kind)
        tables = {"labels": options.labels_file, "corrections": options.corrections}
        paths = {name: printable(table) for name, table in tables.items() if table is not None}
        manifest = Manifest(
            charset=selected.charset,
            lengths=selected.lengths,
            size=config.input_size(derive_size(kind, selected.lengths.longest)),
            source=printable(images),
            labels=paths.get("labels"),
            options=_collect_options(config),
            inputs_sha256="",
            left_out=0,
            corrections=paths.get("corrections"),
        )
        plan = _Plan(
            images=images,
            found=found,
            labels=selected.labels,
            problems=found.problems | selected.problems,
            config=config,
            manifest=manifest,
        )
        with writing_to(out):
            if (out / MANIFEST_FILE).exists():
                planned = replace(manifest, inputs_sha256=plan.fingerprint(_hash_files(plan)))
                existing = _find_finished(out, planned, options.force)
                if existing is not None:
                    return Prepared(existing, found, {}, already_there=True)
            return _carry_out(plan, out, workers, options.progress)


def _carry_out(plan: _Plan, out: Path, workers: Workers, progress: ProgressCallback) -> Prepared:
    """Decode the images, split them and write the shards.

    They replace those in `out` once all are complete.
    """
    labels, manifest = plan.labels, plan.manifest
    staging = out / STAGING
    staging.mkdir()
    try:
        pixels = _PixelsFile(staging / "pixels", len(labels), manifest.size)
        decoded = _decode_all(plan, pixels, workers, progress)
        unreadable: Problems = {}
        readable: list[str | None] = []
        for label, image in zip(labels, decoded, strict=True):
            if image.reason:
                unreadable[label.file] = image.reason
            readable.append(None if image.reason else image.sha256)
        kept, copies, conflicts = drop_copies(labels, readable, manifest.charset)
        problems = plan.problems | unreadable | conflicts
        rows_of = split_rows(kept, labels, plan.config)
        if not rows_of["train"]:
            usable = counted(len(kept), "usable image")
            few = f"{usable}, too few for training, validation and test sets"
            examples = [f"{file}: {reason}" for file, reason in list(problems.items())[:3]]
            raise UsageError(f"{few} ({'; '.join(examples)})" if examples else few)
        lines = [line[:_MAX_REASON] for line in in_groups(problems)[:_MAX_REASONS]]
        manifest = replace(
            manifest,
            inputs_sha256=plan.fingerprint([image.sha256 for image in decoded]),
            left_out=len(problems),
            shards=tuple(_write_shards(staging, pixels, rows_of, plan, workers)),
            reasons=tuple(map(in_one_line, lines)),
            copies=copies,
        )
        write_manifest(staging, manifest)
        clear(out)
        for file in (*(shard.file for shard in manifest.shards), MANIFEST_FILE):
            os.replace(staging / file, out / file)  # which needs no disk space
        sync_folder(out)
    finally:
        workers.close()  # after an error they may still write there
        shutil.rmtree(staging)
    oddities = Counter(oddity for image in decoded for oddity in image.oddities)
    return Prepared(manifest, plan.found, problems, oddities)


def survey_labelled(folder: Path, labels: list[Label], max_bytes: int) -> ImageKind:
    """Return what a sample of the labelled images is like.

    If none can be read, what generated images are like.
    """
    sample = (folder / label.file for label in labels[:: 1 + len(labels) // MAX_SURVEYED])
    return survey(sample, max_bytes) or GENERATED


def set_preset(config: PrepareConfig, selected: Selection, kind: ImageKind) -> PrepareConfig:
    """Return a copy with the preset whose input size to use, if it names none.

    Few images train from the model in the package, if it fits them.
    """
    if config.preset is not None:
        return config
    learnt = sum(label.split != "test" for label in selected.labels)
    is_free = config.size is None and config.channels is None
    width = ANY_DESIGN.width_of(kind.width, kind.height)
    is_wide = width >= _MIN_WIDTH_PER_CHARACTER * selected.lengths.longest
    are_few = learnt < FEWEST and is_free and is_wide
    return replace(config, preset="finetune" if are_few else "default")


def derive_size(images: ImageKind, longest: int) -> ImageKind:
    """Return an input size with the images' proportions and the pixels that texts need.

    It has as many pixels per character as generated images have.
    Small images are enlarged: the network would otherwise have fewer columns than the text has
    characters.
    """
    scale = math.sqrt(_PIXELS_PER_CHARACTER * max(4, longest) / (images.width * images.height))
    if _MIN_RESIZING < scale < 1 / _MIN_RESIZING:
        scale = 1.0
    width = max(round(images.width * scale), _MIN_WIDTH_PER_CHARACTER * longest)
    sides = np.clip([round(images.height * scale), width], MIN_INPUT_SIDE, MAX_INPUT_SIDE)
    height, width = sides.tolist()
    return ImageKind(height, width, images.channels)


def printable(path: Path) -> str:
    """Return a path as text that every file and terminal can hold."""
    return os.fsencode(path.as_posix()).decode("utf-8", "backslashreplace")


def _collect_options(config: PrepareConfig) -> dict[str, object]:
    """Return the options of a preparation as JSON types, for the manifest."""
    options = config.to_dict() | {
        "length": config.lengths and str(config.lengths),
        "split": list(config.split),
        "fold": config.fold and list(config.fold),
    }
    # The manifest has the size itself.
    for name in ("preset", "size", "channels", "lengths"):
        del options[name]
    return options


def prepare_command(manifest: Manifest, out: Path, preset: str) -> Command:
    """Return the command that makes the same shards in `out` again, with the size of `preset`."""
    options: dict[str, object] = {"preset": preset}
    fold = manifest.options.get("fold")
    if isinstance(fold, list) and len(fold) == 2:
        out, options["folds"] = out.parent, fold[1]
    options |= label_options(manifest) | _given_options(manifest, ("split", "seed"))
    return Command("prepare", (manifest.source,), {"out": out, **options, "force": True})


def label_options(manifest: Manifest) -> dict[str, object]:
    """Return the options with which prepare found the labels, which are also options of inspect."""
    names = ("max_bytes", "label_pattern", "charset", "length", "case_sensitive")
    tables = {"labels": manifest.labels, "corrections": manifest.corrections}
    return tables | _given_options(manifest, names)


def _given_options(manifest: Manifest, names: Iterable[str]) -> dict[str, object]:
    """Return those of the named options that a preparation was given, as they were given."""
    defaults, given = {**_collect_options(PrepareConfig()), "max_bytes": MAX_BYTES}, {}
    for name in names:
        value = manifest.options.get(name, defaults[name])
        if value != defaults[name]:
            given[name] = "/".join(map(str, value)) if isinstance(value, list) else value
    return given


def _hash_files(plan: _Plan) -> list[str | None]:
    def hash_file(label: Label) -> str | None:
        try:
            return sha256(read_bytes(plan.images / label.file, plan.config.max_bytes))
        except ImageError:
            return None

    return list(map_in_threads(lambda part: [hash_file(label) for label in part], plan.labels))


def _find_finished(out: Path, planned: Manifest, force: bool) -> Manifest | None:
    """Return the manifest in `out` if it is of the same preparation and its shards are intact.

    Otherwise return None with `force`; without it UsageError for another preparation, DamagedError
    for damage.
    """
    is_shards = is_ours(out / MANIFEST_FILE, MANIFEST_FORMAT)
    check(
        is_shards or not force,
        f"{out / MANIFEST_FILE} was not written by prepare; choose another `out`",
    )
    try:
        existing = read_manifest(out)
        if replace(existing.content, shards=(), left_out=0) == planned.content:
            check_shards(out, existing.shards)
            return existing
    except DamagedError as error:
        if force:
            return None
        way_out = "make the shards again with `force`" if is_shards else "choose another `out`"
        raise DamagedError(f"{error}; {way_out}") from None
    if force:
        return None
    changed = []
    for name in existing.options | planned.options:
        before, after = existing.options.get(name), planned.options.get(name)
        if before != after:
            changed.append(f"`{name}`: {_show_value(before)} -> {_show_value(after)}")
    is_same = not changed  # else other options choose other labels
    if existing.size != planned.size:
        changed.append(f"input size: {existing.size} -> {planned.size}")
    if is_same and existing.inputs_sha256 != planned.inputs_sha256:
        changed.append("the images or labels differ")
    raise UsageError(
        f"{out} holds the shards of another preparation ({', '.join(changed)}); "
        "choose another `out`, or replace them with `force`"
    )


def _show_value(value: object) -> str:
    """Return an option's value in a manifest as it is given to prepare."""
    if isinstance(value, list):
        return "/".join(map(str, value))
    if value is None or isinstance(value, bool):
        return "set" if value else "unset"
    return str(value)


def clear(out: Path) -> None:
    """Remove the manifest and all shards in `out`."""
    leftovers = [path for path in out.iterdir() if SHARD_FILE.fullmatch(path.name)]
    remove_files([out / MANIFEST_FILE, *leftovers])


def _decode_all(
    plan: _Plan, pixels: _PixelsFile, workers: Workers, progress: ProgressCallback
) -> list[_DecodedImage]:
    size = math.prod(pixels.shape)
    with room_for(pixels.path, size), open(pixels.path, "wb") as stream:
        stream.truncate(size)
        if hasattr(os, "posix_fallocate"):  # a full disk would raise SIGBUS in a mapped file
            os.posix_fallocate(stream.fileno(), 0, size)
    jobs = []
    for first in range(0, len(plan.labels), IMAGES_PER_JOB):
        files = [label.file for label in plan.labels[first : first + IMAGES_PER_JOB]]
        jobs.append((plan.images, files, plan.config.max_bytes, pixels, first))
    total = len(plan.labels)
    results = workers.start(_decode_job, jobs).finish(
        lambda missing: progress(max(0, total - missing * IMAGES_PER_JOB), total)
    )
    progress(total, total)
    return [image for part in results for image in part]


def _start_up(number: int) -> None:
    """Do nothing: a worker that did it has imported what it needs, while labels are found."""


def _decode_job(job: tuple[Path, list[str], int, _PixelsFile, int]) -> list[_DecodedImage]:
    images, files, max_bytes, pixels, first = job
    rows = pixels.open("r+")
    results = []
    for row, file in enumerate(files, first):
        file_sha256 = None
        try:
            data = read_bytes(os.path.join(images, file), max_bytes)
            file_sha256 = sha256(data)
            image = decode(data, max_bytes)
            rows[row] = fit_to_input(image, pixels.size)
            results.append(_DecodedImage(file_sha256, None, tuple(describe_oddities(image))))
        except ImageError as error:
            results.append(_DecodedImage(file_sha256, str(error)))
    return results


def _write_shards(
    out: Path, pixels: _PixelsFile, rows_of: dict[Split, list[int]], plan: _Plan, workers: Workers
) -> list[Shard]:
    jobs = []
    for split, rows in rows_of.items():
        for number, first in enumerate(range(0, len(rows), SAMPLES_PER_SHARD)):
            part = rows[first : first + SAMPLES_PER_SHARD]
            texts = [plan.labels[row].text for row in part]
            ids = plan.manifest.charset.encode(texts, plan.manifest.lengths.longest)
            jobs.append((out / f"{split}-{number:05d}.safetensors.gz", split, pixels, part, ids))
    return workers.start(_shard_job, jobs).finish()


def _shard_job(job: tuple[Path, Split, _PixelsFile, list[int], np.ndarray]) -> Shard:
    path, split, pixels, rows, labels = job
    return write_shard(path, split, pixels.open("r")[rows], labels)

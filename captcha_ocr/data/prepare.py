"""A folder of images and their labels to split, shuffled shards.

Images are decoded once, by all workers, into one temporary file of pixels; only then is it known
which can be read and which are copies of one another, so only then are splits drawn and shards cut.
"""

import math
import os
import shlex
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import count as counting
from itertools import takewhile
from pathlib import Path
from typing import Any, Literal

import numpy as np

from captcha_ocr.charset import UNREADABLE, Charset, can_be_read, find_charset
from captcha_ocr.config import (
    GENERATED,
    MAX_BYTES,
    MAX_LENGTH,
    RARE,
    SPLITS,
    ImageKind,
    InputSize,
    Lengths,
    PrepareConfig,
    Split,
    check,
)
from captcha_ocr.data.images import image_files, read_bytes, survey, to_array
from captcha_ocr.data.labels import LABELS_FILE, Label, Problems, are_serial_numbers, labels_from_names, read_labels
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
from captcha_ocr.errors import CaptchaOcrError, DamagedError, ImageError, UsageError
from captcha_ocr.system.console import counted
from captcha_ocr.system.files import TEMPORARY, is_ours, remove_files, room_for, sha256, sync_folder, writing_to
from captcha_ocr.system.parallel import map_in_threads, map_jobs

PIXELS_FILE, STAGING = "pixels", "new" + TEMPORARY
IMAGES_PER_JOB = 250
SURVEYED = 300  # images, at most, whose size and colours are looked at
SERIAL_NUMBERS = (
    "the names of the images in {} hold serial numbers where a text is looked for; "
    "--label-pattern or labels.csv says where their text is"
)


@dataclass(frozen=True)
class Prepared:
    """The outcome: the manifest, why which files were left out, and whether anything was done."""

    manifest: Manifest
    problems: Problems
    copies: int = 0
    already_there: bool = False


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


def prepare(
    images: Path,
    out: Path,
    config: PrepareConfig,
    labels_file: Path | None = None,
    workers: int | None = None,
    force: bool = False,
    progress: Callable[[int, int], None] = lambda done, total: None,
    corrections: Path | None = None,
) -> Prepared:
    """Turn the labelled images below `images` into shards and a manifest in `out`.

    `progress` is told, now and then, how many images of how many are decoded. Files that cannot be read or
    labelled are left out and named in the result. A finished folder of the same inputs and options
    is left as it is; UsageError for one of others, unless `force`.
    """
    labels, problems = find_labels(images, labels_file, config.label_pattern, corrections)
    labels, charset, lengths = admit_labels(labels, config, problems)
    size = config.input_size(lengths.longest, kind_of(images, labels, config.max_bytes))
    planned = Manifest(
        charset=charset,
        lengths=lengths,
        size=size,
        source=printable(images),
        labels=None if labels_file is None else printable(labels_file),
        options=options_of(config),
        inputs_sha256="",
        left_out=0,
    )
    with writing_to(out):
        return write_to(out, images, labels, planned, config, problems, workers, force, progress)


def write_to(
    out: Path,
    images: Path,
    labels: list[Label],
    planned: Manifest,
    config: PrepareConfig,
    problems: Problems,
    workers: int | None,
    force: bool,
    progress: Callable[[int, int], None],
) -> Prepared:
    """As `prepare`, what is to be written being known but for the shards, and nobody else writing to `out`."""
    without_label = sorted(problems)
    if (out / MANIFEST_FILE).exists():
        inputs = fingerprint(labels, hash_files(images, labels, config.max_bytes), without_label)
        existing = finished_manifest(out, replace(planned, inputs_sha256=inputs), force)
        if existing is not None:
            return Prepared(existing, {}, already_there=True)
    staging = out / STAGING
    staging.mkdir()
    try:
        pixels = PixelsFile(staging / PIXELS_FILE, len(labels), planned.size)
        hashes = decode_all(images, labels, config.max_bytes, pixels, problems, workers, progress)
        kept, copies = drop_copies(labels, hashes, planned.charset, problems)
        rows_of = split_rows(kept, labels, config, problems)
        ids = encode_kept(planned.charset, labels, kept, planned.lengths.longest)
        shards = write_shards(staging, pixels, rows_of, ids, workers)
        inputs = fingerprint(labels, hashes, without_label)
        manifest = replace(planned, inputs_sha256=inputs, left_out=len(problems), shards=tuple(shards))
        write_manifest(staging, manifest)
        move_in(staging, out, [*(shard.file for shard in shards), MANIFEST_FILE])
    finally:
        shutil.rmtree(staging)
    return Prepared(manifest, problems, copies)


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


def prepare_folds(
    images: Path, out: Path, folds: int, config: PrepareConfig, force: bool = False, **options: Any
) -> list[Prepared]:
    """As `prepare`, with its options, into `out`/fold-1 …: every image is in the test set of one of `folds`."""
    check(not (out / MANIFEST_FILE).exists(), f"{out} holds shards that are no folds; choose another --out")
    present = folds_in(out)
    change = f"{out} holds {len(present)} folds; choose another --out, or replace them with --force"
    check(force or are_of(present, folds), change)
    prepared = []
    with writing_to(out):
        for fold in range(1, folds + 1):
            of_fold = replace(config, fold=(fold, folds))
            prepared.append(prepare(images, out / f"fold-{fold}", of_fold, force=force, **options))
        for folder in present[folds:]:
            with writing_to(folder):
                clear(folder)
            check(not folder.exists(), f"{folder} holds files that prepare did not write; move them elsewhere")
    return prepared


def are_of(present: Sequence[Path], folds: int) -> bool:
    """Whether these are of so many folds, be it that not all of them are finished, or begun."""
    for number, folder in enumerate(present, 1):
        try:
            fold = read_manifest(folder).options.get("fold")
        except CaptchaOcrError:  # of what is unfinished, or damaged, preparing it has more to say
            continue
        if fold != [number, folds]:
            return False
    return len(present) <= folds


def folds_in(folder: Path) -> list[Path]:
    """The folders of the folds in a folder, from the first on."""
    return list(takewhile(Path.is_dir, (folder / f"fold-{fold}" for fold in counting(1))))


def find_labels(
    images: Path, labels_file: Path | None, pattern: str | None, corrections: Path | None = None
) -> tuple[list[Label], Problems]:
    """The labels of the images below a folder: from a labels file (given, or labels.csv there) or names.

    corrections: a labels file whose rows come before all that; a row with an empty text leaves its image out.
    """
    labels, problems = find_first_labels(images, labels_file, pattern)
    if corrections is None:
        return labels, problems
    corrected, refused = read_labels(corrections, images)
    check_rows(corrections, corrected, refused, images, {label.file for label in labels} | set(problems))
    split_of = {label.file: label.split for label in labels}
    new = {label.file: replace(label, split=split_of.get(label.file)) for label in corrected}
    kept = [label for label in labels if label.file not in new and label.file not in refused]
    problems = {file: reason for file, reason in problems.items() if file not in new} | refused
    return sorted([*kept, *new.values()], key=lambda label: label.file), problems


def find_first_labels(images: Path, labels_file: Path | None, pattern: str | None) -> tuple[list[Label], Problems]:
    """The labels as `find_labels` finds them, before they are corrected."""
    if not images.is_dir():
        raise UsageError(f"{images} is not a folder; make images with: captcha-ocr generate")
    files = image_files(images)
    if not files:
        raise UsageError(f"{images} holds no PNG, JPEG, GIF, BMP or WEBP files")
    if labels_file is None and pattern is None and os.path.lexists(images / LABELS_FILE):
        labels_file = images / LABELS_FILE
    if labels_file is None:
        labels, problems = labels_from_names(files, pattern)
        check(pattern is not None or not are_serial_numbers(labels), SERIAL_NUMBERS.format(images))
        return labels, problems
    if pattern is not None:
        raise UsageError("--labels and --label-pattern exclude each other")
    labels, problems = read_labels(labels_file, images)
    check_rows(labels_file, labels, problems, images, set(files))
    known = {label.file for label in labels} | set(problems)
    problems |= {file: f"{labels_file.name} has no row for it" for file in files if file not in known}
    return sorted(labels, key=lambda label: label.file), problems


def check_rows(table: Path, labels: list[Label], refused: Problems, images: Path, files: set[str]) -> None:
    """UsageError where a labels file has rows, but none of them names one of the files below `images`."""
    named = [label.file for label in labels] + list(refused)
    strange = f"no row of {table} names an image below {images}: the first names {named[0] if named else 'nothing'!r}"
    check(not named or not files.isdisjoint(named), f"{strange}, and there is {min(files, default='')!r}")


def admit_labels(
    labels: list[Label], config: PrepareConfig, problems: Problems
) -> tuple[list[Label], Charset, Lengths]:
    """The labels that fit, their alphabet and their lengths; adds to `problems`."""
    if not labels:
        first = next(iter(problems.items()))
        raise UsageError(f"no image has a label; {first[0]}: {first[1]}")
    lengths = config.lengths or usual_lengths(len(label.text) for label in labels)
    unfit = {label.file: reason for label in labels if (reason := why_unfit(label.text, lengths, config))}
    fit = [label for label in labels if label.file not in unfit]
    if not fit:
        raise UsageError(f"no label is a text that can be learnt; {labels[0].file}: {unfit[labels[0].file]}")
    problems |= unfit
    charset = find_charset((label.text for label in fit), config.charset, config.case_sensitive)
    admitted = []
    for label in fit:
        unknown = charset.unknown_characters(label.text)
        if unknown:
            problems[label.file] = f"its text {label.text!r} has {unknown!r}, which the alphabet lacks"
        else:
            admitted.append(label)
    if not admitted:
        first_file = fit[0].file
        raise UsageError(f"no label fits the alphabet {charset.characters}; {first_file}: {problems[first_file]}")
    texts = {charset.normalize(label.text) for label in admitted}
    same = f"all {len(admitted):,} images are labelled {admitted[0].text!r}, so there is nothing to tell apart"
    check(len(texts) > 1 or len(admitted) == 1, f"{same}; --label-pattern or labels.csv says where their text is")
    found = {len(label.text) for label in admitted}
    return admitted, charset, config.lengths or Lengths(min(found), max(found))


def why_unfit(text: str, lengths: Lengths, config: PrepareConfig) -> str | None:
    """Why a text cannot be learnt, whatever the alphabet; None where it can."""
    unreadable = "".join(dict.fromkeys(character for character in text if not can_be_read(character)))
    if unreadable:
        return f"its text {text!r} has {unreadable!r}: {UNREADABLE}"
    if len(text) in lengths:
        return None
    why = f"which fewer than 1 in {RARE} texts have; --length keeps them"
    if config.lengths is not None:
        why = f"and --length says {lengths}"
    elif len(text) > MAX_LENGTH:
        why = f"and at most {MAX_LENGTH} are read"
    return f"its text {text!r} has {counted(len(text), 'character')}, {why}"


def usual_lengths(lengths: Iterable[int]) -> Lengths:
    """From the shortest to the longest of the lengths that at least one in `RARE` texts has; others may be slips."""
    counts = Counter(lengths)
    usual = [length for length, count in counts.items() if count * RARE >= counts.total() and length <= MAX_LENGTH]
    check(bool(usual), f"no label has {MAX_LENGTH} characters or less")
    return Lengths(min(usual), max(usual))


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


def fingerprint(labels: list[Label], hashes: list[str | None], without_label: list[str]) -> str:
    """A hash of what goes in: names, contents, texts and splits."""
    rows = zip(labels, hashes, strict=True)
    lines = [f"{label.file}\t{file_sha256}\t{label.text}\t{label.split}" for label, file_sha256 in rows]
    return sha256("\n".join(lines + without_label).encode("utf-8", "surrogateescape"))


def hash_files(images: Path, labels: list[Label], max_bytes: int) -> list[str | None]:
    """The hash of each labelled file, as `decode_all` gives it."""

    def hash_of(label: Label) -> str | None:
        try:
            return sha256(read_bytes(images / label.file, max_bytes))
        except ImageError:
            return None

    return list(map_in_threads(lambda some: [hash_of(label) for label in some], labels))


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


def decode_all(
    images: Path,
    labels: list[Label],
    max_bytes: int,
    pixels: PixelsFile,
    problems: Problems,
    workers: int | None,
    progress: Callable[[int, int], None],
) -> list[str | None]:
    """Decode every labelled image into `pixels`; the hash of each file, None where it cannot be opened."""
    pixels.create()
    jobs = []
    for first in range(0, len(labels), IMAGES_PER_JOB):
        files = [label.file for label in labels[first : first + IMAGES_PER_JOB]]
        jobs.append((images, files, max_bytes, pixels, first))
    hashes: list[str | None] = []
    for results in map_jobs(decode_job, jobs, workers):
        for file_sha256, reason in results:
            if reason is not None:
                problems[labels[len(hashes)].file] = reason
            hashes.append(file_sha256)
        progress(len(hashes), len(labels))
    return hashes


def decode_job(job: tuple[Path, list[str], int, PixelsFile, int]) -> list[tuple[str | None, str | None]]:
    """Decode some files into their rows of the pixels; for each its hash, and why it cannot be read if so."""
    images, files, max_bytes, pixels, first = job
    rows = pixels.open("r+")
    results: list[tuple[str | None, str | None]] = []
    for row, file in enumerate(files, first):
        file_sha256 = reason = None
        try:
            data = read_bytes(images / file, max_bytes)
            file_sha256 = sha256(data)
            rows[row] = to_array(data, pixels.size, max_bytes)
        except ImageError as error:
            reason = str(error)
        results.append((file_sha256, reason))
    return results


def drop_copies(
    labels: list[Label], hashes: list[str | None], charset: Charset, problems: Problems
) -> tuple[list[int], int]:
    """The rows to keep, one of each set of byte-identical images, and the number of copies dropped.

    Copies in two splits would let a network be tested on what it was trained on, so the one in the
    test set is kept before that in the validation set before that in the training set. Copies with
    different texts are all left out: nobody knows which is right.
    """
    rows_of: dict[str, list[int]] = {}
    for row, file_sha256 in enumerate(hashes):
        if file_sha256 is not None and labels[row].file not in problems:
            rows_of.setdefault(file_sha256, []).append(row)
    kept, copies = [], 0
    for rows in rows_of.values():
        texts = {charset.normalize(labels[row].text) for row in rows}
        if len(texts) > 1:
            names = " and ".join(labels[row].file for row in rows)
            problems |= {labels[row].file: f"{names} are byte-identical, but labelled differently" for row in rows}
            continue
        kept.append(max(rows, key=lambda row: SPLITS.index(labels[row].split or "train")))
        copies += len(rows) - 1
    return sorted(kept), copies


def split_rows(
    kept: list[int], labels: list[Label], config: PrepareConfig, problems: Problems
) -> dict[Split, list[int]]:
    """The rows of each split in a seeded random order: as the labels say, or drawn."""
    order = [kept[place] for place in np.random.default_rng(config.seed).permutation(len(kept))]
    _, val_percent, test_percent = config.split
    rows: dict[Split, list[int]] = {split: [] for split in SPLITS}
    if config.fold is not None:
        fold, folds = config.fold
        check(folds <= len(order), f"{counted(len(order), 'usable image')} cannot make {folds} folds")
        first, last = (len(order) * number // folds for number in (fold - 1, fold))
        rows["train"], rows["test"] = order[:first] + order[last:], order[first:last]
    elif any(label.split for label in labels):
        for row in order:
            rows[labels[row].split or "train"].append(row)
    else:
        rows["train"] = order
        rows["test"] = take(order, len(kept) * test_percent / 100)
        rows["val"] = take(order, len(kept) * val_percent / 100)
    if not rows["val"]:
        rows["val"] = take(rows["train"], len(rows["train"]) / 10)
    if not rows["train"]:
        why = "; ".join(f"{file}: {reason}" for file, reason in list(problems.items())[:3])
        raise CaptchaOcrError(
            f"{counted(len(kept), 'usable image')}, of which none is left to train on beside validation and test sets"
            + (f" ({why})" if why else "")
        )
    return rows


def take(rows: list[int], share: float) -> list[int]:
    """Remove and return the last `share` rows, rounded, at least one."""
    count = max(1, round(share))
    taken = rows[-count:]
    del rows[-count:]
    return taken


def encode_kept(charset: Charset, labels: list[Label], kept: list[int], longest: int) -> np.ndarray:
    """The class ids of all labels, (N, L) int16, the rows that are not kept left at 0."""
    ids = np.zeros((len(labels), longest), dtype=np.int16)
    ids[kept] = charset.encode([labels[row].text for row in kept], longest)
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

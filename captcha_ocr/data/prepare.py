"""Turn a folder of images and their labels into split, shuffled shards, or into those of folds.

The workers decode each image once, into one temporary file of pixels. Only then is it known which
images can be read and which are copies, so the images are split and written to shards after that.
"""

import math
import os
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain, count, takewhile
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import numpy as np
from numpy.lib.format import open_memmap

from captcha_ocr.data.images import (
    decode,
    describe_oddities,
    fit_to_input,
    hash_pixels,
    read_bytes,
    survey,
)
from captcha_ocr.data.labels import Found, Label, Problems, find_labels
from captcha_ocr.data.selection import Selection, drop_copies, select_labels, split_rows
from captcha_ocr.data.shards import (
    MANIFEST_FILE,
    MANIFEST_FORMAT,
    SAMPLES_PER_SHARD,
    SHARD_FILE,
    Dataset,
    Manifest,
    Shard,
    check_shards,
    read_manifest,
    write_manifest,
    write_shard,
)
from captcha_ocr.errors import (
    CaptchaOcrError,
    Command,
    DamagedError,
    ImageError,
    UsageError,
    check,
    in_one_line,
)
from captcha_ocr.input_size import GENERATED, MAX_INPUT_SIDE, MIN_INPUT_SIDE, ImageKind, InputSize
from captcha_ocr.options.declaration import change
from captcha_ocr.options.preparation import PrepareConfig, PrepareOptions, Split
from captcha_ocr.options.shared import MAX_BYTES
from captcha_ocr.options.training import ANY_DESIGN, FEWEST
from captcha_ocr.system.console import counted, in_groups
from captcha_ocr.system.documents import is_ours
from captcha_ocr.system.files import (
    TEMPORARY,
    printable,
    remove_files,
    room_for,
    sha256,
    sync_folder,
    writing_to,
)
from captcha_ocr.system.parallel import Workers, map_in_threads, processes_for

# Called with the number of decoded images and the total
ProgressCallback = Callable[[int, int], None]

IMAGES_PER_JOB = 250
_PIXELS = "pixels.npy"  # the temporary file
_MAX_REASONS, _MAX_REASON = 20, 300  # lines, and characters of one, that the manifest keeps
MAX_SURVEYED = 300  # images whose size and colours are looked at
_PIXELS_PER_CHARACTER = GENERATED.height * GENERATED.width // 4  # of a network's input
_MIN_WIDTH_PER_CHARACTER = 16  # pixels: two columns of the network's last feature map
# Of what the manifest has as its size
_SIZE_OPTIONS = ("preset", "size", "channels", "lengths")
# An image that would be scaled by a factor between this and its inverse keeps its size
_MIN_RESIZING = 0.85


@dataclass(frozen=True)
class Prepared:
    """The result: the manifest, what was found, why files were left out now, and whether the shards
    existed before.

    oddities: what is odd about images, and how they were read. doubts: what most of them are not
    fit for.
    """

    manifest: Manifest
    found: Found
    problems: Problems
    oddities: Counter[str] = field(default_factory=Counter)
    already_there: bool = False
    doubts: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Plan:
    """What is known before the images are decoded; the manifest lacks its shards."""

    images: Path
    found: Found
    labels: list[Label]
    problems: Problems
    config: PrepareConfig
    manifest: Manifest
    doubts: tuple[str, ...]

    def fingerprint(self, hashes: list[str | None]) -> str:
        """Return a hash of the inputs: the names, contents, texts and splits of the images."""
        lines = [
            f"{label.file}\t{file_sha256}\t{label.text}\t{label.split}"
            for label, file_sha256 in zip(self.labels, hashes, strict=True)
        ]
        return sha256("\n".join(lines + sorted(self.problems)).encode("utf-8", "surrogateescape"))


class _DecodedImage(NamedTuple):
    """The hash of an image file, None if it cannot be opened.

    content: that of its pixels. reason: why it cannot be read, None if it can. oddities: what is
    odd.
    """

    sha256: str | None
    content: str = ""
    reason: str | None = None
    oddities: tuple[str, ...] = ()


def prepare(
    images: Path,
    out: Path,
    config: PrepareConfig,
    options: PrepareOptions = PrepareOptions(),
    progress: ProgressCallback = lambda done, total: None,
) -> Prepared:
    """Turn the labelled images below `images` into shards and a manifest in `out`.

    The result lists the files that cannot be read or have no label. A finished folder of the same
    images and options stays as it is; UsageError for a folder of others, unless `force` is set.
    """
    found = find_labels(images, options.labels, options.corrections, config).check()
    check(
        config.readings or found.readings == 0,
        f"{counted(found.readings, 'text')} in the table of labels are a model's readings: check "
        "them, then delete its column of confidences; or learn them as they are, with `readings`",
    )
    config = replace(config, readings=found.readings > 0)
    others = processes_for(-(-len(found.labels) // IMAGES_PER_JOB), options.workers) - 1
    with Workers(max(0, others)) as workers:  # this process works, too
        if not (out / MANIFEST_FILE).exists():  # else there may be nothing to do for them
            workers.start(_start_up, range(others))
        plan = _make_plan(images, found, config, options)
        with writing_to(out):
            if (out / MANIFEST_FILE).exists():
                inputs = plan.fingerprint(_hash_files(plan))
                planned = replace(plan.manifest, inputs_sha256=inputs)
                ignored = [CaptchaOcrError] if options.force else []
                with suppress(*ignored):
                    return Prepared(_find_finished(out, planned), found, {}, already_there=True)
                check(
                    is_ours(out / MANIFEST_FILE, MANIFEST_FORMAT),
                    f"{out / MANIFEST_FILE} was not written by prepare; choose another `out`",
                )
            return _carry_out(plan, out, workers, progress)


def _make_plan(images: Path, found: Found, config: PrepareConfig, options: PrepareOptions) -> _Plan:
    """Select the labels, and find the options that follow from them and from some images."""
    selected = select_labels(found.labels, config)
    kind = survey_labelled(images, selected.labels, config.max_bytes)
    config = set_preset(config, selected, kind)
    tables = {"labels": options.labels, "corrections": options.corrections}
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
    return _Plan(
        images=images,
        found=found,
        labels=selected.labels,
        problems=found.problems | selected.problems,
        config=config,
        manifest=manifest,
        doubts=kind.doubts,
    )


def _start_up(number: int) -> None:
    """Do nothing: a worker that did it has imported what it needs, while labels are found."""


def _carry_out(plan: _Plan, out: Path, workers: Workers, progress: ProgressCallback) -> Prepared:
    """Decode the images, split them and write the shards.

    They replace those in `out` once all are complete.
    """
    labels, manifest = plan.labels, plan.manifest
    with TemporaryDirectory(suffix=TEMPORARY, dir=out) as folder:
        staging = Path(folder)
        decoded = _decode_all(plan, staging / _PIXELS, workers, progress)
        unreadable = {
            label.file: image.reason
            for label, image in zip(labels, decoded, strict=True)
            if image.reason
        }
        contents = [image.content for image in decoded]
        kept, copies, conflicts = drop_copies(labels, contents, unreadable, manifest.charset)
        problems = plan.problems | unreadable | conflicts
        rows_of = split_rows(kept, labels, contents, manifest.charset, plan.config)
        if not rows_of["train"]:
            few = (
                f"{counted(len(kept), 'usable image')}, too few for "
                "training, validation and test sets"
            )
            if all(label.split for label in labels):
                few = "no label has the split train; delete the column split, or label more images"
            examples = [f"{file}: {reason}" for file, reason in list(problems.items())[:3]]
            raise UsageError(f"{few} ({'; '.join(examples)})" if examples else few)
        manifest = replace(
            manifest,
            inputs_sha256=plan.fingerprint([image.sha256 for image in decoded]),
            left_out=len(problems),
            shards=tuple(_write_shards(staging, rows_of, plan, workers)),
            reasons=tuple(
                in_one_line(line[:_MAX_REASON]) for line in in_groups(problems)[:_MAX_REASONS]
            ),
            copies=copies,
        )
        write_manifest(staging, manifest)
        clear(out)
        for file in (*(shard.file for shard in manifest.shards), MANIFEST_FILE):
            os.replace(staging / file, out / file)  # which needs no disk space
        sync_folder(out)
    oddities = Counter(oddity for image in decoded for oddity in image.oddities)
    return Prepared(manifest, plan.found, problems, oddities, doubts=plan.doubts)


def prepare_folds(
    images: Path,
    out: Path,
    folds: int,
    config: PrepareConfig,
    options: PrepareOptions = PrepareOptions(),
    progress: ProgressCallback = lambda done, total: None,
) -> list[Prepared]:
    """Prepare `out`/fold-1 and so on, so that every image is in the test set of one fold.

    Errors as `prepare`.
    """
    check(
        not (out / MANIFEST_FILE).exists(),
        f"{out} holds shards that are no folds; choose another `out`",
    )
    present = list_folds(out)
    check(
        options.force or len(present) <= folds,
        f"{out} holds {len(present)} folds; choose another `out`, or replace them with `force`",
    )
    with writing_to(out):
        prepared = [
            prepare(images, out / f"fold-{n}", replace(config, fold=(n, folds)), options, progress)
            for n in range(1, folds + 1)
        ]
        for folder in present[folds:]:
            with writing_to(folder):
                clear(folder)
            check(
                not folder.exists(),
                f"{folder} holds files that prepare did not write; move them elsewhere",
            )
    return prepared


def list_folds(folder: Path) -> list[Path]:
    """Return the folders of the folds in a folder, in order."""
    return list(takewhile(Path.is_dir, (folder / f"fold-{fold}" for fold in count(1))))


def survey_labelled(folder: Path, labels: list[Label], max_bytes: int) -> ImageKind:
    """Return what a sample of the labelled images is like."""
    sample = (folder / label.file for label in labels[:: 1 + len(labels) // MAX_SURVEYED])
    return survey(sample, max_bytes)


def set_preset(config: PrepareConfig, selected: Selection, kind: ImageKind) -> PrepareConfig:
    """Return a copy with the preset whose input size to use, if it names none.

    Few images train from the model in the package, if it fits them.
    """
    if config.preset is not None:
        return config
    are_few = sum(label.split != "test" for label in selected.labels) < FEWEST
    is_free = config.size is None and config.channels is None
    width = ANY_DESIGN.width_of(kind.width, kind.height)
    is_wide = width >= _MIN_WIDTH_PER_CHARACTER * selected.lengths.longest
    return replace(config, preset="finetune" if are_few and is_free and is_wide else "default")


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
    height, width = np.clip(
        [round(images.height * scale), width], MIN_INPUT_SIDE, MAX_INPUT_SIDE
    ).tolist()
    return ImageKind(height, width, images.channels)


def _collect_options(config: PrepareConfig) -> dict[str, object]:
    """Return the options of a preparation as JSON types, for the manifest."""
    options = config.to_dict() | {
        "length": config.lengths and str(config.lengths),
        "split": list(config.split),
        "fold": config.fold and list(config.fold),
    }
    return {name: value for name, value in options.items() if name not in _SIZE_OPTIONS}


def prepare_command(manifest: Manifest, out: Path, preset: str) -> Command:
    """Return the command that makes the same shards in `out` again, with the size of `preset`."""
    folds, fold = {}, manifest.options.get("fold")
    if isinstance(fold, list) and len(fold) == 2:
        out, folds["folds"] = out.parent, fold[1]
    options = {
        **{"out": out, "preset": preset, **folds},
        **label_options(manifest),
        **_given_options(manifest, ("ink", "split", "seed", "readings")),
        "force": True,
    }
    return Command("prepare", (manifest.source,), options)


def label_options(manifest: Manifest) -> dict[str, object]:
    """Return the options with which prepare found the labels, which are also options of inspect."""
    names = ("max_bytes", "label_pattern", "charset", "length", "case_sensitive")
    tables = {"labels": manifest.labels, "corrections": manifest.corrections}
    return tables | _given_options(manifest, names)


def _given_options(manifest: Manifest, names: Iterable[str]) -> dict[str, object]:
    """Return those of the named options that a preparation was given, as they were given."""
    newer = {"max_bytes": MAX_BYTES, "ink": None, "readings": False}
    defaults = _collect_options(PrepareConfig()) | newer
    given = manifest.options
    changed = [name for name in names if given.get(name, defaults[name]) != defaults[name]]
    return {name: _as_given(given[name]) for name in changed}


def _as_given(value: object) -> object:
    """Return an option's value in a manifest as it is given to prepare."""
    return "/".join(map(str, value)) if isinstance(value, list) else value


def _hash_files(plan: _Plan) -> list[str | None]:
    def hash_file(label: Label) -> str | None:
        try:
            return sha256(read_bytes(plan.images / label.file, plan.config.max_bytes))
        except ImageError:
            return None

    return list(map_in_threads(lambda part: [hash_file(label) for label in part], plan.labels))


def _find_finished(out: Path, planned: Manifest) -> Manifest:
    """Return the manifest in `out` if it is of the same preparation and its shards are intact.

    UsageError for another preparation, DamagedError for damage.
    """
    try:
        existing = read_manifest(out)
        if replace(existing.content, shards=(), left_out=0) == planned.content:
            check_shards(Dataset((out,), (existing,)).refs)
            return existing
    except DamagedError as error:
        ways = "make the shards again with `force`, or choose another `out`"
        raise DamagedError(f"{error}; {ways}") from None
    before, after = existing.options, planned.options
    changes = {f"`{name}`": (before.get(name), after.get(name)) for name in before | after}
    changed = [
        f"{name}: {change(_as_given(old), _as_given(new))}"
        for name, (old, new) in {**changes, "input size": (existing.size, planned.size)}.items()
        if old != new
    ]
    # Other options choose other labels
    if before == after and existing.inputs_sha256 != planned.inputs_sha256:
        changed.append("the images or labels differ")
    raise UsageError(
        f"{out} holds the shards of another preparation ({', '.join(changed)}); "
        "choose another `out`, or replace them with `force`"
    )


def clear(out: Path) -> None:
    """Remove the manifest and all shards in `out`."""
    shards = (path for path in out.iterdir() if SHARD_FILE.fullmatch(path.name))
    remove_files([out / MANIFEST_FILE, *shards])


def _decode_all(
    plan: _Plan, pixels: Path, workers: Workers, progress: ProgressCallback
) -> list[_DecodedImage]:
    """Decode the images into a file of pixels, (N, C, H, W) uint8, that all processes write."""
    size, total = plan.manifest.size, len(plan.labels)
    shape = total, size.channels, size.height, size.width
    with room_for(pixels, math.prod(shape)):
        open_memmap(pixels, "w+", np.uint8, shape)
        with open(pixels, "rb+") as stream:
            if hasattr(os, "posix_fallocate"):  # a full disk would raise SIGBUS in a mapped file
                os.posix_fallocate(stream.fileno(), 0, pixels.stat().st_size)
    jobs = [
        (first, plan.labels[first : first + IMAGES_PER_JOB])
        for first in range(0, total, IMAGES_PER_JOB)
    ]
    decode_job = partial(_decode_job, plan.images, plan.config.max_bytes, pixels, size)
    results = workers.start(decode_job, jobs).finish(
        lambda missing: progress(max(0, total - missing * IMAGES_PER_JOB), total)
    )
    progress(total, total)
    return list(chain.from_iterable(results))


def _decode_job(
    images: Path, max_bytes: int, pixels: Path, size: InputSize, job: tuple[int, list[Label]]
) -> list[_DecodedImage]:
    first, labels = job
    rows = np.asarray(open_memmap(pixels, "r+"))  # a memmap takes longer for each row
    results = []
    for row, label in enumerate(labels, first):
        file_sha256 = None
        try:
            # Faster than a Path for each file
            data = read_bytes(os.path.join(images, label.file), max_bytes)
            file_sha256 = sha256(data)
            image = decode(data, max_bytes)
            rows[row] = fit_to_input(image, size)
            oddities = tuple(describe_oddities(image))
            results.append(_DecodedImage(file_sha256, hash_pixels(image), oddities=oddities))
        except ImageError as error:
            results.append(_DecodedImage(file_sha256, reason=str(error)))
    return results


def _write_shards(
    staging: Path, rows_of: dict[Split, list[int]], plan: _Plan, workers: Workers
) -> list[Shard]:
    jobs = []
    for split, rows in rows_of.items():
        for number, first in enumerate(range(0, len(rows), SAMPLES_PER_SHARD)):
            part = rows[first : first + SAMPLES_PER_SHARD]
            ids = plan.manifest.charset.encode(
                [plan.labels[row].text for row in part], plan.manifest.lengths.longest
            )
            jobs.append((staging / f"{split}-{number:05d}.safetensors.gz", split, part, ids))
    return workers.start(_shard_job, jobs).finish()


def _shard_job(job: tuple[Path, Split, list[int], np.ndarray]) -> Shard:
    path, split, rows, labels = job
    pixels = np.asarray(open_memmap(path.with_name(_PIXELS), "r"))
    return write_shard(path, split, pixels[rows], labels)

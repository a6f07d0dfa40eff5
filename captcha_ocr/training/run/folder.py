"""The run folder: run.json, the best model, metrics and pictures.

runs/default/  run.json  metrics.jsonl  curves.png  confusion.png
               best/  last/  previous/  epoch-0010/ …  tensorboard/
               replaced/: the run that `force` replaces, until the new run has finished
"""

import contextlib
import json
import os
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from captcha_ocr.data.prepare import prepare_command
from captcha_ocr.errors import Advice, CaptchaOcrError, DamagedError, UsageError, check
from captcha_ocr.inference.model_folder import (
    BACKUP,
    backup_path,
    current_path,
    read_config,
    remove_folder,
    restore_backup,
)
from captcha_ocr.network.resnet import count_columns
from captcha_ocr.options.training import PRESETS, TrainConfig, TrainOptions
from captcha_ocr.system.console import counted
from captcha_ocr.system.documents import finite, is_ours, read_sealed, sealed
from captcha_ocr.system.files import read_checked, remove_stale, write_atomic, writing_to
from captcha_ocr.training.run.spec import RUN_VERSION, RunSpec
from captcha_ocr.training.samples.dataset import DrawnData, TrainingData

BEST, LAST, PREVIOUS, REPLACED = "best", "last", "previous", "replaced"
TENSORBOARD, RUN_FILE, _METRICS_FILE = "tensorboard", "run.json", "metrics.jsonl"
CURVES_FILE, CONFUSION_FILE = "curves.png", "confusion.png"
_MODEL_FOLDERS = BEST, LAST, PREVIOUS
_OUTPUT_FILES = _METRICS_FILE, CURVES_FILE, CONFUSION_FILE  # beside run.json
_KEPT = re.compile(rf"epoch-\d{{4,}}({re.escape(BACKUP)})?")  # the checkpoints of `keep_every`
RUN_FORMAT = "captcha-ocr run"


@dataclass(frozen=True)
class Finished:
    """How a run ended: the rule, its length, and its scores.

    training: the scores on some of the training images. test: with its counts; None without a test
    set.
    """

    rule: str
    epochs: int
    best_epoch: int
    seconds: float
    training: dict[str, Any]
    validation: dict[str, Any]
    test: dict[str, Any] | None


def inspect_folder(
    out: Path,
    dataset: TrainingData,
    config: TrainConfig,
    options: TrainOptions,
    lock: contextlib.ExitStack,
) -> dict[str, Any]:
    """Look at what is in `out`, and refuse what does not fit.

    Returns the run to carry out as `parse_run` takes it, for all processes, and as `replaces`
    whether it replaces another one. The folder is locked until `lock` is closed, unless the run has
    finished.
    """
    spec = RunSpec.of(dataset, config, options.init)
    checkpoint, in_out = Path(options.resume), (out.resolve(), (out / LAST).resolve())
    if options.resume not in ("auto", "never") and checkpoint.resolve() not in in_out:
        folder = find_last(checkpoint) or checkpoint  # a run's newest, or a checkpoint itself
        spec = replace(spec, begun_from=read_config(folder)["sha256"])
    _check_fits(dataset, spec)
    finished, replaces = None, False
    try:
        finished = find_run(out, spec, options.resume)
    except CaptchaOcrError:
        older = out / REPLACED
        is_free = not older.exists() or bool(_list_parts(older))
        check(
            not options.force or is_free,
            f"{older} was not written by train; choose another `out`",
        )
        replaces = options.force and is_run(out)
        if not replaces:
            raise
    if finished is None:
        lock.enter_context(writing_to(out))
    return {**spec.to_dict(), "finished": finished, "replaces": replaces}


def _check_fits(dataset: TrainingData, spec: RunSpec) -> None:
    """Refuse too few images, or a size that the network cannot use; advise how to make others."""
    available, wanted = dataset.count("train"), spec.training.images or 0
    check(
        wanted <= available,
        f"{dataset.name} has only {counted(available, 'training image')}; take fewer `images`",
    )
    model, name = spec.model, spec.training.preset
    preset, reads_columns = PRESETS[name], model.network.pool != "global"
    check(
        reads_columns or spec.training.loss != "ctc",
        f"`loss` ctc needs columns, which the preset {name} has not",
    )
    is_fixed = preset.size is not None and preset.size.step is None
    if is_fixed and preset.size != replace(dataset.size, ink=None):
        reason = f"the preset {name} needs {preset.size}"
    elif reads_columns and count_columns(model) < 2 * model.lengths.longest - 1:
        reason = f"they are too narrow for {model.lengths} characters"  # "aaa" needs blanks
    else:
        return
    if isinstance(dataset, DrawnData):
        raise UsageError(
            f"{dataset.name}: the images are {dataset.size}, but {reason}; "
            "choose other `size` and `channels`"
        )
    folder = dataset.folders[0]
    raise UsageError(
        f"{folder} holds images of {dataset.size}, but {reason}",
        Advice("make others with", prepare_command(dataset.manifests[0], folder, name)),
    )


def read_run(out: Path) -> tuple[RunSpec, Finished | None]:
    """Return what run.json says of a run, and how it ended if it has.

    DamagedError where the file is not whole.
    """
    path = out / RUN_FILE
    try:
        return parse_run(read_sealed(path, RUN_FORMAT, RUN_VERSION))
    except (KeyError, TypeError, UsageError) as error:
        raise DamagedError(f"{path} is malformed ({error})") from None


def parse_run(document: Mapping[str, Any]) -> tuple[RunSpec, Finished | None]:
    """Return the run that a document such as run.json describes, and how it ended if it has."""
    ending = document["finished"]
    finished = None if ending is None else Finished(**ending)
    return RunSpec.from_dict(document), finished


def find_run(out: Path, spec: RunSpec, resume: str) -> dict[str, Any] | None:
    """Return how the run in `out` ended, as JSON types; None if there is none or it is unfinished.

    Changes nothing. UsageError if another run or model is there, or an unfinished run that `resume`
    "never" refuses; DamagedError if run.json or the best model is not whole.
    """
    if not (out / RUN_FILE).exists():
        if parts := _list_parts(out):
            raise UsageError(f"{out} holds {parts[0].name} but no {RUN_FILE}; choose another `out`")
        return None
    try:
        existing, finished = read_run(out)
    except DamagedError as error:
        way_out = "start again with `force`" if is_run(out) else "choose another `out`"
        raise DamagedError(f"{error}; {way_out}") from None
    changes, longer = existing.changes(spec), existing.is_extended_by(spec)
    check(
        longer or not changes,
        f"{out} holds another run ({'; '.join(changes)}); choose another `out`, "
        "or replace it with `force`",
    )
    check(
        spec.begun_from in (None, existing.begun_from),
        f"{out} holds a run that did not begin from {resume}; continue it without `resume`, "
        "choose another `out`, or replace it with `force`",
    )
    if finished is not None and not longer:
        check_best(out, existing)
        return asdict(finished)
    check(
        resume != "never",
        f"{out} holds an unfinished run; continue it with `resume` auto, "
        "or replace it with `force`",
    )
    if current_path(out / BEST).exists():
        check_best(out, existing)
    return None


def check_best(run: Path, spec: RunSpec) -> dict[str, Any]:
    """Return what the best model of a run says of itself (`facts`).

    DamagedError if it is not whole, or of another run.
    """
    try:
        facts: dict[str, Any] = check_files(current_path(run / BEST))["facts"]
        check(facts.get("run") == spec.identity, "it is the model of another run")
        return facts
    except CaptchaOcrError as error:
        raise DamagedError(
            f"the best model of {run} is not whole ({error}); start again with `resume` never "
            f"`force`, or continue in another `out` with `resume` {run / LAST}"
        ) from None


def find_last(run: Path) -> Path | None:
    """Return the newest whole checkpoint of a run; None if it has none.

    DamagedError if none is whole.
    """
    for name in (LAST, PREVIOUS):
        restore_backup(run / name)
    reasons = []
    for folder in (run / LAST, run / PREVIOUS):
        if not folder.exists():
            continue
        try:
            check_files(folder)
            return folder
        except CaptchaOcrError as error:
            reasons.append(str(error))
    check(
        not reasons,
        f"no checkpoint in {run} is whole: {'; '.join(reasons)}; "
        "start again with `resume` never `force`",
        DamagedError,
    )
    return None


def check_files(folder: Path) -> dict[str, Any]:
    """Return the content of config.json.

    DamagedError unless every file that it lists is as it was written.
    """
    document = read_config(folder)
    for name, expected in document["files"].items():
        read_checked(folder / name, expected)
    return document


def has_lost_its_checkpoints(out: Path) -> bool:
    """Tell whether a run in `out` that has no checkpoint had one.

    Metrics and the end of a run are written after it.
    """
    has_metrics = (out / _METRICS_FILE).exists() and (out / _METRICS_FILE).stat().st_size > 0
    return has_metrics or (is_run(out) and read_run(out)[1] is not None)


def is_run(out: Path) -> bool:
    """Tell whether train wrote what is in `out`, whole or not; only that may be replaced."""
    return is_ours(out / RUN_FILE, RUN_FORMAT)


def start_run(out: Path, spec: RunSpec, replaces: bool, checkpoint: Path | None) -> None:
    """Make `out` ready for a run: a new one, one that resumes, or one that replaces another."""
    if replaces:
        _move_aside(out)
    for name in _MODEL_FOLDERS:
        restore_backup(out / name)
    if checkpoint == out / PREVIOUS:
        remove_folder(out / LAST)  # it is damaged, and would take the place of the whole one
    if (out / BEST).exists():
        remove_stale(out / BEST)
    document = spec.to_dict()
    if is_run(out) and spec.begun_from is None:
        document["begun_from"] = read_run(out)[0].begun_from
    _write_run(out, {**document, "finished": None})


def _write_run(out: Path, content: Mapping[str, Any]) -> None:
    write_atomic(out / RUN_FILE, sealed({"format": RUN_FORMAT, "version": RUN_VERSION, **content}))


def end_run(out: Path, finished: Finished, facts: Mapping[str, Any]) -> None:
    """Write into run.json how the run ended, and further facts (JSON types).

    Remove the run that it replaces.
    """
    _write_run(out, {**read_run(out)[0].to_dict(), "finished": asdict(finished), **facts})
    if is_run(out / REPLACED):
        shutil.rmtree(out / REPLACED, ignore_errors=True)


def _move_aside(out: Path) -> None:
    """Move the run in `out`, and nothing else, to `replaced`, until the new run has finished.

    If a run lies there already, the one in `out` was to replace it, and is removed unfinished.
    """
    older = out / REPLACED
    keeps_older = is_run(older)
    older.mkdir(exist_ok=True)
    for part in _list_parts(out):
        if not keeps_older:
            os.replace(part, older / part.name)
        elif part.is_dir():
            shutil.rmtree(part)
        else:
            part.unlink()


def _list_parts(out: Path) -> list[Path]:
    """Return what a run wrote into `out`; run.json comes last, since it marks the rest as ours."""
    parts = [out / name for name in _MODEL_FOLDERS]
    parts += [backup_path(part) for part in parts]
    parts += [path for path in out.glob("*") if _KEPT.fullmatch(path.name) and path.is_dir()]
    parts += [out / name for name in (TENSORBOARD, *_OUTPUT_FILES, RUN_FILE)]
    return [part for part in parts if part.exists()]


def write_metrics(out: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write metrics.jsonl, all rows at once; a value that is not a finite number becomes null."""
    lines = [json.dumps(finite(row)) + "\n" for row in rows]
    write_atomic(out / _METRICS_FILE, "".join(lines).encode())

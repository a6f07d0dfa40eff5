"""The run folder: what identifies a run, how it ended, and its metrics.

runs/default/  run.json  metrics.jsonl  curves.png  confusion.png  best/  last/  previous/  epoch-0010/ …  tensorboard/
               replaced/, while it is not finished: the run whose place it takes
"""

import json
import os
import re
import shutil
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, get_args

from captcha_ocr.config import ModelConfig, Split, TrainConfig, derive_epochs, differences, preset_named
from captcha_ocr.data.shards import Dataset
from captcha_ocr.errors import CaptchaOcrError, DamagedError, UsageError, check
from captcha_ocr.inference.model_folder import (
    ASIDE,
    WEIGHTS_FILE,
    aside,
    find_model_folder,
    put_in_place,
    read_config,
    read_model_config,
    recover,
    remove_folder,
    standing,
)
from captcha_ocr.metrics import Scores
from captcha_ocr.system.console import say
from captcha_ocr.system.documents import alike, finite, is_ours, read_sealed, sealed, to_json
from captcha_ocr.system.files import remove_stale, sha256, write_atomic
from captcha_ocr.training.checkpoint import LAST, PREVIOUS, check_whole, checkpoint_named
from captcha_ocr.training.distributed import Processes

BEST, BOARD, RUN_FILE, METRICS_FILE = "best", "tensorboard", "run.json", "metrics.jsonl"
CURVES_FILE, CONFUSION_FILE = "curves.png", "confusion.png"
FOLDERS, FILES = (BEST, LAST, PREVIOUS), (METRICS_FILE, CURVES_FILE, CONFUSION_FILE)  # beside run.json
REPLACED, MOVING = "replaced", "replaced.captcha-ocr.part"  # the latter while it is moved there
KEPT = re.compile(rf"epoch-\d{{4,}}({re.escape(ASIDE)})?")  # checkpoints that --keep-every keeps
RUN_FORMAT, RUN_VERSION = "captcha-ocr run", 3
DESCRIBED = ("model", "images", "data", "init")  # with "training": what `describe_run` says that does not change


@dataclass(frozen=True)
class Run:
    """Where a run writes, on what data, with whom and how; `described`: by `describe_run`, `replace`: what is there."""

    out: Path
    dataset: Dataset
    processes: Processes
    described: dict[str, Any]
    replace: bool
    stream: bool
    keep_every: int | None
    tensorboard: bool
    quiet: bool

    def tell(self, line: str) -> None:
        """Say a line, unless it is to be quiet."""
        say(line, self.quiet)


@dataclass(frozen=True)
class Finished:
    """How a run ended: the rule, its length, and its scores.

    training: of some of the images that it was trained on; test: with its counts, None without a test set.
    """

    rule: str
    epochs: int
    best_epoch: int
    seconds: float
    training: dict[str, Any]
    validation: dict[str, Any]
    test: dict[str, Any] | None


def model_for(dataset: Dataset, config: TrainConfig, init: Path | None = None) -> ModelConfig:
    """The model that a training makes of a data set: the preset's network, or that of the model to start from."""
    network = preset_named(config.preset).network
    if init is not None:
        network = read_model_config(find_model_folder(init)).network
    return ModelConfig(dataset.charset, dataset.lengths, dataset.size, network)


def describe_run(dataset: Dataset, config: TrainConfig, init: Path | None = None) -> dict[str, Any]:
    """What tells one run from another: configuration, network, data and starting weights, wherever they lie.

    begun_from, which does not: the hash of the checkpoint that `--resume` named (`origin_of`).
    """
    return {
        "training": config.to_dict(),
        "model": model_for(dataset, config, init).to_dict(),
        "images": {split: dataset.count(split) for split in get_args(Split)},
        "data": sha256(b"".join(to_json({**asdict(part), "source": "", "labels": ""}) for part in dataset.manifests)),
        "init": None if init is None else read_config(find_model_folder(init))["files"][WEIGHTS_FILE],
        "begun_from": None,
    }


def changes(old: dict[str, Any], new: dict[str, Any]) -> list[str]:
    """In what two descriptions of runs differ, in words."""
    words = differences(*(TrainConfig.from_dict(run["training"]) for run in (old, new)))
    words += differences(*(ModelConfig.from_dict(run["model"]) for run in (old, new)))
    words += [
        f"{split} images: {old['images'][split]:,} -> {count:,}"
        for split, count in new["images"].items()
        if old["images"][split] != count
    ]
    words += ["other images"] if old["data"] != new["data"] else []
    return words + (["other starting weights"] if old["init"] != new["init"] else [])


def is_longer(old: dict[str, Any], new: dict[str, Any]) -> bool:
    """Whether the new run is the old one with more epochs."""
    before, after = (TrainConfig.from_dict(run["training"]) for run in (old, new))
    if changes(old, {**new, "training": replace(after, epochs=before.epochs).to_dict()}):
        return False
    first, last = (derive_epochs(config, new["images"]["train"]) for config in (before, after))
    return first is not None and last is not None and last > first


def find_run(out: Path, described: dict[str, Any], resume: str) -> Finished | None:
    """How the run in `out` ended, or None where there is none or it has to go on; changes nothing.

    UsageError if another run, or a model of another origin, is there, or one that `resume` "never" refuses;
    DamagedError if its run.json or its best model is not whole.
    """
    path = out / RUN_FILE
    if not path.exists():
        parts = parts_of_run(out)
        if parts:
            raise UsageError(
                f"{out} holds {parts[0].name} but no {RUN_FILE}, so it is no whole run; choose another --out"
            )
        return None
    try:
        existing = read_run(out)
    except DamagedError as error:
        way_out = "begin anew with --force" if is_run(out) else "choose another --out"
        raise DamagedError(f"{error}; {way_out}") from None
    changed, longer = changes(existing, described), is_longer(existing, described)
    if changed and not longer:
        raise UsageError(
            f"{out} holds another run ({'; '.join(changed)}); choose another --out, or replace it with --force"
        )
    if described["begun_from"] not in (None, existing.get("begun_from")):
        raise UsageError(
            f"{out} holds a run that did not begin from {resume}; it goes on without --resume, "
            "or choose another --out, or replace it with --force"
        )
    if existing["finished"] is not None and not longer:
        check_best(out, existing)
        return Finished(**existing["finished"])
    if resume == "never":
        raise UsageError(f"{out} holds a run to go on with; do so with --resume auto, or replace it with --force")
    if standing(out / BEST).exists():
        check_best(out, existing)
    return None


def read_run(out: Path) -> dict[str, Any]:
    """The checked content of run.json; DamagedError where it is not whole."""
    path = out / RUN_FILE
    document = read_sealed(path, RUN_FORMAT, RUN_VERSION)
    check_description(path, document)
    if "finished" not in document or not has_ended_well(document["finished"]):
        raise DamagedError(f"{path} is malformed")
    return document


def check_description(path: Path, described: dict[str, Any]) -> None:
    """DamagedError unless this, out of `path`, is what `describe_run` gives, whatever else it holds."""
    known = {"images": dict.fromkeys(get_args(Split), 0), "data": "", "init": None, "begun_from": None}
    try:
        TrainConfig.from_dict(described["training"])
        ModelConfig.from_dict(described["model"])
        whole = alike(known, {name: described[name] for name in known})
    except (KeyError, UsageError) as error:
        raise DamagedError(f"{path} is malformed ({error})") from None
    if not whole:
        raise DamagedError(f"{path} is malformed")


def has_ended_well(finished: Any) -> bool:
    """Whether a JSON value says how a run ended, or, being None, that it has not."""
    nothing = Scores(0, 0, Counter())
    score = nothing.summary()
    example = Finished("", 0, 0, 0.0, score, score, score | nothing.counts())
    if finished is None:
        return True
    if isinstance(finished, dict) and finished.get("test") is None:
        example = replace(example, test=None)
    if not alike(asdict(example), finished):
        return False
    return finished["test"] is None or all(alike(["", "", 0], pair) for pair in finished["test"]["pairs"])


def identity(described: dict[str, Any]) -> str:
    """What tells a run's models from those of another: the hash of its description, but for where it ends and began."""
    training = {**described["training"], "epochs": None}
    return sha256(to_json({**{name: described[name] for name in DESCRIBED}, "training": training}))


def check_best(run: Path, described: dict[str, Any]) -> dict[str, Any]:
    """What the best model of a run that has come past its first epoch says of itself.

    DamagedError if it is not whole, or of another run than the one `described`.
    """
    try:
        facts: dict[str, Any] = check_whole(standing(run / BEST))["facts"]
        known = {"epoch": 0, "validation": Scores(0, 0, Counter()).summary(), "run": ""}
        check(alike(known, {name: facts.get(name) for name in known}), "its config.json is malformed")
        check(facts["run"] == identity(described), "it is the model of another run")
        return facts
    except CaptchaOcrError as error:
        raise DamagedError(
            f"the best model of {run} is not whole ({error}); begin anew with --resume never --force, "
            f"or go on in another --out with --resume {run / LAST}"
        ) from None


def origin_of(out: Path, resume: str) -> str | None:
    """The hash of the checkpoint that `resume` names; None where a run in `out` would go on from it anyway."""
    if resume in ("auto", "never") or Path(resume).resolve() in (out.resolve(), (out / LAST).resolve()):
        return None
    return str(read_config(checkpoint_named(Path(resume)))["sha256"])


def has_lost_its_checkpoints(out: Path) -> bool:
    """Whether a run in `out` that has no checkpoint had one: metrics are written after it, and the end is."""
    has_metrics = (out / METRICS_FILE).exists() and (out / METRICS_FILE).stat().st_size > 0
    return has_metrics or (is_run(out) and read_run(out)["finished"] is not None)


def is_run(out: Path) -> bool:
    """Whether train wrote what is in `out`, whole or not: only that may be replaced."""
    return is_ours(out / RUN_FILE, RUN_FORMAT)


def may_be_replaced(out: Path) -> bool:
    """Whether there is a run in `out`, and room beside it to keep it meanwhile; UsageError if another's lies there."""
    older = out / REPLACED
    check(is_run(older) or not older.exists(), f"{older} was not written by train; choose another --out")
    return is_run(out)


def start_run(out: Path, described: dict[str, Any], replace: bool, checkpoint: Path | None) -> None:
    """Make `out` ready: a new run, one that goes on from a checkpoint, or one in place of another."""
    if is_run(out / MOVING):  # all of it, run.json being the last, when the program was killed
        put_in_place(out / MOVING, out / REPLACED)
    if replace:
        set_aside(out)
    for name in FOLDERS:
        recover(out / name)
    if checkpoint == out / PREVIOUS:
        remove_folder(out / LAST)  # which is not whole, and would take the place of the one that is
    if (out / BEST).exists():
        remove_stale(out / BEST)
    if is_run(out) and described["begun_from"] is None:
        described = {**described, "begun_from": read_run(out)["begun_from"]}
    write_run(out, {**described, "finished": None})


def write_run(out: Path, content: dict[str, Any]) -> None:
    """Write run.json."""
    write_atomic(out / RUN_FILE, sealed({"format": RUN_FORMAT, "version": RUN_VERSION, **content}))


def end_run(out: Path, finished: Finished, facts: dict[str, Any]) -> None:
    """Write into run.json how the run ended, and further facts (JSON types); the run that it replaces goes."""
    content = read_run(out)
    write_run(out, {**content, **facts, "finished": asdict(finished)})
    if is_run(out / REPLACED):
        shutil.rmtree(out / REPLACED, ignore_errors=True)


def set_aside(out: Path) -> None:
    """Move what an earlier run wrote into `out`, and nothing else, to `replaced`, until the run to come has finished.

    An unfinished run that was itself to replace the one that lies there is removed.
    """
    older = out / REPLACED
    if is_run(older) and not has_finished(out):
        for path in parts_of_run(out):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        return
    moving = out / MOVING
    moving.mkdir(exist_ok=True)
    for path in parts_of_run(out):
        os.replace(path, moving / path.name)
    put_in_place(moving, older)


def has_finished(out: Path) -> bool:
    """Whether a run is whole, as far as run.json goes, and has come to its end."""
    try:
        return read_run(out)["finished"] is not None
    except DamagedError:
        return False


def parts_of_run(out: Path) -> list[Path]:
    """What a run wrote into `out`; run.json last: without it the rest would be a stranger's, were one interrupted."""
    names = [form(Path(name)).name for name in FOLDERS for form in (Path, aside)]
    names += [path.name for path in out.glob("*") if KEPT.fullmatch(path.name) and path.is_dir()]
    return [out / name for name in (*names, BOARD, *FILES, RUN_FILE) if (out / name).exists()]


def kept(out: Path, epoch: int) -> Path:
    """Where the checkpoint after an epoch is kept."""
    return out / f"epoch-{epoch:04}"


def write_metrics(out: Path, rows: Sequence[dict[str, Any]]) -> None:
    """Write metrics.jsonl, all its rows at once; what is no number as null."""
    numbers = [
        {key: finite(value) if isinstance(value, float) else value for key, value in row.items()} for row in rows
    ]
    lines = [json.dumps(row) + "\n" for row in numbers]
    write_atomic(out / METRICS_FILE, "".join(lines).encode())

"""K-fold cross-validation: every image is tested once, by a network that was not trained on it."""

from collections import Counter
from dataclasses import replace
from pathlib import Path

from captcha_ocr.config import PrepareConfig, TrainConfig
from captcha_ocr.data.folds import folds_in
from captcha_ocr.data.prepare import prepare_command
from captcha_ocr.data.shards import MANIFEST_FILE, read_manifest
from captcha_ocr.errors import UsageError
from captcha_ocr.metrics import Scores
from captcha_ocr.system.console import Table, command_line, say
from captcha_ocr.system.documents import sealed
from captcha_ocr.system.files import unused, write_atomic, writing_to
from captcha_ocr.training.run.spec import TrainOptions
from captcha_ocr.training.train import train

FOLDS = Table({"fold": 10, "exact match": 13, "tested": 9, "95 % interval": 20})
RESULT_FILE, RESULT_FORMAT = "cross-validation.json", "captcha-ocr cross-validation"


def cross_validate(
    data: Path, out: Path, config: TrainConfig, options: TrainOptions = TrainOptions()
) -> Scores:
    """Train on every fold that `prepare --folds` made in `data`, and add up the scores of their test sets.

    Each fold has a run folder, `out`/fold-1 …: finished runs are left as they are, an unfinished one resumes. The total
    is returned and written to `out`/cross-validation.json. UsageError if `data` holds no complete set of folds.
    """
    folds = find_folds(data)
    total = Scores(0, 0, Counter())
    with writing_to(out):
        for number, folder in enumerate(folds, 1):
            say(f"fold       {number} of {len(folds)}", options.quiet)
            finished = train([folder], out / folder.name, config, replace(options, advise=False))
            assert finished.test is not None, "every fold has a test set"
            scores = Scores.from_counts(finished.test)
            low, high = scores.interval
            cells = (f"{scores.exact_match:.2%}", f"{scores.images:,}", f"{low:.2%} to {high:.2%}")
            say(f"{FOLDS.header}\n{FOLDS.row(number, *cells)}", options.quiet)
            total += scores
        result = {"folds": len(folds), "training": config.to_dict(), "test": total.summary()}
        write_atomic(out / RESULT_FILE, sealed({"format": RESULT_FORMAT, "version": 1, **result}))
    return total


def find_folds(data: Path) -> list[Path]:
    """Return the folders of the folds in `data`; UsageError if there are none, or not all of them."""
    folds = folds_in(data)
    if not folds:
        raise UsageError(f"{data} holds no folds; make some with: {command_for_folds(data)}")
    manifests = [read_manifest(folder) for folder in folds]
    made = [manifest.options.get("fold") for manifest in manifests]
    if made != [[number, len(folds)] for number in range(1, len(folds) + 1)]:
        command = prepare_command(manifests[0], folds[0], "default")
        raise UsageError(
            f"{data} does not hold all folds of one set; make them again with: {command}"
        )
    return folds


def command_for_folds(data: Path) -> str:
    """Return the command that makes folds, of the same images as the shards in `data` if there are any."""
    if not (data / MANIFEST_FILE).exists():
        return command_line("prepare", "--folds", "5", "--out", str(data))
    manifest = read_manifest(data)
    of_folds = replace(
        manifest, options=manifest.options | {"fold": [1, 5], "split": list(PrepareConfig.split)}
    )
    return prepare_command(
        of_folds, unused(data.with_name(f"{data.name}-folds")) / "fold-1", "default"
    )

"""K-fold cross-validation: every image is tested once, by a network that was not trained on it."""

from collections import Counter
from dataclasses import replace
from pathlib import Path

from captcha_ocr.data.prepare import list_folds, prepare_command
from captcha_ocr.data.shards import MANIFEST_FILE, read_manifest
from captcha_ocr.errors import Advice, Command, UsageError
from captcha_ocr.options.preparation import PrepareConfig
from captcha_ocr.options.training import TrainConfig, TrainOptions
from captcha_ocr.scores import Scores
from captcha_ocr.system.console import Table, say
from captcha_ocr.system.documents import sealed
from captcha_ocr.system.files import find_unused, write_atomic, writing_to
from captcha_ocr.training.train import train

RESULT_FILE = "cross-validation.json"
_RESULT_FORMAT = "captcha-ocr cross-validation"
_FOLDS = Table({"fold": 10, "exact match": 13, "tested": 9, "95 % interval": 20})


def cross_validate(
    data: Path, out: Path, config: TrainConfig, options: TrainOptions = TrainOptions()
) -> Scores:
    """Train on every fold that prepare made in `data`, and add up the scores of their test sets.

    Each fold has a run folder, `out`/fold-1 …: finished runs are left as they are, an unfinished
    one resumes. The total is returned and written to `out`/cross-validation.json. UsageError if
    `data` holds no complete set of folds.
    """
    folds = find_folds(data)
    total = Scores(0, 0, Counter())
    with writing_to(out):
        for number, folder in enumerate(folds, 1):
            say(f"fold       {number} of {len(folds)}", options.quiet)
            finished = train([folder], out / folder.name, config, options)
            assert finished.test is not None, "every fold has a test set"
            scores = Scores.from_counts(finished.test)
            row = _FOLDS.row(
                number,
                f"{scores.exact_match:.2%}",
                f"{scores.images:,}",
                "{:.2%} to {:.2%}".format(*scores.interval),
            )
            say(f"{_FOLDS.header}\n{row}", options.quiet)
            total += scores
        result = {"folds": len(folds), "training": config.to_dict(), "test": total.summary()}
        write_atomic(out / RESULT_FILE, sealed({"format": _RESULT_FORMAT, "version": 1, **result}))
    return total


def find_folds(data: Path) -> list[Path]:
    """Return the folders of the folds in `data`; UsageError if there are none, or some lack."""
    folds = list_folds(data)
    if not folds:
        raise UsageError(f"{data} holds no folds", Advice("make some with", _advise_folds(data)))
    manifests = list(map(read_manifest, folds))
    made = [manifest.options.get("fold") for manifest in manifests]
    if made != [[number, len(folds)] for number in range(1, len(folds) + 1)]:
        again = Advice("make them again with", prepare_command(manifests[0], folds[0], "default"))
        raise UsageError(f"{data} does not hold all folds of one set", again)
    return folds


def _advise_folds(data: Path) -> Command:
    """Return the command that makes folds, of the images of the shards in `data` if it has some."""
    if not (data / MANIFEST_FILE).exists():
        return Command("prepare", (), {"folds": 5, "out": data})
    manifest = read_manifest(data)
    options = manifest.options | {"fold": [1, 5], "split": list(PrepareConfig.split)}
    folder = find_unused(data.with_name(f"{data.name}-folds")) / "fold-1"
    return prepare_command(replace(manifest, options=options), folder, "default")

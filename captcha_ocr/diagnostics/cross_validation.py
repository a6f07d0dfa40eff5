"""K-fold cross-validation: every image is tested on once, by a network that never saw it."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from captcha_ocr.config import TrainConfig
from captcha_ocr.data.folds import folds_in
from captcha_ocr.data.shards import read_manifest
from captcha_ocr.errors import check
from captcha_ocr.metrics import Scores
from captcha_ocr.system.console import say
from captcha_ocr.system.documents import sealed
from captcha_ocr.system.files import write_atomic, writing_to
from captcha_ocr.training.run import TrainOptions
from captcha_ocr.training.train import train

RESULT_FILE, RESULT_FORMAT = "cross-validation.json", "captcha-ocr cross-validation"


def cross_validate(data: Path, out: Path, config: TrainConfig, options: TrainOptions = TrainOptions()) -> Scores:
    """Train on every fold that `prepare --folds` made in `data`, and pool the scores of their test sets.

    Each fold has a run folder, `out`/fold-1 …: finished ones are left as they are, an unfinished one continues. The
    pooled score is in `out`/cross-validation.json too. UsageError where `data` holds no folds.
    """
    folds = find_folds(data)
    with writing_to(out):
        pooled = train_on_folds(folds, out, config, options)
        result = {"folds": len(folds), "training": config.to_dict(), "test": pooled.summary()}
        document = {"format": RESULT_FORMAT, "version": 1, **result}
        write_atomic(out / RESULT_FILE, sealed(document))
    return pooled


def train_on_folds(folds: Sequence[Path], out: Path, config: TrainConfig, options: TrainOptions) -> Scores:
    """Train on one fold after another, and pool their scores."""
    pooled = Scores(0, 0, Counter())
    for number, folder in enumerate(folds, 1):
        name = f"fold       {number} of {len(folds)}"
        say(name, options.quiet)
        finished = train([folder], out / folder.name, config, options)
        assert finished.test is not None, "every fold is tested"
        scores = Scores.from_counts(finished.test)
        say(f"{name}: {scores.exact:,} of {scores.images:,} exact, {scores.exact_match:.2%}", options.quiet)
        pooled += scores
    return pooled


def find_folds(data: Path) -> list[Path]:
    """The folders of the folds in `data`; UsageError where there are none, or not all of them."""
    folds = folds_in(data)
    check(
        bool(folds), f"{data} holds no folds; make them with captcha-ocr prepare --folds 5, and an --out of their own"
    )
    made = [read_manifest(folder).options.get("fold") for folder in folds]
    whole = made == [[number, len(folds)] for number in range(1, len(folds) + 1)]
    check(whole, f"{data} holds folds that are no whole set; make them again with: captcha-ocr prepare --folds")
    return folds

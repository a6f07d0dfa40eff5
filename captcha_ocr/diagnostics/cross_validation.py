"""K-fold cross-validation: every image is tested once, by a network that was not trained on it."""

from collections import Counter
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
    """Train on every fold that `prepare --folds` made in `data`, and add up the scores of their test sets.

    Each fold has a run folder, `out`/fold-1 …: finished runs are left as they are, an unfinished one resumes. The total
    is returned and written to `out`/cross-validation.json. UsageError if `data` holds no complete set of folds.
    """
    folds = find_folds(data)
    total = Scores(0, 0, Counter())
    with writing_to(out):
        for number, folder in enumerate(folds, 1):
            name = f"fold       {number} of {len(folds)}"
            say(name, options.quiet)
            finished = train([folder], out / folder.name, config, options)
            assert finished.test is not None, "every fold has a test set"
            scores = Scores.from_counts(finished.test)
            exact = f"exact match {scores.exact_match:.2%}, {scores.exact:,} of {scores.images:,}"
            say(f"{name}: {exact}", options.quiet)
            total += scores
        result = {"folds": len(folds), "training": config.to_dict(), "test": total.summary()}
        write_atomic(out / RESULT_FILE, sealed({"format": RESULT_FORMAT, "version": 1, **result}))
    return total


def find_folds(data: Path) -> list[Path]:
    """Return the folders of the folds in `data`; UsageError if there are none, or not all of them."""
    folds = folds_in(data)
    check(bool(folds), f"{data} holds no folds; make them with: captcha-ocr prepare --folds 5 --out FOLDER")
    made = [read_manifest(folder).options.get("fold") for folder in folds]
    is_complete = made == [[number, len(folds)] for number in range(1, len(folds) + 1)]
    check(is_complete, f"{data} does not hold all folds of one set; make them again with: captcha-ocr prepare --folds")
    return folds

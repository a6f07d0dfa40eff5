"""Shards for a K-fold cross-validation."""

from dataclasses import replace
from itertools import count, takewhile
from pathlib import Path

from captcha_ocr.data.prepare import Prepared, ProgressCallback, clear, prepare
from captcha_ocr.data.shards import MANIFEST_FILE
from captcha_ocr.errors import check
from captcha_ocr.options.preparation import PrepareConfig, PrepareOptions
from captcha_ocr.system.files import writing_to


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
        prepared = []
        for fold in range(1, folds + 1):
            of_fold = replace(config, fold=(fold, folds))
            prepared.append(prepare(images, out / f"fold-{fold}", of_fold, options, progress))
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

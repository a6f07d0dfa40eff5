"""Shards for a K-fold cross-validation."""

from contextlib import suppress
from dataclasses import replace
from itertools import count, takewhile
from pathlib import Path

from captcha_ocr.data.prepare import Prepared, clear, prepare
from captcha_ocr.data.shards import MANIFEST_FILE, read_manifest
from captcha_ocr.errors import CaptchaOcrError, check
from captcha_ocr.options.preparation import PrepareConfig, PrepareOptions
from captcha_ocr.system.files import writing_to


def prepare_folds(
    images: Path,
    out: Path,
    folds: int,
    config: PrepareConfig,
    options: PrepareOptions = PrepareOptions(),
) -> list[Prepared]:
    """Prepare `out`/fold-1 and so on, so that every image is in the test set of one fold.

    Errors as `prepare`.
    """
    check(
        not (out / MANIFEST_FILE).exists(),
        f"{out} holds shards that are no folds; choose another `out`",
    )
    present = list_folds(out)
    are_same = len(present) <= folds
    for number, folder in enumerate(present, 1):
        with suppress(CaptchaOcrError):  # `prepare` completes it, or reports that it is damaged
            are_same = are_same and read_manifest(folder).options.get("fold") == [number, folds]
    check(
        options.force or are_same,
        f"{out} holds {len(present)} folds; choose another `out`, or replace them with `force`",
    )
    with writing_to(out):
        prepared = [
            prepare(images, out / f"fold-{fold}", replace(config, fold=(fold, folds)), options)
            for fold in range(1, folds + 1)
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

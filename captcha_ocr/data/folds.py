"""Shards for a K-fold cross-validation."""

from dataclasses import replace
from itertools import count, takewhile
from pathlib import Path

from captcha_ocr.data.prepare import Prepared, PrepareOptions, clear, prepare
from captcha_ocr.data.shards import MANIFEST_FILE, read_manifest
from captcha_ocr.errors import CaptchaOcrError, check
from captcha_ocr.options.preparation import PrepareConfig
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
    way_out = "choose another `out`, or replace them with `force`"
    check(
        options.force or _match_folds(present, folds),
        f"{out} holds {len(present)} folds; {way_out}",
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


def _match_folds(present: list[Path], folds: int) -> bool:
    """Tell whether these folders can be the first of `folds` folds; some may be unfinished."""
    for number, folder in enumerate(present, 1):
        try:
            fold = read_manifest(folder).options.get("fold")
        except (
            CaptchaOcrError
        ):  # unfinished or damaged: `prepare` completes it or reports the damage
            continue
        if fold != [number, folds]:
            return False
    return len(present) <= folds


def list_folds(folder: Path) -> list[Path]:
    """Return the folders of the folds in a folder, in order."""
    return list(takewhile(Path.is_dir, (folder / f"fold-{fold}" for fold in count(1))))

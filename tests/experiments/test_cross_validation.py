import json
import re
import shutil
from collections import Counter
from dataclasses import replace

import pytest
from conftest import ONE_WORKER, QUIET, TINY

from captcha_ocr.cli.wording import word_error
from captcha_ocr.data.prepare import prepare_folds
from captcha_ocr.errors import UsageError
from captcha_ocr.experiments.cross_validation import RESULT_FILE, cross_validate
from captcha_ocr.options.preparation import PrepareConfig
from captcha_ocr.scores import Scores


@pytest.fixture(scope="module")
def folds(images, tmp_path_factory):
    """Two folds of the 60 images. Read only."""
    folder = tmp_path_factory.mktemp("data") / "folds"
    prepare_folds(images, folder, 2, PrepareConfig(preset="tiny"), ONE_WORKER)
    return folder


@pytest.mark.usefixtures("short_runs")
def test_every_image_is_tested_once_and_finished_folds_are_left_alone(folds, tmp_path):
    def pool():
        return cross_validate(folds, tmp_path, replace(TINY.training, epochs=1), QUIET)

    pooled = pool()
    before = {path: path.stat().st_mtime_ns for path in tmp_path.glob("fold-*/**/*")}
    assert pooled.images == 60
    runs = [json.loads(path.read_bytes()) for path in tmp_path.glob("fold-*/run.json")]
    parts = [Scores.from_counts(run["finished"]["test"]) for run in runs]
    assert sum(parts, Scores(0, 0, Counter())) == pooled
    assert json.loads((tmp_path / RESULT_FILE).read_bytes())["test"] == pooled.summary()
    assert pool() == pooled
    assert {path: path.stat().st_mtime_ns for path in tmp_path.glob("fold-*/**/*")} == before


def test_folds_of_which_one_is_lost_are_refused(folds, tmp_path):
    shutil.copytree(folds / "fold-1", tmp_path / "folds" / "fold-1")
    with pytest.raises(UsageError) as refusal:
        cross_validate(tmp_path / "folds", tmp_path / "run", TINY.training)
    assert re.search(r"captcha-ocr prepare .* --folds 2", word_error(refusal.value))

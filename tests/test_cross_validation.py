import json
import shutil
from collections import Counter

import pytest

from captcha_ocr.config import PrepareConfig
from captcha_ocr.cross_validation import RESULT_FILE, cross_validate
from captcha_ocr.errors import UsageError
from captcha_ocr.metrics import Scores
from captcha_ocr.prepare import prepare_folds
from captcha_ocr.train import train


@pytest.fixture(scope="module")
def folds(images, tmp_path_factory):
    """Three folds of the 60 images. Read only."""
    folder = tmp_path_factory.mktemp("data") / "folds"
    prepare_folds(images, folder, 3, PrepareConfig(preset="tiny"), workers=1)
    return folder


@pytest.fixture(scope="module")
def validated(folds, tiny_preset, tmp_path_factory):
    """The folder and the pooled score of a cross-validation. Read only."""
    out = tmp_path_factory.mktemp("runs") / "folds"
    return out, cross_validate(folds, out, tiny_preset.training, quiet=True, device_name="cpu")


def test_every_image_is_tested_on_once(validated):
    _, pooled = validated
    assert pooled.images == 60


def test_the_pooled_score_is_the_sum_of_those_of_the_folds(validated):
    out, pooled = validated
    parts = [json.loads((out / f"fold-{number}" / "run.json").read_bytes())["finished"]["test"] for number in (1, 2, 3)]
    assert sum((Scores.from_counts(part) for part in parts), Scores(0, 0, Counter())) == pooled
    assert json.loads((out / RESULT_FILE).read_bytes())["test"] == pooled.summary()


def test_finished_folds_are_left_as_they_are(validated, folds, tiny_preset):
    out, pooled = validated
    before = {path: path.stat().st_mtime_ns for path in out.glob("fold-*/**/*")}
    assert cross_validate(folds, out, tiny_preset.training, quiet=True, device_name="cpu") == pooled
    assert {path: path.stat().st_mtime_ns for path in out.glob("fold-*/**/*")} == before


def test_a_folder_without_folds_is_refused(shards, tiny_preset, tmp_path):
    with pytest.raises(UsageError, match="captcha-ocr prepare --folds"):
        cross_validate(shards, tmp_path, tiny_preset.training)


def test_a_single_training_says_what_to_do_with_folds(folds, tiny_preset, tmp_path):
    with pytest.raises(UsageError, match="--cross-validate"):
        train([folds], tmp_path / "run", tiny_preset.training)


def test_folds_of_which_one_is_lost_are_refused(folds, tiny_preset, tmp_path):
    shutil.copytree(folds, tmp_path / "folds")
    shutil.rmtree(tmp_path / "folds" / "fold-3")
    with pytest.raises(UsageError, match="captcha-ocr prepare --folds"):
        cross_validate(tmp_path / "folds", tmp_path / "run", tiny_preset.training)

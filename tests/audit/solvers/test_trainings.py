from dataclasses import replace
from types import SimpleNamespace

import pytest
from conftest import naming

from audit.samples import shorten_trainings
from captcha_ocr.audit.solvers import trainings
from captcha_ocr.audit.solvers.time_budget import TimeBudget
from captcha_ocr.audit.solvers.trainings import LabelPool, Trained, Training
from captcha_ocr.data.labels import find_labels
from captcha_ocr.errors import CaptchaOcrError


@pytest.fixture
def training(images):
    labels = tuple(find_labels(images).labels)
    return Training(LabelPool(images, labels[:40], labels[40:], 5), "random", 20, 0)


def test_smaller_draws_are_part_of_larger_ones(training):
    small, large = training.rows(), replace(training, size=40).rows()
    drawn = [[row[:2] for row in rows if row[2] != "test"] for rows in (small, large)]
    assert drawn[1][:20] == drawn[0]
    assert [row[2] for row in small].count("val") == 2


def test_draws_differ_and_none_is_tested(training):
    assert replace(training, draw=1).rows() != training.rows()
    tested = {label.file for label in training.pool.tested}
    assert not tested & {file for file, _, split in training.rows() if split != "test"}


def test_a_training_that_fails_is_one_sentence(training, tmp_path, monkeypatch):
    shorten_trainings(monkeypatch, 0)
    with pytest.raises(CaptchaOcrError, match=naming("epochs")):
        TimeBudget(tmp_path, 3600, {}, True).run([training])
    assert (tmp_path / "audit.json").exists()  # the time until then counts


def test_case_does_not_count(tmp_path, monkeypatch):
    finished = SimpleNamespace(test={"images": 100, "exact": 60, "folded": 7}, seconds=5.0)
    monkeypatch.setattr(trainings, "read_run", lambda folder: (None, finished))
    assert trainings.read_result(tmp_path) == Trained(67, 100, 5.0)


def test_more_labels_show_more_images(training):
    assert replace(training, size=1000).cost > replace(training, size=100).cost

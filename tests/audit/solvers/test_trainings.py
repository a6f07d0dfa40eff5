import json
from dataclasses import replace
from types import SimpleNamespace

import pytest
from conftest import naming

from audit.samples import InstantBudget, shorten_trainings
from captcha_ocr.audit.solvers import trainings
from captcha_ocr.audit.solvers.trainings import LabelPool, TimeBudget, Trained, Training
from captcha_ocr.data.labels import find_labels
from captcha_ocr.errors import CaptchaOcrError, UsageError
from captcha_ocr.system.documents import to_json


@pytest.fixture
def training(images):
    labels = tuple(find_labels(images).labels)
    return Training(LabelPool(images, labels[:40], labels[40:], 5), "random", 20, 0)


def test_smaller_draws_are_part_of_larger_ones(training):
    small, large = training.rows(), replace(training, size=40).rows()
    drawn = [row[:2] for row in small if row[2] != "test"]
    assert [row[:2] for row in large if row[2] != "test"][:20] == drawn
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


POOL = LabelPool(None, (), (), 0)


def training_on(size, draw=0):
    return Training(POOL, "random", size, draw)


def make_budget(tmp_path, budget_s=1000.0, seed=0):
    return InstantBudget(tmp_path, budget_s, seed, seconds=lambda _: 100)


def test_what_is_left_is_expected_by_the_speed_of_what_has_ended(tmp_path):
    made = make_budget(tmp_path)
    made.run([training_on(30)])
    per_image = 100 / training_on(30).cost
    one = 1.1 * (training_on(100).cost * per_image + 8)
    assert made.expected_s([training_on(100)]) == pytest.approx(one)
    three = [training_on(100, draw) for draw in range(3)]
    assert made.expected_s(three[:2]) == pytest.approx(one)  # side by side
    assert made.expected_s(three) == pytest.approx(2 * one)


def test_only_what_fits_into_the_budget_fits(tmp_path):
    made = make_budget(tmp_path, budget_s=300)
    made.run([training_on(30)])
    assert made.expected_s([training_on(30, 1)]) <= made.left < made.expected_s([training_on(300)])
    assert made.expected_s([training_on(30)]) == 0  # it has ended


def test_time_of_earlier_sessions_counts(tmp_path):
    make_budget(tmp_path).save()
    state = json.loads((tmp_path / "audit.json").read_bytes())
    (tmp_path / "audit.json").write_bytes(to_json({**state, "spent": 400}))
    assert make_budget(tmp_path).spent >= 400


def test_another_audit_in_the_folder_is_refused(tmp_path):
    make_budget(tmp_path).save()
    with pytest.raises(UsageError, match=naming(tmp_path, "`out`")):
        make_budget(tmp_path, seed=1)

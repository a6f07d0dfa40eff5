import json
from dataclasses import replace
from types import SimpleNamespace

import pytest
from conftest import naming

from audit.samples import InstantBudget
from captcha_ocr.audit.solvers import trainings
from captcha_ocr.audit.solvers.trainings import LabelPool, TimeBudget, Trained, Training
from captcha_ocr.data.labels import find_labels
from captcha_ocr.errors import CaptchaOcrError, UsageError
from captcha_ocr.options.training import TrainConfig
from captcha_ocr.system.documents import to_json


@pytest.fixture
def training(images):
    labels = tuple(find_labels(images).labels)
    return Training(LabelPool(images, labels[:40], labels[40:], 5), "random", 20, 0)


def test_smaller_draws_are_part_of_larger_ones_others_differ_and_none_is_tested(training):
    small, large = training.rows(), replace(training, size=40).rows()
    drawn = [row[:2] for row in small if row[2] != "test"]
    assert [row[:2] for row in large if row[2] != "test"][:20] == drawn
    assert [row[2] for row in small].count("val") == 2
    assert replace(training, draw=1).rows() != small
    assert not {(label.file, label.text) for label in training.pool.tested} & set(drawn)


def test_a_training_that_fails_is_one_sentence(training, tmp_path):
    lost = replace(training.pool, images=tmp_path / "gone")
    with pytest.raises(CaptchaOcrError, match=f"^{lost.images} .*$"):
        TimeBudget(tmp_path, 3600, {}, True).run([replace(training, pool=lost)])
    assert (tmp_path / "audit.json").exists()  # the time until then counts


def test_case_does_not_count_and_all_epochs_would_take_longer(training, tmp_path, monkeypatch):
    test = {"images": 100, "exact": 60, "folded": 7}
    finished = SimpleNamespace(test=test, seconds=5.0, epochs=3)
    spec = SimpleNamespace(training=TrainConfig(epochs=12), images={"train": 100})
    monkeypatch.setattr(trainings, "read_run", lambda folder: (spec, finished))
    assert training.result(tmp_path) == Trained(67, 100, 5.0, 20.0)


def test_more_labels_show_more_images(training):
    assert replace(training, size=1000).cost > replace(training, size=100).cost


ENDED = Training(LabelPool(None, (), (), 0), "random", 30, 0)


def test_what_is_left_is_expected_by_the_speed_of_what_has_ended(tmp_path):
    budget = InstantBudget(tmp_path, 300, seconds=lambda _: 100)
    budget.run([ENDED])
    three = [replace(ENDED, size=100, draw=draw) for draw in range(3)]
    one = 1.1 * (three[0].cost * 100 / ENDED.cost + 8)
    assert budget.expected_s(three[:1]) == pytest.approx(one)
    assert budget.expected_s(three[:2]) == pytest.approx(one)  # side by side
    assert budget.expected_s(three) == pytest.approx(2 * one)
    assert budget.expected_s([ENDED]) == 0
    short, long = replace(ENDED, draw=1), replace(ENDED, size=300)
    assert budget.expected_s([short]) <= budget.left < budget.expected_s([long])


def test_time_of_earlier_sessions_counts_and_another_audit_in_the_folder_is_refused(tmp_path):
    InstantBudget(tmp_path).save()
    state = json.loads((tmp_path / "audit.json").read_bytes())
    (tmp_path / "audit.json").write_bytes(to_json({**state, "spent": 400}))
    assert InstantBudget(tmp_path).spent >= 400
    with pytest.raises(UsageError, match=naming(tmp_path, "`out`")):
        InstantBudget(tmp_path, seed=1)

import json

import pytest
from conftest import naming

from audit.samples import InstantBudget
from captcha_ocr.audit.solvers.trainings import LabelPool, Training
from captcha_ocr.errors import UsageError
from captcha_ocr.system.documents import to_json

POOL = LabelPool(None, (), (), 0)


def training(size, draw=0):
    return Training(POOL, "random", size, draw)


def make_budget(tmp_path, budget_s=1000.0, seed=0):
    return InstantBudget(tmp_path, budget_s, seed, seconds=lambda _: 100)


def test_what_is_left_is_expected_by_the_speed_of_what_has_ended(tmp_path):
    made = make_budget(tmp_path)
    made.run([training(30)])
    per_image = 100 / training(30).cost
    one = 1.1 * (training(100).cost * per_image + 8)
    assert made.expected_s([training(100)]) == pytest.approx(one)
    three = [training(100, draw) for draw in range(3)]
    assert made.expected_s(three[:2]) == pytest.approx(one)  # side by side
    assert made.expected_s(three) == pytest.approx(2 * one)


def test_only_what_fits_into_the_budget_fits(tmp_path):
    made = make_budget(tmp_path, budget_s=300)
    made.run([training(30)])
    assert made.fits([training(30, 1)])
    assert not made.fits([training(300, 1)])
    made.budget_s = 0
    assert made.fits([training(30)])  # it has ended: it takes no time


def test_time_of_earlier_sessions_counts(tmp_path):
    make_budget(tmp_path).save()
    state = json.loads((tmp_path / "audit.json").read_bytes())
    (tmp_path / "audit.json").write_bytes(to_json({**state, "spent": 400}))
    assert make_budget(tmp_path).spent >= 400


def test_another_audit_in_the_folder_is_refused(tmp_path):
    make_budget(tmp_path).save()
    with pytest.raises(UsageError, match=naming(tmp_path, "`out`")):
        make_budget(tmp_path, seed=1)

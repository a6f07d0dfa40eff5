import pytest

from audit.samples import InstantBudget
from captcha_ocr.audit.images.generators import DesignGenerator
from captcha_ocr.audit.solvers import knob_trainings
from captcha_ocr.audit.solvers.knob_trainings import KnobMeasurement
from captcha_ocr.audit.solvers.trainings import LabelPool
from captcha_ocr.audit.statistics import Curve, Score
from captcha_ocr.data.labels import find_labels
from captcha_ocr.options.model import Lengths

GENERATOR = DesignGenerator("captcha", "01", Lengths(2, 2))
KNOBS = {"text.spacing": [0, -0.2]}
CURVE = Curve((Score(30, (50,) * 3, 100),))


@pytest.fixture
def budget(tmp_path, run, monkeypatch):
    """A budget in which the runs of all trainings are the same one, which reads two digits."""
    monkeypatch.setattr(knob_trainings, "_TESTED", 10)
    monkeypatch.setattr(knob_trainings, "DRAWS", 2)
    monkeypatch.setattr(InstantBudget, "run_folder", lambda self, training: run)
    monkeypatch.setattr(InstantBudget, "result", lambda self, training: None)
    made = InstantBudget(tmp_path, 3600, seconds=lambda training: 0.001 * training.cost)
    made.rates["random"] = 0.001
    return made


def measure(tmp_path, budget, largest=30, curve=CURVE):
    """Return what the knobs do, and the notes."""
    base = LabelPool(tmp_path / "images" / "base", (), (), 0)
    measurement = KnobMeasurement(GENERATOR, KNOBS, base, budget, largest)
    return measurement.run({"random": curve}), " ".join(budget.notes)


@pytest.mark.parametrize(
    ("right", "largest", "labels"), [(49, 100, 100), (50, 100, 30), (49, 30, 30)]
)
def test_a_setting_that_is_read_less_than_half_gets_more_labels(
    budget, tmp_path, right, largest, labels
):
    budget.right = right
    found, _ = measure(tmp_path, budget, largest)
    assert [setting.labels for setting in found.settings] == [labels] * 2


def test_each_setting_is_trained_again_with_the_same_texts(budget, tmp_path):
    found, _ = measure(tmp_path, budget)
    assert (found.start, found.draws, found.confounded) == ("random", 2, [])
    shares = [(setting.labels, setting.shares) for setting in found.settings]
    assert shares == [(30, [0.5, 0.5])] * 2
    assert all(0 <= setting.fixed <= 1 for setting in found.settings)
    effects = [(effect.knob, effect.change, effect.factor.value) for effect in found.effects]
    assert effects == [("text.spacing", "0 → -0.2", 1)]
    folders = sorted((tmp_path / "images").glob("*-30-0"))
    first, second = ([label.text for label in find_labels(folder).labels] for folder in folders)
    assert first == second


def test_without_the_time_for_two_draws_nothing_is_trained(budget, tmp_path):
    budget.budget_s = 1
    found, notes = measure(tmp_path, budget)
    assert found is None
    assert "budget" in notes
    assert not budget.trained


def test_more_labels_that_do_not_fit_leave_those_that_were_measured(budget, tmp_path, monkeypatch):
    budget.right = 0
    monkeypatch.setattr(KnobMeasurement, "_fits", lambda measurement, sizes, draw: max(sizes) <= 30)
    found, _ = measure(tmp_path, budget, 3000)
    assert found.draws == 2
    assert [setting.labels for setting in found.settings] == [30, 30]


def test_a_base_that_is_not_read_cannot_be_compared(budget, tmp_path):
    found, notes = measure(tmp_path, budget, curve=Curve((Score(20, (0, 1, 0), 100),)))
    assert found is None
    assert "before a change" in notes

import pytest

from audit.samples import shorten_trainings
from captcha_ocr.audit.images.generators import DesignGenerator
from captcha_ocr.audit.solvers import knob_trainings
from captcha_ocr.audit.solvers.knob_trainings import KnobMeasurement, Variants
from captcha_ocr.audit.solvers.time_budget import TimeBudget
from captcha_ocr.audit.solvers.trainings import Runner, Trained
from captcha_ocr.audit.statistics import Curve, Score
from captcha_ocr.data.labels import find_labels
from captcha_ocr.options.model import Lengths

GENERATOR = DesignGenerator("captcha", "01", Lengths(2, 2))
KNOBS = {"text.spacing": [0, -0.2]}
CURVE = Curve((Score(20, (50,) * 3, 100),))


@pytest.fixture
def budget(tmp_path, monkeypatch):
    """An hour, of which it is known how fast trainings are; they have one epoch."""
    monkeypatch.setattr(knob_trainings, "_TESTED", 10)
    monkeypatch.setattr(knob_trainings, "DRAWS", 2)
    shorten_trainings(monkeypatch)
    made = TimeBudget(tmp_path, Runner(tmp_path / "runs", 2), 3600, {}, True)
    made.rates["random"] = 0.001
    return made


def measure(tmp_path, budget, largest=30, curve=CURVE):
    """What the knobs do, and the notes."""
    variants = Variants(GENERATOR, KNOBS, tmp_path / "images", 0)
    measurement = KnobMeasurement(variants, budget, largest)
    return measurement.run({"random": curve}), " ".join(measurement.notes)


class Scripted:
    """Runs no training: each gives so many right readings of 100,."""

    workers = 2

    def __init__(self, right):
        self.right = right

    def run(self, trainings, on_end):
        for training in trainings:
            on_end(training, Trained(self.right, 100, 0.001 * training.cost))

    def result(self, training):
        return None


@pytest.mark.parametrize(
    ("right", "largest", "labels"), [(49, 100, 100), (50, 100, 30), (49, 30, 30)]
)
def test_a_setting_that_is_read_less_than_half_gets_more_labels(
    budget, tmp_path, monkeypatch, right, largest, labels
):
    budget.runner = Scripted(right)
    monkeypatch.setattr(KnobMeasurement, "_judge_unchanged", lambda self, draws: [0.0, 0.0])
    found, _ = measure(tmp_path, budget, largest, Curve((Score(30, (50,) * 3, 100),)))
    assert [setting.labels for setting in found.settings] == [labels] * 2


def test_each_setting_is_trained_again_with_the_same_texts(budget, tmp_path, monkeypatch):
    monkeypatch.setattr(knob_trainings, "_LEAST_READ", 0)
    found, _ = measure(tmp_path, budget)
    assert found.draws == 2
    assert [(setting.labels, len(setting.shares)) for setting in found.settings] == [(20, 2)] * 2
    effects = [(effect.knob, effect.change) for effect in found.effects]
    assert effects == [("text.spacing", "0 → -0.2")]
    folders = sorted((tmp_path / "images").glob("*-20-0"))
    first, second = ([label.text for label in find_labels(folder).labels] for folder in folders)
    assert first == second


def test_without_the_time_for_two_draws_nothing_is_trained(budget, tmp_path):
    budget.budget_s = 1
    found, notes = measure(tmp_path, budget)
    assert found is None
    assert "budget" in notes
    assert not budget.trained


def test_more_labels_that_do_not_fit_leave_those_that_were_measured(budget, tmp_path, monkeypatch):
    budget.runner = Scripted(0)
    monkeypatch.setattr(KnobMeasurement, "_judge_unchanged", lambda self, draws: [0.0, 0.0])
    monkeypatch.setattr(KnobMeasurement, "_fits", lambda measurement, sizes, draw: max(sizes) <= 30)
    found, _ = measure(tmp_path, budget, 3000)
    assert found.draws == 2
    assert [setting.labels for setting in found.settings] == [30, 30]


def test_a_base_that_is_not_read_cannot_be_compared(budget, tmp_path):
    found, notes = measure(tmp_path, budget, curve=Curve((Score(20, (0, 1, 0), 100),)))
    assert found is None
    assert "before a change" in notes

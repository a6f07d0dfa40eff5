import pytest

from captcha_ocr.audit import knob_trainings
from captcha_ocr.audit.knob_trainings import KnobMeasurement
from captcha_ocr.audit.schedule import Schedule
from captcha_ocr.audit.sources import DesignSource
from captcha_ocr.audit.statistics import Curve, Score
from captcha_ocr.audit.trainings import Runner, Trained, Training
from captcha_ocr.config import Lengths
from captcha_ocr.data.labels import find_labels

SOURCE = DesignSource("captcha", "01", Lengths(2, 2))
KNOBS = {"text.spacing": [0, -0.2]}
CURVE = Curve((Score(20, (50,) * 3, 100),))


@pytest.fixture
def schedule(tmp_path, monkeypatch):
    """A schedule of an hour that knows how fast it is; its trainings have one epoch."""
    monkeypatch.setattr(knob_trainings, "TESTED", 10)
    monkeypatch.setattr(knob_trainings, "DRAWS", 2)
    made = Schedule(tmp_path, Runner(tmp_path / "runs", 2, ("--epochs", "1")), 3600, {}, True)
    made.rates["random"] = 0.001
    return made


@pytest.mark.parametrize(
    ("right", "largest", "labels"), [(49, 1000, 100), (50, 1000, 30), (49, 30, 30)]
)
def test_a_setting_that_is_read_less_than_half_gets_more_labels(
    schedule, tmp_path, right, largest, labels
):
    training = Training(tmp_path, (), (), "random", 30, 0, 0)
    schedule.trained[training.name] = Trained(right, 100, 1.0)
    assert KnobMeasurement(SOURCE, KNOBS, tmp_path, schedule, 0, largest).larger(training) == labels


def test_each_setting_is_trained_again_with_the_same_texts(schedule, tmp_path, monkeypatch):
    monkeypatch.setattr(knob_trainings, "LEAST_READ", 0)
    found = KnobMeasurement(SOURCE, KNOBS, tmp_path / "images", schedule, 0, 30).run(
        {"random": CURVE}
    )
    assert found["draws"] == 2
    assert [(setting["labels"], len(setting["shares"])) for setting in found["settings"]] == [
        (20, 2),
        (20, 2),
    ]
    assert [(effect["knob"], effect["change"]) for effect in found["effects"]] == [
        ("text.spacing", "0 → -0.2")
    ]
    folders = sorted((tmp_path / "images").glob("*-20-0"))
    first, second = ([label.text for label in find_labels(folder).labels] for folder in folders)
    assert first == second


def test_without_the_time_for_two_draws_nothing_is_trained(schedule, tmp_path):
    schedule.budget_s = 1
    assert "budget" in KnobMeasurement(SOURCE, KNOBS, tmp_path / "images", schedule, 0, 30).run(
        {"random": CURVE}
    )
    assert not schedule.trained


def test_more_labels_that_do_not_fit_leave_those_that_were_measured(
    schedule, tmp_path, monkeypatch
):
    monkeypatch.setattr(knob_trainings, "LEAST_READ", 1.1)
    measurement = KnobMeasurement(SOURCE, KNOBS, tmp_path / "images", schedule, 0, 3000)
    monkeypatch.setattr(measurement, "fits", lambda sizes, draw: max(sizes) <= 30)
    found = measurement.run({"random": CURVE})
    assert found["draws"] == 2
    assert [setting["labels"] for setting in found["settings"]] == [30, 30]


def test_a_base_that_is_not_read_cannot_be_compared(schedule, tmp_path):
    unread = Curve((Score(20, (0, 1, 0), 100),))
    assert "before a change" in KnobMeasurement(
        SOURCE, KNOBS, tmp_path / "images", schedule, 0, 30
    ).run({"random": unread})

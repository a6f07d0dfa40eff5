import numpy as np
import pytest
from conftest import naming

from audit.samples import InstantBudget
from captcha_ocr.audit.images.generators import DesignGenerator
from captcha_ocr.audit.solvers import knobs
from captcha_ocr.audit.solvers.knobs import (
    KnobMeasurement,
    confounded,
    find_effects,
    list_settings,
    read_knobs,
    where_to_compare,
)
from captcha_ocr.audit.solvers.trainings import LabelPool
from captcha_ocr.audit.statistics import Curve, Score, log_factor, screening_design
from captcha_ocr.data.labels import find_labels
from captcha_ocr.errors import UsageError
from captcha_ocr.options.model import Lengths

CURVE = Curve(
    tuple(
        Score(n, (right,) * 3, 1000) for n, right in ((30, 10), (100, 300), (300, 900), (1000, 990))
    )
)
MANY = {f"knob{number}": [0, 1] for number in range(6)}


def factors(*rows):
    """What each draw of a setting read that learned from 300 labels, as factors on the labels."""
    return np.array([[log_factor(CURVE, 300, share) for share in row] for row in rows])


def test_knobs_have_dotted_names(tmp_path):
    path = tmp_path / "knobs.toml"
    path.write_text("[knobs]\nnoise = [0, 30]\ntext.spacing = [[-0.2, 0], 0.3]\n")
    assert read_knobs(path) == {"noise": [0, 30], "text.spacing": [[-0.2, 0], 0.3]}


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("noise = [0, 1]", "[knobs]"),
        ("[knobs]\nnoise = 3", "noise"),
        ("[knobs]\nnoise = [3]", "noise"),
        ("[knobs]\nnoise = [3, 3]", "noise"),
        ("[knobs", "TOML"),
        ("[knobs]\n" + "".join(f"k{n} = [0, 1]\n" for n in range(9)), "9 knobs"),
    ],
)
def test_wrong_knobs_are_named_with_the_file(tmp_path, text, word):
    path = tmp_path / "knobs.toml"
    path.write_text(text)
    with pytest.raises(UsageError, match=naming(path, word)):
        read_knobs(path)


def test_few_knobs_are_changed_one_at_a_time():
    settings = list_settings({"a": [0, 1, 2], "b": [5, 6]})
    assert [setting.levels for setting in settings] == [
        {"a": 0, "b": 5},
        {"a": 1, "b": 5},
        {"a": 2, "b": 5},
        {"a": 0, "b": 6},
    ]
    assert len({setting.name for setting in settings}) == 4


def test_many_knobs_share_the_runs_of_a_screening_design():
    settings = list_settings(MANY)
    levels = np.array([[*setting.levels.values()] for setting in settings])
    assert levels.sum(axis=0).tolist() == [8] * len(MANY)
    assert len(levels) == 16
    assert settings[0].label == "none"
    assert settings[1].label == ", ".join(name for name in MANY if settings[1].levels[name])


def test_pairs_that_cannot_be_told_apart_share_their_column():
    columns = dict(zip(MANY, screening_design(len(MANY)).T, strict=True))
    for line in confounded(MANY):
        pairs = [pair.split(" × ") for pair in line.split(" = ")]
        products = [columns[first] * columns[second] for first, second in pairs]
        assert len(pairs) > 1
        assert len({(product * product[0]).tobytes() for product in products}) == 1
    assert confounded(SPACING) == []


SATURATED = Curve((Score(30, (990,) * 3, 1000),))
FLAT = Curve((Score(30, (700,) * 3, 1000), Score(100, (900,) * 3, 1000)))
STEEP = Curve((Score(30, (0,) * 3, 1000), Score(100, (950,) * 3, 1000)))


@pytest.mark.parametrize(
    ("curves", "place"),
    [
        ({"general": SATURATED, "random": CURVE}, ("random", 100)),
        ({"general": SATURATED}, ("general", 30)),
        ({"general": FLAT, "random": STEEP}, ("random", 100)),  # which passes the middle
    ],
)
def test_knobs_are_compared_where_the_base_reads_about_half(curves, place):
    assert where_to_compare(curves) == place


def test_effects_of_single_changes():
    # With the change, 300 labels read as much as 100 do without: three times as many are needed.
    (effect,) = find_effects({"a": [0, 1]}, factors((0.9, 0.91, 0.89), (0.3, 0.31, 0.29)))
    assert (effect.knob, effect.change) == ("a", "0 → 1")
    assert effect.factor.value == pytest.approx(3, rel=0.02)
    assert effect.factor.low < 3 < effect.factor.high


def test_effects_of_a_screening_design():
    rows = [[0.3 if setting.levels["knob2"] else 0.9] * 2 for setting in list_settings(MANY)]
    found = {effect.knob: effect.factor.value for effect in find_effects(MANY, factors(*rows))}
    assert found["knob2"] == pytest.approx(3, rel=0.05)
    assert all(found[name] == pytest.approx(1) for name in MANY if name != "knob2")


SPACING = {"text.spacing": [0, -0.2]}
MIDDLE = Curve((Score(30, (50,) * 3, 100),))


@pytest.fixture
def budget(tmp_path, run, monkeypatch):
    """A budget in which the runs of all trainings are the same one, which reads two digits."""
    monkeypatch.setattr(knobs, "_TESTED", 10)
    monkeypatch.setattr(knobs, "DRAWS", 2)
    monkeypatch.setattr(InstantBudget, "run_folder", lambda self, training: run)
    monkeypatch.setattr(InstantBudget, "result", lambda self, training: None)
    made = InstantBudget(tmp_path, 3600, seconds=lambda training: 0.001 * training.cost)
    made.rates["random"] = 0.001
    return made


def measure(tmp_path, budget, largest=30, curve=MIDDLE):
    """Return what the knobs do, and the notes."""
    base = LabelPool(tmp_path / "images" / "base", (), (), 0)
    generator = DesignGenerator("captcha", "01", Lengths(2, 2))
    found = KnobMeasurement(generator, SPACING, base, budget, largest).run({"random": curve})
    return found, " ".join(budget.notes)


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
    first, second = map(find_labels, sorted((tmp_path / "images").glob("*-30-0")))
    texts = [label.text for label in first.labels]
    assert [label.text for label in second.labels] == texts


@pytest.mark.parametrize(
    ("budget_s", "curve", "words"),
    [
        (1, MIDDLE, "budget"),  # which has no time for two draws
        (
            3600,
            Curve((Score(20, (0, 1, 0), 100),)),
            "before a change",
        ),  # of a base that is not read
    ],
)
def test_what_cannot_be_compared_is_not_trained(budget, tmp_path, budget_s, curve, words):
    budget.budget_s = budget_s
    found, notes = measure(tmp_path, budget, curve=curve)
    assert (found, budget.trained) == (None, {})
    assert words in notes


def test_more_labels_that_do_not_fit_leave_those_that_were_measured(budget, tmp_path, monkeypatch):
    budget.right = 0
    monkeypatch.setattr(KnobMeasurement, "_fits", lambda measurement, sizes, draw: max(sizes) <= 30)
    found, _ = measure(tmp_path, budget, 3000)
    assert (found.draws, [setting.labels for setting in found.settings]) == (2, [30, 30])

import pytest
from conftest import naming

from captcha_ocr.audit.solvers.knobs import (
    confounded,
    effects_alone,
    effects_together,
    list_settings,
    read_knobs,
    where_to_compare,
)
from captcha_ocr.audit.statistics import Curve, Reached, Score
from captcha_ocr.errors import UsageError

CURVE = Curve(
    tuple(
        Score(n, (right,) * 3, 1000) for n, right in ((30, 10), (100, 300), (300, 900), (1000, 990))
    )
)
MANY = {f"knob{number}": [0, 1] for number in range(6)}


def reached(*shares):
    """What solvers read that learned from 300 labels."""
    return [Reached(300, share) for share in shares]


def written(tmp_path, text):
    path = tmp_path / "knobs.toml"
    path.write_text(text)
    return path


def test_knobs_have_dotted_names(tmp_path):
    path = written(tmp_path, "[knobs]\nnoise = [0, 30]\ntext.spacing = [[-0.2, 0], 0.3]\n")
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
    path = written(tmp_path, text)
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
    assert len(settings) == 16
    assert all(sum(setting.levels[name] for setting in settings) == 8 for name in MANY)
    assert settings[0].label == "none"
    assert settings[1].label == ", ".join(name for name in MANY if settings[1].levels[name])
    assert all(" = " in line for line in confounded(MANY))


def test_knobs_are_compared_where_the_base_reads_about_half():
    saturated = Curve((Score(30, (990,) * 3, 1000),))
    assert where_to_compare({"general": saturated, "random": CURVE}) == ("random", 100)
    assert where_to_compare({"general": saturated}) == ("general", 30)


def test_knobs_are_compared_on_a_curve_that_passes_the_middle():
    flat = Curve((Score(30, (700,) * 3, 1000), Score(100, (900,) * 3, 1000)))
    steep = Curve((Score(30, (0,) * 3, 1000), Score(100, (950,) * 3, 1000)))
    assert where_to_compare({"general": flat, "random": steep}) == ("random", 100)


def test_effects_of_single_changes():
    found = effects_alone(
        {"a": [0, 1]}, CURVE, [reached(0.9, 0.91, 0.89), reached(0.3, 0.31, 0.29)]
    )
    assert (found[0].knob, found[0].change) == ("a", "0 → 1")
    assert found[0].factor.value == pytest.approx(3, rel=0.05)


def test_effects_of_a_screening_design():
    rows = [
        reached(*[0.3 if setting.levels["knob2"] else 0.9] * 2) for setting in list_settings(MANY)
    ]
    found = {effect.knob: effect.factor.value for effect in effects_together(MANY, CURVE, rows)}
    assert found["knob2"] == pytest.approx(3, rel=0.05)
    assert all(found[name] == pytest.approx(1) for name in MANY if name != "knob2")

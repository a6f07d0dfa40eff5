import math

from captcha_ocr.audit.figures import as_svg, draw_coverage, draw_curves, draw_effects

CURVES = {
    start: [
        {"labels": 30, "right": (0, 1, 0), "tested": 100},
        {"labels": 100, "right": (50, 60, 70), "tested": 100},
    ]
    for start in ("general", "random")
}
INTERVALS = {(start, labels): (0.0, 0.7) for start in CURVES for labels in (30, 100)}


def test_text_stays_text_and_the_title_is_its_name():
    svg = as_svg(draw_curves(CURVES, INTERVALS, 0.2), "A title")
    assert svg.startswith('<svg role="img" aria-label="A title"')
    assert "from random weights</text>" in svg


def test_the_same_figure_gives_the_same_svg():
    assert as_svg(draw_curves(CURVES, INTERVALS, 0.2), "A") == as_svg(
        draw_curves(CURVES, INTERVALS, 0.2), "A"
    )


def test_coverage_is_drawn():
    row = {"coverage": 0.5, "images": 100, "right": 90, "interval": (0.8, 0.95)}
    assert "images answered" in as_svg(draw_coverage([row]), "A")


def test_effects_without_ends_are_drawn():
    effects = [{"knob": "noise", "change": "0 → 1", "factor": (3.0, 0.0, math.inf)}]
    assert "0 → 1</text>" in as_svg(draw_effects(effects), "A")


def test_long_levels_are_cut_beside_the_axis():
    effects = [{"knob": "fonts", "change": "x" * 99, "factor": (3.0, 2.0, 4.0)}]
    svg = as_svg(draw_effects(effects), "A")
    assert "x" * 29 + "…" in svg
    assert "x" * 30 not in svg

import math

from captcha_ocr.audit.page.figures import as_svg, draw_coverage, draw_effects, draw_solver_curves
from captcha_ocr.audit.solvers.knobs import Effect
from captcha_ocr.audit.statistics import Answered, Curve, Estimate, Score
from captcha_ocr.audit.verdict import Attack

CURVE = Curve((Score(30, (0, 1, 0), 100), Score(100, (50, 60, 70), 100)))
CURVES = {"general": CURVE, "random": CURVE}


def test_text_stays_text_the_title_is_its_name_and_the_same_figure_gives_the_same_svg():
    adapted = Attack("general", 0, 0.4, (0.3, 0.5), 60.0, images=300)
    without_labels = [Attack("general", 0, 0.2, (0.1, 0.3), 0.0), adapted]
    svg = as_svg(draw_solver_curves(CURVES, without_labels), "A title")
    assert svg.startswith('<svg role="img" aria-label="A title"')
    assert "from random weights</text>" in svg
    assert "without a label</text>" in svg
    assert as_svg(draw_solver_curves(CURVES, without_labels), "A title") == svg


def test_coverage_is_drawn():
    assert "images answered" in as_svg(draw_coverage([Answered(100, 90, 0.5)]), "A")


def test_effects_without_ends_are_drawn_and_long_levels_are_cut_beside_the_axis():
    factor = Estimate(3.0, 0.0, math.inf)
    effects = [Effect("noise", "0 → 1", factor), Effect("fonts", "x" * 99, factor)]
    svg = as_svg(draw_effects(effects), "A")
    assert "0 → 1</text>" in svg
    assert "x" * 29 + "…" in svg
    assert "x" * 30 not in svg

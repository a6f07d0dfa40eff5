import json
import re
from dataclasses import replace
from html import unescape

import pytest

from audit.samples import make_results
from captcha_ocr.audit.page import figures
from captcha_ocr.audit.page.report import key_figures, render_page
from captcha_ocr.audit.solvers.knobs import Effect
from captcha_ocr.audit.statistics import Estimate
from captcha_ocr.audit.verdict import Attack


def strip_tags(page):
    """Return the text of a page."""
    return " ".join(unescape(re.sub("<[^>]*>", "", page)).split())


@pytest.fixture
def results(images):
    return make_results(sorted(images.glob("*.png"))[:3])


@pytest.fixture
def read(monkeypatch):
    """A function that returns the text of a page without its figures, which take half a second."""
    monkeypatch.setattr(figures, "as_svg", lambda figure, title: "")
    return lambda results: strip_tags(render_page(results, ""))


def test_the_page_has_twelve_sections_loads_nothing_and_holds_what_comes_from_outside_as_text(
    results,
):
    effect = Effect("<i>", "0 → <u>", Estimate(3.0, 2.0, 5.0))
    knobs = replace(results.knobs, effects=[effect])
    results = replace(results, knobs=knobs, knobs_text="<b>")
    page = render_page(results, "captcha-ocr audit '<script>'")
    assert [int(number) for number in re.findall(r"<h2>(\d+)\. ", page)] == [*range(2, 13)]
    assert "It is broken cheaply" in strip_tags(page)
    assert "<b>mine" in strip_tags(page)
    addresses = re.findall(r"""\b(?:src|href)\s*=\s*["']?([^"'\s>]*)""", page)
    assert all(address.startswith(("data:", "#")) for address in addresses)
    assert page.endswith("</html>\n")
    assert not re.search("<b>mine|<i>|<u>|<pre><b>", page)
    assert page.count("<script") == 1
    data = re.search(r'<script type="application/json" id="results">(.*?)</script>', page)[1]
    assert json.loads(data) == json.loads(json.dumps(results.to_dict()))


NOTE = "Not measured: knobs; the budget is too short."
UNREAD = Attack("general", 0, 0.02, (0.01, 0.03), 0.0)
EVEN = Attack("general", 100, 0.5, (0.4, 0.8), 60.0)
AS_IT_IS = Attack("general", 0, 0.99, (0.98, 1), 0.0)


@pytest.mark.parametrize(
    ("changes", "phrases"),
    [
        ({}, ["With mine.toml:", "×3.00 (2.00 to 5.00)"]),
        ({}, ["Trained on 100 labels from captcha-ocr's model, the best one"]),
        ({"attacks": [AS_IT_IS]}, ["The best one, captcha-ocr's model as it is:"]),
        ({}, ["captcha-ocr's model adapted to 1,000 images", "40.0 % (37.0 % to 43.0 %)"]),
        # Intervals go from the low end to the high one: of the captchas for one solved, and of
        # the chance of one among three.
        ({"attacks": [UNREAD, EVEN]}, ["2.00 (1.25 to 2.50)", "87.5 % (78.4 % to 99.20 %)"]),
        ({"knobs.confounded": ["a × b = c × d"]}, ["a × b = c × d", "knobs at their last level"]),
        ({"knobs": None}, ["Not measured: that needs what draws images, and --knobs"]),
        ({"people": None}, ["Not measured. captcha-ocr label FOLDER --blind"]),
        ({"knobs": None, "session.notes": [NOTE]}, [f"What makes it hard {NOTE}"]),
    ],
)
def test_the_page_says_what_was_measured_and_what_was_not(read, results, changes, phrases):
    for place, value in changes.items():
        part, _, field = place.partition(".")
        if field:
            value = replace(getattr(results, part), **{field: value})
        results = replace(results, **{part: value})
    text = read(results)
    assert [phrase for phrase in phrases if phrase not in text] == []


def test_the_page_has_no_words_on_what_does_not_matter(read, results):
    text = read(replace(results, subject=replace(results.subject, definition=None)))
    assert not re.search("With mine.toml:|cannot tell apart", text)


def test_a_model_that_reads_half_of_the_images_needs_no_labels(results):
    attack = Attack("general", 0, 0.9, (0.8, 0.95), 0.0)
    labels, cost, tries = key_figures(replace(results, attacks=[attack]))
    assert (labels[1], cost[0]) == ("0", "Cost")
    assert "as it is reads 90.0 %" in labels[2]
    assert tries == ("Attempts", "1.11", "for one solved (1.05 to 1.25)")

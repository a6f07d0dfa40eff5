import json
import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from audit.samples import make_results
from captcha_ocr.audit.page import figures
from captcha_ocr.audit.page.report import key_figures, render_page
from captcha_ocr.audit.solvers.knobs import Effect
from captcha_ocr.audit.statistics import Estimate
from captcha_ocr.audit.verdict import Attack


class Texts(HTMLParser):
    """The text of a page, and the addresses that it loads."""

    def __init__(self, page):
        super().__init__()
        self.text, self.addresses = "", []
        self.feed(page)
        self.text = " ".join(self.text.split())

    def handle_data(self, data):
        self.text += data

    def handle_starttag(self, tag, attributes):
        self.addresses += [
            value for name, value in attributes if name in ("src", "href", "xlink:href")
        ]


@pytest.fixture
def results(images):
    return make_results(sorted(images.glob("*.png"))[:3])


@pytest.fixture
def read(monkeypatch):
    """A function that returns the text of a page without its figures, which take half a second."""
    monkeypatch.setattr(figures, "as_svg", lambda figure, title: "")
    return lambda results: Texts(render_page(results, "")).text


def test_the_page_has_its_twelve_sections_and_loads_nothing(results):
    written = render_page(results, "captcha-ocr audit mine")
    page = Texts(written)
    assert [int(number) for number in re.findall(r"<h2>(\d+)\. ", written)] == [*range(2, 13)]
    assert "It is broken cheaply" in page.text
    assert all(address.startswith(("data:", "#")) for address in page.addresses)
    assert written.endswith("</html>\n")


def test_what_comes_from_outside_is_text(results):
    effect = Effect("<i>", "0 → <u>", Estimate(3.0, 2.0, 5.0))
    knobs = replace(results.knobs, effects=[effect])
    results = replace(results, knobs=knobs, knobs_text="<b>")
    page = render_page(results, "captcha-ocr audit '<script>'")
    assert not re.search("<b>mine|<i>|<u>|<pre><b>", page)
    assert page.count("<script") == 1
    assert "<b>mine" in Texts(page).text


def test_the_results_are_in_the_page_as_json(results):
    page = render_page(results, "")
    data = re.search(r'<script type="application/json" id="results">(.*?)</script>', page)[1]
    assert json.loads(data) == json.loads(json.dumps(results.to_dict()))


def test_every_part_that_was_not_measured_says_so(read, results):
    text = read(replace(results, knobs=None, people=None))
    assert "Not measured: that needs what draws images, and --knobs" in text
    assert "Not measured. captcha-ocr label FOLDER --blind" in text
    note = "Not measured: knobs; the budget is too short."
    session = replace(results.session, notes=[note])
    assert f"What makes it hard {note}" in read(replace(results, knobs=None, session=session))


def test_the_page_has_what_draws_the_images(read, results):
    assert "With mine.toml:" in read(results)
    bare = replace(results, subject=replace(results.subject, definition=None))
    assert "With mine.toml:" not in read(bare)


def test_intervals_go_from_the_low_end_to_the_high_one(read, results):
    attack = Attack("general", 100, 0.5, (0.4, 0.8), 60.0)
    text = read(replace(results, attacks=[*results.attacks[:1], attack]))
    assert "2.00 (1.25 to 2.50)" in text  # captchas for one solved
    assert "87.5 % (78.4 % to 99.20 %)" in text  # at least one of three


def test_the_solver_that_may_leave_captchas_out_is_named(read, results):
    assert "Trained on 100 labels from captcha-ocr's model, the best one" in read(results)
    bare = replace(results, attacks=[Attack("general", 0, 0.99, (0.98, 1), 0.0)])
    assert "The best one, captcha-ocr's model as it is:" in read(bare)


def test_pairs_that_cannot_be_told_apart_are_listed(read, results):
    assert "×3.00 (2.00 to 5.00)" in read(results)
    assert "cannot tell apart" not in read(results)
    knobs = replace(results.knobs, confounded=["a × b = c × d"])
    text = read(replace(results, knobs=knobs))
    assert "a × b = c × d" in text
    assert "knobs at their last level" in text


def test_a_model_that_reads_half_of_the_images_needs_no_labels(results):
    attack = Attack("general", 0, 0.9, (0.8, 0.95), 0.0)
    labels, cost, tries = key_figures(replace(results, attacks=[attack]))
    assert (labels[1], cost[0]) == ("0", "Cost")
    assert "90.0 % as it is" in labels[2]
    assert tries == ("Attempts", "1.11", "for one solved (1.05 to 1.25)")

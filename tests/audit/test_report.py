import copy
import json
import math
import re
from html.parser import HTMLParser

import pytest

from captcha_ocr.audit.report import page_of
from captcha_ocr.scores import wilson_interval


class Texts(HTMLParser):
    """The text of a page, and the addresses that it loads."""

    def __init__(self, page):
        super().__init__()
        self.text, self.addresses = "", []
        self.feed(page)

    def handle_data(self, data):
        self.text += data + " "

    def handle_starttag(self, tag, attributes):
        self.addresses += [
            value for name, value in attributes if name in ("src", "href", "xlink:href")
        ]


def attack(start, labels, right):
    cost = {
        "labels": 1.0,
        "training": 0.1,
        "reading": 0.1,
        "for_1000": 0.012,
        "interval": (0.011, 0.019),
    }
    interval = wilson_interval(right, 1000)
    found = {
        "start": start,
        "labels": labels,
        "share": right / 1000,
        "interval": interval,
        "training_s": 60.0,
    }
    return {**found, "cost": cost}


@pytest.fixture
def results(images):
    samples = [(str(path), "12") for path in sorted(images.glob("*.png"))[:3]]
    tricks = {
        "findings": [], "in_names": 0, "skewed": [], "texts_are_given": False, "even_guess": 1e-2, "best_guess": 2e-2
    }  # fmt: skip
    attacks = [attack("general", 0, 20), attack("general", 100, 900), attack("random", 100, 300)]
    rows = [
        {"coverage": c, "images": round(1000 * c), "right": round(900 * c), "interval": (0.8, 0.95)}
        for c in (1, 0.5)
    ]
    return {
        "source": "<b>mine</b>",
        "definition": {"file": "mine.toml", "text": "[canvas]"},
        "alphabet": "0123456789",
        "lengths": [2, 4],
        "case_ignored": False,
        "images": 4000,
        "tested": 1000,
        "samples": samples,
        "tricks": tricks,
        "attacks": attacks,
        "best": attacks[1],
        "curves": {
            "general": [{"labels": 100, "right": (890, 900, 910), "tested": 1000}],
            "random": [{"labels": 100, "right": (290, 300, 310), "tested": 1000}],
        },
        "needed": {
            "general": [(0, 0, 0), (0, 0, 0), (100, 0, math.inf)],
            "random": [(0, 0, 0), (math.inf,) * 3, (math.inf,) * 3],
        },
        "coverage": {"start": "general", "labels": 100, "rows": rows},
        "knobs": {
            "start": "random",
            "draws": 3,
            "settings": [{"label": "base", "labels": 100, "shares": [0.5, 0.6], "fixed": 0.6}],
            "effects": [{"knob": "noise", "change": "0 → 30", "factor": (3.0, 2.0, 5.0)}],
            "confounded": [],
        },
        "people": {"images": 100, "right": 95, "interval": (0.88, 0.98), "seconds": 4.2},
        "verdict": {"kind": "cheaply", "why": "Because."},
        "failures": 2,
        "notes": ["Not measured: 1,000 labels."],
        "seed": 0,
        "budget_s": 3600.0,
        "spent_s": 3000.0,
        "environment": {"torch": "2.13.0"},
    }  # fmt: skip


def test_the_page_has_its_twelve_sections_and_loads_nothing(results):
    written = page_of(results, "captcha-ocr audit mine")
    page = Texts(written)
    assert [int(each) for each in re.findall(r"<h2>(\d+)\. ", written)] == [*range(2, 13)]
    assert "It is broken cheaply" in page.text
    assert all(address.startswith(("data:", "#")) for address in page.addresses)


def test_what_comes_from_outside_is_text(results):
    page = page_of(results, "captcha-ocr audit '<script>'")
    assert "<b>mine" not in page
    assert page.count("<script") == 1
    assert "mine" in Texts(page).text


def test_the_results_are_in_the_page_as_json(results):
    page = page_of(results, "")
    data = re.search(r'<script type="application/json" id="results">(.*?)</script>', page)[1]
    assert json.loads(data)["best"]["labels"] == 100


def test_every_part_that_was_not_measured_says_so(results):
    bare = copy.deepcopy(results) | {"knobs": None, "people": None}
    text = Texts(page_of(bare, "")).text
    assert text.count("Not measured") >= 3


def test_the_page_has_what_draws_the_images(results):
    assert "With mine.toml:" in page_of(results, "")
    assert "With mine.toml:" not in page_of(results | {"definition": None}, "")

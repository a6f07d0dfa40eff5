import math

import pytest

from captcha_ocr.audit.page.report import (
    format_cost,
    format_needed,
    format_number,
    format_percent,
    keep_together,
)
from captcha_ocr.audit.statistics import Estimate
from captcha_ocr.audit.verdict import Cost


def test_a_percent_sign_and_an_interval_stay_on_one_line():
    assert keep_together("1 % (1 to 2) of all") == "1\u00a0% (1\u00a0to\u00a02) of all"


@pytest.mark.parametrize(
    ("share", "text"), [(0.5, "50.0 %"), (0.9987, "99.87 %"), (0.0016, "0.16 %"), (0, "0.0 %")]
)
def test_shares(share, text):
    assert format_percent(share) == text


@pytest.mark.parametrize(
    ("value", "text"), [(math.inf, "more than a million"), (123.4, "120"), (1.234, "1.23")]
)
def test_numbers(value, text):
    assert format_number(value) == text


@pytest.mark.parametrize(
    ("needed", "text"),
    [
        ((50.0, 40.0, 60.0), "50 (40 to 60)"),
        ((0, 0, 0), "fewer than 30"),
        ((math.inf, 500.0, math.inf), "more than 1,000 (500 to more than 1,000)"),
        ((math.inf, math.inf, math.inf), "not reached with 1,000"),
    ],
)
def test_labels_needed(needed, text):
    assert format_needed(Estimate(*needed), [30, 1000]) == text


@pytest.mark.parametrize(
    ("interval", "text"), [((0.1, 0.1), "$0.10"), ((0.1, 0.5), "$0.10 ($0.10 to $0.50)")]
)
def test_an_interval_of_money_that_does_not_show_is_left_out(interval, text):
    assert format_cost(Cost(0, 0, 0, 0.1, interval)) == text

import math

import pytest

from captcha_ocr.audit.page import report
from captcha_ocr.audit.statistics import Estimate
from captcha_ocr.audit.verdict import Cost

SIZES = [30, 1000]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (report.keep_together("1 % (1 to 2) of all"), "1\u00a0% (1\u00a0to\u00a02) of all"),
        (report.format_percent(0.5), "50.0 %"),
        (report.format_percent(0.9987), "99.87 %"),
        (report.format_percent(0.0016), "0.16 %"),
        (report.format_percent(0), "0.0 %"),
        (report.format_number(math.inf), "more than a million"),
        (report.format_number(123.4), "120"),
        (report.format_number(1.234), "1.23"),
        (report.format_needed(Estimate(50.0, 40.0, 60.0), SIZES), "50 (40 to 60)"),
        (report.format_needed(Estimate(0, 0, 0), SIZES), "fewer than 30"),
        (report.format_needed(Estimate(0, 0, 50.0), SIZES), "50 or fewer"),
        (report.format_needed(Estimate(0, 0, math.inf), SIZES), "too few trainings to tell"),
        (report.format_needed(Estimate(math.inf, 0, math.inf), SIZES), "too few trainings to tell"),
        (
            report.format_needed(Estimate(math.inf, 500.0, math.inf), SIZES),
            "500 or more",
        ),
        (
            report.format_needed(Estimate(math.inf, math.inf, math.inf), SIZES),
            "not reached with 1,000",
        ),
        (report.format_cost(Cost(0, 0, 0, 0.1, (0.1, 0.1))), "$0.10"),
        (report.format_cost(Cost(0, 0, 0, 0.1, (0.1, 0.5))), "$0.10 ($0.10 to $0.50)"),
    ],
    ids=lambda text: text,
)
def test_numbers_are_written_for_people(text, expected):
    assert text == expected

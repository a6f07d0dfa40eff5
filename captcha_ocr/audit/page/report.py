"""The page of an audit: one HTML file with its figures inside."""

import base64
import math
import re
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from captcha_ocr.audit import statistics, verdict
from captcha_ocr.audit.page import figures
from captcha_ocr.audit.results import Results
from captcha_ocr.audit.solvers.trainings import NAMES
from captcha_ocr.audit.statistics import Estimate, Proportion, Score, attempts
from captcha_ocr.audit.verdict import MOSTLY, PRICE_OF_PEOPLE, SOLVED, Attack, Cost, format_money
from captcha_ocr.data.images import encode_png, open_image
from captcha_ocr.pictures.contact_sheet import Tile, draw_sheet
from captcha_ocr.system.console import counted, duration

_SHEET_ROWS, _COLOURS = 4, 64  # of the contact sheet; so few take a fifth of the bytes
_MOST_SHOWN = 1e6  # captchas, labels: beyond it the number says nothing


def keep_together(text: str) -> str:
    """Return a text that no line breaks before a percent sign, nor in an interval."""
    text = text.replace(" %", "\u00a0%")
    return re.sub(
        r"\([^()]* to [^()]*\)", lambda interval: interval[0].replace(" ", "\u00a0"), text
    )


def format_percent(share: float) -> str:
    """Return a share: 12.3 %, and more digits near 0 and 1."""
    digits = 1 if 0.01 <= share <= 0.99 or share in (0, 1) else 2
    return f"{100 * share:.{digits}f} %"


def format_number(value: float) -> str:
    """Return a number: two significant digits, below 10 two decimals."""
    if value > _MOST_SHOWN:
        return "more than a million"
    if value < 10:
        return f"{value:.2f}"
    return f"{float(f'{value:.2g}'):,.0f}"


def _with_ends(to_text: Callable[[float], str], value: float, low: float, high: float) -> str:
    """Return a value with the ends of its interval, where these show."""
    middle, least, most = map(to_text, (value, low, high))
    return middle if least == most == middle else f"{middle} ({least} to {most})"


def format_share(measured: Attack | Score | Proportion) -> str:
    """Return a share with its interval."""
    return _with_ends(format_percent, measured.share, *measured.interval)


def name_solver(attack: Attack) -> str:
    """Return the start of a solver, and what it learned from without a label."""
    if attack.images:
        return f"{NAMES[attack.start]} adapted to {attack.images:,} images"
    return NAMES[attack.start] if attack.labels else f"{NAMES[attack.start]} as it is"


def format_cost(cost: Cost) -> str:
    """Return what 1,000 solved cost, with the interval where it shows."""
    return _with_ends(format_money, cost.for_1000, *cost.interval)


def format_needed(needed: Estimate, sizes: Sequence[int]) -> str:
    """Return how many labels are needed, with the interval, as far as it was measured.

    sizes: the measured numbers of labels, in their order.
    """

    def bound(labels: float) -> str:
        if labels == 0:
            return f"fewer than {sizes[0]:,}"
        return f"more than {sizes[-1]:,}" if math.isinf(labels) else format_number(labels)

    if math.isinf(needed.low):
        return f"not reached with {sizes[-1]:,}"
    if needed.value == 0 or math.isinf(needed.value):
        if needed.low == 0 and math.isinf(needed.high):
            return "too few trainings to tell"
        if needed.value == 0:
            return bound(0) if needed.high == 0 else f"{bound(needed.high)} or fewer"
        return f"{bound(needed.low)} or more"
    return _with_ends(bound, *needed)


def measure_against(
    attack: Attack, function: Callable[..., float], to_text: Callable[[float], str], *limits: int
) -> str:
    """Return what the share that a solver reads means against limits, with its interval.

    function: of a share and the limits, rising or falling.
    """
    ends = sorted(function(share, *limits) for share in attack.interval)
    return _with_ends(to_text, function(attack.share, *limits), *ends)


_FILTERS = {
    "against": measure_against,
    "cost": format_cost,
    "cents": "{:,.2f}".format,
    "commas": "{:,}".format,
    "duration": duration,
    "needed": format_needed,
    "number": format_number,
    "percent": format_percent,
    "repr": repr,
    "share": format_share,
    "together": keep_together,
}


def render_page(results: Results, command: str) -> str:
    """Return the page. command: what repeats the audit."""
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= _FILTERS
    return environment.get_template("report.html.j2").render(
        results=results,
        key_figures=key_figures(results),
        sheet=_draw_samples(results.subject.samples),
        command=command,
        facts=verdict,
        figures=figures,
        statistics=statistics,
        names=NAMES,
        name_solver=name_solver,
        counted=counted,
        number=format_number,
        percent=format_percent,
        infinity=math.inf,
    )


def key_figures(results: Results) -> list[tuple[str, str, str]]:
    """Return labels, cost and attempts of the best solver: name, value and meaning of each."""
    best = results.best
    spread = (
        f"for each 1,000 of {SOLVED:,} solved, labels included;"
        f" people take {format_money(PRICE_OF_PEOPLE)}"
    )
    rows = [
        ("Labels", *_count_labels(results)),
        ("Cost", format_cost(best.cost), spread),
        ("Attempts", measure_against(best, attempts, format_number), "for one solved"),
    ]
    shown = []
    for name, text, meaning in rows:
        value, bracket, interval = text.partition(" (")  # the interval goes behind the meaning
        shown.append((name, value, meaning + bracket + interval))
    return shown


def _count_labels(results: Results) -> tuple[str, str]:
    """Return how many labels half of the images need, from the better start, and what that is."""
    meaning = "to read half of the images"
    for attack in results.without_labels:
        if attack.interval[0] >= MOSTLY:
            reads = f"reads {format_percent(attack.share)}"
            return "0", f"{meaning}: {name_solver(attack)} {reads}"
    halves = {start: needed[1] for start, needed in results.needed.items()}
    start = min(halves, key=lambda start: (halves[start].value, halves[start].high))
    return format_needed(halves[start], results.curves[start].sizes), meaning


def _draw_samples(samples: Sequence[tuple[str, str]]) -> str:
    """Return a contact sheet as a PNG in base64."""
    with tempfile.TemporaryDirectory() as work:
        sheet = Path(work, "sheet.png")
        draw_sheet([Tile(Path(file), "", text) for file, text in samples], sheet, rows=_SHEET_ROWS)
        data = encode_png(open_image(sheet).quantize(_COLOURS))
    return base64.b64encode(data).decode()

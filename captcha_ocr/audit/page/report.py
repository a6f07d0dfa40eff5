"""The page of an audit: one HTML file with its figures inside."""

import base64
import io
import json
import math
import re
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from PIL import Image

from captcha_ocr.audit import verdict
from captcha_ocr.audit.human_answers import HumanAnswers
from captcha_ocr.audit.page.figures import as_svg, draw_coverage, draw_effects, draw_solver_curves
from captcha_ocr.audit.results import Results
from captcha_ocr.audit.solvers.knobs import KNOBS_LEFT_OUT, Effect
from captcha_ocr.audit.solvers.trainings import NAMES
from captcha_ocr.audit.statistics import (
    Answered,
    Estimate,
    Score,
    attempts,
    solved_before_lock,
    solved_in_hour,
    solved_within,
)
from captcha_ocr.audit.verdict import (
    MOSTLY,
    PRICE_OF_PEOPLE,
    SOLVED,
    TARGETS,
    Attack,
    Cost,
    format_money,
)
from captcha_ocr.pictures.contact_sheet import Tile, draw_sheet
from captcha_ocr.system.console import counted, duration

_TEMPLATE = "report.html.j2"
_BELOW = "the table below has the numbers"
_SHEET_ROWS, _COLOURS = 4, 64  # of the contact sheet
_FAILURES = (3, 10, 100)  # in a row, that lock a solver out
_AN_HOUR = 100  # failures in an hour that OWASP's ASVS 2.2.1 allows
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


def format_share(measured: Attack | Score | Answered | HumanAnswers) -> str:
    """Return a share with its interval."""
    share, low, high = map(format_percent, (measured.share, *measured.interval))
    return f"{share} ({low} to {high})"


def format_number(value: float) -> str:
    """Return a number: two significant digits, below 10 two decimals."""
    if value > _MOST_SHOWN:
        return "more than a million"
    if value < 10:
        return f"{value:.2f}"
    return f"{float(f'{value:.2g}'):,.0f}"


def format_factor(factor: Estimate) -> str:
    """Return a factor with its interval."""
    value, low, high = map(format_number, factor)
    return f"×{value} ({low} to {high})"


def format_cost(cost: Cost) -> str:
    """Return what 1,000 solved cost, with the interval where it shows."""
    return with_ends(*map(format_money, (cost.for_1000, *cost.interval)))


def with_ends(value: str, low: str, high: str) -> str:
    """Return a value with the ends of its interval, where these differ from it."""
    if low == high == value:
        return value
    return f"{value} ({low} to {high})"


def format_needed(needed: Estimate, sizes: Sequence[int]) -> str:
    """Return how many labels are needed, with the interval, as far as it was measured.

    sizes: the measured numbers of labels, in their order.
    """
    least, most = sizes[0], sizes[-1]

    def bound(labels: float) -> str:
        if labels == 0:
            return f"fewer than {least:,}"
        if math.isinf(labels):
            return f"more than {most:,}"
        return format_number(labels)

    value, low, high = needed
    if math.isinf(value) and math.isinf(low):
        return f"not reached with {most:,}"
    if low == high:
        return bound(value)
    return f"{bound(value)} ({bound(low)} to {bound(high)})"


_FILTERS = {
    "cost": format_cost,
    "cents": "{:,.2f}".format,
    "commas": "{:,}".format,
    "duration": duration,
    "factor": format_factor,
    "money": format_money,
    "number": format_number,
    "percent": format_percent,
    "repr": repr,
    "share": format_share,
    "together": keep_together,
}


class KeyFigure(NamedTuple):
    """One of the three figures below the verdict."""

    name: str
    value: str
    meaning: str


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
    data = json.dumps(results.to_dict(), ensure_ascii=False).replace("<", "\\u003c")
    notes, divided_by = results.session.notes, None
    general, random = (results.needed[start][1].value for start in ("general", "random"))
    if 0 < general < random < math.inf:
        divided_by = random / general
    reasons = (note for note in notes if note.startswith(KNOBS_LEFT_OUT))
    return environment.get_template(_TEMPLATE).render(
        results=results,
        figures=key_figures(results),
        sheet=_draw_samples(results.subject.samples),
        plots=_draw_plots(results),
        needs=_list_needs(results),
        divided_by=divided_by,
        limits=_list_limits(results.best),
        knobs_left_out=next(reasons, None),
        hardest=_find_hardest(results),
        command=command,
        data=data,
        facts=verdict,
        names=NAMES,
        counted=counted,
    )


def key_figures(results: Results) -> list[KeyFigure]:
    """Return labels, cost and attempts of the best solver."""
    low, high = (format_number(attempts(share)) for share in reversed(results.best.interval))
    tries = f"{format_number(attempts(results.best.share))} ({low} to {high})"
    people = f"people take {format_money(PRICE_OF_PEOPLE)}"
    spread = f"for each 1,000 of {SOLVED:,} solved, labels included; {people}"
    return [
        _count_labels(results),
        _make_figure("Cost", format_cost(results.best.cost), spread),
        _make_figure("Attempts", tries, "for one solved"),
    ]


def _count_labels(results: Results) -> KeyFigure:
    """Return how many labels half of the images need, from the better start."""
    meaning = "to read half of the images"
    zero = results.attacks[0]
    if zero.interval[0] >= MOSTLY:
        reads = f"{NAMES['general']} reads {format_percent(zero.share)} as it is"
        return KeyFigure("Labels", "0", f"{meaning}: {reads}")
    halves = {start: needed[1] for start, needed in results.needed.items()}
    start = min(halves, key=lambda start: (halves[start].value, halves[start].high))
    needed = format_needed(halves[start], results.curves[start].sizes)
    return _make_figure("Labels", needed, meaning)


def _make_figure(name: str, value: str, meaning: str) -> KeyFigure:
    """Put the interval of a value behind its meaning."""
    value, bracket, interval = value.partition(" (")
    return KeyFigure(name, value, meaning + bracket + interval)


def _draw_samples(samples: Sequence[tuple[str, str]]) -> str:
    with tempfile.TemporaryDirectory() as work:
        path = Path(work, "sheet.png")
        tiles = [Tile(Path(file), "", text) for file, text in samples]
        draw_sheet(tiles, path, rows=_SHEET_ROWS)
        stream = io.BytesIO()
        with Image.open(path) as image:
            image.quantize(_COLOURS).save(stream, "PNG")  # a fifth of the bytes
    return base64.b64encode(stream.getvalue()).decode()


def _draw_plots(results: Results) -> dict[str, str]:
    curves = draw_solver_curves(results.curves, results.attacks[0].share)
    plots = {"curves": as_svg(curves, f"Images read against labels; {_BELOW}")}
    coverage = draw_coverage(results.coverage.rows)
    plots["coverage"] = as_svg(coverage, f"Right answers against images answered; {_BELOW}")
    if results.knobs is not None:
        effects = draw_effects(results.knobs.effects)
        plots["effects"] = as_svg(effects, f"Factors on the labels needed; {_BELOW}")
    return plots


def _list_needs(results: Results) -> list[list[str]]:
    """Return for each start its name, and the labels needed for each of TARGETS."""
    zero, rows = results.attacks[0], []
    for start, curve in results.curves.items():
        row = [NAMES[start]]
        for target, needed in zip(TARGETS, results.needed[start], strict=True):
            is_read = start == zero.start and zero.share >= target
            row.append("0" if is_read else format_needed(needed, curve.sizes))
        rows.append(row)
    return rows


def _list_limits(best: Attack) -> list[tuple[str, str]]:
    """Return what the share of a solver means against limits."""

    def show(function: Callable[[float], float], to_text: Callable[[float], str]) -> str:
        low, high = sorted(map(function, best.interval))
        return with_ends(*map(to_text, (function(best.share), low, high)))

    rows = [
        ("captchas tried for one solved", show(attempts, format_number)),
        ("solves at least one of 3", show(partial(solved_within, tries=3), format_percent)),
    ]
    for failures in _FAILURES:
        value = show(partial(solved_before_lock, failures=failures), format_number)
        rows.append((f"solved before {failures} failures in a row lock it out", value))
    hour = show(partial(solved_in_hour, failures=_AN_HOUR), format_number)
    rows.append((f"solved in an hour that allows {_AN_HOUR} failures", hour))
    return rows


def _find_hardest(results: Results) -> Effect | None:
    """Return the knob that costs an attacker most; None if none costs more for sure."""
    effects = results.knobs.effects if results.knobs else ()
    hard = [effect for effect in effects if effect.factor.low > 1]
    return max(hard, key=lambda effect: effect.factor.low, default=None)

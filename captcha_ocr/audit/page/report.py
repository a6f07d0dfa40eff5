"""The page of an audit: one HTML file with its figures inside."""

import base64
import io
import json
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from PIL import Image

from captcha_ocr.audit import verdict
from captcha_ocr.audit.page.figures import as_svg, draw_coverage, draw_curves, draw_effects
from captcha_ocr.audit.page.formats import (
    format_cost,
    format_factor,
    format_needed,
    format_number,
    format_percent,
    format_share,
    keep_together,
    with_ends,
)
from captcha_ocr.audit.results import Results
from captcha_ocr.audit.solvers.knob_trainings import KNOBS_LEFT_OUT
from captcha_ocr.audit.solvers.knobs import Effect
from captcha_ocr.audit.solvers.trainings import NAMES
from captcha_ocr.audit.statistics import attempts, solved_before_lock, solved_in_hour, solved_within
from captcha_ocr.audit.verdict import MOSTLY, PRICE_OF_PEOPLE, SOLVED, TARGETS, Attack, format_money
from captcha_ocr.pictures.contact_sheet import Tile, draw_sheet
from captcha_ocr.system.console import counted, duration

_TEMPLATE = "report.html.j2"
_SHEET_ROWS, _COLOURS = 4, 64  # of the contact sheet
_FAILURES = (3, 10, 100)  # in a row, that lock a solver out
_AN_HOUR = 100  # failures in an hour that OWASP's ASVS 2.2.1 allows
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
    return environment.get_template(_TEMPLATE).render(
        results=results,
        figures=key_figures(results),
        sheet=_draw_samples(results.subject.samples),
        plots=_draw_plots(results),
        needs=_list_needs(results),
        divided_by=_divide_labels(results),
        limits=_list_limits(results.best),
        knobs_left_out=_find_reason(results.session.notes),
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
    """Return a contact sheet as a PNG in base64."""
    with tempfile.TemporaryDirectory() as work:
        path = Path(work, "sheet.png")
        tiles = [Tile(Path(file), "", text) for file, text in samples]
        draw_sheet(tiles, path, rows=_SHEET_ROWS)
        stream = io.BytesIO()
        with Image.open(path) as image:
            image.quantize(_COLOURS).save(stream, "PNG")  # a fifth of the bytes
    return base64.b64encode(stream.getvalue()).decode()


def _draw_plots(results: Results) -> dict[str, str]:
    """Return the plots as SVG."""
    curves = draw_curves(results.curves, results.attacks[0].share)
    coverage = draw_coverage(results.coverage.rows)
    plots = {
        "curves": as_svg(curves, "Images read against labels; the table below has the numbers"),
        "coverage": as_svg(
            coverage, "Right answers against images answered; the table below has the numbers"
        ),
    }
    if results.knobs is not None:
        effects = draw_effects(results.knobs.effects)
        title = "Factors on the labels needed; the table below has the numbers"
        plots["effects"] = as_svg(effects, title)
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


def _divide_labels(results: Results) -> float | None:
    """Return by what the start from a model divides the labels for half of the images."""
    general, random = (results.needed[start][1].value for start in ("general", "random"))
    if 0 < general < random < float("inf"):
        return random / general
    return None


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


def _find_reason(notes: Sequence[str]) -> str | None:
    """Return why the knobs were not measured."""
    return next((note for note in notes if note.startswith(KNOBS_LEFT_OUT)), None)


def _find_hardest(results: Results) -> Effect | None:
    """Return the knob that costs an attacker most; None if none costs more for sure."""
    effects = results.knobs.effects if results.knobs else ()
    hard = [effect for effect in effects if effect.factor.low > 1]
    return max(hard, key=lambda effect: effect.factor.low, default=None)

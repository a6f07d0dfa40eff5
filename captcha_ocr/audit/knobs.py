"""The knobs of a design: their levels, the settings to measure, and what each does to the labels that are needed."""

import hashlib
import json
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from captcha_ocr.audit.statistics import (
    Curve,
    Estimate,
    Reached,
    bounded,
    confounded_pairs,
    factor_on_labels,
    log_factor,
    logit,
    main_effects,
    screening_design,
)
from captcha_ocr.errors import UsageError, check

MOST_ALONE = 4  # knobs that are changed one at a time; more share the runs of a screening design
MOST_KNOBS = 8
KNOBS_LEFT_OUT = "Not measured: knobs"  # how the reason begins
TESTED = 500  # images, of each setting and draw
WISHED = (
    0.6  # exact match of the base at the number of labels where knobs are compared: neither 0 nor 1
)

Knobs = Mapping[str, Sequence[Any]]


@dataclass(frozen=True)
class Setting:
    """Levels of all knobs; label: how people call it, in a screening design the knobs at their last level."""

    label: str
    levels: Mapping[str, Any]

    @property
    def name(self) -> str:
        """A name for its files."""
        return (
            "knobs-"
            + hashlib.sha256(json.dumps(dict(self.levels), sort_keys=True).encode()).hexdigest()[:8]
        )


@dataclass(frozen=True)
class Effect:
    """What a change of a knob does: by what factor it multiplies the labels that are needed."""

    knob: str
    change: str
    factor: Estimate


def read_knobs(path: Path) -> dict[str, list[Any]]:
    """Read a TOML file: in [knobs], the levels of each knob, the present one first. UsageError that names the file."""
    try:
        document = tomllib.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise UsageError(f"{path} is not a TOML file: {error}") from None
    knobs = document.get("knobs", {})
    check(isinstance(knobs, dict) and bool(knobs), f"{path} has no table [knobs]")
    flat = dict(flattened(knobs))
    for name, levels in flat.items():
        fits = (
            isinstance(levels, list)
            and len({json.dumps(level, default=str) for level in levels}) >= 2
        )
        check(fits, f"{path}: {name} needs a list of two levels or more, the present one first")
    check(
        len(flat) <= MOST_KNOBS,
        f"{path} has {len(flat)} knobs; {MOST_KNOBS} are the most that are measured",
    )
    return flat


def flattened(table: Mapping[str, Any], before: str = "") -> list[tuple[str, Any]]:
    """Return the leaves of nested tables with dotted names: TOML reads text.spacing as a table."""
    rows: list[tuple[str, Any]] = []
    for name, value in table.items():
        rows += (
            flattened(value, f"{before}{name}.")
            if isinstance(value, dict)
            else [(before + name, value)]
        )
    return rows


def settings_of(knobs: Knobs) -> list[Setting]:
    """Return the settings to measure: the base and one change at a time, or the runs of a screening design."""
    base = {name: levels[0] for name, levels in knobs.items()}
    if len(knobs) > MOST_ALONE:
        runs = screening_design(len(knobs))
        both = [(levels[0], levels[-1]) for levels in knobs.values()]
        rows = [
            {name: two[int(side > 0)] for name, two, side in zip(knobs, both, run, strict=True)}
            for run in runs
        ]
        last = [[name for name, side in zip(knobs, run, strict=True) if side > 0] for run in runs]
        return [
            Setting(", ".join(names) or "none", row) for names, row in zip(last, rows, strict=True)
        ]
    changes = [(name, level) for name, levels in knobs.items() for level in levels[1:]]
    return [
        Setting("base", base),
        *(Setting(f"{name} = {level}", {**base, name: level}) for name, level in changes),
    ]


def where_to_compare(curves: Mapping[str, Curve]) -> tuple[str, int]:
    """Return the start and the number of labels with which knobs are compared: the exact match is far from 0 and 1.

    A curve that passes WISHED goes first: only on both sides of it can a factor on labels be read off.
    """
    passing = {
        start: curve
        for start, curve in curves.items()
        if curve.scores[0].share < WISHED < curve.scores[-1].share
    }
    measured = [
        (start, score) for start, curve in (passing or curves).items() for score in curve.scores
    ]
    start, score = min(
        measured, key=lambda each: abs(logit(min(max(each[1].share, 1e-4), 0.9999)) - logit(WISHED))
    )
    return start, score.labels


def effects_alone(knobs: Knobs, curve: Curve, reached: Sequence[Sequence[Reached]]) -> list[Effect]:
    """Return the effect of each change, alone. reached: (settings, draws), as `settings_of`."""
    names = [
        (name, str(levels[0]), str(level)) for name, levels in knobs.items() for level in levels[1:]
    ]
    return [
        Effect(name, f"{before} → {after}", factor_on_labels(curve, reached[0], row))
        for row, (name, before, after) in zip(reached[1:], names, strict=True)
    ]


def effects_together(
    knobs: Knobs, curve: Curve, reached: Sequence[Sequence[Reached]]
) -> list[Effect]:
    """Return the main effects of a screening design. reached: (runs, draws)."""
    logs = np.array([[log_factor(curve, each) for each in row] for row in reached])
    estimates = main_effects(screening_design(len(knobs)), logs)
    return [
        Effect(
            name, f"{levels[0]} → {levels[-1]}", Estimate(*map(float, np.exp(bounded(estimate))))
        )
        for (name, levels), estimate in zip(knobs.items(), estimates, strict=True)
    ]


def confounded(knobs: Knobs) -> list[str]:
    """Return which pairs of knobs a screening design cannot tell apart, a line for each group."""
    names = list(knobs)
    groups = confounded_pairs(screening_design(len(knobs)))
    return [
        " = ".join(f"{names[first]} × {names[second]}" for first, second in group)
        for group in groups
    ]

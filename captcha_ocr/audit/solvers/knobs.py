"""The knobs of a captcha: their levels, the settings to measure, and what each does to the labels.

An effect is a factor on the labels that a solver needs.
"""

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
    confounded_pairs,
    exp_estimate,
    factor_on_labels,
    log_factor,
    logit,
    main_effects,
    screening_design,
)
from captcha_ocr.errors import UsageError, check

MOST_ALONE = 4  # knobs that are changed one at a time; more share a screening design
_MOST_KNOBS = 8
_WISHED = 0.6  # exact match of the base where knobs are compared: neither 0 nor 1

Knobs = Mapping[str, Sequence[Any]]


@dataclass(frozen=True)
class Setting:
    """Levels of all knobs; label: in a screening design, the knobs at their last level."""

    label: str
    levels: Mapping[str, Any]

    @property
    def name(self) -> str:
        """A name for its files."""
        text = json.dumps(dict(self.levels), sort_keys=True)
        return f"knobs-{hashlib.sha256(text.encode()).hexdigest()[:8]}"


@dataclass(frozen=True)
class Effect:
    """What a change of a knob does: by what factor it multiplies the labels that are needed."""

    knob: str
    change: str
    factor: Estimate


def read_knobs(path: Path) -> dict[str, list[Any]]:
    """Read the levels of each knob, the present one first, from [knobs] of a TOML file.

    UsageError that names the file.
    """
    try:
        document = tomllib.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise UsageError(f"{path} is not a TOML file: {error}") from None
    table = document.get("knobs", {})
    check(isinstance(table, dict) and bool(table), f"{path} has no table [knobs]")
    knobs = _flatten(table)
    for name, levels in knobs.items():
        message = f"{path}: {name} needs a list of two levels or more, the present one first"
        check(isinstance(levels, list), message)
        check(len({json.dumps(level, default=str) for level in levels}) >= 2, message)
    count = f"{path} has {len(knobs)} knobs"
    check(len(knobs) <= _MOST_KNOBS, f"{count}; {_MOST_KNOBS} are the most that are measured")
    return knobs


def _flatten(table: Mapping[str, Any], before: str = "") -> dict[str, Any]:
    """Return the leaves of nested tables with dotted names: TOML reads text.spacing as a table."""
    leaves: dict[str, Any] = {}
    for name, value in table.items():
        if isinstance(value, dict):
            leaves |= _flatten(value, f"{before}{name}.")
        else:
            leaves[before + name] = value
    return leaves


def list_settings(knobs: Knobs) -> list[Setting]:
    """Return the settings to measure.

    The base and one change at a time, or the runs of a screening design.
    """
    base = {name: levels[0] for name, levels in knobs.items()}
    if len(knobs) <= MOST_ALONE:
        changes = [
            Setting(f"{name} = {level}", {**base, name: level})
            for name, level in _list_changes(knobs)
        ]
        return [Setting("base", base), *changes]
    settings = []
    for run in screening_design(len(knobs)):
        changed = [name for name, side in zip(knobs, run, strict=True) if side > 0]
        last = {name: knobs[name][-1] for name in changed}
        settings.append(Setting(", ".join(changed) or "none", base | last))
    return settings


def _list_changes(knobs: Knobs) -> list[tuple[str, Any]]:
    return [(name, level) for name, levels in knobs.items() for level in levels[1:]]


def where_to_compare(curves: Mapping[str, Curve]) -> tuple[str, int]:
    """Return the start and the number of labels where the exact match is far from 0 and 1.

    A curve that passes _WISHED goes first: only on both sides of it can a factor on labels be read
    off.
    """
    passing = {
        start: curve
        for start, curve in curves.items()
        if curve.scores[0].share < _WISHED < curve.scores[-1].share
    }
    distances = []
    for start, curve in (passing or curves).items():
        for score in curve.scores:
            odds = logit(min(max(score.share, 1e-4), 0.9999))
            distances.append((abs(odds - logit(_WISHED)), start, score.labels))
    _, start, labels = min(distances, key=lambda row: row[0])
    return start, labels


def effects_alone(knobs: Knobs, curve: Curve, reached: Sequence[Sequence[Reached]]) -> list[Effect]:
    """Return the effect of each change, alone. reached: (settings, draws), as `list_settings`."""
    effects = []
    for row, (name, level) in zip(reached[1:], _list_changes(knobs), strict=True):
        factor = factor_on_labels(curve, reached[0], row)
        effects.append(Effect(name, f"{knobs[name][0]} → {level}", factor))
    return effects


def effects_together(
    knobs: Knobs, curve: Curve, reached: Sequence[Sequence[Reached]]
) -> list[Effect]:
    """Return the main effects of a screening design. reached: (runs, draws)."""
    logs = np.array([[log_factor(curve, draw) for draw in row] for row in reached])
    estimates = main_effects(screening_design(len(knobs)), logs)
    return [
        Effect(name, f"{levels[0]} → {levels[-1]}", exp_estimate(estimate))
        for (name, levels), estimate in zip(knobs.items(), estimates, strict=True)
    ]


def confounded(knobs: Knobs) -> list[str]:
    """Return which pairs of knobs a screening design cannot tell apart, a line for each group."""
    names, lines = list(knobs), []
    for group in confounded_pairs(screening_design(len(knobs))):
        pairs = [f"{names[first]} × {names[second]}" for first, second in group]
        lines.append(" = ".join(pairs))
    return lines

"""The learning curves of an audit: more and more labels, as long as they tell something and fit."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from statistics import mean

from captcha_ocr.audit.solvers.trainings import (
    DRAWS,
    NAMES,
    SIZES,
    STARTS,
    LabelPool,
    TimeBudget,
    Training,
)
from captcha_ocr.audit.statistics import Curve, Score
from captcha_ocr.audit.verdict import Attack
from captcha_ocr.system.console import duration, say

_ENOUGH = 0.98  # exact match of a solver, from which more labels are left out


def measure_curves(
    pool: LabelPool, budget: TimeBudget, largest: int
) -> tuple[dict[str, Curve], list[Attack]]:
    """Train on labels of a pool, and test on its others.

    Return the curve of each start, and every solver. largest: the most labels of a training.
    """
    images = len(pool.labels)
    allowed = [size for size in SIZES if size <= largest]
    sizes = [size for size in allowed if size <= images]
    if sizes != allowed:
        more = allowed[len(sizes)]
        budget.leave_out(f"{more:,} labels or more; {images:,} images are left to learn from")
    budget.run([Training(pool, start, sizes[0], 0) for start in STARTS])  # tells their speed
    _tell_plan(pool, budget, sizes)
    starts = [*STARTS]
    scores: dict[str, list[Score]] = {start: [] for start in starts}
    attacks: dict[str, list[Attack]] = {start: [] for start in starts}
    for size in sizes:
        if size > sizes[0]:
            shares = {start: scores[start][-1].share for start in starts}
            starts = _choose_starts(pool, budget, size, shares)
        budget.run(_list_draws(pool, size, starts))
        for start in starts:
            results = [budget.trained[draw.name] for draw in _list_draws(pool, size, [start])]
            seconds = mean(result.seconds for result in results)
            score = Score(size, tuple(result.right for result in results), results[0].tested)
            scores[start].append(score)
            attacks[start].append(Attack(start, size, score.share, score.interval, seconds))
    solvers = [*chain.from_iterable(attacks.values())]
    most = max(solver.labels for solver in solvers)
    if most > images / 2:
        budget.notes.append(
            f"Draws of {most:,} labels are of the same {images:,} images and share most of them:"
            " other labels may differ by more than the interval says."
        )
    return {start: Curve(tuple(rows)) for start, rows in scores.items()}, solvers


def _list_draws(pool: LabelPool, size: int, starts: Iterable[str]) -> list[Training]:
    return [Training(pool, start, size, draw) for draw in range(DRAWS) for start in starts]


def _tell_plan(pool: LabelPool, budget: TimeBudget, sizes: Sequence[int]) -> None:
    """Tell which numbers of labels fit into the budget, and how long they take."""

    def expect_s(sizes: Sequence[int]) -> float:
        return budget.expected_s([draw for n in sizes for draw in _list_draws(pool, n, STARTS)])

    ends = range(1, len(sizes) + 1)
    fitting = sizes[: sum(expect_s(sizes[:end]) <= budget.left for end in ends) or 1]
    plan = f"{duration(expect_s(fitting))} for {', '.join(map('{:,}'.format, fitting))} labels"
    plan += f", {DRAWS} draws of each"
    if len(fitting) < len(sizes):
        plan += f"; the budget is too short for {sizes[len(fitting)]:,}"
    say(f"expected   {plan}", budget.quiet)


def _choose_starts(
    pool: LabelPool, budget: TimeBudget, size: int, shares: Mapping[str, float]
) -> list[str]:
    """Return the starts from which more labels tell something, and fit into the budget.

    shares: what solvers of each start read that learned from fewer labels.
    """
    useful = []
    for start, share in shares.items():
        if share < _ENOUGH:
            useful.append(start)
        else:
            budget.leave_out(
                f"{size:,} labels or more, from {NAMES[start]};"
                " with fewer, a solver reads nearly all"
            )

    def expect_s(starts: Sequence[str]) -> float:
        return budget.expected_s(_list_draws(pool, size, starts))

    while expect_s(useful) > budget.left:
        slowest = max(useful, key=lambda start: expect_s([start]))
        rest = [start for start in useful if start != slowest]
        budget.leave_out(
            f"{size:,} labels or more, from {NAMES[slowest]}: that takes about"
            f" {duration(expect_s(useful) - expect_s(rest))} more,"
            f" and the budget has {duration(budget.left)} left"
        )
        useful = rest
    return useful

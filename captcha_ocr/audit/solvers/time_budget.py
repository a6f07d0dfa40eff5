"""The time of an audit: what is spent, what the rest will take, and what no longer fits."""

import heapq
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from captcha_ocr.audit.solvers.trainings import Runner, Trained, Training
from captcha_ocr.errors import check
from captcha_ocr.system.console import duration, say
from captcha_ocr.system.documents import read_json, to_json
from captcha_ocr.system.files import write_atomic

_STATE_FILE = "audit.json"
_RESERVED = 0.05  # of the budget, for reading images and for the page
_OVERHEAD_S = 8.0  # of a training: two processes start, and decode images
_MARGIN = 1.1  # by which a block may take longer than it seems


class TimeBudget:
    """Runs trainings as long as the budget lasts; the time of earlier sessions counts.

    identity: what must not change when an audit goes on; UsageError if `out` holds another one.
    """

    def __init__(
        self, out: Path, runner: Runner, budget_s: float, identity: dict[str, Any], quiet: bool
    ) -> None:
        self.runner, self.budget_s, self.quiet = runner, budget_s, quiet
        self.trained: dict[str, Trained] = {}
        self.rates: dict[str, float] = {}  # seconds for each image that a training shows
        self._path = out / _STATE_FILE
        self._identity = json.loads(json.dumps(identity))
        self._spent_before, self._started = 0.0, time.monotonic()
        if self._path.exists():
            state = read_json(self._path)
            what = f"{out} holds another audit (its images, seed or knobs differ)"
            check(state.get("options") == self._identity, f"{what}; choose another `out`")
            self._spent_before = float(state["spent"])

    @property
    def spent(self) -> float:
        """Seconds since the first start; those between sessions do not count."""
        return self._spent_before + time.monotonic() - self._started

    @property
    def left(self) -> float:
        """Seconds that are left for trainings, 0 or more: what has finished always fits."""
        return max(0.0, self.budget_s * (1 - _RESERVED) - self.spent)

    def save(self) -> None:
        """Keep the time that was spent."""
        state = {"options": self._identity, "spent": self.spent}
        write_atomic(self._path, to_json(state), durable=False)

    def expected_s(self, trainings: Sequence[Training]) -> float:
        """Return how long trainings take, side by side, by the speed of those that have ended."""
        ends = [0.0] * self.runner.workers
        for training in self._sort_slowest_first(trainings):
            if training.name not in self.trained:
                seconds = training.cost * self.rates[training.start] + _OVERHEAD_S
                heapq.heapreplace(ends, ends[0] + seconds)
        return _MARGIN * max(ends)

    def _sort_slowest_first(self, trainings: Sequence[Training]) -> list[Training]:
        """Return trainings in the order in which several side by side end soonest."""
        return sorted(
            trainings, key=lambda training: -training.cost * self.rates.get(training.start, 1.0)
        )

    def fits(self, trainings: Sequence[Training]) -> bool:
        """Tell whether trainings end within the budget; those that have finished take no time."""
        return self.expected_s(self.unfinished(trainings)) <= self.left

    def unfinished(self, trainings: Sequence[Training]) -> list[Training]:
        """Return the trainings that have no result yet."""
        return [training for training in trainings if self.runner.result(training) is None]

    def run(self, trainings: Sequence[Training]) -> list[Trained]:
        """Run trainings, and return what each gave, in their order."""
        try:
            self.runner.run(self._sort_slowest_first(trainings), self._keep)
        finally:
            self.save()  # an interruption, too: the time until then counts
        return [self.trained[training.name] for training in trainings]

    def _keep(self, training: Training, result: Trained) -> None:
        self.rates[training.start] = result.seconds / training.cost
        if training.name not in self.trained:
            scores = f"{result.right:,} of {result.tested:,}, {duration(result.seconds)}"
            say(f"{training.name:32} {scores}", self.quiet)
        self.trained[training.name] = result
        self.save()

"""Train again for each setting of the knobs, since an attacker adapts, and compare with the base."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from captcha_ocr.audit.knobs import (
    KNOBS_LEFT_OUT,
    MOST_ALONE,
    TESTED,
    Knobs,
    Setting,
    confounded,
    effects_alone,
    effects_together,
    settings_of,
    where_to_compare,
)
from captcha_ocr.audit.readings import readings
from captcha_ocr.audit.schedule import Schedule
from captcha_ocr.audit.sources import Source
from captcha_ocr.audit.statistics import Curve, Reached
from captcha_ocr.audit.trainings import DRAWS, SIZES, Training
from captcha_ocr.data.labels import find_labels
from captcha_ocr.recognizer import Recognizer
from captcha_ocr.system.console import counted, duration, say

FEWEST_DRAWS = (
    2  # of changes one at a time; in a screening design the settings themselves show the spread
)
LEAST_SHARE = 0.02  # that the base must read, to be compared
LEAST_READ = 0.5  # of a setting; with less, it gets more labels


class KnobMeasurement:
    """Trains for each setting, with the same texts and seeds.

    All settings begin with the same number of labels; one that is read less than half then gets more, as far as the
    budget goes: where a solver reads next to nothing, the labels that it needs cannot be compared.
    """

    def __init__(
        self,
        source: Source,
        knobs: Knobs,
        images: Path,
        schedule: Schedule,
        seed: int,
        largest: int,
    ) -> None:
        self.source, self.knobs, self.images, self.schedule, self.seed = (
            source,
            knobs,
            images,
            schedule,
            seed,
        )
        self.settings = settings_of(knobs)
        self.is_alone = len(knobs) <= MOST_ALONE
        self.fewest = FEWEST_DRAWS if self.is_alone else 1
        self.largest = largest
        self.failures = 0
        self.start = ""
        self.draw_s = 0.0  # seconds that an image takes to draw

    def run(self, curves: Mapping[str, Curve]) -> dict[str, Any] | str:
        """Return the effects as JSON types, or why there are none."""
        self.start, size = where_to_compare(curves)
        curve = curves[self.start]
        if max(score.share for score in curve.scores) < LEAST_SHARE:
            return f"{KNOBS_LEFT_OUT}, since a solver reads too little even before a change."
        sizes = [size] * len(self.settings)
        draws: list[list[Training]] = []
        while len(draws) < DRAWS and self.fits(sizes, len(draws)):
            row = self.train(sizes, len(draws))
            draws.append(row if draws else self.with_enough_labels(row))
            sizes = [training.size for training in draws[0]]
        if len(draws) < self.fewest:
            what = f"{counted(self.fewest, 'draw')} of {len(self.settings)} settings"
            return f"{KNOBS_LEFT_OUT}; the budget is too short for {what}."
        return self.effects(curve, draws)

    def with_enough_labels(self, row: list[Training]) -> list[Training]:
        """Train those settings that are read too little with more labels, while that fits; returns the trainings."""
        sizes = [training.size for training in row]
        more = [self.larger(training) for training in row]
        return (
            self.with_enough_labels(self.train(more, 0))
            if more != sizes and self.fits(more, 0)
            else row
        )

    def fits(self, sizes: Sequence[int], draw: int) -> bool:
        """Tell whether a draw with so many labels ends within the budget, and those after it without which it is void.

        Trainings that have finished take no time.
        """
        seconds = sum(
            self.expected_s(sizes, each) for each in range(draw, max(draw + 1, self.fewest))
        )
        fits = seconds <= self.schedule.left
        if not fits:
            most, left = max(sizes), duration(self.schedule.left)
            what = f"draw {draw + 1} of the knobs with up to {most:,} labels would take about {duration(seconds)}"
            say(f"left out   {what}, and the budget has {left} left", self.schedule.quiet)
        return fits

    def expected_s(self, sizes: Sequence[int], draw: int) -> float:
        """Return how long the trainings of a draw take, with drawing."""
        all_of_them = [self.place(*each, draw) for each in zip(self.settings, sizes, strict=True)]
        new = self.schedule.unfinished(all_of_them)
        return self.schedule.expected_s(new) + self.draw_s * sum(
            training.size + TESTED for training in new
        )

    def train(self, sizes: Sequence[int], draw: int) -> list[Training]:
        """Draw the images of all settings, and train on them; returns the trainings."""
        started, images, row = time.monotonic(), 0, []
        for setting, size in zip(self.settings, sizes, strict=True):
            training = self.place(setting, size, draw)
            if not training.images.exists():
                images += size + TESTED
            self.failures += self.source.draw(
                training.images, size + TESTED, self.draw_seed(draw), setting.levels
            )
            labels = find_labels(training.images).check().labels
            row.append(replace(training, labels=tuple(labels[:size]), tested=tuple(labels[size:])))
        self.draw_s = (time.monotonic() - started) / images if images else self.draw_s
        self.schedule.run(row)
        return row

    def place(self, setting: Setting, size: int, draw: int) -> Training:
        """Return a training without its labels."""
        folder = self.images / f"{setting.name}-{size}-{draw}"
        return Training(folder, (), (), self.start, size, draw, self.seed, setting.name)

    def draw_seed(self, draw: int) -> int:
        """Return the seed of the images of a draw."""
        return 1000 * self.seed + draw + 1

    def larger(self, training: Training) -> int:
        """Return the number of labels that a setting needs, for a solver to read some of it."""
        result = self.schedule.trained[training.name]
        next_size = next((size for size in SIZES if size > training.size), training.size)
        is_enough = result.right >= LEAST_READ * result.tested or next_size > self.largest
        return training.size if is_enough else next_size

    def effects(self, curve: Curve, draws: list[list[Training]]) -> dict[str, Any]:
        """Return what the knobs do, as JSON types. draws: (draws, settings)."""
        results = [[self.schedule.trained[each.name] for each in row] for row in draws]
        reached = [
            [
                Reached(draws[0][number].size, row[number].right / row[number].tested)
                for row in results
            ]
            for number in range(len(self.settings))
        ]
        if self.is_alone:
            found = effects_alone(self.knobs, curve, reached)
        else:
            found = effects_together(self.knobs, curve, reached)
        settings = [
            {
                "label": setting.label,
                "labels": row[0].labels,
                "shares": [each.share for each in row],
                "fixed": fixed,
            }
            for setting, row, fixed in zip(self.settings, reached, self.fixed(draws), strict=True)
        ]
        return {
            "start": self.start,
            "draws": len(draws),
            "settings": settings,
            "effects": [asdict(effect) for effect in found],
            "confounded": [] if self.is_alone else confounded(self.knobs),
        }

    def fixed(self, draws: list[list[Training]]) -> list[float]:
        """Return how much of each setting the solvers read that learned the base."""
        sums = [0.0] * len(self.settings)
        for row in draws:
            reader = Recognizer(self.schedule.runner.folder(row[0]) / "run")
            for number, training in enumerate(row):
                judged = readings(reader, training.images, training.tested)
                sums[number] += sum(is_right for _, is_right in judged) / len(judged) / len(draws)
        return sums

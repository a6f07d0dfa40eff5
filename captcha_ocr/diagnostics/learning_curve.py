"""How accuracy grows with the number of images, and how many more would be needed: the second is an extrapolation."""

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from itertools import takewhile
from pathlib import Path

import numpy as np

from captcha_ocr.config import TrainConfig
from captcha_ocr.data.shards import read_dataset
from captcha_ocr.errors import check
from captcha_ocr.metrics import wilson_interval
from captcha_ocr.system.console import counted, say
from captcha_ocr.system.documents import sealed
from captcha_ocr.system.files import write_atomic, writing_to
from captcha_ocr.training.run import TrainOptions
from captcha_ocr.training.train import train

STEPS = tuple(digit * 10**power for power in range(2, 8) for digit in (1, 3))  # 100, 300, 1,000, …
TARGETS = (0.95, 0.99)
LEARNING = 0.2  # exact match, below which a network has not begun to learn and tells nothing of how it goes on
FURTHEST = 100  # times the largest number of images: beyond that nothing is said
RESULT_FILE, PICTURE_FILE, RESULT_FORMAT = "curve.json", "curve.png", "captcha-ocr curve"


@dataclass(frozen=True)
class Point:
    """What a number of training images led to: how many of the test images were read exactly."""

    images: int
    exact: int
    tested: int

    @property
    def exact_match(self) -> float:
        """The share that was read exactly, 0 to 1."""
        return self.exact / self.tested

    @property
    def interval(self) -> tuple[float, float]:
        """Its 95 % interval."""
        return wilson_interval(self.exact, self.tested)


@dataclass(frozen=True)
class Law:
    """The error as factor * images ** -power (Hestness et al. 2017, arXiv:1712.00409)."""

    factor: float
    power: float

    def exact_match(self, images: float) -> float:
        """What is to be expected of so many images, 0 to 1."""
        return 1 - min(1.0, self.factor * math.pow(images, -self.power))

    def images_for(self, exact_match: float) -> float:
        """How many images an exact match asks for."""
        return math.pow(self.factor / (1 - exact_match), 1 / self.power)


def learning_curve(
    data: Path,
    out: Path,
    recipe: Callable[[int], TrainConfig],
    numbers: Sequence[int] = (),
    options: TrainOptions = TrainOptions(),
) -> list[Point]:
    """Train on the first 100, 300, 1,000, … images of the shards in `data`, or `numbers` of them, and test each time.

    recipe: returns the training for a number of images. The run folders are `out`/images-100 …; finished runs are left
    as they are. Writes curve.json and curve.png to `out`.
    """
    from captcha_ocr.training.plots import draw_learning_curve

    dataset = read_dataset([data])
    available = dataset.count("train")
    check(dataset.count("test") > 0, f"{data} has no test set")
    numbers = sorted(set(numbers)) or [*takewhile(lambda number: number < available, STEPS), available]
    check(numbers[-1] <= available, f"{data} has only {counted(available, 'image')} to train on")
    points = []
    with writing_to(out):
        for number in numbers:
            config = recipe(number)
            finished = train([data], out / f"images-{number}", config, options)
            assert finished.test is not None, "there is a test set"
            points.append(Point(number, finished.test["exact"], finished.test["images"]))
            say(f"curve      {in_words(points[-1])}", options.quiet)
        law = fit(points)
        found = {"points": [asdict(point) for point in points], "law": None if law is None else asdict(law)}
        write_atomic(out / RESULT_FILE, sealed({"format": RESULT_FORMAT, "version": 1, **found}))
        marks = [(point.images, point.exact_match, point.interval) for point in points]
        draw_learning_curve(marks, None if law is None else law.exact_match, TARGETS, out / PICTURE_FILE)
    return points


def fit(points: Sequence[Point]) -> Law | None:
    """The law that fits the points best, or None where they show none: too few of them, or no gain from more images.

    A line through the logarithms, each weighed by the number of errors, from which the precision of its own follows.
    """
    usable = [point for point in points if point.exact_match >= LEARNING]
    if len(usable) < 2:
        return None
    # Half an error more each time, for none at all has no logarithm.
    errors = np.array([point.tested - point.exact + 0.5 for point in usable])
    shares = errors / np.array([point.tested + 1 for point in usable])
    slope, height = np.polyfit(np.log([point.images for point in usable]), np.log(shares), 1, w=np.sqrt(errors))
    return Law(math.exp(height), -float(slope)) if slope < -0.05 else None


def in_words(point: Point) -> str:
    """A point in one line."""
    low, high = point.interval
    return (
        f"{point.images:7,} images  {point.exact_match:7.2%} exact of {point.tested:,} "
        f"(95 % interval {low:.2%} to {high:.2%})"
    )


def outlook(points: Sequence[Point]) -> list[str]:
    """For every target a sentence: reached, or how many images more it would take."""
    law, most = fit(points), points[-1].images
    sentences = []
    for target in TARGETS:
        reached = [point.images for point in points if point.exact_match >= target]
        if reached:
            sentences.append(f"{target:.0%} exact: reached with {counted(reached[0], 'image')}")
            continue
        needed = None if law is None else law.images_for(target)
        if needed is None or needed > FURTHEST * most:
            sentences.append(f"{target:.0%} exact: not to be said from these points")
        else:
            more = counted(max(1, rounded(needed - most)), "image")
            sentences.append(f"{target:.0%} exact: about {more} more to train on, extrapolated by a power law")
    return sentences


def rounded(number: float) -> int:
    """A number to two digits: an extrapolation has no more."""
    return int(float(f"{max(0.0, number):.1e}"))

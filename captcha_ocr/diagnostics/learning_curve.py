"""Accuracy against the number of training images, and an extrapolation: how many more images a target needs."""

import math
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from itertools import takewhile
from pathlib import Path

import numpy as np

from captcha_ocr.config import PRESETS, TrainConfig, derive_epochs
from captcha_ocr.data.shards import Dataset, read_dataset
from captcha_ocr.errors import check
from captcha_ocr.metrics import wilson_interval
from captcha_ocr.system.console import Table, counted, duration, say
from captcha_ocr.system.documents import sealed
from captcha_ocr.system.files import write_atomic, writing_to
from captcha_ocr.training.reporting import epoch_seconds, measure_rate_of
from captcha_ocr.training.run.folder import inspect_folder
from captcha_ocr.training.run.spec import TrainOptions
from captcha_ocr.training.train import train

IMAGE_COUNTS = tuple(
    digit * 10**power for power in range(2, 8) for digit in (1, 3)
)  # 100, 300, 1,000, …
TARGETS = (0.95, 0.99)
MIN_LEARNT = 0.2  # exact match, below which a point says nothing about the next ones
MAX_EXTRAPOLATION = 100  # times the largest number of images
RESAMPLES = 200  # of the points, for the interval of the law
MIN_STEP = 1.5  # ratio of all images to the next smaller number of them
PLAN = Table({"images": 10, "epochs": 8, "preset": 10, "expected": 14})
POINTS = Table({"images": 10, "exact match": 13, "tested": 9, "95 % interval": 20})
CURVE_FILE, PICTURE_FILE, CURVE_FORMAT = "curve.json", "curve.png", "captcha-ocr curve"


@dataclass(frozen=True)
class Point:
    """The result of a number of training images: the exact matches among the tested images."""

    images: int
    exact: int
    tested: int

    @property
    def exact_match(self) -> float:
        """The share of exact matches, 0 to 1."""
        return self.exact / self.tested

    @property
    def interval(self) -> tuple[float, float]:
        """The 95 % interval of `exact_match`."""
        return wilson_interval(self.exact, self.tested)

    def __str__(self) -> str:
        low, high = self.interval
        interval = f"{low:.2%} to {high:.2%}"
        return POINTS.row(
            f"{self.images:,}", f"{self.exact_match:.2%}", f"{self.tested:,}", interval
        )


@dataclass(frozen=True)
class Planned:
    """A run of a learning curve: its training images, its epochs, and the seconds it is expected to take."""

    images: int
    epochs: int
    preset: str
    seconds: float

    def __str__(self) -> str:
        expected = duration(self.seconds) if self.seconds else "finished"
        return PLAN.row(f"{self.images:,}", self.epochs, self.preset, expected)


@dataclass(frozen=True)
class PowerLaw:
    """The error as factor * images ** -power (Hestness et al. 2017, arXiv:1712.00409)."""

    factor: float
    power: float

    def exact_match(self, images: float) -> float:
        """Return the exact match to expect of a number of images, 0 to 1."""
        return 1 - min(1.0, self.factor * math.pow(images, -self.power))

    def images_for(self, exact_match: float) -> float:
        """Return the number of images that an exact match needs."""
        return math.pow(self.factor / (1 - exact_match), 1 / self.power)


def learning_curve(
    data: Path,
    out: Path,
    recipe: Callable[[int], TrainConfig],
    counts: Sequence[int] = (),
    options: TrainOptions = TrainOptions(),
) -> list[Point]:
    """Train on the first 100, 300, 1,000, … images of the shards in `data`, or on `counts` of them, and test each run.

    recipe: returns the configuration for a number of images. A number close to all of them is left out. The run folders
    are `out`/images-100 …; finished runs are left as they are. Writes curve.json and curve.png to `out`.
    """
    from captcha_ocr.training.plots import draw_learning_curve, save_figure

    dataset = read_dataset([data])
    available = dataset.count("train")
    check(dataset.count("test") > 0, f"{data} has no test set")
    fewer = takewhile(lambda count: count * MIN_STEP <= available, IMAGE_COUNTS)
    counts = sorted(set(counts)) or [*fewer, available]
    check(
        counts[-1] <= available,
        f"{data} has only {counted(available, 'training image')}; use fewer --images",
    )
    points = []
    with writing_to(out):
        runs = {out / f"images-{count}": recipe(count) for count in counts}
        finished_runs = [
            is_finished(folder, dataset, config, options) for folder, config in runs.items()
        ]
        if not options.quiet:
            tell_plan(plan(dataset, list(runs.values()), finished_runs, options))
        for count, (folder, config) in zip(counts, runs.items(), strict=True):
            finished = train([data], folder, config, replace(options, advise=False))
            assert finished.test is not None, "there is a test set"
            points.append(Point(count, finished.test["exact"], finished.test["images"]))
            say(f"{POINTS.header}\n{points[-1]}", options.quiet)
        law = fit_power_law(points)
        found = {
            "points": [asdict(point) for point in points],
            "law": None if law is None else asdict(law),
        }
        write_atomic(out / CURVE_FILE, sealed({"format": CURVE_FORMAT, "version": 1, **found}))
        marks = [(point.images, point.exact_match, point.interval) for point in points]
        laws = [] if law is None else [law, *resampled_laws(points)]
        figure = draw_learning_curve(marks, [each.exact_match for each in laws], TARGETS)
        save_figure(figure, out / PICTURE_FILE)
    return points


def is_finished(folder: Path, dataset: Dataset, config: TrainConfig, options: TrainOptions) -> bool:
    """Tell whether a run folder holds this run, finished; errors as `train`, such as for another run."""
    with ExitStack() as lock:
        return (
            inspect_folder(folder, dataset, config, options.starting(config), lock).finished
            is not None
        )


def plan(
    dataset: Dataset,
    configs: Sequence[TrainConfig],
    finished: Sequence[bool],
    options: TrainOptions,
) -> list[Planned]:
    """Return what each run of a curve takes; the rate of a preset is measured once, 0 s are left of a finished run."""
    rates: dict[str, float] = {}
    planned = []
    for config, is_done in zip(configs, finished, strict=True):
        images, seconds = config.images or dataset.count("train"), 0.0
        epochs = derive_epochs(config, images) or PRESETS[config.preset].max_epochs
        if not is_done:
            if config.preset not in rates:
                rates[config.preset] = measure_rate_of(dataset, config, options)
            seconds = epochs * epoch_seconds(images, dataset.count("val"), rates[config.preset])
        planned.append(Planned(images, epochs, config.preset, seconds))
    return planned


def tell_plan(runs: Sequence[Planned]) -> None:
    """Print the runs of a curve, and how long all of them take."""
    whole = duration(sum(run.seconds for run in runs))
    say(
        "\n".join(
            [
                PLAN.header,
                *map(str, runs),
                f"expected   about {whole} for {counted(len(runs), 'run')}",
            ]
        )
    )


def fit_power_law(points: Sequence[Point]) -> PowerLaw | None:
    """Return the law that fits the points best; None if there are too few, or more images bring no gain.

    It fits a line to the logarithms, each weighted by the number of errors, which determines its precision.
    """
    usable = [point for point in points if point.exact_match >= MIN_LEARNT]
    if len(usable) < 2:
        return None
    errors = np.array(
        [point.tested - point.exact + 0.5 for point in usable]
    )  # + 0.5: 0 has no logarithm
    shares = errors / np.array([point.tested + 1 for point in usable])
    slope, height = np.polyfit(
        np.log([point.images for point in usable]), np.log(shares), 1, w=np.sqrt(errors)
    )
    return PowerLaw(math.exp(height), -float(slope)) if slope < -0.05 else None


def resampled_laws(points: Sequence[Point]) -> list[PowerLaw]:
    """Return the laws of points that are as likely, for an interval of what to expect (parametric bootstrap).

    The exact match of each is drawn from its distribution given the tested images, with Jeffreys' prior.
    """
    random = np.random.default_rng(0)
    laws = []
    for _ in range(RESAMPLES):
        matches = [
            random.beta(point.exact + 0.5, point.tested - point.exact + 0.5) for point in points
        ]
        drawn = [
            Point(point.images, round(match * point.tested), point.tested)
            for point, match in zip(points, matches, strict=True)
        ]
        laws.append(fit_power_law(drawn))
    return [law for law in laws if law is not None]


def outlook(points: Sequence[Point]) -> list[str]:
    """Return a sentence for every target: reached, or how many more images it needs."""
    law, largest = fit_power_law(points), points[-1].images
    sentences = []
    for target in TARGETS:
        reached = [point.images for point in points if point.exact_match >= target]
        needed = math.inf if law is None else law.images_for(target)
        if reached:
            sentence = f"reached with {counted(reached[0], 'image')}"
        elif needed > MAX_EXTRAPOLATION * largest:
            sentence = "cannot be extrapolated from these points"
        else:
            more = max(
                1, int(float(f"{max(0.0, needed - largest):.1e}"))
            )  # two digits: it is not more precise
            sentence = f"about {counted(more, 'more training image')}, extrapolated by a power law"
        sentences.append(f"exact match {target:.0%}: {sentence}")
    return sentences

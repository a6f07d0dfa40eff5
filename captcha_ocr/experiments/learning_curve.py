"""Accuracy against the number of training images, and how many more images a target needs."""

import math
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from itertools import takewhile
from pathlib import Path

import numpy as np

from captcha_ocr.data.shards import Dataset, read_dataset
from captcha_ocr.errors import check
from captcha_ocr.options.training import PRESETS, TrainConfig, TrainOptions, derive_epochs
from captcha_ocr.scores import wilson_interval
from captcha_ocr.system.console import Table, counted, duration, say
from captcha_ocr.system.documents import sealed
from captcha_ocr.system.files import write_atomic, writing_to
from captcha_ocr.training.reporting import epoch_seconds, measure_rate_of
from captcha_ocr.training.run.folder import inspect_folder
from captcha_ocr.training.run.spec import with_preset_model
from captcha_ocr.training.train import train

# 100, 300, 1,000, …
IMAGE_COUNTS = tuple(digit * 10**power for power in range(2, 8) for digit in (1, 3))
RESAMPLES = 200  # of the points, for the interval of the law
PLAN = Table({"images": 10, "epochs": 8, "preset": 10, "expected": 14})
POINTS = Table({"images": 10, "exact match": 13, "tested": 9, "95 % interval": 20})
PICTURE_FILE = "curve.png"
_CURVE_FILE, _CURVE_FORMAT = "curve.json", "captcha-ocr curve"
_TARGETS = (0.95, 0.99)
_MIN_LEARNT = 0.2  # exact match, below which a point says nothing about the next ones
_MAX_EXTRAPOLATION = 100  # times the largest number of images
_MIN_STEP = 1.5  # ratio of all images to the next smaller number of them


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
        return POINTS.row(
            f"{self.images:,}",
            f"{self.exact_match:.2%}",
            f"{self.tested:,}",
            "{:.2%} to {:.2%}".format(*self.interval),
        )


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
    """Train on the first 100, 300, 1,000, … images of shards, or on `counts` of them, and test.

    recipe: returns the configuration for a number of images. A number close to all of them is left
    out. The run folders are `out`/images-100 …; finished runs are left as they are. Writes
    curve.json and curve.png to `out`.
    """
    dataset = read_dataset([data])
    available = dataset.count("train")
    check(dataset.count("test") > 0, f"{data} has no test set")
    fewer = takewhile(lambda count: count * _MIN_STEP <= available, IMAGE_COUNTS)
    counts = sorted(set(counts)) or [*fewer, available]
    points = []
    with writing_to(out):
        runs = {out / f"images-{count}": recipe(count) for count in counts}
        unfinished = []
        for folder, config in runs.items():
            with ExitStack() as lock:
                how = with_preset_model(options, config)
                if inspect_folder(folder, dataset, config, how, lock)["finished"] is None:
                    unfinished.append(config)
        if not options.quiet:
            tell_plan(dataset, list(runs.values()), unfinished, options)
        for count, (folder, config) in zip(counts, runs.items(), strict=True):
            finished = train([data], folder, config, options)
            assert finished.test is not None, "there is a test set"
            points.append(Point(count, finished.test["exact"], finished.test["images"]))
            say(f"{POINTS.header}\n{points[-1]}", options.quiet)
        _write_curve(out, points)
    return points


def _write_curve(out: Path, points: Sequence[Point]) -> None:
    from captcha_ocr.pictures.plots import draw_learning_curve, save_figure  # slow: matplotlib

    law = fit_power_law(points)
    facts = {"points": list(map(asdict, points)), "law": law and asdict(law)}
    write_atomic(out / _CURVE_FILE, sealed({"format": _CURVE_FORMAT, "version": 1, **facts}))
    marks = [(point.images, point.exact_match, point.interval) for point in points]
    laws = [] if law is None else [law, *resampled_laws(points)]
    figure = draw_learning_curve(marks, [law.exact_match for law in laws], _TARGETS)
    save_figure(figure, out / PICTURE_FILE)


def tell_plan(
    dataset: Dataset,
    configs: Sequence[TrainConfig],
    unfinished: Sequence[TrainConfig],
    options: TrainOptions,
) -> None:
    """Print the runs of a curve, and how long those take that have not finished.

    The rate of a preset is measured once.
    """
    rates: dict[str, float] = {}
    lines, whole = [PLAN.header], 0.0
    for config in configs:
        images, expected = config.images or dataset.count("train"), "finished"
        epochs = derive_epochs(config, images) or PRESETS[config.preset].max_epochs
        if config in unfinished:
            if config.preset not in rates:
                rates[config.preset] = measure_rate_of(dataset, config, options)
            seconds = epochs * epoch_seconds(images, dataset.count("val"), rates[config.preset])
            whole, expected = whole + seconds, duration(seconds)
        lines.append(PLAN.row(f"{images:,}", epochs, config.preset, expected))
    lines.append(f"expected   about {duration(whole)} at most for {counted(len(configs), 'run')}")
    say("\n".join(lines))


def fit_power_law(points: Sequence[Point]) -> PowerLaw | None:
    """Return the law that fits the points best.

    None if there are too few, or more images bring no gain. It fits a line to the logarithms, each
    weighted by the number of errors, which determines its precision.
    """
    usable = [point for point in points if point.exact_match >= _MIN_LEARNT]
    if len(usable) < 2:
        return None
    images, exact, tested = np.array([(p.images, p.exact, p.tested) for p in usable]).T
    errors = tested - exact + 0.5  # + 0.5: 0 has no logarithm
    shares = errors / (tested + 1)
    slope, height = np.polyfit(np.log(images), np.log(shares), 1, w=np.sqrt(errors))
    return PowerLaw(math.exp(height), -float(slope)) if slope < -0.05 else None


def resampled_laws(points: Sequence[Point]) -> list[PowerLaw]:
    """Return the laws of points that are as likely: an interval of what to expect.

    The exact match of each is drawn from its distribution given the tested images, with Jeffreys'
    prior (parametric bootstrap).
    """
    random = np.random.default_rng(0)

    def resample(point: Point) -> Point:
        match = random.beta(point.exact + 0.5, point.tested - point.exact + 0.5)
        return replace(point, exact=round(match * point.tested))

    laws = [fit_power_law([*map(resample, points)]) for _ in range(RESAMPLES)]
    return [law for law in laws if law is not None]


def outlook(points: Sequence[Point]) -> list[str]:
    """Return a sentence for every target: reached, or how many more images it needs."""
    law, largest = fit_power_law(points), points[-1].images
    sentences = []
    for target in _TARGETS:
        reached = [point.images for point in points if point.exact_match >= target]
        needed = math.inf if law is None else law.images_for(target)
        if reached:
            sentence = f"reached with {counted(reached[0], 'image')}"
        elif needed > _MAX_EXTRAPOLATION * largest:
            sentence = "cannot be extrapolated from these points"
        else:
            more = float(f"{needed - largest:.1e}")  # two digits: it is not more precise
            sentence = (
                f"about {counted(max(1, int(more)), 'more training image')},"
                " extrapolated by a power law"
            )
        sentences.append(f"exact match {target:.0%}: {sentence}")
    return sentences

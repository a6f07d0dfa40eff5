"""An audit: from a source of images to its results, within a budget of time; begun again, it goes on."""

import hashlib
import platform
import random
import time
from dataclasses import asdict, dataclass, field
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import Any

from captcha_ocr.audit.curve_trainings import CurveMeasurement
from captcha_ocr.audit.knob_trainings import KnobMeasurement
from captcha_ocr.audit.knobs import Knobs, settings_of
from captcha_ocr.audit.people import people_in
from captcha_ocr.audit.readings import readings
from captcha_ocr.audit.schedule import Schedule
from captcha_ocr.audit.sources import Source
from captcha_ocr.audit.statistics import Curve, precision_by_coverage
from captcha_ocr.audit.trainings import Runner
from captcha_ocr.audit.tricks import Tricks, find_tricks
from captcha_ocr.audit.verdict import TARGETS, Attack, as_json, attacks_of, best_of, verdict_of
from captcha_ocr.charset import mixes_cases
from captcha_ocr.config import Lengths
from captcha_ocr.data.labels import Found, Label, find_labels
from captcha_ocr.diagnostics.doctor import processor_name
from captcha_ocr.errors import check
from captcha_ocr.recognizer import Recognizer
from captcha_ocr.scores import score_confidences
from captcha_ocr.system.console import counted, duration, say
from captcha_ocr.system.files import writing_to
from captcha_ocr.system.parallel import available_workers
from captcha_ocr.version import __version__

MOST_TESTED, SHARE_TESTED = 1_000, 0.4  # of the images
FEWEST_IMAGES = 60
LARGEST = (
    (90, 1_000),
    (300, 3_000),
    (10**9, 10_000),
)  # labels, with a budget of up to so many minutes
POOL = 3  # images to draw labels from, in numbers of the most labels
COVERAGES = (1.0, 0.9, 0.75, 0.5, 0.25, 0.1)
SAMPLES = 24  # images on the page
IMAGES, RUNS = "images", "runs"


@dataclass(frozen=True)
class AuditOptions:
    """How to audit. budget_s: seconds that everything may take. knobs: the levels of each, the present one first.

    people: the folder in which `label --blind` kept the answers to the same images. train: more options of `train`.
    """

    budget_s: float
    seed: int = 0
    knobs: Knobs = field(default_factory=dict)
    people: Path | None = None
    quiet: bool = False
    train: tuple[str, ...] = ()


def audit(source: Source | Path, out: Path, options: AuditOptions) -> dict[str, Any]:
    """Audit a labelled folder, or what draws images; return the results as JSON types.

    out: gets images and trainings. UsageError if it holds another audit, or if there is too little to audit.
    """
    with writing_to(out):
        return Audit(source, out, options).run()


class Audit:
    """One audit of one source."""

    def __init__(self, source: Source | Path, out: Path, options: AuditOptions) -> None:
        self.source, self.out, self.options = source, out, options
        self.name = str(source) if isinstance(source, Path) else source.name
        self.failures, self.notes = 0, list[str]()
        runner = Runner(out / RUNS, available_workers(), options.train)
        self.schedule = Schedule(out, runner, options.budget_s, self.identity, options.quiet)

    def run(self) -> dict[str, Any]:
        """Do all of it."""
        self.tell(
            f"budget     {duration(self.options.budget_s)} in all, on {counted(available_workers(), 'processor')}"
        )
        if not isinstance(self.source, Path):
            for setting in settings_of(self.options.knobs):
                self.source.check(setting.levels)
        folder = self.folder
        people = people_in(self.options.people, self.labels)
        left_out = self.found.problems | self.tricks.unreadable
        if left_out:
            file, reason = next(iter(left_out.items()))
            what = f"{counted(len(left_out), 'file')}, such as {file}: {reason}"
            self.notes.append(f"Left out: {what}.")
            self.tell(f"left out   {what}")
        zero_shot = sum(is_right for _, is_right in self.without_labels), len(self.tested)
        self.tell(f"no label   the model in the package reads {zero_shot[0]:,} of {zero_shot[1]:,}")
        measurement = self.curve_measurement
        curves = measurement.run()
        attacks = attacks_of(curves, zero_shot, measurement.seconds)
        results = {
            "source": self.name,
            "definition": self.definition,
            "alphabet": self.alphabet,
            "lengths": self.lengths,
            "case_ignored": mixes_cases(set(self.alphabet)),
            "images": len(self.labels),
            "tested": len(self.tested),
            "samples": [(str(folder / label.file), label.text) for label in self.tested[:SAMPLES]],
            "tricks": self.tricks.summary(),
            "attacks": [as_json(attack) for attack in attacks],
            "best": as_json(best_of(attacks)),
            "curves": {
                start: [asdict(score) for score in curve.scores] for start, curve in curves.items()
            },
            "needed": {
                start: [curve.labels_for(share) for share in TARGETS]
                for start, curve in curves.items()
            },
            "coverage": self.coverage(best_of(attacks)),
            "knobs": self.measure_knobs(curves),
            "people": people,
            "verdict": asdict(verdict_of(attacks, self.tricks.findings)),
            "failures": self.failures,
            "notes": [*measurement.notes, *self.notes],
            "seed": self.options.seed,
            "budget_s": self.options.budget_s,
            "environment": environment(),
        }
        self.schedule.save()
        return {**results, "spent_s": self.schedule.spent}

    def tell(self, line: str) -> None:
        """Tell the user something."""
        say(line, self.options.quiet)

    @cached_property
    def definition(self) -> dict[str, str] | None:
        """Name and text of the file that says how to draw, for whoever repeats the audit; None without one."""
        path = None if isinstance(self.source, Path) else self.source.definition
        if path is None or not path.is_file():
            return None
        return {"file": str(path), "text": path.read_text("utf-8", errors="replace")}

    @property
    def identity(self) -> dict[str, Any]:
        """What must be the same when an audit goes on; the budget may grow."""
        source = self.source
        if isinstance(source, Path):
            content = repr([(label.file, label.text) for label in self.labels])
        else:
            content = repr((source.charset, source.lengths, self.definition))
        digest = hashlib.sha256(content.encode()).hexdigest()
        return {
            "source": self.name,
            "content": digest,
            "seed": self.options.seed,
            "knobs": self.options.knobs,
        }

    @cached_property
    def largest(self) -> int:
        """The most labels that a training may have with this budget."""
        return next(labels for minutes, labels in LARGEST if self.options.budget_s <= 60 * minutes)

    @cached_property
    def folder(self) -> Path:
        """The folder of images; those of a generator are drawn."""
        if isinstance(self.source, Path):
            return self.source
        folder, images = self.out / IMAGES / "base", POOL * self.largest + MOST_TESTED
        self.tell(f"draw       {images:,} images of {self.name}")
        base = {name: levels[0] for name, levels in self.options.knobs.items()}
        self.failures += self.source.draw(folder, images, self.options.seed, base)
        return folder

    @cached_property
    def found(self) -> Found:
        """The labels of the folder, and what has none."""
        return find_labels(self.folder).check()

    @property
    def labels(self) -> list[Label]:
        """The labels of all images."""
        return self.found.labels

    @cached_property
    def tricks(self) -> Tricks:
        """What makes reading unnecessary."""
        return find_tricks(
            self.folder, self.labels, self.alphabet, not isinstance(self.source, Path)
        )

    @cached_property
    def alphabet(self) -> str:
        """The characters of the texts."""
        return "".join(sorted({*"".join(label.text for label in self.labels)}))

    @property
    def lengths(self) -> list[int]:
        """The numbers of characters of the texts, in their order."""
        return sorted({len(label.text) for label in self.labels})

    @cached_property
    def shuffled(self) -> list[Label]:
        """The labels of different images in an order of the seed: those to test on first; UsageError if too few."""
        left_out = {*self.tricks.copies, *self.tricks.unreadable}
        labels = [label for label in self.labels if label.file not in left_out]
        of_folder = f"{self.folder} has {counted(len(labels), 'different labelled image')}"
        check(len(labels) >= FEWEST_IMAGES, f"{of_folder}; an audit needs {FEWEST_IMAGES}")
        return random.Random(f"test-{self.options.seed}").sample(labels, len(labels))

    @property
    def tested(self) -> list[Label]:
        """The labels to test on, always the same."""
        return self.shuffled[: min(MOST_TESTED, round(SHARE_TESTED * len(self.shuffled)))]

    @property
    def pool(self) -> list[Label]:
        """The labels from which trainings draw."""
        return self.shuffled[len(self.tested) :]

    @cached_property
    def without_labels(self) -> list[tuple[float, bool]]:
        """What the model in the package reads in the test images, told the alphabet and the lengths."""
        reader = Recognizer("pretrained")
        known = "".join(
            each for each in self.alphabet if not reader.config.charset.unknown_characters(each)
        )
        longest = min(self.lengths[-1], reader.config.lengths.longest)
        if known and self.lengths[0] <= longest:
            reader = reader.limited_to(known, Lengths(self.lengths[0], longest), False)
        return readings(reader, self.folder, self.tested)

    @cached_property
    def curve_measurement(self) -> CurveMeasurement:
        """What trains on more and more labels."""
        pool, tested = tuple(self.pool), tuple(self.tested)
        return CurveMeasurement(
            self.folder, pool, tested, self.schedule, self.options.seed, self.largest
        )

    def coverage(self, best: Attack) -> dict[str, Any]:
        """Return how precise the best solver is if it may leave captchas out."""
        judged = self.without_labels
        if best.labels:
            training = self.curve_measurement.training(best.start, best.labels, 0)
            judged = readings(
                Recognizer(self.schedule.runner.folder(training) / "run"), self.folder, self.tested
            )
        rows = [
            {**row._asdict(), "interval": row.interval}
            for row in precision_by_coverage(judged, COVERAGES)
        ]
        reliability = score_confidences(judged).summary()
        return {
            "start": best.start,
            "labels": best.labels,
            "rows": rows,
            "reliability": reliability,
        }

    def measure_knobs(self, curves: dict[str, Curve]) -> dict[str, Any] | None:
        """Measure what each knob does; None without knobs, or where the budget ends before."""
        if not self.options.knobs or isinstance(self.source, Path):
            return None
        images, seed = self.out / IMAGES, self.options.seed
        measurement = KnobMeasurement(
            self.source, self.options.knobs, images, self.schedule, seed, self.largest
        )
        found = measurement.run(curves)
        if isinstance(found, str):
            self.notes.append(found)
            self.tell(f"left out   {found}")
            return None
        self.failures += measurement.failures
        return found


def environment() -> dict[str, Any]:
    """Return the machine and the versions, for whoever repeats it."""
    packages = {name: version(name) for name in ("torch", "numpy", "pillow", "captcha")}
    return {
        "date": time.strftime("%Y-%m-%d"),
        "captcha-ocr": __version__,
        "python": platform.python_version(),
        **packages,
        "processors": available_workers(),
        "processor": processor_name(),
        "system": f"{platform.system()} {platform.machine()}",
    }

"""The trainings of an audit: which there are, and how one is carried out.

Each is `prepare` and `train` in processes of their own, on one thread, in a folder of its own.
"""

import random
from dataclasses import dataclass
from pathlib import Path

from captcha_ocr.audit.images.generators import write_table
from captcha_ocr.data.labels import LABELS_FILE, Label
from captcha_ocr.errors import DamagedError, UsageError
from captcha_ocr.experiments.child_run import ChildRuns
from captcha_ocr.options.training import PRESETS, derive_epochs
from captcha_ocr.training.run.folder import read_run

STARTS = {"general": "finetune", "random": "few"}  # their presets
NAMES = {"general": "captcha-ocr's model", "random": "random weights"}
SIZES = (30, 100, 300, 1_000, 3_000, 10_000)  # labels
DRAWS = 3  # of so many labels
_VALIDATION = 10  # one in so many labels validates


@dataclass(frozen=True)
class LabelPool:
    """A folder of images, the labels from which trainings draw, and those to test on.

    seed: of the draws, and of the trainings. setting: the name of the knobs' levels.
    """

    images: Path
    labels: tuple[Label, ...]
    tested: tuple[Label, ...]
    seed: int
    setting: str = "base"


@dataclass(frozen=True)
class Training:
    """Training on so many labels of a pool: the draw's first ones."""

    pool: LabelPool
    start: str
    size: int
    draw: int

    @property
    def name(self) -> str:
        """A name for its folder."""
        return f"{self.pool.setting}-{self.start}-{self.size}-{self.draw}"

    @property
    def cost(self) -> float:
        """How many images it shows to the network, about."""
        preset = PRESETS[STARTS[self.start]]
        labels = self.size - self.size // _VALIDATION
        return labels * (derive_epochs(preset.training, labels) or preset.max_epochs)

    def rows(self) -> list[tuple[str, str, str]]:
        """Return the table of labels: file name, text, split.

        Smaller draws are part of larger ones.
        """
        rng = random.Random(f"draw-{self.pool.seed}-{self.draw}")
        drawn = rng.sample(self.pool.labels, len(self.pool.labels))[: self.size]
        validation = self.size // _VALIDATION
        splits = {"val": drawn[:validation], "train": drawn[validation:], "test": self.pool.tested}
        return [
            (label.file, label.text, split) for split, labels in splits.items() for label in labels
        ]

    def run(self, folder: Path, children: ChildRuns) -> None:
        """Prepare and train in a folder: the run folder is `run` in it."""
        folder.mkdir(parents=True, exist_ok=True)
        table, shards = folder / LABELS_FILE, folder / "shards"
        write_table(table, ("filename", "text", "split"), self.rows())
        preset = {"preset": STARTS[self.start]}
        preparation = {"labels": table, "out": shards, **preset, "workers": 1, "force": True}
        children.run_command("prepare", [self.pool.images], preparation)
        seed = self.pool.seed * 1000 + self.draw
        recipe = {"data": shards, "out": folder / "run", **preset, "seed": seed, "threads": 1}
        children.run_command("train", [], recipe)


@dataclass(frozen=True)
class Trained:
    """What a training gave: exact matches among the tested images, and its seconds.

    Case does not count.
    """

    right: int
    tested: int
    seconds: float


def read_result(run: Path) -> Trained | None:
    """Return what a finished run gave; None if there is none."""
    try:
        finished = read_run(run)[1]
    except (DamagedError, UsageError, OSError):
        return None
    if finished is None or finished.test is None:
        return None
    test = finished.test
    return Trained(test["exact"] + test["folded"], test["images"], finished.seconds)

"""Images that are drawn while a network trains on them: what is drawn, and how a worker process draws it.

The workers import this module, so it must not import torch.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from captcha_ocr.charset import Charset, find_charset
from captcha_ocr.config import PRESETS, Lengths, PrepareConfig, Split, TrainConfig
from captcha_ocr.data.images import survey, to_array
from captcha_ocr.data.prepare import MAX_SURVEYED, derived_size
from captcha_ocr.data.shards import Dataset
from captcha_ocr.errors import check
from captcha_ocr.generation.drawer import Drawn, drawer_of
from captcha_ocr.generation.folder import image_options
from captcha_ocr.generation.options import RANDOM, DrawingOptions
from captcha_ocr.generation.plan import DrawingPlan, plan_drawing
from captcha_ocr.input_size import GENERATED, InputSize
from captcha_ocr.system.documents import to_json
from captcha_ocr.system.files import sha256
from captcha_ocr.training.draw_options import DrawOptions

HELD_OUT = 2000  # drawings to validate, and as many to test
FIRST_HELD_OUT: dict[Split, int] = {
    "val": 10**12,
    "test": 10**12 + 10**6,
}  # the training never draws as many
DRAWINGS_PER_JOB = 25  # 25 ms of work: the end of a run waits for the jobs that are being done


class Job(NamedTuple):
    """Some images that one worker draws; the designs take turns."""

    plans: tuple[DrawingPlan, ...]
    numbers: range
    charset: Charset
    longest: int
    size: InputSize


@dataclass(frozen=True)
class DrawnData:
    """The images that a run draws: `images` of them for every `repeat` epochs, and others to validate and to test.

    They depend on the options and on the seed alone.
    """

    options: DrawOptions
    plans: tuple[DrawingPlan, ...]
    charset: Charset
    size: InputSize

    @classmethod
    def of(cls, options: DrawOptions, training: TrainConfig) -> "DrawnData":
        """Return what a training with these options draws: its seed and its preset matter, too.

        UsageError for an option that does not fit.
        """
        lengths = None if options.length is None else Lengths.parse(options.length)
        any_random = any(map(is_random, options.designs))
        plans = tuple(
            plan_drawing(
                DrawingOptions(
                    design=design,
                    lengths=lengths,
                    charset=options.charset,
                    fonts=options.fonts if is_random(design) or not any_random else (),
                    seed=training.seed,
                )
            )
            for design in options.designs
        )
        charset = find_charset([plan.charset for plan in plans], None, options.case_sensitive)
        check(
            len(charset) > 1,
            f"--charset {charset.characters} has one character, so there is nothing to learn",
        )
        return cls(options, plans, charset, input_size(options, plans, training.preset))

    @property
    def name(self) -> str:
        """The drawings, for people."""
        return " ".join(f"--draw {design}" for design in self.options.designs)

    @property
    def lengths(self) -> Lengths:
        return lengths_of(self.plans)

    @cached_property
    def identity(self) -> dict[str, Any]:
        """What is drawn, as JSON types, without the number of drawings and the size of the input."""
        first, *others = (image_options(plan) for plan in self.plans)
        of_image = {name: value for name, value in first.items() if name not in ("count", "start")}
        of_image["look"] = sha256(
            to_json({"look": of_image.pop("design"), **({"others": others} if others else {})})
        )
        of_run = {"repeat": self.options.repeat, "case_sensitive": self.options.case_sensitive}
        return {**of_image, "design": ", ".join(self.options.designs), **of_run}

    @property
    def sha256(self) -> str:
        """The hash of all that determines the images."""
        counts = {split: self.count(split) for split in ("train", *FIRST_HELD_OUT)}
        return sha256(
            to_json({"drawn": self.identity, "images": counts, "size": self.size.to_dict()})
        )

    def count(self, split: Split) -> int:
        """Return the number of images in one split; in that for training, of an epoch."""
        return self.options.images if split == "train" else HELD_OUT

    def block_of(self, epoch: int) -> int:
        """Return the number of the block of drawings that an epoch shows, both counted from 0."""
        return epoch // self.options.repeat

    def jobs(self, split: Split, samples: range, block: int = 0) -> list[Job]:
        """Return the jobs that draw some images of a split; every `block` of training images has others."""
        first = FIRST_HELD_OUT.get(split, block * self.options.images)
        starts = range(samples.start, samples.stop, DRAWINGS_PER_JOB)
        ends = [min(start + DRAWINGS_PER_JOB, samples.stop) for start in starts]
        longest = self.lengths.longest
        return [
            Job(self.plans, range(first + start, first + end), self.charset, longest, self.size)
            for start, end in zip(starts, ends, strict=True)
        ]


TrainingData = Dataset | DrawnData


def is_random(design: str) -> bool:
    """Tell whether a design is drawn at random itself."""
    return design.partition(":")[0] == RANDOM


def lengths_of(plans: Sequence[DrawingPlan]) -> Lengths:
    """Return the lengths of all texts that are drawn."""
    all_lengths = [plan.lengths for plan in plans]
    return Lengths(
        min(some.shortest for some in all_lengths), max(some.longest for some in all_lengths)
    )


def input_size(options: DrawOptions, plans: Sequence[DrawingPlan], preset: str) -> InputSize:
    """Return the size of the network's input: the options first, then the preset's, then what prepare would choose.

    Where the preset keeps the aspect of images, the size in the options is the height and the largest width.
    """
    of_preset = PRESETS[preset].size
    if of_preset is not None:
        width, height = options.size or (of_preset.width, of_preset.height)
        step = (
            None if of_preset.step is None else max(1, of_preset.step * height // of_preset.height)
        )
        return InputSize(height, width, options.channels or of_preset.channels, step)
    wanted = options.size or (None, None)
    chosen = PrepareConfig(
        preset=preset, width=wanted[0], height=wanted[1], channels=options.channels
    )
    if options.size is not None and options.channels is not None:
        return chosen.input_size(GENERATED)  # of which nothing is taken
    kind = survey(draw(plans, number).image for number in range(MAX_SURVEYED))
    assert kind is not None, "every drawing can be read"
    return chosen.input_size(derived_size(kind, lengths_of(plans).longest))


def draw(plans: Sequence[DrawingPlan], number: int) -> Drawn:
    """Draw an image; the designs take turns."""
    return drawer_of(plans[number % len(plans)]).draw(number)


def draw_images(job: Job) -> tuple[list[np.ndarray], np.ndarray]:
    """Draw images: return each as prepare makes it, (C, H, W) uint8, and the class ids (N, L) of the texts."""
    drawn = [draw(job.plans, number) for number in job.numbers]
    pixels = [to_array(each.image, job.size) for each in drawn]
    return pixels, job.charset.encode([each.text for each in drawn], job.longest)

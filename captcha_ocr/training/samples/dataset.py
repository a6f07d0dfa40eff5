"""What `train` draws to train on, and how a worker process draws it.

The workers import this module and not torch, so that they start at once.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from captcha_ocr.charset import Charset, find_charset
from captcha_ocr.data.images import survey, to_array
from captcha_ocr.data.prepare import MAX_SURVEYED, derive_size
from captcha_ocr.data.shards import Dataset
from captcha_ocr.errors import check
from captcha_ocr.generation.drawer import DrawingPlan, Drawn, drawer_of, plan_drawing
from captcha_ocr.generation.folder import image_options
from captcha_ocr.input_size import GENERATED, InputSize
from captcha_ocr.options.drawing import RANDOM, DrawingOptions
from captcha_ocr.options.model import Lengths
from captcha_ocr.options.preparation import SPLITS, PrepareConfig, Split
from captcha_ocr.options.training import PRESETS, DrawOptions, TrainConfig
from captcha_ocr.system.documents import to_json
from captcha_ocr.system.files import sha256

HELD_OUT = 2000  # drawings to validate, and as many to test
# The training never draws as many.
_FIRST_HELD_OUT: dict[Split, int] = {"val": 10**12, "test": 10**12 + 10**6}
DRAWINGS_PER_JOB = 25  # 25 ms of work: the end of a run waits for the jobs that are being done


@dataclass(frozen=True)
class DrawnData:
    """The images that a run draws, which depend on the options and on the seed alone.

    There are `images` of them for every `repeat` epochs, and others to validate and to test.
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
        are_random = [design.partition(":")[0] == RANDOM for design in options.designs]
        plans = []
        for design, is_random in zip(options.designs, are_random, strict=True):
            takes_fonts = is_random or not any(are_random)
            drawing = DrawingOptions(
                design=design,
                lengths=lengths,
                charset=options.charset,
                fonts=options.fonts if takes_fonts else (),
                seed=training.seed,
            )
            plans.append(plan_drawing(drawing))
        charset = find_charset([plan.charset for plan in plans], None, options.case_sensitive)
        check(
            len(charset) > 1,
            f"`charset` {charset.characters} has one character, so there is nothing to learn",
        )
        size = _choose_size(options, plans, training.preset)
        return cls(options, tuple(plans), charset, size)

    @property
    def name(self) -> str:
        """The drawings, for people."""
        return f"`draw` {', '.join(self.options.designs)}"

    @property
    def lengths(self) -> Lengths:
        return Lengths.spanning([plan.lengths for plan in self.plans])

    @cached_property
    def identity(self) -> dict[str, Any]:
        """What is drawn, as JSON types, without the number of drawings and the input's size."""
        first, *others = (image_options(plan) for plan in self.plans)
        drawn = {name: value for name, value in first.items() if name not in ("count", "start")}
        look = {"look": drawn.pop("design")}
        if others:
            look["others"] = others
        return {
            **drawn,
            "look": sha256(to_json(look)),
            "design": ", ".join(self.options.designs),
            "repeat": self.options.repeat,
            "case_sensitive": self.options.case_sensitive,
        }

    @property
    def sha256(self) -> str:
        """The hash of all that determines the images."""
        counts = {split: self.count(split) for split in SPLITS}
        document = {"drawn": self.identity, "images": counts, "size": self.size.to_dict()}
        return sha256(to_json(document))

    def count(self, split: Split) -> int:
        """Return the number of images in one split; in that for training, of an epoch."""
        return self.options.images if split == "train" else HELD_OUT

    def jobs(self, split: Split, samples: range, block: int = 0) -> list[range]:
        """Return the numbers of some images of a split, in parts that one worker draws.

        Every `block` of training images has others.
        """
        first = _FIRST_HELD_OUT.get(split, block * self.options.images)
        numbers = range(first + samples.start, first + samples.stop)
        starts = range(0, len(numbers), DRAWINGS_PER_JOB)
        return [numbers[start : start + DRAWINGS_PER_JOB] for start in starts]

    def draw(self, numbers: range) -> tuple[list[np.ndarray], np.ndarray]:
        """Draw images; the designs take turns.

        Returns each as prepare makes it, (C, H, W) uint8, and their class ids (N, L).
        """
        drawings = [_draw(self.plans, number) for number in numbers]
        pixels = [to_array(drawing.image, self.size) for drawing in drawings]
        texts = [drawing.text for drawing in drawings]
        return pixels, self.charset.encode(texts, self.lengths.longest)


TrainingData = Dataset | DrawnData


def _choose_size(options: DrawOptions, plans: Sequence[DrawingPlan], preset: str) -> InputSize:
    """Return the size of the network's input.

    The options come first, then the preset's, then what prepare would choose. Where the preset
    keeps the aspect of images, the size in the options is the height and the largest width.
    """
    of_preset = PRESETS[preset].size
    if of_preset is not None:
        width, height = options.size or (of_preset.width, of_preset.height)
        step = of_preset.step
        if step is not None:
            step = max(1, step * height // of_preset.height)
        return InputSize(height, width, options.channels or of_preset.channels, step)
    chosen = PrepareConfig(preset=preset, size=options.size, channels=options.channels)
    if options.size is not None and options.channels is not None:
        return chosen.input_size(GENERATED)  # of which nothing is taken
    kind = survey(_draw(plans, number).image for number in range(MAX_SURVEYED))
    longest = max(plan.lengths.longest for plan in plans)
    return chosen.input_size(derive_size(kind, longest))


def _draw(plans: Sequence[DrawingPlan], number: int) -> Drawn:
    return drawer_of(plans[number % len(plans)]).draw(number)

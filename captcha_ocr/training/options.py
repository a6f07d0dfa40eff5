"""The options of a run and of what it draws; the command line imports them for its help, so no torch here."""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from captcha_ocr.config import DRAWN_IMAGES, MAX_THREADS
from captcha_ocr.options.declaration import Options, given_options, option

MAX_DRAWINGS = 10**6  # of an epoch; there are at most a million epochs


@dataclass(frozen=True)
class TrainOptions(Options):
    """How to carry out a run.

    init: a trained model to start from. resume: `auto`, `never` or the path of a checkpoint.
    threads: with how many torch computes on the CPU; None: one for each processor.
    """

    device: str = option("auto", "Where to compute.", metavar="auto|cpu|cuda[:n]|mps|xpu[:n]")
    init: Path | None = option(
        None, "Start from a trained model of any alphabet, length and size, or pretrained."
    )
    resume: str = option("auto", "Continue an unfinished run.", metavar="auto|never|PATH")
    stream: bool = option(
        False, "Read images from disk in every epoch.", shown="if memory is short"
    )
    force: bool = option(False, "Replace what an earlier run with other options wrote.")
    quiet: bool = option(False, "Print no progress and no next command.")
    keep_every: int | None = option(
        None, "Keep the checkpoint of every Nth epoch.", metavar="N", at_least=1, at_most=10**6
    )
    tensorboard: bool = option(False, "Also write the metrics for TensorBoard, into OUT.")
    threads: int | None = option(
        None, "Threads to compute with.", shown="one per processor", at_least=1, at_most=MAX_THREADS
    )


@dataclass(frozen=True)
class DrawOptions(Options):
    """The options of train --draw.

    designs: what is drawn, as for generate; several take turns, and one that is named twice has two turns.
    fonts: those of random designs if there is one, else of all. size: width and height of the network's input, in
    pixels. images: the drawings of an epoch. workers: the processes that draw, which change nothing in the images.
    """

    designs: tuple[str, ...] = option(
        ("captcha",), "Draw images of this design; designs take turns.", flag="--draw"
    )
    length: str | None = option(None, "Characters per text.", shown="the design's")
    charset: str | None = option(None, "Characters, or a named alphabet.", shown="the design's")
    case_sensitive: bool = option(False, "Distinguish upper and lower case.")
    fonts: tuple[str, ...] = option((), "A font file, or a folder of fonts; may be repeated.")
    size: tuple[int, int] | None = option(None, "The network's input.", shown="as prepare")
    channels: Literal[1, 3] | None = option(None, "Grey or colour input.", shown="as prepare")
    images: int = option(DRAWN_IMAGES, at_least=2, at_most=MAX_DRAWINGS)
    repeat: int = option(4, "Epochs that show an image.", at_least=1, at_most=10**6)
    workers: int | None = option(None, "Processes that draw.", shown="one per processor")

    def different(self, epochs: int) -> int:
        """Return how many different images so many epochs show."""
        return self.images * math.ceil(epochs / self.repeat)

    @property
    def rhythm(self) -> str:
        """How often other images are drawn, in words."""
        return "epoch" if self.repeat == 1 else f"{self.repeat:,} epochs"

    def given(self) -> dict[str, object]:
        """Return the options that do not have their defaults, and the designs, as they are given."""
        given = {"designs": self.designs, **given_options(self)}
        if self.size is not None:
            given["size"] = "x".join(map(str, self.size))
        return given

"""What goes on while a person labels: a model reads the images, and better models are trained.

Trainings run in child processes, at a low priority.
"""

import threading
from collections.abc import Callable
from pathlib import Path

from captcha_ocr.errors import CaptchaOcrError, DamagedError, ImageError
from captcha_ocr.experiments.child_run import ChildRuns, Stopped
from captcha_ocr.experiments.learning_curve import Point
from captcha_ocr.inference.decoding import Reading
from captcha_ocr.recognizer import Recognizer
from captcha_ocr.system.files import write_atomic
from captcha_ocr.training.run.folder import read_run

_AT_ONCE = 256  # images between two looks at whether to stop
_NO_GUESS = Reading("", 0.0)
_FIRST_MILESTONE = 150  # labels
_FIRST_STEP = 100  # labels from the first to the second; each step is twice the one before
_NICENESS = 10


class Guesser:
    """Reads images, by their number, in the background, and those that are asked for at once.

    A better model's guesses replace those of an older one bit by bit. problems: why an image cannot
    be read; its guess is an empty text.
    """

    def __init__(self, paths: list[Path], recognizer: Recognizer) -> None:
        self.paths, self.recognizer = paths, recognizer
        self.guesses: dict[int, Reading] = {}
        self.problems: dict[int, str] = {}
        self.worker: threading.Thread | None = None
        self.is_stopped = False

    def guess(self, number: int) -> Reading:
        """Return the guess for an image, which is read now if it was not yet."""
        if number not in self.guesses:
            self._read([number])
        return self.guesses[number]

    def start(self, numbers: list[int], recognizer: Recognizer | None = None) -> None:
        """Read these images in the background, with another model if there is one."""
        self.stop()
        self.recognizer, self.is_stopped = recognizer or self.recognizer, False
        self.worker = threading.Thread(target=self._read_all, args=(numbers,), daemon=True)
        self.worker.start()

    def stop(self) -> None:
        """End what runs in the background."""
        self.is_stopped = True
        if self.worker is not None:
            self.worker.join()

    def _read_all(self, numbers: list[int]) -> None:
        for first in range(0, len(numbers), _AT_ONCE):
            if self.is_stopped:
                return
            self._read(numbers[first : first + _AT_ONCE])

    def _read(self, numbers: list[int]) -> None:
        results = self.recognizer.read_all([self.paths[number] for number in numbers])
        for number, result in zip(numbers, results, strict=True):
            if isinstance(result, ImageError):
                self.problems[number] = str(result)
            self.guesses[number] = result if isinstance(result, Reading) else _NO_GUESS


def next_milestone(labels: int) -> int:
    """Return the number of labels at which to train next: 150, 250, 450, 850, …"""
    milestone, step = _FIRST_MILESTONE, _FIRST_STEP
    while milestone <= labels:
        milestone, step = milestone + step, 2 * step
    return milestone


class BackgroundTraining:
    """Runs `prepare` and `train` on the labels of a folder, one training at a time.

    Both have their defaults: the weights of the package are the start while there are few labels.
    out: gets a folder for each training. on_model: called with the run folder of a finished
    training and with its score, in a thread.
    """

    def __init__(self, folder: Path, out: Path, on_model: Callable[[Path, Point], None]) -> None:
        self.folder, self.out, self.on_model = folder, out, on_model
        self.children = ChildRuns(_NICENESS)
        self.thread: threading.Thread | None = None
        self.problem = ""

    @property
    def is_running(self) -> bool:
        """Whether a training runs."""
        return self.thread is not None and self.thread.is_alive()

    def list_finished(self) -> list[tuple[Path, Point]]:
        """Return the runs that have ended, here or in an earlier session, fewest labels first."""
        points = {}
        for folder in self.out.glob("labels-*"):
            point = read_point(folder / "run", int(folder.name.rpartition("-")[2]))
            if point is not None:
                points[folder / "run"] = point
        return sorted(points.items(), key=lambda item: item[1].images)

    def start(self, table: bytes, labels: int) -> None:
        """Train on a table of labels."""
        if not self.is_running and not self.children.is_stopped:
            self.thread = threading.Thread(target=self.train, args=(table, labels), daemon=True)
            self.thread.start()

    def train(self, table: bytes, labels: int) -> None:
        """Prepare and train; if that fails, `problem` says why."""
        out = self.out / f"labels-{labels}"
        out.mkdir(parents=True, exist_ok=True)
        write_atomic(out / "labels.csv", table)
        shards, run = out / "shards", out / "run"
        of_prepare = {"labels": out / "labels.csv", "out": shards, "force": True}
        self.problem = ""
        try:
            self.children.run_command("prepare", [self.folder], of_prepare)
            self.children.run_command("train", [], {"data": shards, "out": run, "force": True})
        except Stopped:
            return
        except CaptchaOcrError as error:
            self.problem = str(error)
            return
        point = read_point(run, labels)
        if point is not None:
            self.on_model(run, point)

    def stop(self) -> None:
        """End the training that runs, and begin no more."""
        self.children.stop()
        if self.thread is not None:
            self.thread.join()


def read_point(run: Path, labels: int) -> Point | None:
    """Return the score of a run on its test images; None if it has not finished."""
    try:
        finished = read_run(run)[1]
    except DamagedError:
        return None
    if finished is None or finished.test is None:
        return None
    return Point(labels, finished.test["exact"], finished.test["images"])

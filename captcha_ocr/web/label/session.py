"""One person labelling one folder: which image comes next, its guess, the progress."""

import json
import random
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from statistics import median
from typing import Any

from captcha_ocr.data.labels import (
    ANSWERS_FILE,
    ANSWERS_JOURNAL,
    Label,
    find_labels,
    read_journal,
)
from captcha_ocr.errors import Command
from captcha_ocr.experiments.judge import judge
from captcha_ocr.experiments.learning_curve import Point, outlook
from captcha_ocr.inference.model_folder import describe_model
from captcha_ocr.options.preparation import Split
from captcha_ocr.options.serving import LabelOptions
from captcha_ocr.recognizer import Recognizer
from captcha_ocr.scores import score_texts, wilson_interval
from captcha_ocr.web.label.background import BackgroundTraining, Guesser, next_milestone
from captcha_ocr.web.label.store import SEED, Entry, LabelStore

_WITHOUT_GUESS = 1 / 20  # of the images, to measure what guesses do to the person
_CANDIDATES = 50  # the least sure images, among which those with rare characters come first
_JOURNAL = "journal.jsonl"


class LabelSession:
    """The state behind the page of `label`; several threads may use it.

    The caller holds the lock of the folder of images (`writing_to`). Errors are those of
    `LabelStore` and `Recognizer`.
    """

    def __init__(self, folder: Path, model: Path, options: LabelOptions) -> None:
        out = options.run_for(folder)
        self.store = LabelStore(folder, out / ANSWERS_FILE if options.blind else None)
        out.mkdir(parents=True, exist_ok=True)
        self.model = describe_model(model)
        self.journal = out / (ANSWERS_JOURNAL if options.blind else _JOURNAL)
        entries = self.store.entries
        paths = [folder / entry.file for entry in entries]
        self.guesser = Guesser(paths, Recognizer(model, options.device))
        self.training = BackgroundTraining(folder, out, self._take_over)
        self.points: list[Point] = []
        self.seen = Counter("".join(entry.text or "" for entry in entries))  # characters
        self.shown_at: dict[int, float] = {}
        if not options.blind:
            for run, point in self.training.list_finished():
                self._take_over(run, point)
        self.milestone = next_milestone(self.points[-1].images if self.points else 0)

    def start(self) -> None:
        """Begin to read the images in the background, unless no guess is shown."""
        if not self.store.is_blind:
            tested = [entry.number for entry in self._labelled_in("test")]
            self.guesser.start([*tested, *self.open_numbers()])

    def stop(self) -> None:
        """End what runs in the background."""
        self.training.stop()
        self.guesser.stop()

    @property
    def labelled(self) -> int:
        """How many images have a label."""
        return sum(bool(entry.text) for entry in self.store.entries)

    def open_numbers(self) -> list[int]:
        """Return the numbers of the images without a label that were not skipped."""
        return [entry.number for entry in self.store.entries if entry.text is None]

    def _labelled_in(self, split: Split) -> list[Entry]:
        return [entry for entry in self.store.entries if entry.text and entry.split == split]

    def next_number(self) -> int | None:
        """Return the image to label next.

        The held-out images come in their random order, then the least sure ones. Of these, those
        come first whose characters are rare among the labels: unlike images.
        """
        for number in self.store.first:
            if self.store.entries[number].text is None:
                return number
        numbers, guesses = self.open_numbers(), self.guesser.guesses
        guessed = [number for number in numbers if number in guesses]
        if not guessed:
            return next(iter(numbers), None)
        # An image that cannot be read comes last.
        problems = self.guesser.problems
        guessed.sort(key=lambda number: (number in problems, guesses[number].confidence))

        def measure_rarity(number: int) -> float:
            text = guesses[number].text
            return sum(1 / (1 + self.seen[character]) for character in text) / max(1, len(text))

        return max(guessed[:_CANDIDATES], key=measure_rarity)

    def view(self, number: int) -> dict[str, Any]:
        """Return an image as the page shows it."""
        entry = self.store.entry(number)
        self.shown_at[number] = time.monotonic()
        facts: dict[str, Any] = {"number": number, "file": entry.file, "version": entry.version}
        facts |= {"text": entry.text, "guess": None, "problem": None}
        if self.shows_guess(number) and entry.text is None:
            guess = self.guesser.guess(number)
            characters = [(part.character, round(part.confidence, 4)) for part in guess.characters]
            facts["guess"] = {"text": guess.text, "characters": characters}
            facts["problem"] = self.guesser.problems.get(number)
        return facts

    def shows_guess(self, number: int) -> bool:
        """Tell whether an image is shown with a guess: not with --blind, and not one in twenty."""
        chance = random.Random(f"{SEED}-{number}").random()
        return not self.store.is_blind and chance >= _WITHOUT_GUESS

    def save(self, number: int, text: str, version: int) -> Entry:
        """Write a label, or an empty one for an image that nobody can read.

        Errors are those of `LabelStore.save`.
        """
        entry = self.store.save(number, text, version)
        self.seen.update(entry.text or "")
        guess, shown_at = self.guesser.guesses.get(number), self.shown_at.pop(number, None)
        line = {
            "file": entry.file,
            "skipped": entry.text == "",
            "seconds": None if shown_at is None else round(time.monotonic() - shown_at, 2),
            "with_guess": self.shows_guess(number),
            "as_guessed": guess and guess.text == entry.text,
        }
        # Without the line the label itself is saved.
        with suppress(OSError), open(self.journal, "a", encoding="utf-8") as stream:
            stream.write(json.dumps(line) + "\n")
        may_train = not self.store.is_blind and not self.training.is_running
        if may_train and self.labelled >= self.milestone:
            self.training.start(self.store.format_table(self.store.entries), self.labelled)
            self.milestone = next_milestone(self.labelled)
        return entry

    def _take_over(self, run: Path, point: Point) -> None:
        """Guess with a newly trained model, if it reads no fewer of the validation images."""
        self.points.append(point)
        trained = Recognizer(run)
        if self._count_right(trained) >= self._count_right(self.guesser.recognizer):
            self.model = str(run)
            self.guesser.start(self.open_numbers(), trained)

    def _count_right(self, recognizer: Recognizer) -> int:
        labels = [Label(entry.file, entry.text or "") for entry in self._labelled_in("val")]
        return sum(result.is_exact for result in judge(recognizer, self.store.folder, labels))

    def progress(self) -> dict[str, Any]:
        """Return how far the person is, how well the model reads by now, and what comes next."""
        entries = self.store.entries
        result: dict[str, Any] = {
            "images": len(entries),
            "labelled": self.labelled,
            "skipped": sum(entry.text == "" for entry in entries),
            "to_learn": len(self._labelled_in("train")),
            "model": self.model,
            "training": self.training.is_running,
            "next_training": self.milestone,
            "problem": self.training.problem,
            "outlook": [],
        }
        guesses = self.guesser.guesses
        tested = [entry for entry in self._labelled_in("test") if entry.number in guesses]
        right, images = (
            sum(guesses[entry.number].text == entry.text for entry in tested),
            len(tested),
        )
        if self.points:
            result["outlook"] = outlook(self.points)
            right, images = self.points[-1].exact, self.points[-1].tested
        if images:
            interval = wilson_interval(right, images)
            result["accuracy"] = {"right": right, "images": images, "interval": interval}
        return result

    def next_commands(self) -> list[Command]:
        """Return the commands that train on the labels; none before there are some to learn."""
        if self.store.is_blind or not self._labelled_in("train"):
            return []
        return [Command("prepare", (self.store.folder,)), Command("train")]

    def score_answers(self) -> str:
        """Score the answers against the labels of the folder, and tell how long one took.

        A skipped image is wrong.
        """
        entries = self.store.entries
        answers = {entry.file: entry.text for entry in entries if entry.text is not None}
        labels = [label for label in find_labels(self.store.folder).labels if label.file in answers]
        rows = []
        if labels:
            truths = [label.text for label in labels]
            rows.append(str(score_texts(truths, [answers[label.file] for label in labels])))
        seconds = [
            line["seconds"]
            for line in read_journal(self.journal)
            if line["file"] in answers and line["seconds"] is not None
        ]
        if seconds:
            rows.append(f"seconds an image       {median(seconds):.1f}  (median)")
        return "\n".join(rows)

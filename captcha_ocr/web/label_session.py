"""One person labelling one folder: which image comes next, what is guessed, what was achieved."""

import json
import random
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from statistics import median
from typing import Any

from captcha_ocr.data.labels import find_labels
from captcha_ocr.diagnostics.learning_curve import Point, outlook
from captcha_ocr.inference.model_folder import describe_model
from captcha_ocr.recognizer import Recognizer
from captcha_ocr.scores import score_texts, wilson_interval
from captcha_ocr.system.console import command_line
from captcha_ocr.web.guesses import Guess, Guesses
from captcha_ocr.web.label_store import SEED, Entry, LabelStore
from captcha_ocr.web.label_training import BackgroundTraining, next_milestone, score_of_test

WITHOUT_GUESS = 1 / 20  # of the images, to measure what guesses do to the person
CANDIDATES = 50  # the least sure images, among which those with rare characters come first
JOURNAL, ANSWERS_JOURNAL = "journal.jsonl", "answers.jsonl"
ANSWERS_FILE = "answers.csv"


class LabelSession:
    """The state behind the page of `label`; several threads may use it."""

    def __init__(self, store: LabelStore, model: Path, out: Path, device: str = "auto") -> None:
        self.store, self.is_blind = store, store.has_answers
        self.journal = out / (ANSWERS_JOURNAL if self.is_blind else JOURNAL)
        paths = [store.folder / entry.file for entry in store.entries]
        self.guesses = Guesses(paths, Recognizer(model, device))
        self.training = BackgroundTraining(store.folder, out, self.take_over)
        self.points: list[Point] = []
        self.seen: Counter[str] = Counter("".join(entry.text or "" for entry in store.entries))
        self.shown_at: dict[int, float] = {}
        self.model = describe_model(model)
        for labels, run in [] if self.is_blind else self.training.finished():
            self.take_over(run, labels)
        self.milestone = next_milestone(self.points[-1].images if self.points else 0)

    def start(self) -> None:
        """Begin to read the images in the background, unless no guess is shown."""
        if not self.is_blind:
            self.guesses.start([*self.tested(), *self.open_numbers()])

    @property
    def labelled(self) -> int:
        """How many images have a label."""
        return sum(bool(entry.text) for entry in self.store.entries)

    def tested(self) -> list[int]:
        """Return the numbers of the labelled test images."""
        return [
            number
            for number, entry in enumerate(self.store.entries)
            if entry.text and entry.split == "test"
        ]

    def open_numbers(self) -> list[int]:
        """Return the numbers of the images without a label that were not skipped."""
        return [number for number, entry in enumerate(self.store.entries) if entry.text is None]

    def next_number(self) -> int | None:
        """Return the image to label next: the held-out ones in their random order, then the least sure ones."""
        entries = self.store.entries
        first = next((n for n in self.store.first if entries[n].text is None), None)
        if first is not None:
            return first
        found = self.guesses.found
        unsure = sorted((n for n in self.open_numbers() if n in found), key=self.confidence)
        if not unsure:
            return next(iter(self.open_numbers()), None)
        return max(unsure[:CANDIDATES], key=self.rarity)

    def confidence(self, number: int) -> float:
        """Return how sure the model is of an image; one that cannot be read comes last."""
        guess = self.guesses.found[number]
        return guess.confidence if guess.problem is None else 2.0

    def rarity(self, number: int) -> float:
        """Return how rare the characters of an image are among the labels, so that unlike images come."""
        text = self.guesses.found[number].text
        return sum(1 / (1 + self.seen[character]) for character in text) / max(1, len(text))

    def view(self, number: int) -> dict[str, Any]:
        """Return an image as the page shows it."""
        entry = self.store.entry(number)
        self.shown_at[number] = time.monotonic()
        guess = self.guesses.of(number) if self.shows_guess(number) and entry.text is None else None
        return {
            "number": number,
            "file": entry.file,
            "version": entry.version,
            "text": entry.text,
            "guess": None
            if guess is None
            else {"text": guess.text, "characters": guess.characters},
            "problem": guess.problem if guess else None,
        }

    def shows_guess(self, number: int) -> bool:
        """Tell whether an image is shown with a guess: not with --blind, and not one in twenty."""
        return not self.is_blind and random.Random(f"{SEED}-{number}").random() >= WITHOUT_GUESS

    def save(self, number: int, text: str, version: int) -> Entry:
        """Write a label, or an empty one for an image that nobody can read; errors as `LabelStore.save`."""
        entry = self.store.save(number, text, version)
        self.seen.update(entry.text or "")
        self.note(number, entry)
        if self.labelled >= self.milestone and not self.is_blind and not self.training.is_running:
            self.training.start(self.store.document(self.store.entries), self.labelled)
            self.milestone = next_milestone(self.labelled)
        return entry

    def note(self, number: int, entry: Entry) -> None:
        """Append what a label took to the journal: seconds, and whether a guess was shown and is the label."""
        guess: Guess | None = self.guesses.found.get(number)
        shown_at = self.shown_at.pop(number, None)
        line = {
            "file": entry.file,
            "skipped": entry.text == "",
            "seconds": None if shown_at is None else round(time.monotonic() - shown_at, 2),
            "with_guess": self.shows_guess(number),
            "as_guessed": None if guess is None else guess.text == entry.text,
        }
        with (
            suppress(OSError),
            open(self.journal, "a", encoding="utf-8") as stream,
        ):  # the label itself is saved
            stream.write(json.dumps(line) + "\n")

    def take_over(self, run: Path, labels: int) -> None:
        """Read with a newly trained model from now on, if it reads no fewer of the validation images."""
        score = score_of_test(run)
        assert score is not None, "the training has ended"
        self.points.append(Point(labels, *score))
        trained = Recognizer(run)
        held_out = [
            n for n, entry in enumerate(self.store.entries) if entry.split == "val" and entry.text
        ]
        before = self.right_of(self.guesses.recognizer, held_out)
        if self.right_of(trained, held_out) >= before:
            self.model = str(run)
            self.guesses.replace_model(trained, self.open_numbers())

    def right_of(self, recognizer: Recognizer, numbers: list[int]) -> int:
        """Return how many of these images a model reads as they are labelled."""
        readings = recognizer.read_all([self.guesses.paths[number] for number in numbers])
        texts = [self.store.entries[number].text or "" for number in numbers]
        normal = recognizer.config.charset.normalize
        return sum(
            getattr(reading, "text", None) == normal(text)
            for reading, text in zip(readings, texts, strict=True)
        )

    def progress(self) -> dict[str, Any]:
        """Return how far the person is, how well the model reads by now, and what comes next."""
        entries = self.store.entries
        skipped = sum(entry.text == "" for entry in entries)
        result: dict[str, Any] = {
            "images": len(entries),
            "labelled": self.labelled,
            "skipped": skipped,
        }
        result |= {
            "model": self.model,
            "training": self.training.is_running,
            "next_training": self.milestone,
        }
        result |= {
            "problem": self.training.problem,
            "outlook": outlook(self.points) if self.points else [],
        }
        found = self.guesses.found
        judged = [
            found[number].text == entries[number].text
            for number in self.tested()
            if number in found
        ]
        if self.points:
            right, images = self.points[-1].exact, self.points[-1].tested
        else:
            right, images = sum(judged), len(judged)
        if images:
            result["accuracy"] = {
                "right": right,
                "images": images,
                "interval": wilson_interval(right, images),
            }
        result["to_learn"] = sum(bool(entry.text) and entry.split == "train" for entry in entries)
        folder = str(self.store.folder)
        commands = (
            [command_line("prepare", folder), command_line("train")] if result["to_learn"] else []
        )
        return result | {"commands": [] if self.is_blind else commands}

    def people(self) -> str:
        """Score the answers against the labels of the folder, and say how long one took; a skipped image is wrong."""
        answers = {entry.file: entry.text for entry in self.store.entries if entry.text is not None}
        journal = self.journal.read_text("utf-8") if self.journal.exists() else ""
        lines = [line for line in map(json.loads, journal.splitlines()) if line["file"] in answers]
        known = {
            label.file: label.text
            for label in find_labels(self.store.folder).labels
            if label.file in answers
        }
        rows = (
            [str(score_texts(list(known.values()), [answers[file] for file in known]))]
            if known
            else []
        )
        seconds = [line["seconds"] for line in lines if line["seconds"] is not None]
        rows += [f"seconds an image       {median(seconds):.1f}  (median)"] if seconds else []
        return "\n".join(rows)

    def stop(self) -> None:
        """End what runs in the background."""
        self.training.stop()
        self.guesses.stop()

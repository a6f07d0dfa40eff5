"""One person labelling one folder: which image comes next, its guess, the progress.

Meanwhile a model reads the images, and better ones are trained in child processes, at a low
priority.
"""

import json
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from itertools import takewhile, tee
from pathlib import Path
from statistics import median
from typing import Any

from captcha_ocr.data.label_sources.tables import read_table
from captcha_ocr.data.labels import (
    ANSWERS_FILE,
    ANSWERS_JOURNAL,
    LABELS_FILE,
    Label,
    find_labels,
    read_journal,
)
from captcha_ocr.errors import CaptchaOcrError, Command, ImageError
from captcha_ocr.experiments.adaptation import MOST_ROUNDS, adapt_command
from captcha_ocr.experiments.child_run import ChildRuns, Stopped
from captcha_ocr.experiments.judge import judge
from captcha_ocr.inference.decoding import Reading
from captcha_ocr.inference.model_folder import IN_PACKAGE, copy_model, describe_model
from captcha_ocr.inference.traits import Tally
from captcha_ocr.options.adapting import FEWEST_IMAGES
from captcha_ocr.options.serving import LabelOptions
from captcha_ocr.options.shared import LABELLED, RUN
from captcha_ocr.recognizer import Recognizer
from captcha_ocr.scores import score_texts, wilson_interval
from captcha_ocr.system.console import counted, duration, say
from captcha_ocr.system.files import find_unused, write_atomic
from captcha_ocr.training.run.folder import BEST
from captcha_ocr.web.label.store import SEED, SHARE_HELD_OUT, Entry, LabelStore

AT_RANDOM = 100  # labels are written in a random order; from then on the least sure images follow
FEWEST_SCORED = 10  # images, for a score
_WITHOUT_GUESS = 1 / 20  # of the images, to measure what guesses do to the person
_CANDIDATES = 50  # the least sure images, among which those with rare characters come first
FEWEST_LABELS = 20  # to train; then again at 40, 80, 160, …
_MINUTES = 2  # of a training, and the round that it is in
_MOST_ROUNDS = MOST_ROUNDS + 1  # the first learns the labels alone
_TELLING_S = 30.0  # between two lines at the latest
_FEWEST_OPEN = 30  # images, for a training to gain from them, and to read them
_TELLING = 300  # images whose readings tell what all texts have in common


class Guesser:
    """Reads images, by their number, in the background, and those that are asked for at once.

    A better model's guesses replace those of an older one bit by bit. So do those of a model that
    is told what the texts have in common, once enough were read. problems: why an image cannot be
    read; its guess is an empty text.
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
        self.worker = threading.Thread(target=self._work, args=(numbers,), daemon=True)
        self.worker.start()

    def stop(self) -> None:
        """End what runs in the background."""
        self.is_stopped = True
        if self.worker is not None:
            self.worker.join()

    def _work(self, numbers: list[int]) -> None:
        telling = numbers[:_TELLING]
        self._read(takewhile(lambda _: not self.is_stopped, telling))
        tally = Tally(self.recognizer.decoder.characters)
        for number in self.guesses.keys() & telling:
            tally.add(self.guesses[number], self.paths[number])
        before, self.recognizer = self.recognizer, self.recognizer.fitted_by(tally)
        unread = numbers[_TELLING:] if self.recognizer is before else numbers
        self._read(takewhile(lambda _: not self.is_stopped, unread))

    def _read(self, numbers: Iterable[int]) -> None:
        numbers, asked = tee(numbers)
        results = self.recognizer.read_all(self.paths[number] for number in asked)
        for number, result in zip(numbers, results, strict=True):
            if isinstance(result, ImageError):
                self.problems[number] = str(result)
            self.guesses[number] = result if isinstance(result, Reading) else Reading("", 0.0)


def next_milestone(labels: int) -> int:
    """Return the number of labels at which to train next."""
    doublings = (labels // FEWEST_LABELS).bit_length()
    return FEWEST_LABELS << doublings


class BackgroundTraining:
    """Runs `adapt` on a folder and its labels, one training at a time.

    It learns from the images without a label, too, but not from those of the test set. out: gets a
    folder for each training. on_model: called with the number of labels of a finished training, in
    a thread. rounds: how many have begun. told: when a line said so.
    """

    def __init__(
        self, folder: Path, out: Path, on_model: Callable[[int], None], quiet: bool = False
    ) -> None:
        self.folder, self.out, self.on_model, self.quiet = folder, out, on_model, quiet
        self.children = ChildRuns(niceness=10)
        self.thread: threading.Thread | None = None
        self.problem, self.rounds, self.started, self.told = "", 0, 0.0, 0.0

    @property
    def is_running(self) -> bool:
        """Whether a training runs."""
        return self.thread is not None and self.thread.is_alive()

    def progress(self) -> dict[str, int] | None:
        """Return how far the training is, as JSON types; None if none runs."""
        if not self.is_running:
            return None
        seconds = round(time.monotonic() - self.started)
        return {"round": self.rounds, "rounds": _MOST_ROUNDS, "seconds": seconds}

    def start(self, table: bytes, labels: int) -> None:
        """Train on a table of labels in the background."""
        self.thread = threading.Thread(target=self.train, args=(table, labels), daemon=True)
        self.thread.start()

    def train(self, table: bytes, labels: int) -> None:
        """Adapt to the images; if that fails, `problem` says why."""
        out = self.out / f"labels-{labels}"
        out.mkdir(parents=True, exist_ok=True)
        write_atomic(out / LABELS_FILE, table)
        options = {"labels": out / LABELS_FILE, "out": out, "budget": _MINUTES, "force": True}
        self.problem, self.rounds = "", 0
        self.started = self.told = time.monotonic()
        say(f"training   from {labels:,} labels, some minutes in the background", self.quiet)

        def watch() -> None:
            begun, now = max(1, len(list(out.glob("round-*")))), time.monotonic()
            if begun > self.rounds or now - self.told > _TELLING_S:
                self.rounds, self.told = begun, now
                passed = duration(now - self.started)
                say(f"training   {passed}: round {begun} of at most {_MOST_ROUNDS}", self.quiet)

        try:
            self.children.run_command("adapt", [self.folder], options, watch)
            self.on_model(labels)
        except Stopped:
            return
        except CaptchaOcrError as error:
            self.problem = str(error)
            say(f"training   failed: {error}", self.quiet)

    def stop(self) -> None:
        """End the training that runs, and begin no more."""
        self.children.stop()
        if self.thread is not None:
            self.thread.join()


class LabelSession:
    """The state behind the page of `label`; several threads may use it.

    The caller holds the lock of the folder of images (`writing_to`). given: the options that the
    person gave, by field, for the command that goes on. learnt: the images whose labels the model
    in use has learnt. Errors are those of `LabelStore` and `Recognizer`.
    """

    def __init__(
        self, folder: Path, model: Path, options: LabelOptions, given: Mapping[str, object] = {}
    ) -> None:
        out = options.run_for(folder)
        self.store = LabelStore(folder, out / ANSWERS_FILE if options.blind else None)
        out.mkdir(parents=True, exist_ok=True)
        self.model = describe_model(model)
        self.journal = out / (ANSWERS_JOURNAL if options.blind else "journal.jsonl")
        paths = [folder / entry.file for entry in self.store.entries]
        self.guesser = Guesser(paths, Recognizer(model, options.device))
        self.options, self.adaptation = options, adapt_command(folder)
        self.again = Command("label", (folder,), given)
        self.training = BackgroundTraining(folder, out, self._finish_training, options.quiet)
        self.has_default = False  # whether eval reads with a model of this session
        self.learnt: set[str] = set()
        if model not in IN_PACKAGE.values():  # it may have learnt whatever was there for it
            labelled = filter(lambda entry: entry.text, self.store.entries)
            self.learnt = {entry.file for entry in labelled if entry.split == "train"}
        self.shown_at: dict[int, float] = {}
        models = [] if options.blind else out.glob(f"labels-*/{BEST}")
        trained = sorted(int(model.parent.name.removeprefix("labels-")) for model in models)
        for labels in trained:
            self._take_over(labels)
        self.milestone = next_milestone(max(trained, default=0))

    def start(self) -> None:
        """Begin to read the images in the background, unless no guess is shown."""
        if not self.store.is_blind:
            self.guesser.start(self._numbers_to_read())

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

    def list_tests(self, learnt: Collection[str]) -> list[Entry]:
        """Return the labelled images that show how well a model reads: drawn at random, and none
        whose label it has learnt.
        """
        drawn = {*self.store.drawn[:AT_RANDOM]}
        return [
            entry
            for entry in self.store.entries
            if entry.text and entry.file not in learnt
            if entry.split != "train" or entry.number in drawn
        ]

    def next_number(self) -> int | None:
        """Return the image to label next.

        The first hundred come in a random order. Then one in five is held out, still at random. The
        others are the least sure ones. Of these, those come first whose characters are rare among
        the labels: unlike images. An image that cannot be read comes last.
        """
        drawn = map(self.store.entry, self.store.drawn)
        missing = [entry for entry in drawn if entry.text is None]
        missing.sort(key=lambda entry: entry.number in self.guesser.problems)
        if missing and (self.store.is_blind or self.labelled < AT_RANDOM):
            return missing[0].number
        held_out = [entry.number for entry in missing if entry.split != "train"]
        others = [entry.number for entry in missing if entry.split == "train"]
        tests = sum(bool(entry.text) and entry.split != "train" for entry in self.store.entries)
        if held_out and (SHARE_HELD_OUT * tests <= self.labelled or not others):
            return held_out[0]
        guesses = self.guesser.guesses
        guessed = [number for number in others if number in guesses]
        if not guessed:
            return next(iter(others), None)
        guessed.sort(
            key=lambda number: (number in self.guesser.problems, guesses[number].confidence)
        )
        seen = Counter("".join(entry.text or "" for entry in self.store.entries))

        def measure_rarity(number: int) -> float:
            text = guesses[number].text
            return sum(1 / (1 + seen[character]) for character in text) / max(1, len(text))

        return max(guessed[:_CANDIDATES], key=measure_rarity)

    def view(self, number: int) -> dict[str, Any]:
        """Return an image as the page shows it."""
        entry = self.store.entry(number)
        self.shown_at[number] = time.monotonic()
        guess = problem = None
        if self.shows_guess(number) and entry.text is None:
            reading = self.guesser.guess(number)
            characters = [
                (part.character, round(part.confidence, 4)) for part in reading.characters
            ]
            guess = {"text": reading.text, "characters": characters}
            problem = self.guesser.problems.get(number)
        return {
            "number": number,
            "file": entry.file,
            "version": entry.version,
            "text": entry.text,
            "guess": guess,
            "problem": problem,
        }

    def shows_guess(self, number: int) -> bool:
        """Tell whether an image is shown with a guess: not with --blind, and not one in twenty."""
        chance = random.Random(f"{SEED}-{number}").random()
        return not self.store.is_blind and chance >= _WITHOUT_GUESS

    def save(self, number: int, text: str, version: int) -> Entry:
        """Write a label, or an empty one for an image that nobody can read.

        Errors are those of `LabelStore.save`.
        """
        entry = self.store.save(number, text, version)
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
        may_train = may_train and len(self.open_numbers()) >= _FEWEST_OPEN
        if may_train and self.labelled >= self.milestone:
            self.training.start(self._make_table(), self.labelled)
            self.milestone = next_milestone(self.labelled)
        return entry

    def _make_table(self) -> bytes:
        """Return the table to learn from: all that is held out is for the test."""
        entries = self.store.entries
        learnt = [entry for entry in entries if entry.split == "train"]
        tests = [replace(entry, split="test") for entry in entries if entry.split != "train"]
        return self.store.format_table([*learnt, *tests])

    def _finish_training(self, labels: int) -> None:
        """Take a new model over; in the usual place of models `eval` reads with it, too."""
        if self._take_over(labels) and self.options.out is None:
            copy_model(self.training.out / f"labels-{labels}" / BEST, LABELLED / BEST)
            self.has_default = True

    def _take_over(self, labels: int) -> bool:
        """Guess with the model of a training, if it reads no fewer of its tests."""
        run = self.training.out / f"labels-{labels}"
        if not (run / BEST).exists():  # it was ended before it had a model
            return False
        learnt = {row.filename for row in read_table(run / LABELS_FILE) if row.split == "train"}
        tests, trained = self.list_tests(learnt), Recognizer(run)
        right = self._count_right(trained, tests)
        say(
            f"trained    {run} reads {right:,} of {counted(len(tests), 'label')} that it "
            "did not learn",
            self.options.quiet,
        )
        if right < self._count_right(self.guesser.recognizer, tests):
            return False
        self.model, self.learnt = str(run), learnt
        self.guesser.start(self._numbers_to_read(), trained)
        return True

    def _count_right(self, recognizer: Recognizer, entries: list[Entry]) -> int:
        labels = [Label(entry.file, entry.text or "") for entry in entries]
        return sum(result.is_exact for result in judge(recognizer, self.store.folder, labels))

    def _numbers_to_read(self) -> list[int]:
        tests = self.list_tests(self.learnt)
        return [*(entry.number for entry in tests), *self.open_numbers()]

    def list_commands(self) -> list[Command]:
        """Return the commands that lead on from here."""
        if self.store.is_blind:
            return []
        readable = set(self.open_numbers()).difference(self.guesser.problems)
        if self.labelled < FEWEST_LABELS and readable:
            return [self.again]
        if len(readable) >= _FEWEST_OPEN:
            return [self.adaptation]
        place = find_unused(RUN)
        return [Command("train", (self.store.folder,), {"out": place} if place != RUN else {})]

    def progress(self) -> dict[str, Any]:
        """Return how far the person is, how well the model reads by now, and what comes next.

        All of it is JSON but for the commands that train on the labels.
        """
        guesses = self.guesser.guesses
        tests = [entry for entry in self.list_tests(self.learnt) if entry.number in guesses]
        may_follow = bool(self.open_numbers()) and not self.store.is_blind
        result: dict[str, Any] = {
            "images": len(self.store.entries),
            "labelled": self.labelled,
            "skipped": sum(entry.text == "" for entry in self.store.entries),
            "model": self.model,
            "training": self.training.progress(),
            "next_training": self.milestone if len(self.store.entries) >= FEWEST_IMAGES else 0,
            "needed": max(0, FEWEST_LABELS - self.labelled) if may_follow else 0,
            "unscored": max(0, FEWEST_SCORED - len(tests)) if may_follow else 0,
            "problem": self.training.problem,
            "commands": self.list_commands(),
        }
        right = sum(guesses[entry.number].text == entry.text for entry in tests)
        if len(tests) >= FEWEST_SCORED:
            result["accuracy"] = {
                "right": right,
                "images": len(tests),
                "interval": wilson_interval(right, len(tests)),
            }
        return result

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
        lines = [line for line in read_journal(self.journal) if line["file"] in answers]
        seconds = [line["seconds"] for line in lines if line["seconds"] is not None]
        if seconds:
            rows.append(f"seconds an image       {median(seconds):.1f}  (median)")
        return "\n".join(rows)

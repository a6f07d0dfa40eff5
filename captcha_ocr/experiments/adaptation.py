"""Adapt a model to a folder of images of which few or none have labels.

It learns in rounds from what it reads itself (pseudo-labels, Lee 2013). A round takes those
readings for labels that are probably right: the sure ones, or those that a second reader reads
alike. The model of the start learns them, and reads all images again for the next round.
"""

import random
import shutil
import time
from collections.abc import Mapping
from dataclasses import astuple, dataclass, replace
from pathlib import Path
from statistics import fmean

from captcha_ocr.charset import shorten, split_characters
from captcha_ocr.data.images import find_images
from captcha_ocr.data.label_sources.tables import mark_text, readings_to_csv, to_csv
from captcha_ocr.data.labels import LABELS_FILE, find_labels
from captcha_ocr.data.prepare import prepare
from captcha_ocr.errors import Advice, Command, UsageError, check
from captcha_ocr.inference.decoding import Decoder, Reading
from captcha_ocr.inference.model_folder import (
    PRETRAINED,
    copy_model,
    find_model_folder,
    read_config,
)
from captcha_ocr.inference.rapidocr_engine import find_network
from captcha_ocr.options.adapting import AdaptOptions
from captcha_ocr.options.model import Lengths
from captcha_ocr.options.preparation import PrepareConfig, PrepareOptions
from captcha_ocr.options.shared import ReadingOptions
from captcha_ocr.options.training import PRESETS, TrainOptions
from captcha_ocr.pictures.contact_sheet import Tile, draw_sheet
from captcha_ocr.recognizer import Recognizer
from captcha_ocr.system.console import Table, counted, duration, say
from captcha_ocr.system.documents import is_ours, sealed
from captcha_ocr.system.files import sha256, write_atomic, writing_to
from captcha_ocr.training.run.folder import BEST
from captcha_ocr.training.train import train
from captcha_ocr.two_readers import NO_SECOND, RAPIDOCR, TwoReaders, agree, open_second_reader

_READINGS_FILE, _SHEET_FILE = "readings.csv", "least-sure.png"
_STATE_FILE, _STATE_FORMAT = "adaptation.json", "captcha-ocr adaptation"
_ROUNDS = Table({"round": 10, "labels": 9, "expected": 10, "time": 14})
_RECIPE = PRESETS["finetune"].training
_FEWEST_IMAGES = 50
_MOST_ROUNDS = 4
_PART = 10  # one image of so many is held out, and one label of so many is for validation
_SURE_AT_FIRST, _SURE = 0.5, 0.6  # confidence from which a reading is a label
_FEWEST_LABELS = 60
_ENOUGH_LABELS = 20  # that were given, to learn the design from them alone before the first round
_FEWEST_SURE, _FEWEST_SURE_IMAGES = 0.2, 10  # of the images
_SETTLED = 0.995  # of the readings: if so many stay, another round would learn from the same
_SHEET_ROWS = 6

Readings = dict[str, Reading]  # of image files


@dataclass(frozen=True)
class Round:
    """From how many labels a round learnt, and what to expect of its model.

    expected: the exact match, 0 to 1: the mean confidence in the images that took no part.
    """

    number: int
    labels: int
    expected: float
    seconds: float

    def __str__(self) -> str:
        return _ROUNDS.row(
            self.number, f"{self.labels:,}", f"{self.expected:.1%}", duration(self.seconds)
        )


@dataclass(frozen=True)
class Adapted:
    """The result: the rounds, and what the texts have in common.

    best: the round whose model was kept. charset, lengths: of the texts that it reads.
    second_reader: the one beside the model; None without. sure: the part of the images, 0 to 1,
    that were read surely at the start.
    """

    rounds: list[Round]
    best: Round
    charset: str
    lengths: str
    second_reader: str | None
    sure: float

    @property
    def is_doubtful(self) -> bool:
        """Whether so little was read surely at the start that it may have learnt its mistakes."""
        return self.sure < _FEWEST_SURE


def adapt(
    images: Path,
    options: AdaptOptions = AdaptOptions(),
    reading: ReadingOptions = ReadingOptions(),
) -> Adapted:
    """Adapt a model to the images below a folder; write it to `best` in `out`.

    Beside it stand readings.csv, the least sure first, and a picture of the least sure. An
    interrupted adaptation of the same images goes on. UsageError for too few images, and if another
    adaptation is in `out`, unless `force` is set.
    """
    deadline = time.monotonic() + 60 * options.budget
    with writing_to(options.out):
        work = _Adaptation(images, options, reading)
        readings, others = work.read_first()
        sure = work.count_sure(readings, others) / len(readings)
        work.begin()
        say(f"{'sure':11}{sure:.0%} of the images at the start\n{_ROUNDS.header}", options.quiet)
        rounds: list[Round] = []
        knows_design = len(work.labels) >= _ENOUGH_LABELS
        if knows_design:
            readings = work.read(work.learn(0, work.labels)[0])
        while True:
            started, before = time.monotonic(), readings
            is_first = not rounds and not knows_design
            labels = choose_labels(readings, others, is_first) | work.labels
            recognizer, count = work.learn(len(rounds) + 1, labels)
            readings = work.read(recognizer)
            seconds = time.monotonic() - started
            rounds.append(Round(len(rounds) + 1, count, work.expect(readings), seconds))
            say(str(rounds[-1]), options.quiet)
            best = max(rounds, key=lambda done: done.expected)
            if best is rounds[-1]:
                work.keep(best, readings)
            stay = fmean(readings[file].text == before[file].text for file in readings)
            is_late = time.monotonic() + seconds > deadline
            if stay >= _SETTLED or is_late or len(rounds) == _MOST_ROUNDS:
                break
    second = None if work.second == NO_SECOND else work.second
    config = recognizer.config
    return Adapted(rounds, best, str(config.charset), str(config.lengths), second, sure)


def rank_readings(readings: Readings, others: Readings, is_first: bool) -> dict[str, float]:
    """Return the rank of each image: the confidence of its reading, and 1 or more above that where
    a second reader reads the same.

    In the first round it is 1 below where that reads something else. others: what it reads in the
    same images, nothing if it did not.
    """
    ranks = {file: reading.confidence for file, reading in readings.items()}
    for file, other in others.items():
        if agree(readings[file], other):
            ranks[file] += 1 + other.confidence
        elif is_first and other.text:
            ranks[file] -= 1
    return ranks


def choose_labels(
    readings: Readings, others: Readings, is_first: bool, fewest: int = _FEWEST_LABELS
) -> dict[str, str]:
    """Return the texts of the images that are read surely.

    others: as for `rank_readings`. fewest: so many are chosen, even if they are not read surely,
    but no more than half of all.
    """
    ranks = rank_readings(readings, others, is_first)
    surest = sorted(ranks, key=lambda file: -ranks[file])
    sure = _SURE_AT_FIRST if is_first else _SURE
    fewest = min(fewest, len(readings) // 2)
    chosen = [file for number, file in enumerate(surest) if number < fewest or ranks[file] >= sure]
    return {file: readings[file].text for file in chosen}


class _Adaptation:
    """An adaptation while it runs.

    labels: those that were given, by file. held_out: the files that no round learns from, once they
    were read.
    """

    def __init__(self, images: Path, options: AdaptOptions, reading: ReadingOptions) -> None:
        self.images, self.options, self.reading = images, options, reading
        check(images.is_dir(), f"{images} is not a folder")
        is_apart = not options.out.resolve().is_relative_to(images.resolve())
        check(is_apart, f"`out` {options.out} is among the images of {images}; choose another")
        self.files = find_images(images).images
        self.paths = [images / file for file in self.files]
        self.labels: dict[str, str] = {}
        if options.labels is not None:
            given = find_labels(images, options.labels).check().labels
            self.labels = {label.file: label.text for label in given}
        self.init = find_model_folder(options.init or PRETRAINED)
        self.second = options.second or (NO_SECOND if find_network() is None else RAPIDOCR)
        self.identity = self._describe()
        state = options.out / _STATE_FILE
        for name in (BEST, _READINGS_FILE, _SHEET_FILE):
            check(
                is_ours(state, _STATE_FORMAT) or not (options.out / name).exists(),
                f"{options.out} holds {name}, which adapt did not write; choose another `out`",
            )
        check(
            options.force or not state.exists() or state.read_bytes() == self.identity,
            f"{options.out} holds another adaptation (its images, labels or options differ); "
            "choose another `out`, or replace it with `force`",
        )

    def _describe(self) -> bytes:
        """Return a document that another start of the same adaptation makes alike."""
        sizes = (f"{file} {(self.images / file).stat().st_size}" for file in self.files)
        told = self.reading
        identity = {
            "format": _STATE_FORMAT,
            "version": 1,
            "images": sha256("\n".join(sizes).encode("utf-8", "surrogateescape")),
            "labels": self.labels,
            "init": read_config(self.init)["sha256"],
            "second": self.second,
            "told": [told.charset, str(told.lengths), told.fold_case, told.max_bytes],
        }
        return sealed(identity)

    def read_first(self) -> tuple[Readings, Readings]:
        """Return what the model of the start reads, and what the second reader does.

        Both are told what the images have in common. UsageError for too few images without a label
        that can be read.
        """
        readers = TwoReaders(
            Recognizer.with_options(self.init, self.reading),
            open_second_reader(self.second, self.images, self.reading),
        ).fitted_to(self.paths)
        self._find_texts(readers.recognizer.decoder)
        readings: Readings = {}
        others: Readings = {}
        for file, (first, second) in zip(self.files, readers.read_both(self.paths), strict=True):
            if isinstance(first, Reading):
                readings[file], others[file] = first, second
        unlabelled = [file for file in readings if file not in self.labels]
        check(
            len(unlabelled) >= _FEWEST_IMAGES,
            f"{self.images} has {counted(len(unlabelled), 'image')} without a label that can be "
            f"read, and adapt needs {_FEWEST_IMAGES}",
        )
        self.held_out = set(random.Random(0).sample(unlabelled, len(unlabelled) // _PART))
        unread = len(self.files) - len(readings)
        more = f"; {unread:,} more cannot be read" if unread else ""
        say(
            f"images     {len(readings):,}, of which {len(self.held_out):,} take no part{more}\n"
            f"second     {self.second}\n"
            f"in common  texts of {self.lengths} of the characters {shorten(self.charset)}\n"
            f"rounds     at most {_MOST_ROUNDS} in {counted(self.options.budget, 'minute')}",
            self.options.quiet,
        )
        return readings, others

    def _find_texts(self, decoder: Decoder) -> None:
        """Take lengths and characters from what the model was told, and from the labels where the
        person said nothing else.
        """
        self.fold_case, lengths = decoder.fold_case, {*astuple(decoder.lengths)}
        characters, folded = set(decoder.characters), "".join(decoder.characters).casefold()
        for text in map(split_characters, self.labels.values()):
            lengths.add(len(text))
            characters |= {character for character in text if character.casefold() not in folded}
        if self.reading.lengths is not None:
            lengths = {*astuple(self.reading.lengths)}
        if self.reading.charset is not None:
            characters = set(decoder.characters)
        if self.fold_case:  # both cases of a letter are read as the lower one
            characters -= {lower.upper() for lower in characters if lower.upper() != lower}
        self.lengths = Lengths(min(lengths), max(lengths))
        self.charset = "".join(sorted(characters))

    def begin(self) -> None:
        """Write down what is adapted to what, and remove the rounds of another adaptation."""
        out, state = self.options.out, self.options.out / _STATE_FILE
        if state.exists() and state.read_bytes() == self.identity:
            return
        if is_ours(state, _STATE_FORMAT):
            for number in range(_MOST_ROUNDS + 1):
                shutil.rmtree(out / f"round-{number}", ignore_errors=True)
        write_atomic(state, self.identity)

    def learn(self, number: int, labels: Mapping[str, str]) -> tuple[Recognizer, int]:
        """Train on labels in the folder of a round, or go on where an earlier start ended.

        Return the model, and the number of labels.
        """
        folder = self.options.out / f"round-{number}"
        table, shards, run = folder / LABELS_FILE, folder / "shards", folder / "run"
        if not table.exists():
            folder.mkdir(exist_ok=True)
            write_atomic(table, self._make_table(labels))
        preparation = PrepareConfig(
            preset=_RECIPE.preset,
            lengths=self.lengths,
            charset=self.charset,
            case_sensitive=not self.fold_case,
            max_bytes=self.reading.max_bytes,
        )
        shown = prepare(self.images, shards, preparation, PrepareOptions(labels=table)).manifest
        how = TrainOptions(self.reading.device, self.init, threads=self.reading.threads, quiet=True)
        train([shards], run, _RECIPE, how)
        limits = replace(self.reading, charset=None, lengths=None)
        return Recognizer.with_options(run, limits), shown.count("train") + shown.count("val")

    def _make_table(self, labels: Mapping[str, str]) -> bytes:
        """Return a table of labels, without the images that are held out."""
        files = sorted(labels.keys() - self.held_out)
        random.Random(0).shuffle(files)
        rows = [
            (file, mark_text(labels[file]), "train" if number % _PART else "val")
            for number, file in enumerate(files)
        ]
        table = to_csv([("filename", "text", "split"), *rows])
        return table.encode("utf-8", "surrogateescape")

    def count_sure(self, readings: Readings, others: Readings) -> int:
        """Return how many images were read surely at the start; UsageError for too few without a
        label.
        """
        ranks = rank_readings(readings, others, is_first=True)
        sure = sum(rank >= _SURE_AT_FIRST for rank in ranks.values())
        if sure + len(self.labels) < _FEWEST_SURE_IMAGES:
            raise UsageError(
                f"of the images in {self.images} too few are read surely to learn from: {sure:,}",
                Advice("30 labels are enough; write them with", Command("label", (self.images,))),
            )
        return sure

    def read(self, recognizer: Recognizer) -> Readings:
        """Return what a model reads; images that cannot be read are left out."""
        results = zip(self.files, recognizer.read_all(self.paths), strict=True)
        return {file: result for file, result in results if isinstance(result, Reading)}

    def expect(self, readings: Readings) -> float:
        """Return the exact match to expect of new images, 0 to 1."""
        return fmean(readings[file].confidence for file in readings.keys() & self.held_out)

    def keep(self, done: Round, readings: Readings) -> None:
        """Keep the model of a round, its readings, and a picture of the least sure."""
        out = self.options.out
        copy_model(out / f"round-{done.number}" / "run" / BEST, out / BEST)
        found = ((file, reading.text, reading.confidence) for file, reading in readings.items())
        table = readings_to_csv(found)
        write_atomic(out / _READINGS_FILE, table.encode("utf-8", "surrogateescape"))
        tiles = [
            Tile(self.images / file, f"{file}, {reading.confidence:.2f}", reading.text)
            for file, reading in sorted(readings.items(), key=lambda item: item[1].confidence)
        ]
        draw_sheet(tiles, out / _SHEET_FILE, self.reading.max_bytes, _SHEET_ROWS)

"""Adapt a model to a folder of images of which few or none have labels.

It learns in rounds from what it reads itself (pseudo-labels, Lee 2013). A round takes those
readings for labels that are probably right: the sure ones, or those that a second reader reads
alike. The model of the start learns them, and reads all images again for the next round. From the
third round on, the mean of the weights of three rounds reads (Wortsman et al. 2022,
arXiv:2203.05482).
"""

import os
import random
import re
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, astuple, dataclass, replace
from pathlib import Path
from typing import Any

from captcha_ocr.charset import shorten, split_characters
from captcha_ocr.data.images import describe_mixture, find_images
from captcha_ocr.data.label_sources.tables import mark_text, readings_to_csv, to_csv
from captcha_ocr.data.labels import LABELS_FILE, Found, Problems, find_labels
from captcha_ocr.data.prepare import prepare
from captcha_ocr.errors import Advice, Command, DamagedError, UsageError, check
from captcha_ocr.experiments.expectation import (
    Expectation,
    Readings,
    measure_agreement,
)
from captcha_ocr.inference.decoding import Decoder, Reading
from captcha_ocr.inference.model_folder import (
    CARD_FILE,
    PRETRAINED,
    find_model_folder,
    read_config,
)
from captcha_ocr.inference.rapidocr_engine import find_network
from captcha_ocr.inference.traits import ANY_FORM, Tally
from captcha_ocr.network.weights import mean_model, save_model
from captcha_ocr.options.adapting import FEWEST_IMAGES, AdaptOptions
from captcha_ocr.options.model import Lengths
from captcha_ocr.options.preparation import PrepareConfig, PrepareOptions
from captcha_ocr.options.shared import ADAPTED, ReadingOptions
from captcha_ocr.options.training import PRESETS, TrainOptions
from captcha_ocr.pictures.contact_sheet import Tile, draw_sheet
from captcha_ocr.recognizer import Recognizer
from captcha_ocr.system.console import Table, counted, duration, in_groups, say
from captcha_ocr.system.documents import is_ours, read_json, sealed, to_json
from captcha_ocr.system.files import find_unused, sha256, write_atomic, writing_to
from captcha_ocr.training.run.folder import BEST
from captcha_ocr.training.train import train
from captcha_ocr.two_readers import (
    NO_SECOND,
    RAPIDOCR,
    TwoReaders,
    agree,
    open_second_reader,
)

_READINGS_FILE, _SHEET_FILE = "readings.csv", "least-sure.png"
_STATE_FILE, _STATE_FORMAT = "adaptation.json", "captcha-ocr adaptation"
_RESULT_FILE = "result.json"
_ROUNDS = Table({"round": 10, "labels": 9, "stay": 8, "expected": 10, "time": 14})
_RECIPE = PRESETS["finetune"].training
_FEWEST_ROUNDS, MOST_ROUNDS = 2, 6
_AVERAGED = 3  # rounds, whose models become one
_PART = 10  # one label of so many is for validation
_SURE_AT_FIRST, _SURE = 0.5, 0.6  # confidence from which a reading is a label
_FEWEST_LABELS = 60
_ENOUGH_LABELS = 16  # that were given, to learn the design from them alone before the first round
_FEWEST_SURE, _FEWEST_SURE_IMAGES = 0.2, 10  # of the images
_NO_LENGTH, _NO_CHARSET = 3, 0.85  # such texts have no length, and no alphabet but the model's
_SETTLED = 0.995  # of the readings: if so many stay, another round would learn from the same
_STEADY = 0.85  # of the readings; with fewer, the rounds know nothing
_SHEET_ROWS = 6


@dataclass(frozen=True)
class Round:
    """From how many labels a round learnt, and what to expect of its model.

    stay: the part of the images, 0 to 1, of which it reads the same as the model before.
    """

    number: int
    labels: int
    stay: float
    expectation: Expectation
    seconds: float

    def __str__(self) -> str:
        expected = f"{self.expectation.expected:.1%}"
        stay, seconds = f"{self.stay:.1%}", duration(self.seconds)
        return _ROUNDS.row(self.number, f"{self.labels:,}", stay, expected, seconds)


@dataclass(frozen=True)
class Adapted:
    """The result: the rounds, and what the texts have in common.

    has_model: whether a model was kept. expectation: of new images; None with a doubt. doubt: why
    nothing is known of it; else empty. charset, lengths: of the texts. second_reader: the one
    beside the model; None without.
    """

    rounds: list[Round]
    has_model: bool
    expectation: Expectation | None
    doubt: str
    charset: str
    lengths: str
    second_reader: str | None

    @classmethod
    def from_json(cls, facts: dict[str, Any]) -> "Adapted":
        """Invert `asdict`."""
        rounds = [
            Round(**{**row, "expectation": Expectation(*row["expectation"])})
            for row in facts["rounds"]
        ]
        expectation = facts["expectation"] and Expectation(*facts["expectation"])
        return cls(**{**facts, "rounds": rounds, "expectation": expectation})


def adapt(
    images: str | os.PathLike[str],
    options: AdaptOptions = AdaptOptions(),
    reading: ReadingOptions = ReadingOptions(),
) -> Adapted:
    """Adapt a model to the images below a folder; write it to `best` in `out`.

    Beside it stand readings.csv, the least sure first, and a picture of the least sure. An
    interrupted adaptation of the same images goes on. UsageError for too few images, and if another
    adaptation is in `out`, unless `force` is set.
    """
    with writing_to(options.out):
        work = _Adaptation(Path(images), options, reading)
        finished = work.find_result()
        if finished is not None and not options.force:
            say(f"finished   {options.out} holds this adaptation already", options.quiet)
            return finished
        told = work.read_first()
        doubt = work.find_doubt(told)
        work.begin()
        say(_ROUNDS.header, options.quiet)
        rounds = []
        for done in work.run_rounds(told):
            rounds.append(done)
            say(str(done), options.quiet)
        is_alone = work.second == NO_SECOND and not work.knows_design
        has_model = not is_alone or rounds[-1].stay >= _STEADY
        if not has_model:
            work.discard(told)
            doubt = doubt or "its rounds read other texts each time"
        expectation = None if doubt else rounds[-1].expectation
        second, lengths = None if work.second == NO_SECOND else work.second, str(work.lengths)
        adapted = Adapted(rounds, has_model, expectation, doubt, work.charset, lengths, second)
        work.write_result(adapted)
    return adapted


def rank_readings(
    readings: Readings, others: Readings, is_first: bool, form: str = ANY_FORM
) -> dict[str, float]:
    """Return the rank of each image: the confidence of its reading, and 1 more where a second
    reader reads the same.

    It is 1 less where that reads something else, in the first round, and where the text does not
    have the form, a regular expression. others: what the second reader reads in the same images,
    nothing if it did not.
    """
    ranks = {}
    for file, reading in readings.items():
        is_same = agree(reading, others[file])
        is_denied = is_first and bool(others[file].text) and not is_same
        is_text = re.fullmatch(form, reading.text.casefold()) is not None
        ranks[file] = reading.confidence + is_same - is_denied - (not is_text)
    return ranks


def choose_labels(
    ranks: Mapping[str, float], sure: float, fewest: int = _FEWEST_LABELS
) -> list[str]:
    """Return the images that have a rank of `sure` or more.

    fewest: so many are chosen, even if their rank is lower, but no more than half of all.
    """
    surest = sorted(ranks, key=lambda file: -ranks[file])
    fewest = min(fewest, len(ranks) // 2)
    return surest[: max(fewest, sum(rank >= sure for rank in ranks.values()))]


def adapt_command(images: Path) -> Command:
    """Return the command that adapts to images: in the place of an earlier adaptation to the same
    ones, and beside one to others.
    """
    with suppress(DamagedError, KeyError):
        before = read_json(ADAPTED / _STATE_FILE)["images"]
        if before == _hash_sizes(images, find_images(images).images):
            return Command("adapt", (images,), {"force": True})
    out = find_unused(ADAPTED)
    return Command("adapt", (images,), {"out": out} if out != ADAPTED else {})


def _hash_sizes(images: Path, files: Sequence[str]) -> str:
    """Return a hash of the names of images and their sizes in bytes."""
    sizes = (f"{file} {(images / file).stat().st_size}" for file in files)
    return sha256("\n".join(sizes).encode("utf-8", "surrogateescape"))


class _Adaptation:
    """An adaptation while it runs.

    labels: those that were given to learn from, by file. tested: the files of a test set, from
    which no round learns. others: what the second reader reads in each image that can be read,
    nothing without one. form: a regular expression for texts, case folded. is_begun: whether `out`
    holds what an earlier start of the same adaptation left.
    """

    def __init__(self, images: Path, options: AdaptOptions, reading: ReadingOptions) -> None:
        self.images, self.options, self.reading = images, options, reading
        self.started = time.monotonic()
        check(images.is_dir(), f"{images} is not a folder")
        is_apart = not options.out.resolve().is_relative_to(images.resolve())
        check(is_apart, f"`out` {options.out} is among the images of {images}; choose another")
        self.files = find_images(images).images
        self.paths = [images / file for file in self.files]
        self.labels: dict[str, str] = {}
        self.tested: set[str] = set()
        self.others: Readings = {}
        table = options.labels or images / LABELS_FILE
        if options.labels is not None or table.is_file():
            self._take_labels(find_labels(images, table).check())
        self.init = find_model_folder(options.init or PRETRAINED)
        self.second = options.second or (NO_SECOND if find_network() is None else RAPIDOCR)
        self.identity = self._describe()
        state = options.out / _STATE_FILE
        for name in (BEST, _READINGS_FILE, _SHEET_FILE, _RESULT_FILE):
            check(
                is_ours(state, _STATE_FORMAT) or not (options.out / name).exists(),
                f"{options.out} holds {name}, which adapt did not write; choose another `out`",
            )
        self.is_begun = state.exists() and state.read_bytes() == self.identity
        check(
            options.force or not state.exists() or self.is_begun,
            f"{options.out} holds another adaptation (its images, labels or options differ); "
            "choose another `out`, or replace it with `force`",
        )

    def _take_labels(self, given: Found) -> None:
        """Take the labels of a table, but those that a model has read and nobody checked."""
        left_out = {file: given.problems[file] for file in given.problems.keys() - {*self.files}}
        for label in given.labels:
            if label.confidence is not None:
                left_out[label.file] = "a model's reading; without its `confidence` it is a label"
            elif label.split == "test":
                self.tested.add(label.file)
            else:
                self.labels[label.file] = label.text
        self._tell_left_out(left_out)

    def _tell_left_out(self, problems: Problems) -> None:
        for line in in_groups(problems):
            say(f"left out   {line}", self.options.quiet)

    @property
    def knows_design(self) -> bool:
        """Whether so many labels were given that they alone teach the design."""
        return len(self.labels) >= _ENOUGH_LABELS

    def _describe(self) -> bytes:
        """Return a document that another start of the same adaptation makes alike."""
        told, table = self.reading, Path(self.second)
        identity = {
            "format": _STATE_FORMAT,
            "version": 1,
            "images": _hash_sizes(self.images, self.files),
            "labels": self.labels,
            "tested": sorted(self.tested),
            "init": read_config(self.init)["sha256"],
            "second": self.second if not table.is_file() else sha256(table.read_bytes()),
            "told": [told.charset, str(told.lengths), told.fold_case, told.max_bytes],
        }
        return sealed(identity)

    def read_first(self) -> Readings:
        """Return what the model of the start reads; let the second reader read, too.

        Both are told what the images have in common. UsageError for too few images without a label
        that can be read.
        """
        recognizer = Recognizer.with_options(self.init, self.reading)
        self.known = recognizer.decoder
        second_reader = open_second_reader(self.second, self.images, self.reading)
        readers = TwoReaders(recognizer, second_reader).fitted_to(self.paths)
        named = self.second
        if named != NO_SECOND and not readers.has_second:
            named, self.second = f"{named}, left out: it reads something else", NO_SECOND
        tally, readings = Tally(readers.recognizer.decoder.characters), dict[str, Reading]()
        unreadable: Problems = {}
        for file, (first, second) in zip(self.files, readers.read_both(self.paths), strict=True):
            if isinstance(first, Reading):
                readings[file], self.others[file] = first, second
                tally.add(first, file)
            else:
                self.labels.pop(file, None)
                unreadable[file] = str(first).removeprefix(f"{self.images / file}: ")
        self._tell_left_out(unreadable)
        self._find_texts(readers.recognizer.decoder)
        self.form = tally.find_form()
        unlabelled = [file for file in readings.keys() - self.tested if file not in self.labels]
        check(
            len(readings) >= FEWEST_IMAGES,
            f"{self.images} has {counted(len(readings), 'image')} that can be read, and adapt "
            f"needs {FEWEST_IMAGES}",
        )
        if len(unlabelled) < _PART:
            raise UsageError(
                f"of the images in {self.images} {len(unlabelled):,} have no label, and adapt "
                f"needs {_PART}",
                Advice("to learn labels", Command("prepare", (self.images,))),
            )
        kind = "texts" if self.form == ANY_FORM else "sums"
        say(
            f"images     {len(readings):,}, of which {len(self.labels):,} have labels and "
            f"{len(self.tested):,} are for a test\n"
            f"second     {named}\n"
            f"in common  {kind} of {self.lengths} of the characters {shorten(self.charset)}\n"
            f"rounds     at most {MOST_ROUNDS} in {counted(self.options.budget, 'minute')}",
            self.options.quiet,
        )
        return readings

    def _find_texts(self, decoder: Decoder) -> None:
        """Take lengths and characters from what the model was told, and from the labels.

        UsageError for a label that contradicts what the person said.
        """
        self.fold_case, lengths = decoder.fold_case, {*astuple(decoder.lengths)}
        characters, folded = set(decoder.characters), "".join(decoder.characters).casefold()
        for file, text in self.labels.items():
            symbols = split_characters(text)
            new = {symbol for symbol in symbols if symbol.casefold() not in folded}
            fits = not new or self.reading.charset is None
            check(fits, f"{file} has the label {text!r}, which does not fit `charset`")
            fits = self.reading.lengths is None or len(symbols) in self.reading.lengths
            check(fits, f"{file} has the label {text!r}, which does not fit `lengths`")
            lengths.add(len(symbols))
            characters |= new
        if self.fold_case:  # both cases of a letter are read as the lower one
            characters -= {lower.upper() for lower in characters if lower.upper() != lower}
        self.lengths = Lengths(min(lengths), max(lengths))
        self.charset = "".join(sorted(characters))

    def begin(self) -> None:
        """Write down what is adapted to what, and remove what another one left."""
        out, state = self.options.out, self.options.out / _STATE_FILE
        if self.is_begun:
            return
        if is_ours(state, _STATE_FORMAT):
            for name in (BEST, *(f"round-{number}" for number in range(MOST_ROUNDS + 1))):
                shutil.rmtree(out / name, ignore_errors=True)
            for name in (_RESULT_FILE, _READINGS_FILE, _SHEET_FILE):
                (out / name).unlink(missing_ok=True)
        write_atomic(state, self.identity)

    def find_result(self) -> Adapted | None:
        """Return the result of an earlier start that ended after as much time; None without."""
        with suppress(DamagedError):
            facts = read_json(self.options.out / _RESULT_FILE)
            if self.is_begun and facts.pop("budget") >= self.options.budget:
                return Adapted.from_json(facts)
        return None

    def write_result(self, adapted: Adapted) -> None:
        """Write the result, so that another start does not learn once more."""
        facts = {"budget": self.options.budget, **asdict(adapted)}
        write_atomic(self.options.out / _RESULT_FILE, to_json(facts))

    def run_rounds(self, told: Readings) -> Iterator[Round]:
        """Yield the rounds as long as their models read something else and the time lasts; keep
        each model.

        told: what the model of the start reads.
        """
        readings, is_first = told, not self.knows_design
        if self.knows_design:
            self.learn(0, self.labels)
            readings = self.read()
        left_s = 60.0 * self.options.budget - (time.monotonic() - self.started)
        for number in range(1, MOST_ROUNDS + 1):
            started, before = time.monotonic(), readings
            ranks = rank_readings(readings, self.others, is_first, self.form)
            chosen = choose_labels(ranks, _SURE_AT_FIRST if is_first else _SURE)
            labels = {file: readings[file].text for file in chosen} | self.labels
            count, trained_s = self.learn(number, labels)
            readings, is_first = self.read(), False
            self._write_readings(readings)
            stay = measure_agreement(readings, before)
            # A round of an earlier start took as long as then
            seconds = max(trained_s, time.monotonic() - started)
            left_s -= seconds
            # Later rounds agree on their mistakes, too. With labels the first one learns the most
            if number <= _FEWEST_ROUNDS + self.knows_design:
                expectation = Expectation.of(stay, len(readings))
            yield Round(number, count, stay, expectation, seconds)
            is_settled = stay >= _SETTLED and number >= _FEWEST_ROUNDS
            if is_settled or seconds > left_s:
                return

    def learn(self, number: int, labels: Mapping[str, str]) -> tuple[int, float]:
        """Train on labels in the folder of a round, or go on where an earlier start ended.

        Return the number of labels, and the seconds that training took.
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
        trained = train([shards], run, _RECIPE, how)
        self._write_model(number)
        return shown.count("train") + shown.count("val"), trained.seconds

    def _write_model(self, number: int) -> None:
        """Write the model of a round: from the third on, the mean of three."""
        averaged = _AVERAGED if number >= _AVERAGED else 1
        folders = [
            self.options.out / f"round-{number - earlier}" / "run" / BEST
            for earlier in range(averaged)
        ]
        facts = read_config(folders[0])["facts"]
        card = (folders[0] / CARD_FILE).read_text(encoding="utf-8")
        save_model(self.options.out / BEST, mean_model(folders), facts, card)

    def _make_table(self, labels: Mapping[str, str]) -> bytes:
        """Return a table of labels, without the images that are tested."""
        files = sorted(labels.keys() - self.tested)
        random.Random(0).shuffle(files)
        rows = [
            (file, mark_text(labels[file]), "train" if number % _PART else "val")
            for number, file in enumerate(files)
        ]
        table = to_csv([("filename", "text", "split"), *rows])
        return table.encode("utf-8", "surrogateescape")

    def find_doubt(self, readings: Readings) -> str:
        """Return why an adaptation that starts with these readings can go wrong; empty if nothing
        speaks against it.

        UsageError for too few sure readings without a label, and for images of which each has a
        design of its own.
        """
        ranks = rank_readings(readings, self.others, True, self.form).values()
        sure = sum(rank >= _SURE_AT_FIRST for rank in ranks)
        if sure + len(self.labels) < _FEWEST_SURE_IMAGES:
            raise UsageError(
                f"of the images in {self.images} too few are read surely to learn from: {sure:,}",
                Advice("30 labels are enough; write them with", Command("label", (self.images,))),
            )
        told = self.reading.charset or self.reading.lengths or self.knows_design
        is_varied = self.lengths.longest - self.lengths.shortest >= _NO_LENGTH
        if is_varied and self.lengths != self.known.lengths and not told:
            check(
                len(self.charset) < _NO_CHARSET * len(self.known.characters),
                f"the images in {self.images} have nothing in common, with texts of {self.lengths} "
                f"of {len(self.charset)} characters: to adapt to them, sort them by their design",
            )
        say(f"{'sure':11}{sure / len(readings):.0%} of the images at the start", self.options.quiet)
        doubt = describe_mixture(self.paths, self.reading.max_bytes)
        if sure < _FEWEST_SURE * len(readings) and not self.knows_design:
            doubt = "it may have learnt its mistakes, of so few sure readings"
        return doubt

    def read(self) -> Readings:
        """Return what the last model reads; images that can no longer be read are left out."""
        limits = replace(self.reading, charset=None, lengths=None)
        recognizer = Recognizer.with_options(self.options.out, limits)
        paths = [self.images / file for file in self.others]
        results = zip(self.others, recognizer.read_all(paths), strict=True)
        return {file: result for file, result in results if isinstance(result, Reading)}

    def discard(self, told: Readings) -> None:
        """Keep no model, but what that of the start reads."""
        shutil.rmtree(self.options.out / BEST)
        self._write_readings(told)

    def _write_readings(self, readings: Readings) -> None:
        """Write what is read, and a picture of the least sure."""
        out = self.options.out
        known = readings | {file: Reading(text, 1.0) for file, text in self.labels.items()}
        found = ((file, reading.text, reading.confidence) for file, reading in known.items())
        table = readings_to_csv(found)
        write_atomic(out / _READINGS_FILE, table.encode("utf-8", "surrogateescape"))
        tiles = [
            Tile(self.images / file, f"{file}, {reading.confidence:.2f}", reading.text)
            for file, reading in sorted(readings.items(), key=lambda item: item[1].confidence)
        ]
        draw_sheet(tiles, out / _SHEET_FILE, self.reading.max_bytes, _SHEET_ROWS)

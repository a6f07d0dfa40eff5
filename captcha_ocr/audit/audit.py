"""An audit, from images to its results, within a budget of time; begun again, it goes on."""

import platform
import random
import time
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any

from captcha_ocr.audit.images.generators import CommandGenerator, DesignGenerator, ImageGenerator
from captcha_ocr.audit.images.shortcuts import Shortcuts, find_shortcuts
from captcha_ocr.audit.results import Coverage, HumanAnswers, Results, Session, Subject
from captcha_ocr.audit.solvers.adaptations import (
    FROM_IMAGES,
    Adaptation,
    judge_adapted,
    measure_adaptations,
)
from captcha_ocr.audit.solvers.curve_trainings import measure_curves
from captcha_ocr.audit.solvers.knobs import KnobMeasurement, Knobs, list_settings, read_knobs
from captcha_ocr.audit.solvers.trainings import LabelPool, TimeBudget, Training
from captcha_ocr.audit.statistics import Proportion, precision_by_coverage
from captcha_ocr.audit.verdict import Attack, best_attack, decide
from captcha_ocr.charset import mixes_cases, resolve_alphabet
from captcha_ocr.data.label_sources.tables import read_table
from captcha_ocr.data.labels import (
    ANSWERS_FILE,
    ANSWERS_JOURNAL,
    Label,
    find_labels,
    read_journal,
)
from captcha_ocr.diagnostics.doctor import processor_name
from captcha_ocr.errors import UsageError, check
from captcha_ocr.options.auditing import AuditOptions
from captcha_ocr.options.model import Lengths
from captcha_ocr.recognizer import Recognizer
from captcha_ocr.scores import score_confidences
from captcha_ocr.system.console import ProgressBar, counted, duration, say
from captcha_ocr.system.files import sha256, writing_to
from captcha_ocr.system.processors import available_workers
from captcha_ocr.version import __version__

MOST_TESTED = 1_000  # images
LARGEST = {90: 1_000, 300: 3_000, 10**9: 10_000}  # most labels of a budget of up to so many minutes
_SHARE_TESTED = 0.4  # of the images
_FEWEST_IMAGES = 60
_SHARE_DRAWN = 1 / 5  # of the budget
_POOL = 3  # images to draw labels from, in numbers of the most labels
_COVERAGES = (1.0, 0.9, 0.75, 0.5, 0.25, 0.1)
_SAMPLES = 24  # images on the page


def audit(folder: Path | None, options: AuditOptions, quiet: bool = False) -> Results:
    """Audit the labelled images of a folder, or what the options name to draw them.

    Images and trainings go to `out` without its suffix. UsageError if that holds another audit, if
    the options do not fit together, or if there is too little to audit.
    """
    generator = _choose_generator(folder, options)
    definition = read_definition(options)
    name = str(folder) if generator is None else generator.name
    knobs, knobs_text = dict[str, list[Any]](), ""
    if options.knobs is not None:
        knobs, knobs_text = read_knobs(options.knobs), options.knobs.read_text("utf-8")
    largest = next(labels for minutes, labels in LARGEST.items() if options.budget <= minutes)
    work, seed = options.out.with_suffix(""), options.seed
    images = folder or work / "images" / "base"
    with writing_to(work):
        if generator is None:
            content = repr([(label.file, label.text) for label in find_labels(images).labels])
        else:
            content = repr((generator.charset, generator.lengths, definition))
        identity = {"content": sha256(content.encode()), "seed": seed, "knobs": knobs}
        budget = TimeBudget(work, 60.0 * options.budget, {"source": name, **identity}, quiet)
        if generator is not None:
            _draw_base(generator, images, _POOL * largest + MOST_TESTED, knobs, budget, seed)
        found = find_labels(images).check()
        people = None
        if options.people is not None:
            people = judge_people(options.people, found.labels)
        texts = [label.text for label in found.labels]
        alphabet = "".join(sorted({*"".join(texts)}))
        shortcuts = find_shortcuts(images, found.labels, alphabet, generator is not None)
        _tell_left_out(found.problems | shortcuts.unreadable, budget)
        pool = _split(images, found.labels, shortcuts, seed)
        subject = Subject(
            source=name,
            definition=definition,
            alphabet=alphabet,
            lengths=sorted({*map(len, texts)}),
            case_ignored=mixes_cases(set(alphabet)),
            images=len(texts),
            tested=len(pool.tested),
            samples=[(str(images / label.file), label.text) for label in pool.tested[:_SAMPLES]],
        )
        zero_shot = _read_without_labels(subject, pool)
        right = sum(is_right for _, is_right in zero_shot)
        say(f"no label   the model in the package reads {right:,} of {subject.tested:,}", quiet)
        without_labels = Proportion(subject.tested, right)
        attacks = [Attack("general", 0, without_labels.share, without_labels.interval, 0.0)]
        attacks += measure_adaptations(pool, budget)
        curves, trained = measure_curves(pool, budget, largest)
        attacks += trained
        coverage = _cover(best_attack(attacks), zero_shot, pool, budget)
        effects = None
        if knobs and generator is not None:
            effects = KnobMeasurement(generator, knobs, pool, budget, largest).run(curves)
        budget.save()
    _tell_overrun(budget)
    return Results(
        subject=subject,
        shortcuts=shortcuts,
        attacks=attacks,
        curves=curves,
        coverage=coverage,
        knobs=effects,
        people=people,
        verdict=decide(attacks, shortcuts.findings),
        session=_describe_session(budget, seed, generator),
        knobs_text=knobs_text,
    )


def _choose_generator(folder: Path | None, options: AuditOptions) -> ImageGenerator | None:
    """Return what draws the images; None for those of a folder."""
    charset, lengths = options.charset, options.lengths
    sources = [folder, options.design, options.command, options.call]
    check(sources.count(None) == 3, "an audit takes one of: a FOLDER, `design`, `command`, `call`")
    if folder is not None:
        check(
            options.knobs is None,
            "`knobs` needs a source that draws: `design`, `command` or `call`",
        )
        check(
            charset is None and lengths is None,
            f"`charset` and `lengths` are for what draws; {folder} has its texts",
        )
        work, images = options.out.with_suffix("").resolve(), folder.resolve()
        check(
            not work.is_relative_to(images) and not images.is_relative_to(work),
            f"`out` {options.out} would put the work among the images of {folder};"
            " choose another name or place",
        )
        return None
    if options.design is not None:
        return DesignGenerator(options.design, charset, lengths)
    if charset is None or lengths is None:
        raise UsageError(
            "`command` and `call` need `charset` and `lengths`: the audit chooses the texts"
        )
    characters = resolve_alphabet(charset)
    if options.command is not None:
        return CommandGenerator.from_template(options.command, characters, lengths)
    return CommandGenerator.from_function(options.call or "", characters, lengths)


def read_definition(options: AuditOptions) -> dict[str, str] | None:
    """Return the file that says how to draw, its name and its text, for whoever repeats the audit.

    That is the design, or the file of a Python function in this folder; None without one.
    """
    path = Path(options.design or "")
    if options.call is not None:
        module = options.call.partition(":")[0]
        path = Path(*module.split(".")).with_suffix(".py")
    if not path.is_file():
        return None
    return {"file": str(path), "text": path.read_text("utf-8", errors="replace")}


def judge_people(folder: Path, labels: Sequence[Label]) -> HumanAnswers:
    """Compare the answers in a folder of `label`, which its option blind kept, with the labels.

    An image that was skipped because nobody can read it is wrong. UsageError if there are no
    answers to these images.
    """
    path = folder / ANSWERS_FILE
    check(path.exists(), f"{folder} has no {ANSWERS_FILE}, which label `blind` writes")
    answers = {row.filename: row.text.casefold() for row in read_table(path)}
    judged = [
        answers[label.file] == label.text.casefold() for label in labels if label.file in answers
    ]
    check(bool(judged), f"{path} has no answers to the images of this audit")
    rows = read_journal(folder / ANSWERS_JOURNAL)
    seconds = [row["seconds"] for row in rows if row.get("seconds") is not None]
    return HumanAnswers(len(judged), sum(judged), median(seconds) if seconds else None)


def _draw_base(
    generator: ImageGenerator,
    images: Path,
    count: int,
    knobs: Knobs,
    budget: TimeBudget,
    seed: int,
) -> None:
    """Draw images at the present levels, as many as a fifth of the budget allows.

    UsageError if a level of a knob cannot be drawn.
    """
    for setting in list_settings(knobs):
        generator.check(setting.levels)
    say(f"draw       {count:,} images of {generator.name}", budget.quiet)
    present = {name: levels[0] for name, levels in knobs.items()}
    with ProgressBar("draw", budget.quiet) as bar:
        generator.draw(images, count, seed, present, bar.show, _SHARE_DRAWN * budget.budget_s)


def _tell_overrun(budget: TimeBudget) -> None:
    """Note on the page that an audit took longer than it was given."""
    if budget.spent > budget.budget_s:
        took = f"{duration(budget.spent)} instead of {duration(budget.budget_s)}"
        budget.notes.append(f"The budget was too short: the least that an audit does took {took}.")


def _tell_left_out(reasons: Mapping[str, str], budget: TimeBudget) -> None:
    """Tell and note which files are left out. reasons: by file."""
    if reasons:
        file, reason = next(iter(reasons.items()))
        what = f"{counted(len(reasons), 'file')}, such as {file}: {reason}"
        say(f"left out   {what}", budget.quiet)
        budget.notes.append(f"Left out: {what}.")


def _split(folder: Path, labels: Sequence[Label], shortcuts: Shortcuts, seed: int) -> LabelPool:
    """Part different images into those to test on and those to learn from; UsageError if too few.

    The seed alone decides.
    """
    left_out = {*shortcuts.copies, *shortcuts.unreadable}
    kept = [label for label in labels if label.file not in left_out]
    check(
        len(kept) >= _FEWEST_IMAGES,
        f"{folder} has {counted(len(kept), 'different labelled image')};"
        f" an audit needs {_FEWEST_IMAGES}",
    )
    shuffled = tuple(random.Random(f"test-{seed}").sample(kept, len(kept)))
    tested = min(MOST_TESTED, round(_SHARE_TESTED * len(shuffled)))
    return LabelPool(folder, shuffled[tested:], shuffled[:tested], seed)


def _read_without_labels(subject: Subject, pool: LabelPool) -> list[tuple[float, bool]]:
    """Judge the model in the package on the test images, told the alphabet and the lengths."""
    reader = Recognizer("pretrained")
    charset, lengths = reader.config.charset, subject.lengths
    known = [letter for letter in subject.alphabet if not charset.unknown_characters(letter)]
    longest = min(lengths[-1], reader.config.lengths.longest)
    if known and lengths[0] <= longest:
        reader = reader.limited_to("".join(known), Lengths(lengths[0], longest), False)
    return pool.judge(reader)


def _cover(
    best: Attack, zero_shot: Sequence[tuple[float, bool]], pool: LabelPool, budget: TimeBudget
) -> Coverage:
    """Return how precise the best solver is if it may leave captchas out.

    zero_shot: judged answers of the solver that learned from none of the images.
    """
    answers = zero_shot
    if best.images:
        answers = judge_adapted(
            budget.run_folder(Adaptation(pool, FROM_IMAGES, best.images, 0)), pool
        )
    if best.labels:
        run = budget.run_folder(Training(pool, best.start, best.labels, 0))
        answers = pool.judge(Recognizer(run))
    rows = precision_by_coverage(answers, _COVERAGES)
    return Coverage(rows, score_confidences(answers)._asdict())


def _describe_session(budget: TimeBudget, seed: int, generator: ImageGenerator | None) -> Session:
    environment = {
        "date": time.strftime("%Y-%m-%d"),
        "captcha-ocr": __version__,
        "python": platform.python_version(),
        **{name: version(name) for name in ("torch", "numpy", "pillow", "captcha")},
        "processors": available_workers(),
        "processor": processor_name(),
        "system": f"{platform.system()} {platform.machine()}",
    }
    failures = 0 if generator is None else generator.failures
    return Session(failures, budget.notes, seed, budget.budget_s, environment, budget.spent)

"""An audit, from images to its results, within a budget of time; begun again, it goes on."""

import hashlib
import platform
import random
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

from captcha_ocr.audit.human_answers import judge_answers
from captcha_ocr.audit.images.generators import CommandGenerator, DesignGenerator, ImageGenerator
from captcha_ocr.audit.images.shortcuts import Shortcuts, find_shortcuts
from captcha_ocr.audit.results import Coverage, Definition, Results, Session, Subject
from captcha_ocr.audit.solvers.curve_trainings import CurveMeasurement
from captcha_ocr.audit.solvers.knobs import KnobMeasurement, Knobs, list_settings, read_knobs
from captcha_ocr.audit.solvers.trainings import LabelPool, TimeBudget, Training
from captcha_ocr.audit.statistics import precision_by_coverage
from captcha_ocr.audit.verdict import Attack, best_attack, decide, list_attacks
from captcha_ocr.charset import mixes_cases, resolve_alphabet
from captcha_ocr.data.labels import Label, find_labels
from captcha_ocr.diagnostics.doctor import processor_name
from captcha_ocr.errors import UsageError, check
from captcha_ocr.experiments.judge import judge
from captcha_ocr.options.auditing import AuditOptions
from captcha_ocr.options.model import Lengths
from captcha_ocr.recognizer import Recognizer
from captcha_ocr.scores import score_confidences
from captcha_ocr.system.console import counted, say
from captcha_ocr.system.files import writing_to
from captcha_ocr.system.processors import available_workers
from captcha_ocr.version import __version__

MOST_TESTED = 1_000  # images
LARGEST = ((90, 1_000), (300, 3_000))  # most labels of a budget of up to so many minutes
LARGEST_OF_ALL = 10_000  # labels, with more minutes
_SHARE_TESTED = 0.4  # of the images
_FEWEST_IMAGES = 60
_POOL = 3  # images to draw labels from, in numbers of the most labels
_COVERAGES = (1.0, 0.9, 0.75, 0.5, 0.25, 0.1)
_SAMPLES = 24  # images on the page


def audit(folder: Path | None, options: AuditOptions, quiet: bool = False) -> Results:
    """Audit the labelled images of a folder, or what the options name to draw them.

    Images and trainings go to `out` without its suffix. UsageError if that holds another audit, if
    the options do not fit together, or if there is too little to audit.
    """
    source, knobs = _choose_source(folder, options), dict[str, list[Any]]()
    if options.knobs is not None:
        knobs = read_knobs(options.knobs)
    work, seed, is_drawn = options.out.with_suffix(""), options.seed, not isinstance(source, Path)
    fitting = [labels for minutes, labels in LARGEST if options.budget <= minutes]
    largest = min(fitting, default=LARGEST_OF_ALL)
    with writing_to(work):
        identity = {**_identify(source), "seed": seed, "knobs": knobs}
        budget = TimeBudget(work, 60.0 * options.budget, identity, quiet)
        images, failures = source, 0
        if not isinstance(images, Path):
            count = _POOL * largest + MOST_TESTED
            say(f"draw       {count:,} images of {source}", quiet)
            images, failures = _draw_base(images, work / "images", count, seed, knobs)
        found = find_labels(images).check()
        people = None
        if options.people is not None:
            people = judge_answers(options.people, found.labels)
        texts = [label.text for label in found.labels]
        alphabet = "".join(sorted({*"".join(texts)}))
        shortcuts = find_shortcuts(images, found.labels, alphabet, is_drawn)
        left_out = _tell_left_out(found.problems | shortcuts.files.unreadable, quiet)
        pool = _split(images, found.labels, shortcuts, seed)
        subject = Subject(
            source=str(source),
            definition=_read_definition(source),
            alphabet=alphabet,
            lengths=sorted({*map(len, texts)}),
            case_ignored=mixes_cases(set(alphabet)),
            images=len(texts),
            tested=len(pool.tested),
            samples=[(str(images / label.file), label.text) for label in pool.tested[:_SAMPLES]],
        )
        zero_shot = _read_without_labels(subject, pool)
        right = sum(is_right for _, is_right in zero_shot)
        read = f"{right:,} of {subject.tested:,}"
        say(f"no label   the model in the package reads {read}", quiet)
        measurement = CurveMeasurement(pool, budget, largest)
        curves = measurement.run()
        budget.notes += left_out
        attacks = list_attacks(curves, (right, subject.tested), measurement.seconds)
        coverage = _cover(best_attack(attacks), zero_shot, pool, budget)
        effects = None
        if knobs and not isinstance(source, Path):
            comparison = KnobMeasurement(source, knobs, pool, budget, largest)
            effects = comparison.run(curves)
            if effects is not None:
                failures += comparison.failures
        budget.save()
    verdict = decide(attacks, shortcuts.findings)
    session = Session(
        failures=failures,
        notes=budget.notes,
        seed=seed,
        budget_s=budget.budget_s,
        environment=_describe_environment(),
        spent_s=budget.spent,
    )
    results = Results(
        subject, shortcuts, attacks, curves, coverage, effects, people, verdict, session
    )
    if options.knobs is not None:
        results = replace(results, knobs_text=options.knobs.read_text("utf-8"))
    return results


def _choose_source(folder: Path | None, options: AuditOptions) -> ImageGenerator | Path:
    charset, lengths = options.charset, options.lengths
    sources = [folder, options.design, options.command, options.call]
    check(sources.count(None) == 3, "an audit takes one of: a FOLDER, `design`, `command`, `call`")
    if folder is not None:
        generators = "`design`, `command` or `call`"
        check(options.knobs is None, f"`knobs` needs a source that draws: {generators}")
        texts = f"`charset` and `lengths` are for what draws; {folder} has its texts"
        check(charset is None and lengths is None, texts)
        work, images = options.out.with_suffix("").resolve(), folder.resolve()
        is_apart = not work.is_relative_to(images) and not images.is_relative_to(work)
        place = f"`out` {options.out} would put the work among the images of {folder}"
        check(is_apart, f"{place}; choose another name or place")
        return folder
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


def _identify(source: ImageGenerator | Path) -> dict[str, str]:
    """Return what images must be the same when an audit goes on."""
    if isinstance(source, Path):
        content = repr([(label.file, label.text) for label in find_labels(source).check().labels])
    else:
        definition = _read_definition(source)
        content = repr((source.charset, source.lengths, definition and asdict(definition)))
    return {"source": str(source), "content": hashlib.sha256(content.encode()).hexdigest()}


def _read_definition(source: ImageGenerator | Path) -> Definition | None:
    """Return the file that says how to draw, for whoever repeats the audit; None without one."""
    path = None if isinstance(source, Path) else source.definition
    if path is None or not path.is_file():
        return None
    return Definition(str(path), path.read_text("utf-8", errors="replace"))


def _draw_base(
    generator: ImageGenerator, images: Path, count: int, seed: int, knobs: Knobs
) -> tuple[Path, int]:
    """Draw images at the present levels; return their folder, and how many failed.

    UsageError if a level of a knob cannot be drawn.
    """
    for setting in list_settings(knobs):
        generator.check(setting.levels)
    levels = {name: levels[0] for name, levels in knobs.items()}
    return images / "base", generator.draw(images / "base", count, seed, levels)


def _tell_left_out(reasons: Mapping[str, str], quiet: bool) -> list[str]:
    """Tell which files are left out, and return it as a sentence. reasons: by file."""
    if not reasons:
        return []
    file, reason = next(iter(reasons.items()))
    what = f"{counted(len(reasons), 'file')}, such as {file}: {reason}"
    say(f"left out   {what}", quiet)
    return [f"Left out: {what}."]


def _split(folder: Path, labels: Sequence[Label], shortcuts: Shortcuts, seed: int) -> LabelPool:
    """Part different images into those to test on and those to learn from; UsageError if too few.

    The seed alone decides.
    """
    left_out = {*shortcuts.files.copies, *shortcuts.files.unreadable}
    kept = [label for label in labels if label.file not in left_out]
    images = counted(len(kept), "different labelled image")
    check(len(kept) >= _FEWEST_IMAGES, f"{folder} has {images}; an audit needs {_FEWEST_IMAGES}")
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
    return [judged.answer for judged in judge(reader, pool.images, pool.tested)]


def _cover(
    best: Attack, zero_shot: Sequence[tuple[float, bool]], pool: LabelPool, budget: TimeBudget
) -> Coverage:
    """Return how precise the best solver is if it may leave captchas out.

    zero_shot: judged answers of the solver without labels.
    """
    answers = zero_shot
    if best.labels:
        run = budget.run_folder(Training(pool, best.start, best.labels, 0))
        judgements = judge(Recognizer(run), pool.images, pool.tested)
        answers = [judged.answer for judged in judgements]
    rows = precision_by_coverage(answers, _COVERAGES)
    return Coverage(best.start, best.labels, rows, score_confidences(answers).summary())


def _describe_environment() -> dict[str, Any]:
    return {
        "date": time.strftime("%Y-%m-%d"),
        "captcha-ocr": __version__,
        "python": platform.python_version(),
        **{name: version(name) for name in ("torch", "numpy", "pillow", "captcha")},
        "processors": available_workers(),
        "processor": processor_name(),
        "system": f"{platform.system()} {platform.machine()}",
    }

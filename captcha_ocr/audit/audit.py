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
from captcha_ocr.audit.solvers.curve_trainings import CurveMeasurement, LabelPool
from captcha_ocr.audit.solvers.judge import judge
from captcha_ocr.audit.solvers.knob_trainings import KnobMeasurement, Variants
from captcha_ocr.audit.solvers.knobs import Knobs, list_settings, read_knobs
from captcha_ocr.audit.solvers.time_budget import TimeBudget
from captcha_ocr.audit.solvers.trainings import Runner
from captcha_ocr.audit.statistics import precision_by_coverage
from captcha_ocr.audit.verdict import Attack, best_attack, decide, list_attacks
from captcha_ocr.charset import mixes_cases, resolve_alphabet
from captcha_ocr.data.labels import Label, find_labels
from captcha_ocr.diagnostics.doctor import processor_name
from captcha_ocr.errors import UsageError, check
from captcha_ocr.options.auditing import AuditOptions
from captcha_ocr.options.model import Lengths
from captcha_ocr.recognizer import Recognizer
from captcha_ocr.scores import score_confidences
from captcha_ocr.system.console import counted, duration, say
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
_IMAGES, _RUNS = "images", "runs"


def audit(folder: Path | None, options: AuditOptions, quiet: bool = False) -> Results:
    """Audit the labelled images of a folder, or what the options name to draw them.

    Images and trainings go to `out` without its suffix. UsageError if that holds another audit, if
    the options do not fit together, or if there is too little to audit.
    """
    source = _choose_source(folder, options)
    knobs = {} if options.knobs is None else read_knobs(options.knobs)
    work = options.out.with_suffix("")
    with writing_to(work):
        results = _audit(source, work, options, knobs, quiet)
    if options.knobs is not None:
        results = replace(results, knobs_text=options.knobs.read_text("utf-8"))
    return results


def _choose_source(folder: Path | None, options: AuditOptions) -> ImageGenerator | Path:
    """Return the folder, or what draws images."""
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


def _audit(
    source: ImageGenerator | Path, out: Path, options: AuditOptions, knobs: Knobs, quiet: bool
) -> Results:
    workers, budget_s = available_workers(), 60.0 * options.budget
    largest = _choose_largest(budget_s)
    runner = Runner(out / _RUNS, workers)
    identity = _identify(source, options.seed, knobs)
    budget = TimeBudget(out, runner, budget_s, identity, quiet)
    say(f"budget     {duration(budget_s)} in all, on {counted(workers, 'processor')}", quiet)

    folder, failures = source, 0
    if not isinstance(folder, Path):
        images = _POOL * largest + MOST_TESTED
        say(f"draw       {images:,} images of {folder.name}", quiet)
        folder, failures = _draw_base(folder, out / _IMAGES, images, options.seed, knobs)
    found = find_labels(folder).check()
    people = None
    if options.people is not None:
        people = judge_answers(options.people, found.labels)
    alphabet = "".join(sorted({*"".join(label.text for label in found.labels)}))
    shortcuts = find_shortcuts(folder, found.labels, alphabet, not isinstance(source, Path))
    notes = _note_left_out(found.problems | shortcuts.files.unreadable, quiet)
    labels = _split(folder, found.labels, shortcuts, options.seed)
    subject = _describe(source, alphabet, found.labels, labels)

    zero_shot = _read_without_labels(subject, labels)
    right = sum(is_right for _, is_right in zero_shot)
    score = f"{right:,} of {subject.tested:,}"
    say(f"no label   the model in the package reads {score}", quiet)
    measurement = CurveMeasurement(labels, budget, largest)
    curves = measurement.run()
    attacks = list_attacks(curves, (right, subject.tested), measurement.seconds)
    coverage = _cover(best_attack(attacks), zero_shot, labels, runner)

    effects = None
    if knobs and not isinstance(source, Path):
        variants = Variants(source, knobs, out / _IMAGES, options.seed)
        comparison = KnobMeasurement(variants, budget, largest)
        effects = comparison.run(curves)
        notes += comparison.notes
        if effects is not None:
            failures += comparison.failures
    budget.save()
    verdict = decide(attacks, shortcuts.findings)
    session = Session(
        failures=failures,
        notes=[*measurement.notes, *notes],
        seed=options.seed,
        budget_s=budget_s,
        environment=_describe_environment(),
        spent_s=budget.spent,
    )
    return Results(subject, shortcuts, attacks, curves, coverage, effects, people, verdict, session)


def _choose_largest(budget_s: float) -> int:
    """Return the most labels that a training may have with a budget."""
    fitting = [labels for minutes, labels in LARGEST if budget_s <= 60 * minutes]
    return min(fitting, default=LARGEST_OF_ALL)


def _identify(source: ImageGenerator | Path, seed: int, knobs: Knobs) -> dict[str, Any]:
    """Return what must be the same when an audit goes on; the budget may grow."""
    if isinstance(source, Path):
        content = repr([(label.file, label.text) for label in find_labels(source).check().labels])
    else:
        definition = _read_definition(source)
        content = repr((source.charset, source.lengths, definition and asdict(definition)))
    digest = hashlib.sha256(content.encode()).hexdigest()
    return {
        "source": _name(source),
        "content": digest,
        "seed": seed,
        "knobs": knobs,
    }


def _read_definition(source: ImageGenerator | Path) -> Definition | None:
    """Return the file that says how to draw, for whoever repeats the audit; None without one."""
    path = None if isinstance(source, Path) else source.definition
    if path is None or not path.is_file():
        return None
    return Definition(str(path), path.read_text("utf-8", errors="replace"))


def _draw_base(
    generator: ImageGenerator, folder: Path, images: int, seed: int, knobs: Knobs
) -> tuple[Path, int]:
    """Draw images at the present levels; return their folder, and how many failed.

    UsageError if a level of a knob cannot be drawn.
    """
    for setting in list_settings(knobs):
        generator.check(setting.levels)
    base = {name: levels[0] for name, levels in knobs.items()}
    return folder / "base", generator.draw(folder / "base", images, seed, base)


def _note_left_out(reasons: Mapping[str, str], quiet: bool) -> list[str]:
    """Tell which files are left out. reasons: by file."""
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


def _describe(
    source: ImageGenerator | Path, alphabet: str, found: Sequence[Label], labels: LabelPool
) -> Subject:
    samples = [(str(labels.images / label.file), label.text) for label in labels.tested[:_SAMPLES]]
    return Subject(
        source=_name(source),
        definition=_read_definition(source),
        alphabet=alphabet,
        lengths=sorted({len(label.text) for label in found}),
        case_ignored=mixes_cases(set(alphabet)),
        images=len(found),
        tested=len(labels.tested),
        samples=samples,
    )


def _name(source: ImageGenerator | Path) -> str:
    return str(source) if isinstance(source, Path) else source.name


def _read_without_labels(subject: Subject, labels: LabelPool) -> list[tuple[float, bool]]:
    """Judge the model in the package on the test images, told the alphabet and the lengths."""
    reader = Recognizer("pretrained")
    charset, lengths = reader.config.charset, subject.lengths
    known = [letter for letter in subject.alphabet if not charset.unknown_characters(letter)]
    longest = min(lengths[-1], reader.config.lengths.longest)
    if known and lengths[0] <= longest:
        reader = reader.limited_to("".join(known), Lengths(lengths[0], longest), False)
    return judge(reader, labels.images, labels.tested)


def _cover(
    best: Attack, zero_shot: Sequence[tuple[float, bool]], labels: LabelPool, runner: Runner
) -> Coverage:
    """Return how precise the best solver is if it may leave captchas out.

    zero_shot: judged answers of the solver without labels.
    """
    judged = zero_shot
    if best.labels:
        reader = Recognizer(runner.folder(labels.training(best.start, best.labels, 0)))
        judged = judge(reader, labels.images, labels.tested)
    rows = precision_by_coverage(judged, _COVERAGES)
    return Coverage(best.start, best.labels, rows, score_confidences(judged).summary())


def _describe_environment() -> dict[str, Any]:
    """Return the machine and the versions, for whoever repeats it."""
    packages = {name: version(name) for name in ("torch", "numpy", "pillow", "captcha")}
    return {
        "date": time.strftime("%Y-%m-%d"),
        "captcha-ocr": __version__,
        "python": platform.python_version(),
        **packages,
        "processors": available_workers(),
        "processor": processor_name(),
        "system": f"{platform.system()} {platform.machine()}",
    }

"""The cheapest attacker: one who has images and no label, and lets `adapt` learn from them."""

import shutil
import time
from contextlib import suppress
from pathlib import Path

from captcha_ocr.audit.solvers.trainings import LabelPool, TimeBudget, Trained, Training
from captcha_ocr.audit.statistics import Proportion
from captcha_ocr.audit.verdict import Attack
from captcha_ocr.errors import CaptchaOcrError, DamagedError
from captcha_ocr.experiments.child_run import ChildRuns, Stopped
from captcha_ocr.recognizer import Recognizer
from captcha_ocr.system.documents import read_json, to_json
from captcha_ocr.system.files import write_atomic
from captcha_ocr.training.run.folder import BEST

FROM_IMAGES = "adapted"  # by which a budget keeps the speed
_IMAGES = (300, 1_000, 3_000)
_LEAST_BUDGET_S = 900  # of an audit: even the fewest images take some minutes
_MOST_SHARE = 0.5  # of the time that is left
_SCORE_FILE = "score.json"  # beside the run


class Adaptation(Training):
    """An adaptation to the first images of a pool without their labels, on one thread."""

    @property
    def title(self) -> str:
        """What it is, for people."""
        return f"{self.size:,} images without a label"

    @property
    def cost(self) -> float:
        """How many images it learns from."""
        return self.size

    def run(self, folder: Path, children: ChildRuns) -> None:
        """Adapt, and score the model; CaptchaOcrError if too little is read to learn from."""
        images, run, started = folder / "images", folder / "run", time.monotonic()
        images.mkdir(parents=True, exist_ok=True)
        for number, label in enumerate(self.pool.labels[: self.size]):
            source = self.pool.images / label.file
            shutil.copyfile(source, images / f"{number:05d}{source.suffix}")
        children.run_command("adapt", [images], {"out": run, "threads": 1})
        answers = judge_adapted(run, self.pool)
        right = sum(is_right for _, is_right in answers)
        score = {"right": right, "tested": len(answers), "seconds": time.monotonic() - started}
        write_atomic(folder / _SCORE_FILE, to_json(score))

    def result(self, run: Path) -> Trained | None:
        """Return what it gave; None if it has not finished."""
        with suppress(DamagedError):
            score = read_json(run.parent / _SCORE_FILE)
            return Trained(**score, longest_s=score["seconds"])
        return None


def judge_adapted(run: Path, pool: LabelPool) -> list[tuple[float, bool]]:
    """Judge the model of an adaptation on the test images of a pool.

    Where it kept none, that in the package is told what the images have in common.
    """
    if (run / BEST).exists():
        reader = Recognizer(run)
    else:
        reader = Recognizer("pretrained").fitted_to(sorted((run.parent / "images").iterdir()))
    return pool.judge(reader)


def measure_adaptations(pool: LabelPool, budget: TimeBudget) -> list[Attack]:
    """Adapt to more and more images of a pool, as many as fit into half of the time."""
    sizes = [size for size in _IMAGES if size <= len(pool.labels)]
    if not sizes or budget.budget_s < _LEAST_BUDGET_S:
        budget.leave_out(
            f"images without labels; that needs {_IMAGES[0]} images to learn from"
            f" and a budget of {_LEAST_BUDGET_S // 60} minutes"
        )
        return []
    first, *larger = (Adaptation(pool, FROM_IMAGES, size, 0) for size in sizes)
    _run(budget, [first])
    if first.name not in budget.trained:
        return []
    limit_s = _MOST_SHARE * budget.left
    while budget.expected_s(larger) > limit_s:
        budget.leave_out(f"{larger.pop().size:,} images without labels; they take too long")
    _run(budget, larger)
    attacks = []
    for adaptation in (first, *larger):
        trained = budget.trained.get(adaptation.name)
        if trained is None:
            continue
        score = Proportion(trained.tested, trained.right)
        attacks.append(
            Attack("general", 0, score.share, score.interval, trained.seconds, adaptation.size)
        )
    return attacks


def _run(budget: TimeBudget, adaptations: list[Adaptation]) -> None:
    """Run adaptations; where too little is read to learn from, say that they are left out."""
    try:
        budget.run(adaptations)
    except Stopped:
        raise
    except CaptchaOcrError as error:
        budget.leave_out(f"images without labels; {error}")

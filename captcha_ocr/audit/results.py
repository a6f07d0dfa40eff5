"""What an audit found: the values of its page, and of its JSON."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from captcha_ocr.audit.images.shortcuts import Shortcuts
from captcha_ocr.audit.solvers.knobs import KnobResults
from captcha_ocr.audit.statistics import Answered, Curve, Estimate, Proportion
from captcha_ocr.audit.verdict import TARGETS, Attack, Verdict, best_attack
from captcha_ocr.system.documents import finite


@dataclass(frozen=True)
class Subject:
    """The captcha that was audited.

    definition: the file that says how to draw, its name and its text. alphabet, lengths: of the
    texts; the lengths are sorted. samples: files and texts of some test images.
    """

    source: str
    definition: Mapping[str, str] | None
    alphabet: str
    lengths: Sequence[int]
    case_ignored: bool
    images: int
    tested: int
    samples: Sequence[tuple[str, str]]


@dataclass(frozen=True)
class Coverage:
    """How good the most confident answers of the best solver are.

    reliability: of its confidences.
    """

    rows: Sequence[Answered]
    reliability: Mapping[str, Any]


@dataclass(frozen=True)
class HumanAnswers(Proportion):
    """How many answers of people are right.

    seconds: the median of an answer; None if no time was kept.
    """

    seconds: float | None


@dataclass(frozen=True)
class Session:
    """How the audit went.

    failures: images that a generator failed to draw. notes: what was not measured, a sentence each.
    environment: the machine and the versions.
    """

    failures: int
    notes: Sequence[str]
    seed: int
    budget_s: float
    environment: Mapping[str, Any]
    spent_s: float


@dataclass(frozen=True)
class Results:
    """All of it. attacks: every solver that was measured, the one that learned nothing first.

    curves: by start. knobs, people: None if not measured. knobs_text: the file of the knobs.
    """

    subject: Subject
    shortcuts: Shortcuts
    attacks: Sequence[Attack]
    curves: Mapping[str, Curve]
    coverage: Coverage
    knobs: KnobResults | None
    people: HumanAnswers | None
    verdict: Verdict
    session: Session
    knobs_text: str = ""

    @property
    def best(self) -> Attack:
        """The solver that reads most."""
        return best_attack(self.attacks)

    @property
    def without_labels(self) -> list[Attack]:
        """The solvers without a label, the one that learned from no image first."""
        return [attack for attack in self.attacks if attack.labels == 0]

    @property
    def needed(self) -> dict[str, list[Estimate]]:
        """The labels that each start needs for each of TARGETS."""
        return {start: [*map(curve.labels_for, TARGETS)] for start, curve in self.curves.items()}

    def to_dict(self) -> dict[str, Any]:
        """Return JSON types. JSON has no infinity: it becomes None."""
        best, coverage = self.best, asdict(self.coverage)
        coverage["rows"] = [asdict(row) | {"interval": row.interval} for row in self.coverage.rows]
        values = {
            **asdict(self.subject),
            "tricks": self.shortcuts.to_dict(),
            "attacks": [*map(Attack.to_dict, self.attacks)],
            "best": best.to_dict(),
            "curves": {start: asdict(curve)["scores"] for start, curve in self.curves.items()},
            "needed": self.needed,
            "coverage": {"start": best.start, "labels": best.labels, **coverage},
            "knobs": self.knobs and asdict(self.knobs),
            "people": self.people and asdict(self.people) | {"interval": self.people.interval},
            "verdict": asdict(self.verdict),
            **asdict(self.session),
        }
        return {key: finite(value) for key, value in values.items()}

"""Results of an audit that never ran, and trainings that take no time."""

from captcha_ocr.audit.images.shortcuts import find_shortcuts
from captcha_ocr.audit.results import Coverage, HumanAnswers, Results, Session, Subject
from captcha_ocr.audit.solvers.knobs import Effect, KnobResults, SettingResult
from captcha_ocr.audit.solvers.trainings import TimeBudget, Trained
from captcha_ocr.audit.statistics import Answered, Curve, Estimate, Score
from captcha_ocr.audit.verdict import Attack, Verdict
from captcha_ocr.data.labels import Label


class InstantBudget(TimeBudget):
    """Runs no training: each gives so many right readings of 100, after so many seconds."""

    def __init__(self, out, budget_s=1e9, seed=0, quiet=True, right=50, seconds=lambda training: 1):
        super().__init__(out, budget_s, {"seed": seed}, quiet)
        self.workers, self.right, self.seconds = 2, right, seconds

    def _train(self, training, children):
        seconds = self.seconds(training)
        return Trained(self.right, 100, seconds, seconds)


def make_results(files):
    """Results with every part. files: of images."""
    curves = {
        "general": Curve((Score(100, (890, 900, 910), 1000),)),
        "random": Curve((Score(100, (290, 300, 310), 1000),)),
    }
    trained = [
        Attack(start, score.labels, score.share, score.interval, 60.0)
        for start, curve in curves.items()
        for score in curve.scores
    ]
    labels = [Label(file.name, str(number)) for number, file in enumerate(files)]
    return Results(
        subject=Subject(
            source="<b>mine</b>",
            definition={"file": "mine.toml", "text": "[canvas]"},
            alphabet="0123456789",
            lengths=[2, 4],
            case_ignored=False,
            images=4000,
            tested=1000,
            samples=[(str(file), "12") for file in files],
        ),
        shortcuts=find_shortcuts(files[0].parent, labels, "0123456789", False),
        attacks=[
            Attack("general", 0, 0.02, (0.013, 0.031), 0.0),
            Attack("general", 0, 0.4, (0.37, 0.43), 300.0, images=1000),
            *trained,
        ],
        curves=curves,
        coverage=Coverage([Answered(1000, 900, 1), Answered(500, 450, 0.5)], {}),
        knobs=KnobResults(
            start="random",
            draws=3,
            settings=[SettingResult("base", 100, [0.5, 0.6], 0.6)],
            effects=[Effect("noise", "0 → 30", Estimate(3.0, 2.0, 5.0))],
            confounded=[],
        ),
        people=HumanAnswers(100, 95, 4.2),
        verdict=Verdict("cheaply", "Because."),
        session=Session(2, ["Not measured: 1,000 labels."], 0, 3600.0, {"torch": "2.13.0"}, 3000.0),
    )

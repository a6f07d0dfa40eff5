"""A whole audit of tiny captchas: every training is real, but has one epoch."""

import json
import shutil
from pathlib import Path

import pytest
from conftest import naming

from captcha_ocr.audit import audit as audits
from captcha_ocr.audit.audit import audit, judge_people, read_definition
from captcha_ocr.audit.page.report import render_page
from captcha_ocr.audit.results import HumanAnswers
from captcha_ocr.audit.solvers import curve_trainings
from captcha_ocr.data.labels import Label
from captcha_ocr.errors import UsageError
from captcha_ocr.experiments.child_run import ChildRuns
from captcha_ocr.options.auditing import AuditOptions


def audit_hour(folder, out, **options):
    """Audit, within an hour."""
    return audit(folder, AuditOptions(out=out.with_suffix(".html"), **options), quiet=True)


@pytest.fixture(scope="module")
def folder(images, tmp_path_factory):
    """60 images, a copy of one, and a file that is no image."""
    folder = shutil.copytree(images, tmp_path_factory.mktemp("audit") / "images")
    table = folder / "labels.csv"
    file, _, text = table.read_text().splitlines()[1].partition(",")
    shutil.copy(folder / file, folder / "copy.png")
    (folder / "broken.png").write_bytes(b"")
    table.write_text(f"{table.read_text()}copy.png,{text}\nbroken.png,{text}\n")
    return folder


@pytest.fixture(scope="module")
def audited(folder):
    """The results of an audit of the folder, and its own folder."""
    out, run_command = folder.parent / "a", ChildRuns.run_command

    def run_shorter(children, name, arguments, options):
        more = {"epochs": 1} if name == "train" else {}
        run_command(children, name, arguments, options | more)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(audits, "LARGEST", {10**9: 100})
        patch.setattr(audits, "MOST_TESTED", 20)
        patch.setattr(curve_trainings, "DRAWS", 1)
        patch.setitem(curve_trainings.STARTS, "general", "few")  # which takes less time
        patch.setattr(ChildRuns, "run_command", run_shorter)
        yield audit_hour(folder, out), out


def test_an_audit_of_a_folder_leaves_copies_and_no_images_out_and_says_what_it_cannot(audited):
    results, _ = audited
    assert (results.subject.images, results.subject.tested, results.knobs) == (62, 20, None)
    assert [(score.labels, score.tested) for score in results.curves["random"].scores] == [(30, 20)]
    assert [*results.shortcuts.unreadable] == ["broken.png"]
    assert len(results.shortcuts.copies) == 1
    page = " ".join(render_page(results, "").split())
    phrases = (
        "share most of them",
        "that needs what draws images",
        "100 labels or more; 40 images are left",
        "20 test images cannot tell 1 %",
        "Left out: 1 file, such as broken.png",
    )
    assert [phrase for phrase in phrases if phrase not in page] == []


def test_an_audit_that_is_begun_again_trains_nothing_twice(audited, folder):
    results, out = audited
    stamps = {run: run.stat().st_mtime_ns for run in out.glob("runs/*/run/run.json")}
    assert audit_hour(folder, out).curves == results.curves
    assert {run: run.stat().st_mtime_ns for run in stamps} == stamps
    state = json.loads((out / "audit.json").read_bytes())
    assert set(state["options"]) == {"source", "content", "seed", "knobs"}
    assert state["spent"] >= results.session.spent_s


def test_another_seed_or_other_labels_in_the_same_folder_are_refused(audited, folder):
    _, out = audited
    with pytest.raises(UsageError, match=naming(out, "`out`")):
        audit_hour(folder, out, seed=1)
    table = folder / "labels.csv"
    text = table.read_text()
    table.write_text(f"{text[:-3]}77\n")
    with pytest.raises(UsageError, match=naming(out, "`out`")):
        audit_hour(folder, out)
    table.write_text(text)


def test_too_few_images_are_refused(images, tmp_path):
    folder = shutil.copytree(images, tmp_path / "few")
    min(folder.glob("*.png")).unlink()
    with pytest.raises(UsageError, match=naming(folder, "60")):
        audit_hour(folder, tmp_path / "a")


def test_a_level_that_cannot_be_drawn_and_people_without_answers_are_refused_beforehand(
    images, tmp_path
):
    knobs, out = tmp_path / "knobs.toml", tmp_path / "a"
    knobs.write_text('[knobs]\ntext.spacing = [0, "wide"]\n')
    with pytest.raises(UsageError, match="spacing"):
        audit_hour(None, out, design="captcha", knobs=knobs)
    with pytest.raises(UsageError, match=naming(tmp_path, "answers.csv")):
        audit_hour(images, out, people=tmp_path)
    assert [*out.glob("images"), *out.glob("runs")] == []


@pytest.mark.parametrize(
    ("options", "definition"),
    [
        ({"call": "my.mine:draw"}, {"file": "my/mine.py", "text": "a text"}),
        ({"design": "mine.toml"}, {"file": "mine.toml", "text": "a text"}),
        *(({"design": "captcha"}, None), ({"call": "other:draw"}, None)),
        *(({"command": "mine.toml"}, None), ({}, None)),
    ],
)
def test_what_draws_has_a_file_or_none(options, definition):
    Path("my").mkdir()
    for name in ("my/mine.py", "mine.toml"):
        Path(name).write_text("a text")
    assert read_definition(AuditOptions(**options)) == definition


def test_answers_of_people_are_scored_against_the_labels_and_those_to_other_images_refused(
    tmp_path,
):
    (tmp_path / "answers.csv").write_text("filename,text,split\na.png,ab12,train\nb.png,,train\n")
    (tmp_path / "answers.jsonl").write_text('{"seconds": 2}\n{"seconds": 3}\n{"seconds": null}\n')
    labels = [Label("a.png", "AB12"), Label("b.png", "CD34"), Label("c.png", "EF56")]
    assert judge_people(tmp_path, labels) == HumanAnswers(2, 1, 2.5)
    with pytest.raises(UsageError, match="no answers to the images"):
        judge_people(tmp_path, labels[2:])

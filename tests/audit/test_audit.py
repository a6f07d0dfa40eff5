"""A whole audit of tiny captchas: every training is real, but has one epoch."""

import json
import shutil

import pytest
from conftest import naming

from audit.samples import shorten_trainings
from captcha_ocr.audit import audit as audits
from captcha_ocr.audit.audit import audit, judge_people, read_definition
from captcha_ocr.audit.page.report import render_page
from captcha_ocr.audit.solvers import curve_trainings
from captcha_ocr.data.labels import Label
from captcha_ocr.errors import UsageError
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
    out = folder.parent / "a"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(audits, "LARGEST", {10**9: 100})
        patch.setattr(audits, "MOST_TESTED", 20)
        patch.setattr(curve_trainings, "DRAWS", 1)
        patch.setattr(curve_trainings, "STARTS", {"random": "few", "general": "few"})
        shorten_trainings(patch)
        yield audit_hour(folder, out), out


def test_an_audit_of_a_folder_says_what_it_cannot(audited):
    results, _ = audited
    assert (results.subject.images, results.subject.tested) == (62, 20)
    assert [(score.labels, score.tested) for score in results.curves["random"].scores] == [(30, 20)]
    assert results.knobs is None
    page = " ".join(render_page(results, "").split())
    for words in (
        "share most of them",
        "that needs what draws images",
        "100 labels or more; 40 images are left",
        "20 test images cannot tell 1 %",
        "Left out: 1 file, such as broken.png",
    ):
        assert words in page


def test_copies_and_what_is_no_image_are_left_out(audited):
    shortcuts = audited[0].shortcuts
    assert [*shortcuts.unreadable] == ["broken.png"]
    assert len(shortcuts.copies) == 1


def test_an_audit_that_is_begun_again_trains_nothing_twice(audited, folder):
    results, out = audited
    stamps = {
        run: (run / "run" / "run.json").stat().st_mtime_ns for run in (out / "runs").iterdir()
    }
    again = audit_hour(folder, out)
    assert {run: (run / "run" / "run.json").stat().st_mtime_ns for run in stamps} == stamps
    assert again.curves == results.curves
    state = json.loads((out / "audit.json").read_bytes())
    assert {"options", "spent"} <= set(state)
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
    folder = tmp_path / "few"
    folder.mkdir()
    for path in sorted(images.glob("*.png"))[:20]:
        (folder / path.name).write_bytes(path.read_bytes())
    with pytest.raises(UsageError, match=naming(folder, "60")):
        audit_hour(folder, tmp_path / "a")


def test_a_level_that_cannot_be_drawn_is_refused_before_anything_is(tmp_path):
    knobs = tmp_path / "knobs.toml"
    knobs.write_text('[knobs]\ntext.spacing = [0, "wide"]\n')
    with pytest.raises(UsageError, match=naming("spacing")):
        audit_hour(None, tmp_path / "a", design="captcha", knobs=knobs)
    assert not (tmp_path / "a" / "images").exists()


def test_people_without_answers_are_refused_before_any_training(images, tmp_path):
    with pytest.raises(UsageError, match=naming(tmp_path, "answers.csv")):
        audit_hour(images, tmp_path / "a", people=tmp_path)
    assert not (tmp_path / "a" / "runs").exists()


def test_what_draws_has_a_file_or_none(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my").mkdir()
    for file in ("my/mine.py", "mine.toml"):
        (tmp_path / file).write_text("a text")
    for options, file in (
        ({"call": "my.mine:draw"}, "my/mine.py"),
        ({"design": "mine.toml"}, "mine.toml"),
    ):
        assert read_definition(AuditOptions(**options)) == {"file": file, "text": "a text"}
    for options in ({"design": "captcha"}, {"call": "other:draw"}, {"command": "mine.toml"}, {}):
        assert read_definition(AuditOptions(**options)) is None


LABELS = [Label("a.png", "AB12"), Label("b.png", "CD34"), Label("c.png", "EF56")]


def test_answers_of_people_are_scored_against_the_labels(tmp_path):
    (tmp_path / "answers.csv").write_text("filename,text,split\na.png,ab12,train\nb.png,,train\n")
    (tmp_path / "answers.jsonl").write_text('{"seconds": 2}\n{"seconds": 3}\n{"seconds": null}\n')
    found = judge_people(tmp_path, LABELS)
    assert (found.images, found.right, found.seconds) == (2, 1, 2.5)


def test_answers_to_other_images_are_refused(tmp_path):
    (tmp_path / "answers.csv").write_text("filename,text,split\nz.png,ab12,train\n")
    with pytest.raises(UsageError, match="no answers to the images"):
        judge_people(tmp_path, LABELS)

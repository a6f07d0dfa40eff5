"""A whole audit of tiny captchas: every training is real, but has one epoch."""

import json
import shutil

import pytest
from conftest import naming

from captcha_ocr.audit import audit as audits
from captcha_ocr.audit import curve_trainings
from captcha_ocr.audit.audit import AuditOptions, audit
from captcha_ocr.audit.report import page_of
from captcha_ocr.audit.sources import DesignSource
from captcha_ocr.errors import UsageError

HOUR = AuditOptions(3600, train=("--epochs", "1"), quiet=True)


@pytest.fixture(scope="module")
def audited(images, tmp_path_factory):
    """The results of an audit of a folder, and its own folder."""
    out = tmp_path_factory.mktemp("audit") / "a"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(audits, "LARGEST", ((10**9, 100),))
        patch.setattr(audits, "MOST_TESTED", 20)
        patch.setattr(curve_trainings, "DRAWS", 1)
        patch.setattr(curve_trainings, "STARTS", {"random": "few", "general": "few"})
        yield audit(images, out, HOUR), out


def test_an_audit_of_a_folder_says_what_it_cannot(audited):
    results, _ = audited
    assert (results["images"], results["tested"]) == (60, 20)
    assert [score["labels"] for score in results["curves"]["random"]] == [30]
    assert results["knobs"] is None
    page = page_of(results, "")
    for words in (
        "share most of them",
        "that needs what draws images",
        "100 labels or more; 40 images are left",
        "20 test images cannot tell 1 %",
    ):
        assert words in page
    assert page.endswith("</html>\n")


def test_an_audit_that_is_begun_again_trains_nothing_twice(audited, images):
    results, out = audited
    stamps = {
        run: (run / "run" / "run.json").stat().st_mtime_ns for run in (out / "runs").iterdir()
    }
    again = audit(images, out, HOUR)
    assert {run: (run / "run" / "run.json").stat().st_mtime_ns for run in stamps} == stamps
    assert again["curves"] == results["curves"]
    assert json.loads((out / "audit.json").read_bytes())["spent"] >= results["spent_s"]


def test_other_labels_in_the_same_folder_are_refused(images, tmp_path):
    folder, out = shutil.copytree(images, tmp_path / "images"), tmp_path / "a"
    out.mkdir()
    audits.Audit(folder, out, HOUR).schedule.save()
    audits.Audit(folder, out, HOUR)
    rows = (folder / "labels.csv").read_text().splitlines()
    (folder / "labels.csv").write_text("\n".join([*rows[:-1], rows[-1][:-2] + "77"]) + "\n")
    with pytest.raises(UsageError, match=naming(out, "--out")):
        audits.Audit(folder, out, HOUR)


def test_another_seed_in_the_same_folder_is_refused(audited, images):
    _, out = audited
    with pytest.raises(UsageError, match=naming(out, "--out")):
        audit(images, out, AuditOptions(3600, seed=1, quiet=True))


def test_copies_and_what_is_no_image_are_left_out(images, tmp_path):
    folder = shutil.copytree(images, tmp_path / "images")
    rows = (folder / "labels.csv").read_text().splitlines()
    file, _, text = rows[1].partition(",")
    shutil.copy(folder / file, folder / "copy.png")
    (folder / "broken.png").write_bytes(b"")
    (folder / "labels.csv").write_text(
        "\n".join([*rows, f"copy.png,{text}", f"broken.png,{text}"]) + "\n"
    )
    made = audits.Audit(folder, tmp_path / "a", HOUR)
    assert (len(made.labels), len(made.shuffled)) == (62, 60)
    assert [*made.tricks.unreadable] == ["broken.png"]


def test_too_few_images_are_refused(images, tmp_path):
    folder = tmp_path / "few"
    folder.mkdir()
    for path in sorted(images.glob("*.png"))[:20]:
        (folder / path.name).write_bytes(path.read_bytes())
    with pytest.raises(UsageError, match=naming(folder, "60")):
        audit(folder, tmp_path / "a", HOUR)


def test_a_level_that_cannot_be_drawn_is_refused_before_anything_is(tmp_path):
    options = AuditOptions(3600, knobs={"text.spacing": [0, "wide"]}, quiet=True)
    with pytest.raises(UsageError, match=naming("spacing")):
        audit(DesignSource("captcha"), tmp_path / "a", options)
    assert not (tmp_path / "a" / "images").exists()


def test_people_without_answers_are_refused_before_any_training(images, tmp_path):
    with pytest.raises(UsageError, match=naming(tmp_path, "answers.csv")):
        audit(images, tmp_path / "a", AuditOptions(3600, people=tmp_path, quiet=True))
    assert not (tmp_path / "a" / "runs").exists()

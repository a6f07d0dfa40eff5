import json

import pytest
from conftest import naming

from captcha_ocr.audit.human_answers import judge_answers
from captcha_ocr.data.labels import Label
from captcha_ocr.errors import UsageError

LABELS = [Label("a.png", "AB12"), Label("b.png", "CD34"), Label("c.png", "EF56")]


def test_answers_are_scored_against_the_labels(tmp_path):
    (tmp_path / "answers.csv").write_text("filename,text,split\na.png,ab12,train\nb.png,,train\n")
    (tmp_path / "answers.jsonl").write_text(
        "".join(json.dumps({"seconds": each}) + "\n" for each in (2, 3, None))
    )
    found = judge_answers(tmp_path, LABELS)
    assert (found.images, found.right, found.seconds) == (2, 1, 2.5)


def test_a_folder_without_answers_is_refused(tmp_path):
    with pytest.raises(UsageError, match=naming(tmp_path, "answers.csv")):
        judge_answers(tmp_path, LABELS)


def test_answers_to_other_images_are_refused(tmp_path):
    (tmp_path / "answers.csv").write_text("filename,text,split\nz.png,ab12,train\n")
    with pytest.raises(UsageError, match="no answers to the images"):
        judge_answers(tmp_path, LABELS)

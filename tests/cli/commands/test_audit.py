import json

import pytest
from audit.samples import shorten_trainings
from conftest import invoke

from captcha_ocr.audit import audit as audits
from captcha_ocr.audit.solvers import curve_trainings


@pytest.mark.parametrize(
    ("words", "names"),
    [
        ([], ["FOLDER", "--design"]),
        (["{images}", "--design", "captcha"], ["FOLDER", "--design"]),
        (["{images}", "--knobs", "{images}/labels.csv"], ["--knobs"]),
        (["--command", "mygen {text} {out}"], ["--charset", "--length"]),
        (["--command", "mygen {text}", "--charset", "01", "--length", "4"], ["{out}"]),
        (["--call", "mine", "--charset", "01", "--length", "4"], ["--call", "module:function"]),
        (["{images}", "--length", "4"], ["--charset", "--length"]),
        (["{images}", "--out", "{images}.html"], ["--out", "{images}.html"]),
        (["{images}", "--out", "{images}/audit.html"], ["--out", "{images}/audit.html"]),
        (["{images}", "--out", "audit.txt"], ["--out", ".html"]),
        (["{images}", "--budget", "1"], ["--budget"]),
        (["no-such-folder"], ["no-such-folder"]),
    ],
)
def test_wrong_options_are_one_sentence(images, tmp_path, monkeypatch, words, names):
    monkeypatch.chdir(tmp_path)
    result = invoke("audit", *(word.replace("{images}", str(images)) for word in words))
    assert result.exit_code == 2
    assert all(name.replace("{images}", str(images)) in result.output for name in names)
    assert not list(tmp_path.glob("*.html"))


def test_the_page_is_written_and_json_is_one_line(images, tmp_path, monkeypatch):
    monkeypatch.setattr(audits, "LARGEST", ((10**9, 30),))
    monkeypatch.setattr(audits, "MOST_TESTED", 20)
    monkeypatch.setattr(curve_trainings, "DRAWS", 1)
    monkeypatch.setattr(curve_trainings, "STARTS", {"random": "few", "general": "few"})
    shorten_trainings(monkeypatch)
    result = invoke("audit", images, "--out", tmp_path / "page.html", "--json", "--quiet")
    assert result.exit_code == 0, result.output
    assert len(result.stdout.splitlines()) == 1
    assert json.loads(result.stdout)["tested"] == 20
    assert (tmp_path / "page.html").read_text().startswith("<!doctype html>")

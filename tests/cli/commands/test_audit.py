import json

import pytest
from audit.samples import make_results
from conftest import invoke

from captcha_ocr.audit import audit as audits


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
    results = make_results(sorted(images.glob("*.png"))[:3])
    monkeypatch.setattr(audits, "audit", lambda folder, options, quiet: results)
    page = tmp_path / "page.html"
    result = invoke("audit", images, "--out", page, "--budget", 7)
    lines = result.stdout.splitlines()
    assert [line.split()[0] for line in lines] == [
        *("verdict", "labels", "cost", "attempts", "page", "work")
    ]
    assert f"captcha-ocr audit {images} --budget=7 --out={page}</pre>" in page.read_text()
    result = invoke("audit", images, "--out", page, "--json", "--quiet")
    assert result.exit_code == 0, result.output
    assert len(result.stdout.splitlines()) == 1
    assert json.loads(result.stdout)["tested"] == 1000
    assert page.read_text().startswith("<!doctype html>")

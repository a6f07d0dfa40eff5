import json
from pathlib import Path

import pytest
from PIL import Image

from ..conftest import invoke


@pytest.mark.parametrize("design", ["wave", "random:easy"])
def test_a_preview_is_a_picture_with_as_many_rows_as_it_needs(tmp_path, design):
    result = invoke(
        "design", "preview", design, "--count", 8, "--out", tmp_path / "p.png", "--json"
    )
    assert result.exit_code == 0
    facts = json.loads(result.stdout)
    assert (facts["images"], facts["illegible"]) == (8, 0)
    with Image.open(tmp_path / "p.png") as sheet:
        assert sheet.width > 1000
        assert 150 < sheet.height < 400
    assert f"generate --design {design}" in result.stderr


def test_a_preview_says_what_is_illegible_and_why(tmp_path):
    mine = tmp_path / "mine.toml"
    mine.write_text('[text]\ncolor = "#fdfdfd"\n')
    result = invoke("design", "preview", mine, "--count", 2, "--out", tmp_path / "p.png")
    assert "18 illegible images drawn again" in result.stdout
    assert "2 still illegible: contrast" in result.stdout


def test_a_preview_draws_the_images_of_generate_in_the_file_and_number_that_are_asked_for(tmp_path):
    (tmp_path / "mine.toml").write_text('[text]\nlength = 3\n[fonts]\nfaces = ["DejaVuSans.ttf"]\n')
    result = invoke("design", "preview", tmp_path / "mine.toml", "--count", 13, "--seed", 4)
    assert result.stdout == "preview.png: 13 images of 3 characters, 160x60\n"
    assert [path.name for path in Path().iterdir()] == ["preview.png"]
    preview = ("design", "preview", tmp_path / "mine.toml", "--count", 13)
    assert invoke(*preview, "--seed", 4, "--out", "again.png").exit_code == 0
    assert Path("again.png").read_bytes() == Path("preview.png").read_bytes()
    invoke(*preview, "--seed", 5, "--out", "other.png")
    assert Path("other.png").read_bytes() != Path("preview.png").read_bytes()


def test_the_options_of_the_text_hold_for_a_preview():
    result = invoke(
        "design", "preview", "captcha", "--count", 1, "--length", "2-3", "--charset", "digits"
    )
    assert "1 image of 2-3 characters" in result.stdout
    assert invoke("design", "preview", "captcha", "--count", 601).exit_code == 2


@pytest.mark.parametrize("name", ["sepckle", "random:none", "gone.jsonl"])
def test_an_unknown_design_has_no_preview(name):
    result = invoke("design", "preview", name)
    assert (result.exit_code, result.stdout) == (2, "")
    assert name in result.stderr
    assert not Path("preview.png").exists()


def test_a_picture_that_cannot_be_written_is_named():
    Path("file").write_text("")
    result = invoke("design", "preview", "captcha", "--count", 1, "--out", "file/preview.png")
    assert result.exit_code == 1
    assert "file" in result.stderr

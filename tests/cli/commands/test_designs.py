import json
import shutil
from pathlib import Path

import pytest
from PIL import Image

from captcha_ocr.generation.designs.design import design_names

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
    (tmp_path / "link.toml").symlink_to("mine.toml")
    for place in (tmp_path / "mine.toml", tmp_path / "link.toml"):
        refused = invoke(*preview, "--out", place)
        assert (refused.exit_code, "--out" in refused.stderr) == (2, True)
    assert (tmp_path / "mine.toml").read_text().startswith("[text]")


def test_the_options_of_the_text_hold_for_a_preview():
    result = invoke(
        "design", "preview", "captcha", "--count", 1, "--length", "2-3", "--charset", "digits"
    )
    assert "1 image of 2-3 characters" in result.stdout
    assert "--design captcha --length=2-3 --charset=digits\n" in result.stderr
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


def test_the_list_has_a_line_and_a_picture_for_each_named_design():
    result = invoke("design", "list")
    lines = dict(line.split(maxsplit=1) for line in result.stdout.splitlines())
    assert [*lines] == [*design_names(), "pictures"]
    assert lines["night"].startswith("Light digits on a dark ground")
    rows = json.loads(invoke("design", "list", "--json").stdout)["designs"]
    assert [row["name"] for row in rows] == design_names()
    assert {row["name"]: row["look"] for row in rows} == {
        name: lines[name] for name in design_names()
    }
    assert rows[0]["picture"] == lines["pictures"].replace("NAME", rows[0]["name"])


def test_the_design_of_a_folder_is_found_with_the_command_that_trains_on_it(tmp_path):
    options = ("--count", 20, "--seed", 3, "--workers", 1)
    invoke("generate", "--design", "night", "--out", tmp_path / "night", *options)
    result = invoke("design", "find", tmp_path / "night")
    assert result.stdout.splitlines()[1].startswith("night ")
    (tmp_path / "one").mkdir()
    shutil.copy(next((tmp_path / "night").glob("*.png")), tmp_path / "one")
    assert "of 1 image; 20 or more" in invoke("design", "find", tmp_path / "one").stdout
    assert "train --draw night" in result.stderr
    facts = json.loads(invoke("design", "find", tmp_path / "night", "--json").stdout)
    assert (facts["found"], len(facts["nearest"])) == (True, 3)
    inspected = invoke("inspect", tmp_path / "night", "--out", tmp_path / "seen", "--workers", 1)
    assert "train --draw night" in inspected.stdout


def test_a_folder_of_no_named_design_is_told_so(tmp_path):
    for number in range(9):
        Image.effect_noise((300, 300), 90 + number).save(tmp_path / f"{number}.png")
    result = invoke("design", "find", tmp_path)
    assert f"{tmp_path}: no named design" in result.stdout
    assert f"label {tmp_path}" in result.stderr
    for number in range(9, 50):
        shutil.copyfile(tmp_path / "0.png", tmp_path / f"{number}.png")
    assert f"adapt {tmp_path}" in invoke("design", "find", tmp_path).stderr
    inspected = invoke("inspect", tmp_path, "--out", tmp_path.parent / "seen", "--json")
    assert json.loads(inspected.stdout)["looks_like"] is None


def test_a_folder_without_an_image_has_no_design(tmp_path):
    result = invoke("design", "find", tmp_path)
    assert (result.exit_code, result.stdout) == (1, "")
    assert str(tmp_path) in result.stderr
    result = invoke("design", "find", tmp_path / "gone")
    assert (result.exit_code, result.stdout) == (2, "")
    assert str(tmp_path / "gone") in result.stderr

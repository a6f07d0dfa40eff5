import json
import re
import shutil
from pathlib import Path

import pytest
from conftest import contents, invoke

PREPARE = ["prepare", "mine", "--size", "48x16", "--workers", 1, "--json"]


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("21.png", b"no image"),
        ("22.png", b""),
        ("labels.csv", b"gone.png,23\n"),
        ("labels.csv", b"24.png,\n"),
        ("labels.csv", b"25.png,1234567\n"),
    ],
)
def test_prepare_names_and_counts_what_it_leaves_out_and_strict_alone_fails(images, file, content):
    shutil.copytree(images, "mine")
    path = Path("mine", file)
    path.write_bytes((path.read_bytes() if path.exists() else b"") + content)
    name = file if file.endswith("png") else content.decode().partition(",")[0]
    for strict in ([], ["--strict"], ["--strict"]):  # the third time all shards exist
        result = invoke(*PREPARE, *strict)
        facts = json.loads(result.stdout)
        assert (result.exit_code, facts["left_out"]) == (len(strict), 1), result.stderr
        assert re.search(f"^left out .*{re.escape(name)}", result.stderr, re.MULTILINE)


def test_prepare_counts_what_it_left_out_before_in_the_same_words(images):
    shutil.copytree(images, "mine")
    image = min(Path("mine").glob("*.png"))
    with Path("mine/labels.csv").open("a") as table:
        for number in range(5):
            shutil.copy(image, f"mine/copy {number}.png")
            table.write(f"copy {number}.png,{image.stem[-2:]}\n")
            Path(f"mine/\udcff{number}.png").write_bytes(b"no image")
    first, second = (invoke(*PREPARE, "--folds", 2) for _ in range(2))
    told = [line for line in first.stderr.splitlines() if "left out" in line]
    again = [line for line in second.stderr.splitlines() if "left out" in line]
    assert (told, first.stdout) == (again, second.stdout)
    assert json.loads(second.stdout)["copies"] == 5
    assert len(told) == 2


@pytest.mark.parametrize(
    "table",
    [
        b"\0,\n",
        b"filename,text,text\na.png,1,2\n",
        b'{"path":\n',
        b'filename,text\na.png,"1',
        b'{"path": ' * 10**5,
    ],
)
def test_what_was_not_done_at_all_is_wrong_usage(images, table):
    shutil.copytree(images, "mine")
    Path("mine", "labels.csv").write_bytes(table)
    for command in (
        PREPARE,
        [*PREPARE, "--strict"],
        ["inspect", "mine"],
        ["eval", "--labels", "mine/labels.csv"],
    ):
        result = invoke(*command)
        assert result.exit_code == 2
        assert "mine/labels.csv" in result.stderr


def test_inspect_counts_draws_and_names_what_was_read_wrong(images, run, tmp_path):
    options = ["--out", tmp_path, "--model", run, "--device", "cpu", "--workers", 1, "--quiet"]
    facts = json.loads(invoke("inspect", images, *options, "--json").stdout)
    assert facts["images"] == 60
    assert facts["advice"]
    assert set(facts["wrong"][0]) == {"file", "label", "text", "confidence"}
    lines = invoke("inspect", images, *options).stdout.splitlines()
    for picture in (tmp_path / "contact-sheet.png", tmp_path / "read-wrong.png"):
        assert picture.exists()
        assert any(line.endswith(f" {picture}") for line in lines)
    assert len([line for line in lines if "\t" in line]) == len(facts["wrong"])


GENERATE = ["generate", "--workers", 1, "--json", "--out"]


def facts_of(result):
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout)


def pictures(folder):
    return {name: data for name, data in contents(Path(folder)).items() if name.endswith(".png")}


@pytest.mark.parametrize(("options", "saved"), [([], 6), (["--designs", 3], 3)])
def test_generate_saves_random_designs_that_draw_the_same_images_again(options, saved):
    count = ["--seed", 2, "--count", 6]
    saving = ["--design", "random:easy", *options, "--save-designs", "saved.jsonl"]
    drawn = facts_of(invoke(*GENERATE, "one", *count, *saving))
    expected = {"out": "one", "images": 6, "drawn": 6, "illegible": 0}
    assert drawn == {**expected, "redrawn": drawn["redrawn"]}
    assert len(Path("saved.jsonl").read_text().splitlines()) == saved
    again = [*GENERATE, "two", *count, "--design", "saved.jsonl"]
    assert [facts_of(invoke(*again))["drawn"] for _ in range(2)] == [6, 0]
    assert pictures("one") == pictures("two")


def test_generate_counts_what_could_not_be_read():
    Path("mine.toml").write_text('[text]\ncolor = "canvas"\n[fonts]\nfaces = ["DejaVuSans.ttf"]\n')
    options = ["--design", "mine.toml", "--count", 2]
    result = invoke(*GENERATE, "one", *options)
    expected = {"out": "one", "images": 2, "drawn": 2, "redrawn": 18, "illegible": 2}
    assert facts_of(result) == expected
    assert re.search(r"^legible .*\b18\b.*\b2 images", result.stderr, re.MULTILINE)
    assert "legible" not in invoke(*GENERATE, "two", *options, "--quiet").stderr


def test_generate_can_say_in_one_line_what_was_drawn():
    result = invoke("generate", "--out", "one", "--count", 2, "--design", "night", "--quiet")
    line = "one: 2 images of 4-7 characters, 64 high; 2 images drawn\n"
    assert (result.stdout, result.stderr) == (line, "")

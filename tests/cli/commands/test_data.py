import json
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
    for strict in (False, True, True):  # the third time all shards exist
        result = invoke(*PREPARE, *["--strict"] * strict)
        assert (result.exit_code, json.loads(result.stdout)["left_out"]) == (int(strict), 1), (
            result.stderr
        )
        assert any(
            line.startswith("left out ") and name in line for line in result.stderr.splitlines()
        )


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


@pytest.mark.parametrize("options", [[], ["--designs", 3]])
def test_generate_saves_random_designs_that_draw_the_same_images_again(options):
    words = ["--seed", 2, "--count", 6, *options]
    drawn = facts_of(
        invoke(*GENERATE, "one", "--design", "random:easy", *words, "--save-designs", "saved.jsonl")
    )
    assert drawn == {
        "out": "one",
        "images": 6,
        "drawn": 6,
        "redrawn": drawn["redrawn"],
        "illegible": 0,
    }
    assert len(Path("saved.jsonl").read_text().splitlines()) == (3 if options else 6)
    again = facts_of(invoke(*GENERATE, "two", "--design", "saved.jsonl", "--seed", 2, "--count", 6))
    assert again["drawn"] == 6
    assert pictures("one") == pictures("two")
    assert (
        facts_of(invoke(*GENERATE, "two", "--design", "saved.jsonl", "--seed", 2, "--count", 6))[
            "drawn"
        ]
        == 0
    )


def test_generate_counts_what_could_not_be_read():
    Path("mine.toml").write_text('[text]\ncolor = "canvas"\n[fonts]\nfaces = ["DejaVuSans.ttf"]\n')
    result = invoke(*GENERATE, "one", "--design", "mine.toml", "--count", 2)
    assert facts_of(result) == {
        "out": "one",
        "images": 2,
        "drawn": 2,
        "redrawn": 18,
        "illegible": 2,
    }
    assert any(
        line.startswith("legible ") and "18" in line and "2 images" in line
        for line in result.stderr.splitlines()
    )
    assert (
        "legible"
        not in invoke(*GENERATE, "two", "--design", "mine.toml", "--count", 2, "--quiet").stderr
    )


def test_generate_names_what_comes_next():
    assert "next: captcha-ocr prepare one" in invoke(*GENERATE, "one", "--count", 4).stderr
    assert "next: captcha-ocr eval two" in invoke(*GENERATE, "two", "--count", 2).stderr
    text = invoke("generate", "--out", "three", "--count", 2, "--design", "night", "--quiet")
    assert (text.stdout, text.stderr) == (
        "three: 2 images of 4-7 characters, 64 high; 2 images drawn\n",
        "",
    )

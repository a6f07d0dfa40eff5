from pathlib import Path

import pytest
from conftest import naming
from PIL import Image

from captcha_ocr.cli.scoring import labelled_paths, labels_to_score
from captcha_ocr.cli.wording import word_error
from captcha_ocr.data.labels import Label, read_labels
from captcha_ocr.errors import UsageError


def test_a_label_is_found_by_its_place_beside_the_labels_file_and_elsewhere_by_a_unique_name(
    tmp_path,
):
    table = tmp_path / "labels.csv"
    table.write_text("filename,text\na/1.png,A\nb/1.png,B\na/2.png,C\n")
    text_of = labelled_paths(tmp_path, read_labels(table)[0])
    assert [text_of(str(tmp_path / place / "1.png")) for place in "abc"] == ["A", "B", None]
    assert text_of(str(tmp_path / "b" / "2.png")) is None
    assert (text_of("elsewhere/1.png"), text_of("elsewhere/2.png")) == (None, "C")


@pytest.mark.parametrize(
    ("name", "folders"),
    [
        ("a.png", ["raw"]),
        ("raw/a.png", ["raw"]),  # from the current folder
        ("sub/é.png", ["other", "raw"]),  # decomposed in the folder
        ("a", ["raw"]),
    ],
)
def test_names_are_relative_to_the_first_folder_that_has_the_images(name, folders):
    for folder in ("raw/sub", "other", "tables"):
        Path(folder).mkdir(parents=True)
    for file in ("raw/a.png", "raw/sub/e\u0301.png"):
        Image.new("L", (4, 4)).save(file)
    Path("tables/x.csv").write_text(f"filename,text\n{name},AB\n")
    folder, rows, problems = labels_to_score(
        Path("tables/x.csv"), [Path("tables"), *map(Path, folders)]
    )
    assert (folder, problems) == (Path("raw"), {})
    assert (folder / rows[0].file).exists()
    assert rows == [Label(rows[0].file, "AB")]


def test_a_table_without_any_of_the_images_asks_for_their_folder(tmp_path):
    (tmp_path / "x y.csv").write_text("filename,text\ngone.png,AB\n")
    with pytest.raises(UsageError, match=naming("x y.csv")) as raised:
        labels_to_score(tmp_path / "x y.csv", [tmp_path])
    assert "eval FOLDER --labels" in word_error(raised.value)

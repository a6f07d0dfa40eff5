import os
from pathlib import Path

import pytest

from captcha_ocr.data.label_sources.file_names import FileNames
from captcha_ocr.data.labels import Label, read_labels


@pytest.mark.parametrize(
    "name", ["é.png", "e\u0301.png", "é", "sub/a.png", "sub\\a.png", "./sub/a", "a.png"]
)
def test_a_name_means_an_image_in_any_form(name):
    names = FileNames(None, None if name != "a.png" else "sub", ["e\u0301.png", "sub/a.png"])
    assert names.find(name) == ("sub/a.png" if "a" in name else "e\u0301.png")


@pytest.mark.parametrize("start", ["absolute", ".", "beside"])
def test_a_path_into_the_folder_means_its_image(tmp_path, monkeypatch, start):
    for name in ("images/sub", "beside"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "images" / "sub" / "a.png").touch()
    (tmp_path / "beside" / "a.png").touch()
    folder = tmp_path / "images"
    if start != "absolute":
        monkeypatch.chdir(tmp_path / start)
        folder = Path(os.path.relpath(folder))
    outside = os.path.join(folder, "..", "beside", "a.png")
    names = FileNames(folder, None, [])
    assert names.find(str(folder / "sub" / "a.png")) == "sub/a.png"
    assert names.find(outside) == outside
    (tmp_path / "codes.csv").write_text(
        f"filename,text,confidence\n{folder / 'sub' / 'a.png'},AB,0.5\n"
    )
    assert read_labels(tmp_path / "codes.csv", folder) == ([Label("sub/a.png", "AB")], {})


@pytest.mark.parametrize(
    "name", ["a" * 300 + ".png", "/" + "a" * 300, "a\0.png", "b/" * 3000 + "a.png"]
)
def test_an_impossible_file_name_stays_as_it_is(tmp_path, name):
    assert FileNames(tmp_path, None, []).find(name) == name

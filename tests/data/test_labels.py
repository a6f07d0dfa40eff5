import os
from pathlib import Path

import pytest

from captcha_ocr.data.labels import (
    Label,
    are_serial_numbers,
    compile_pattern,
    file_in_folder,
    label_from_name,
    labels_from_names,
    read_labels,
)
from captcha_ocr.errors import CaptchaOcrError, LabelError, UsageError

ONE_ROW = ([Label("a.png", "AB")], {})


@pytest.fixture
def read(tmp_path):
    """Read a labels.csv of the given content: (labels, problems)."""

    def read_content(content):
        path = tmp_path / "labels.csv"
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return read_labels(path)

    return read_content


@pytest.mark.parametrize("stem", ["R865", "R865_0001", "R865_a_b", "00000-R865", "a-b-R865"])
def test_a_file_name_holds_its_text(stem):
    assert label_from_name(stem) == "R865"


@pytest.mark.parametrize("stem", ["0-AB_1", "AB_0-1", "_0001", "0001-"])
def test_a_name_with_two_separators_or_without_a_text_is_refused(stem):
    with pytest.raises(LabelError, match="--label-pattern" if "AB" in stem else None):
        label_from_name(stem)


def test_a_name_without_a_label_is_reported_and_the_rest_is_read():
    labels, problems = labels_from_names(["a-b/c_d/XY.jpeg", "0-AB_1.png"])
    assert (labels, list(problems)) == ([Label("a-b/c_d/XY.jpeg", "XY")], ["0-AB_1.png"])


@pytest.mark.parametrize(
    ("pattern", "text"),
    [(r"(\d+)_(?P<text>\w+)\.png", "R865"), (r"7_([A-Z]+)(\d+)", "R"), (r"[A-Z]\d+", "R865")],
    ids=["group text", "first group", "whole match"],
)
def test_a_pattern_finds_the_text(pattern, text):
    assert labels_from_names(["x/7_R865.png"], pattern)[0] == [Label("x/7_R865.png", text)]


@pytest.mark.parametrize("pattern", ["nothing", "(x?)7", "7|(x)"])
def test_a_name_without_a_match_is_reported(pattern):
    labels, problems = labels_from_names(["7_R865.png"], pattern)
    assert labels == []
    assert "--label-pattern" in problems["7_R865.png"]


@pytest.mark.parametrize("pattern", ["(", "a{99999999999999999999}", "(" * 3000 + ")" * 3000, "a{" + "9" * 5000 + "}"])
def test_a_pattern_that_is_no_regular_expression_is_refused(pattern):
    with pytest.raises(UsageError, match="--label-pattern") as refusal:
        compile_pattern(pattern)
    assert len(str(refusal.value)) < 300


def test_serial_numbers_are_noticed():
    def are_serial(texts):
        return are_serial_numbers([Label(f"{text}.png", text) for text in texts])

    numbers = [f"{number:05}" for number in range(24)]
    assert are_serial(numbers[:12])
    assert are_serial(str(number) for number in range(20, 5, -1))
    assert not any(are_serial(texts) for texts in (numbers[:9], numbers[::2], [*numbers, "ab"]))


@pytest.mark.parametrize(
    "content",
    [
        b"filename,text\na.png,AB\n",
        b"\xef\xbb\xbffilename,text\na.png,AB\n",
        b"filename,text\r\na.png,AB\r\n",
        b"text,filename\nAB,a.png\n",
        b"filename,text,author\na.png,AB,me\n",
        b'"filename","text"\n"a.png","AB"\n',
        b"Filename\tText \na.png\tAB\n",
        b"filename,text\n./a.png,AB\n",
        b"filename,text\na.png,AB\n\na.png,AB\n",
        b"filename,text,split\na.png,AB,\n",
        b'{"path": "a.png", "text": "AB", "confidence": 0.5}\n{"path": "b.png", "error": "x"}\n{"summary": {}}\n',
    ],
)
def test_a_row_is_read_from_every_kind_of_labels_file(read, content):
    assert read(content) == ONE_ROW


@pytest.mark.parametrize(
    ("content", "label"),
    [
        ('filename,text\na.png,","""\n', Label("a.png", ',"')),
        ("filename;text\na.png;A,B\n", Label("a.png", "A,B")),
        ('text,filename\n"A,B",a.png\n', Label("a.png", "A,B")),
        ("filename,text\na.png,e\u0301\n", Label("a.png", "é")),
        ("filename,text\nsub\\a.png,AB\n", Label("sub/a.png", "AB")),
        ("filename,text\nimg:1.png,AB\n", Label("img:1.png", "AB")),
        ("filename,text,split\na.png,AB,train\n", Label("a.png", "AB", "train")),
        ("filename,text,split\na.png,AB,val\n", Label("a.png", "AB", "val")),
    ],
)
def test_odd_texts_names_and_splits_are_kept(read, content, label):
    assert read(content) == ([label], {})


@pytest.mark.parametrize("split", ["valid", "Train", ""])
def test_an_unknown_split_is_reported(read, split):
    labels, problems = read(f"filename,text,split\na.png,AB,{split}\nb.png,CD,test\n")
    assert labels == [Label("b.png", "CD", "test")]
    assert all(word in problems["a.png"] for word in (repr(split), "train", "val", "test"))


@pytest.mark.parametrize("file", ["../a.png", "sub/../../a.png", "/etc/a.png", "C:/a.png", "..\\a.png"])
def test_a_file_outside_the_folder_is_reported(read, file):
    labels, problems = read(f"filename,text\n{file},AB\n")
    assert (labels, list(problems)) == ([], [file.replace("\\", "/")])


@pytest.mark.parametrize(
    "rows",
    ["a.png,", "a.png", "a.png,AB,train\na.png,CD,train", "a.png,AB,train\na.png,AB,test", "a.png,AB,train\n./a.png,,"],
)
def test_an_empty_label_and_conflicting_rows_are_reported(read, rows):
    labels, problems = read(f"filename,text,split\n{rows}\n")
    assert (labels, list(problems)) == ([], ["a.png"])


def test_a_row_without_a_file_name_is_reported_by_its_number(read):
    labels, (place,) = read("filename,text\na.png,AB\n,CD\n")
    assert labels == ONE_ROW[0]
    assert all(word in place for word in ("labels.csv", "3"))


@pytest.mark.parametrize(
    "header", ["", "a.png,AB", "file,text", "filename|text", "filename,text,text", "filename,filename,text"]
)
def test_a_file_without_one_header_of_each_name_is_refused(read, header):
    with pytest.raises(CaptchaOcrError, match="filename"):
        read(f"{header}\na.png,AB,CD\n")


def test_a_damaged_or_missing_labels_file_is_refused(read, tmp_path):
    deep = b'{"path": "a.png", "text": "AB"}\n' + b"[" * 200_000
    for content in (b"filename,text\na.png,\xe9\n", b'filename,text\na.png,"A"B"\n', b'{"path": "a.png"', deep):
        with pytest.raises(CaptchaOcrError, match=r"labels\.csv"):
            read(content)
    with pytest.raises(CaptchaOcrError, match=r"gone\.csv"):
        read_labels(tmp_path / "gone.csv")


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
    assert file_in_folder(folder, str(folder / "sub" / "a.png")) == "sub/a.png"
    assert file_in_folder(folder, outside) == outside
    (tmp_path / "codes.csv").write_text(f"filename,text,confidence\n{folder / 'sub' / 'a.png'},AB,0.5\n")
    assert read_labels(tmp_path / "codes.csv", folder) == ([Label("sub/a.png", "AB")], {})


@pytest.mark.parametrize("name", ["a" * 300 + ".png", "/" + "a" * 300, "a\0.png", "b/" * 3000 + "a.png"])
def test_an_impossible_file_name_stays_as_it_is(tmp_path, name):
    assert file_in_folder(tmp_path, name) == name

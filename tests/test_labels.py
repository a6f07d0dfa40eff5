import os
from pathlib import Path

import pytest

from captcha_ocr.errors import CaptchaOcrError, LabelError, UsageError
from captcha_ocr.labels import (
    Label,
    are_serial_numbers,
    compile_pattern,
    label_from_name,
    labels_from_names,
    read_labels,
    within,
)


@pytest.fixture
def read(tmp_path):
    """Reads what a labels.csv of the given content says: (labels, problems)."""

    def read_content(content):
        path = tmp_path / "labels.csv"
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return read_labels(path)

    return read_content


@pytest.mark.parametrize(
    ("stem", "text"),
    [
        ("R865", "R865"),
        ("R865_0001", "R865"),
        ("R865_a_b", "R865"),
        ("00000-R865", "R865"),
        ("a-b-R865", "R865"),
        ("中文", "中文"),
    ],
)
def test_a_file_name_tells_its_text(stem, text):
    assert label_from_name(stem) == text


@pytest.mark.parametrize("stem", ["0-AB_1", "AB_0-1"])
def test_a_name_with_both_separators_is_refused(stem):
    with pytest.raises(LabelError, match="--label-pattern"):
        label_from_name(stem)


@pytest.mark.parametrize("stem", ["_0001", "0001-"])
def test_a_name_without_a_text_is_refused(stem):
    with pytest.raises(LabelError):
        label_from_name(stem)


def test_the_folder_and_the_extension_are_no_part_of_the_text():
    assert labels_from_names(["a-b/c_d/XY.jpeg"]) == ([Label("a-b/c_d/XY.jpeg", "XY")], {})


def test_a_name_that_tells_nothing_is_reported_and_the_rest_goes_on():
    labels, problems = labels_from_names(["AB.png", "0-AB_1.png"])
    assert ([label.file for label in labels], list(problems)) == (["AB.png"], ["0-AB_1.png"])


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        (r"(\d+)_(?P<text>\w+)\.png", "R865"),
        (r"7_([A-Z]+)(\d+)", "R"),
        (r"[A-Z]\d+", "R865"),
    ],
    ids=["group text", "first group", "whole match"],
)
def test_a_pattern_finds_the_text(pattern, text):
    assert labels_from_names(["x/7_R865.png"], pattern)[0] == [Label("x/7_R865.png", text)]


@pytest.mark.parametrize("pattern", ["nothing", "(x?)7", "7|(x)"])
def test_a_name_in_which_the_pattern_finds_nothing_is_reported(pattern):
    labels, problems = labels_from_names(["7_R865.png"], pattern)
    assert labels == []
    assert "--label-pattern" in problems["7_R865.png"]


def test_a_pattern_that_is_no_regular_expression_is_a_usage_error():
    with pytest.raises(UsageError, match="--label-pattern"):
        labels_from_names(["a.png"], "(")


def test_a_label_is_composed_unicode():
    assert Label("a.png", "e\u0301").text == "é"


def test_a_labels_file_names_file_and_text(read):
    assert read("filename,text\na.png,AB\nsub/b.png,CD\n") == ([Label("a.png", "AB"), Label("sub/b.png", "CD")], {})


@pytest.mark.parametrize(
    "content",
    [
        b"\xef\xbb\xbffilename,text\na.png,AB\n",
        b"filename,text\r\na.png,AB\r\n",
        b"text,filename\nAB,a.png\n",
        b"filename,text,author\na.png,AB,me\n",
        b'"filename","text"\n"a.png","AB"\n',
        b"filename,text\n./a.png,AB\n",
        b"filename,text\na.png,AB\n\na.png,AB\n",
        b"filename,text,split\na.png,AB,\n",
    ],
    ids=["BOM", "CRLF", "order", "more columns", "quotes", "./", "equal rows", "no split"],
)
def test_the_same_row_is_read_from_every_flavour_of_csv(read, content):
    assert read(content) == ([Label("a.png", "AB")], {})


def test_a_text_may_hold_commas_and_quotes(read):
    assert read('filename,text\na.png,","""\n')[0] == [Label("a.png", ',"')]


def test_a_backslash_separates_folders(read):
    assert read("filename,text\nsub\\a.png,AB\n")[0] == [Label("sub/a.png", "AB")]


@pytest.mark.parametrize("split", ["train", "val", "test"])
def test_the_split_column_is_kept(read, split):
    assert read(f"filename,text,split\na.png,AB,{split}\n")[0] == [Label("a.png", "AB", split)]


@pytest.mark.parametrize("split", ["valid", "Train", ""])
def test_another_word_for_a_split_is_reported(read, split):
    labels, problems = read(f"filename,text,split\na.png,AB,{split}\nb.png,CD,test\n")
    assert [label.file for label in labels] == ["b.png"]
    assert all(word in problems["a.png"] for word in (repr(split), "train", "val", "test"))


@pytest.mark.parametrize("file", ["../a.png", "sub/../../a.png", "/etc/a.png", "C:/a.png", "..\\a.png"])
def test_a_file_name_that_leads_out_of_the_folder_is_reported(read, file):
    labels, problems = read(f"filename,text\n{file},AB\n")
    assert labels == []
    assert list(problems) == [file.replace("\\", "/")]


def test_a_colon_in_a_file_name_leads_nowhere(read):
    assert [label.file for label in read("filename,text\nimg:1.png,AB\n")[0]] == ["img:1.png"]


@pytest.mark.parametrize("row", ["a.png,", "a.png"])
def test_an_empty_label_is_reported(read, row):
    labels, problems = read(f"filename,text\n{row}\n")
    assert (labels, list(problems)) == ([], ["a.png"])


def test_a_row_without_a_file_name_is_reported_by_its_number(read):
    (place,) = read("filename,text\na.png,AB\n,CD\n")[1]
    assert all(word in place for word in ("labels.csv", "3"))


@pytest.mark.parametrize("other", ["a.png,CD,train", "a.png,AB,test", "./a.png,CD,train", "a.png,,train"])
def test_of_two_conflicting_rows_neither_is_used(read, other):
    labels, problems = read(f"filename,text,split\na.png,AB,train\n{other}\n")
    assert labels == []
    assert list(problems) == ["a.png"]


@pytest.mark.parametrize("content", ["", "a.png,AB\n", "file,text\na.png,AB\n", "filename|text\na.png|AB\n"])
def test_a_missing_header_is_an_error_that_says_which(read, content):
    with pytest.raises(CaptchaOcrError, match="filename"):
        read(content)


@pytest.mark.parametrize(
    "content", ["filename;text\na.png;A,B\n", "Filename\tText \na.png\tA,B\n", 'text,filename\n"A,B",a.png\n']
)
def test_a_spreadsheets_separator_and_capitals_are_understood(read, content):
    assert read(content) == ([Label("a.png", "A,B")], {})


@pytest.mark.parametrize("content", [b"filename,text\na.png,\xe9\n", b'filename,text\na.png,"A"B"\n'])
def test_a_file_that_is_no_utf_8_csv_is_an_error(read, content):
    with pytest.raises(CaptchaOcrError, match=r"labels\.csv"):
        read(content)


def test_a_missing_labels_file_is_an_error(tmp_path):
    with pytest.raises(CaptchaOcrError, match=r"labels\.csv"):
        read_labels(tmp_path / "labels.csv")


def test_what_eval_prints_as_json_is_a_labels_file(tmp_path):
    lines = [
        '{"path": "a.png", "code": "AB", "confidence": 0.5}',
        '{"path": "b.png", "error": "damaged image"}',
        '{"summary": {"images": 1}}',
    ]
    (tmp_path / "codes.json").write_text("\n".join(lines) + "\n")
    assert read_labels(tmp_path / "codes.json") == ([Label("a.png", "AB")], {})


def test_a_damaged_line_of_json_is_refused(tmp_path):
    (tmp_path / "codes.json").write_text('{"path": "a.png"')
    with pytest.raises(CaptchaOcrError, match=r"codes\.json"):
        read_labels(tmp_path / "codes.json")


@pytest.mark.parametrize("absolute", [False, True])
def test_a_path_that_leads_into_the_folder_stands_for_its_image(tmp_path, monkeypatch, absolute):
    monkeypatch.chdir(tmp_path)
    images = tmp_path / "images"
    (images / "sub").mkdir(parents=True)
    (images / "sub" / "a.png").write_bytes(b"")
    name = str(images / "sub" / "a.png") if absolute else "images/sub/a.png"
    (tmp_path / "codes.csv").write_text(f"filename,text,confidence\n{name},AB,0.5\n")
    assert read_labels(tmp_path / "codes.csv", Path("images")) == ([Label("sub/a.png", "AB")], {})


@pytest.mark.parametrize(
    ("texts", "serial"),
    [
        ([f"{number:05}" for number in range(12)], True),
        ([str(number) for number in range(20, 5, -1)], True),
        ([f"{number:05}" for number in range(9)], False),
        ([f"{number:05}" for number in range(0, 24, 2)], False),
        ([*(str(number) for number in range(12)), "ab"], False),
    ],
)
def test_names_that_number_the_images_are_noticed(texts, serial):
    labels, problems = labels_from_names([f"{text}_ab.png" for text in texts])
    assert problems == {}
    assert are_serial_numbers(labels) == serial


@pytest.mark.parametrize("pattern", ["(", "a{99999999999999999999}", "(" * 3000 + ")" * 3000, "a{" + "9" * 5000 + "}"])
def test_a_pattern_that_is_none_is_refused(pattern):
    with pytest.raises(UsageError, match="--label-pattern") as refusal:
        compile_pattern(pattern)
    assert len(str(refusal.value)) < 300


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no pipes with names")
def test_a_labels_file_is_a_file(tmp_path):
    os.mkfifo(tmp_path / "labels.csv")
    with pytest.raises(CaptchaOcrError, match=r"labels\.csv"):
        read_labels(tmp_path / "labels.csv")


def test_lines_of_json_that_nest_too_deep_are_no_labels(read):
    with pytest.raises(CaptchaOcrError, match=r"labels\.csv"):
        read('{"path": "a.png", "code": "AB"}\n' + "[" * 200_000)


@pytest.mark.parametrize("header", ["filename,text,text", "filename,filename,text"])
def test_a_column_that_comes_twice_is_refused(read, header):
    with pytest.raises(CaptchaOcrError, match="filename"):
        read(f"{header}\na.png,AB,CD\n")


@pytest.mark.parametrize("name", ["a" * 300 + ".png", "/" + "a" * 300, "a\0.png", "b/" * 3000 + "a.png"])
def test_a_name_that_no_file_can_have_is_as_it_is(tmp_path, name):
    assert within(tmp_path, name) == name


def test_a_path_from_a_folder_beside_leads_into_the_folder(tmp_path, monkeypatch):
    for name in ("images", "beside"):
        (tmp_path / name).mkdir()
    (tmp_path / "images" / "a.png").touch()
    monkeypatch.chdir(tmp_path / "beside")
    assert within(Path("../images"), "../images/a.png") == "a.png"
    assert within(Path("../images"), "../beside/a.png") == "../beside/a.png"


def test_nothing_outside_the_folder_is_looked_for(tmp_path, monkeypatch):
    exists, asked = os.path.exists, []
    monkeypatch.setattr(os.path, "exists", lambda path: asked.append(os.fspath(path)) or exists(path))
    for name in ("/elsewhere/a.png", "../a.png", "a.png"):
        within(tmp_path / "images", name)
    assert all(path.startswith(str(tmp_path)) for path in asked)

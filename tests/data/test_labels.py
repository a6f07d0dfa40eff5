import json
import re
from pathlib import Path, PurePath

import pytest
from conftest import naming
from hostile import png

from captcha_ocr.data.labels import (
    Label,
    find_labels,
    labels_from_pattern,
    read_journal,
    read_labels,
)
from captcha_ocr.errors import UsageError
from captcha_ocr.options.preparation import PrepareConfig

IMAGE = png(4, 4)


def read(content):
    """Read a labels.csv of the given content: (labels, problems)."""
    path = Path("labels.csv")
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return read_labels(path)


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        *((r"(\d+)_(?P<text>\w+)\.png", "R865"), (r"7_([A-Z]+)(\d+)", "R")),
        *((r"[A-Z]\d+", "R865"), ("([A-Z]+)/", "AB")),
    ],
    ids=["group text", "first group", "whole match", "the path"],
)
def test_a_pattern_finds_the_text(pattern, text):
    assert labels_from_pattern(["AB/7_R865.png"], pattern).labels == [Label("AB/7_R865.png", text)]
    raw = write_folder("AB/7_R865.png", files={"labels.csv": "AB/7_R865.png,no"})
    assert texts(find_labels(raw, config=PrepareConfig(label_pattern=pattern))) == {
        "AB/7_R865.png": text
    }


@pytest.mark.parametrize("pattern", ["nothing", "(x?)7", "7|(x)"])
def test_a_name_without_a_match_is_reported(pattern):
    found = labels_from_pattern(["7_R865.png"], pattern)
    assert found.labels == []
    assert "`label_pattern`" in found.problems["7_R865.png"]


@pytest.mark.parametrize(
    "pattern", ["(", "a{99999999999999999999}", "(" * 3000 + ")" * 3000, "a{" + "9" * 5000 + "}"]
)
def test_a_pattern_that_is_no_regular_expression_is_refused(pattern):
    with pytest.raises(UsageError, match="`label_pattern`") as refusal:
        labels_from_pattern([], pattern)
    assert len(str(refusal.value)) < 300


@pytest.mark.parametrize(
    ("row", "label"),
    [
        ("a.png,e\u0301,", Label("a.png", "é")),
        ("sub\\a.png,AB,", Label("sub/a.png", "AB")),
        ("./a.png,AB,", Label("a.png", "AB")),
        ("img:1.png,AB,", Label("img:1.png", "AB")),
        *((f"a.png,AB,{split}", Label("a.png", "AB", "train")) for split in ("train", "Training")),
        *((f"a.png,AB,{split}", Label("a.png", "AB", "val")) for split in ("val", "valid")),
        *((f"a.png,AB,{split}", Label("a.png", "AB", "val")) for split in ("validation", "dev")),
        *((f"a.png,AB,{split}", Label("a.png", "AB", "test")) for split in ("test", "TESTING")),
    ],
)
def test_a_row_is_a_label(row, label):
    assert read(f"filename,text,split\n{row}\n{row}\n") == ([label], {})


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        *((row, ["a.png", "empty"]) for row in ("a.png,", "a.png", "a.png,\u200b,train")),
        ("a.png,AB,train\na.png,CD,train", ["a.png", "two different labels"]),
        ("a.png,AB,train\na.png,AB,test", ["a.png", "two different labels"]),
        ("a.png,AB,train\n./a.png,,", ["a.png", "empty"]),
        *((f"{name},AB", [name, "out"]) for name in ("../a.png", "sub/../../a.png")),
        *((f"{name},AB", [name, "out"]) for name in ("/etc/a.png", "C:/a.png")),
        ("..\\a.png,AB", ["../a.png", "out"]),
        *((f"a.png,AB,{name}", ["a.png", repr(name), "train, val"]) for name in ("rest", "")),
    ],
)
def test_a_row_that_is_no_label_is_reported(rows, words):
    labels, problems = read(f"filename,text,split\n{rows}\nz.png,OK,test\n")
    assert (labels, list(problems)) == ([Label("z.png", "OK", "test")], words[:1])
    assert re.search(naming(*words[1:]), problems[words[0]])


def test_it_is_said_that_a_table_was_made_in_another_folder():
    raw = write_folder("a.png", files={"labels.csv": "filename,text\n/old/a.png,AB\n"})
    assert ("other folder", "in the table, such as /old/a.png 1") in find_labels(raw).rows()


def test_a_table_of_which_no_row_is_a_label_says_why():
    raw = write_folder("a.png", files={"labels.csv": "filename,text\n,AB\n"})
    with pytest.raises(UsageError, match=naming("labels.csv row 2", "no file name")):
        find_labels(raw)


def write_folder(*images, files=()):
    """Write images and other files into the folder `raw`."""
    for name, content in {**dict.fromkeys(images, IMAGE), **dict(files)}.items():
        path = Path("raw", name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return Path("raw")


def texts(found):
    return {label.file: label.text for label in found.labels}


@pytest.mark.parametrize(
    ("images", "labels", "files", "source"),
    [
        (
            "1.png 2.png",
            "AB CD",
            {"labels.csv": "filename,text\n1.png,AB\n2.png,CD\n"},
            "labels.csv",
        ),
        ("1.png 2.png", "AB CD", {"labels.csv": "id,label\n1,AB\n2,CD\n"}, "labels.csv"),
        ("a/1.png", "AB", {"labels.csv": "filename,text\na\\1.png,AB\n"}, "labels.csv"),
        (
            "a/1.png b/1.png",
            "AB CD",
            {"a/labels.csv": "1.png,AB\n", "b/labels.csv": "1.png,CD\n"},
            "b/labels.csv",
        ),
        (
            "img_1.png",
            "AB",
            {"metadata.jsonl": '{"file_name": "img_1.png", "text": "AB"}'},
            "metadata.jsonl",
        ),
        ("img_1.png", "AB", {"metadata.csv": "file_name,text\nimg_1.png,AB\n"}, "metadata.csv"),
        (
            "dev/1.png",
            "AB",
            {"dev/metadata.jsonl": '{"file_name": "1.png", "text": "AB"}'},
            "dev/metadata.jsonl",
        ),
        ("im1.png", "AB", {"LABELS.CSV": "filename,text\nim1.png,AB\n"}, "LABELS.CSV"),
        ("im1.png", "AB", {"labels.tsv": "filename\ttext\nim1.png\tAB\n"}, "labels.tsv"),
        ("im1.png", "AB", {"labels.json": '{"im1.png": "AB"}', "notes.csv": "x"}, "labels.json"),
        (
            "im1.png",
            "AB",
            {"labels.csv": "im1.png,AB", "labels.json": '{"im1.png": "CD"}'},
            "labels.csv",
        ),
        ("x1.png x2.png", "AB CD", {"x1.txt": "AB\n", "x2.txt": b"\xff\xfeC\0D\0"}, "text files"),
        (
            "images/x1.png a/images/x2.png",
            "AB CD",
            {"labels/x1.txt": "AB", "a/labels/x2.txt": "CD"},
            "text files",
        ),
        ("0714/1.png 3626/1.png 8610/0.png", "0714 3626 8610", {}, "folder names"),
        ("071/x.png 362/x.png 861/x.png", "071 362 861", {}, "folder names"),
        ("a/AB.png b/AB.png", "AB AB", {}, "file names"),
        ("x1.png", "AB", {"x1.gt.txt": " AB \r\n"}, "text files"),
        ("x1.png", "AB", {"x1.png.txt": "AB"}, "text files"),
        (
            "1.png 2.png",
            "AB CD",
            {
                f"{number}.json": f'{{"name": "1.png", "shapes": [{{"label": "{text}"}}]}}'
                for number, text in ((1, "AB"), (2, "CD"))
            },
            "text files",
        ),
        (
            "1.png 2.png",
            "AB CD",
            {
                f"{number}.xml": f"<a><path>/x/1.png</path><object><name>{text}</name><bndbox/>"
                "</object></a>"
                for number, text in ((1, "AB"), (2, "CD"))
            },
            "text files",
        ),
        (
            "VOC/JPEGImages/1.png VOC/JPEGImages/2.png",
            "AB CD",
            {
                f"VOC/Annotations/{number}.xml": f"<a><filename>{number}.png</filename><object>"
                f"<name>{text}</name><bndbox/></object></a>"
                for number, text in ((1, "AB"), (2, "CD"))
            },
            "text files",
        ),
        ("AB.png CD.png", "AB CD", {"AB.json": "{}", "CD.json": "[]"}, "file names"),
        ("1.png 2.png", "AB CD", {"gt_1.txt": "AB", "labels/2.txt": "CD"}, "text files"),
        ("1.png", "AB", {"Label.txt": '1.png\t[{"transcription": "AB"}]\n'}, "Label.txt"),
        ("AB_1.png CD_2.png", "AB CD", {}, "file names"),
        ("AB/img_1.png AB/img_2.png CD/img_3.png", "AB AB CD", {}, "folder names"),
        (
            " ".join(f"{text}/img_{n}.png" for text in "AB" for n in range(9)),
            9 * "A " + 9 * "B ",
            {},
            "folder names",
        ),
    ],
)
def test_labels_are_found_where_people_put_them(images, labels, files, source):
    found = find_labels(write_folder(*images.split(), files=files))
    assert texts(found) == dict(zip(images.split(), labels.split(), strict=True))
    assert any(source in where for where in found.sources)
    assert sum(found.sources.values()) == len(images.split())


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ({"1.txt": "0 0.7 0.5 0.1 0.2\n"}, ("1.txt", "YOLO", "Pascal VOC")),
        ({"1.txt": "3 0.7 0.5 0.1 0.2\n1 0.2 0.5 0.1 0.2\n"}, ("1.txt", "YOLO")),
        ({"1.box": "A 10 2 30 45 0\nB 31 2 40 45 0\n"}, ("1.box", "Tesseract", "Pascal VOC")),
        ({"1.txt": "A\nB\n"}, ("1.txt", "2 texts")),
        ({"1.txt": "10,2,30,45,A\n31,2,40,45,B\n"}, ("1.txt", "2 texts")),
        ({"1.txt": "\n"}, ("1.txt", "0 texts")),
        ({"1.json": '[["a.png", "A"], ["b.png", "B"]]'}, ("1.json", "2 texts")),
        ({"1.jpg": IMAGE, "1.txt": "AB"}, ("1.txt", "2 images")),
    ],
)
def test_a_text_file_without_one_text_is_named(files, words):
    found = find_labels(write_folder("1.png", "2.png", "3.png", files=files | {"3.txt": "AB"}))
    assert texts(found) == {"3.png": "AB"}
    assert re.search(naming(*words), found.problems["1.png"])


@pytest.mark.parametrize(
    ("form", "expected"),
    [
        *(("text: {}", "AB1"), ("label={}", "AB1"), ("'{}'", "AB1"), ('Text: "{}"', "AB1")),
        *(("10,2,180,45,{}", "AB1"), ('1, 2, 18, 2, 18, 4, 1, 4, "{}"', "AB1")),
        *(('1 2 18 45 "{}"', "AB1"), ("{}=?", "AB1=?"), ("x={}", "x=AB1"), ("1,2,{}", "1,2,AB1")),
    ],
)
def test_what_frames_all_texts_is_taken_off(form, expected):
    names = ["1.png", "2.png", "3.png"]
    lines = {name: form.format(f"AB{name[0]}") for name in names}
    files = {name.replace("png", "txt"): line for name, line in lines.items()}
    found = find_labels(write_folder(*names, files=files))
    assert texts(found)["1.png"] == expected
    table = {"labels.json": json.dumps(lines)}
    if not form[0].isdecimal():
        assert texts(find_labels(write_folder(*names, files=table))) == texts(found)


def test_blanks_between_all_characters_are_taken_out_and_others_stay():
    spaced = {"1.png": "a b 1", "2.png": "7 3", "3.png": "x y z"}
    for more, expected in ({}, "ab1"), ({"4.png": "ab 1"}, "a b 1"):
        lines = "".join(f"{name},{text}\n" for name, text in {**spaced, **more}.items())
        found = find_labels(write_folder(*spaced, "4.png", files={"labels.csv": lines}))
        assert texts(found)["1.png"] == expected


@pytest.mark.parametrize(
    "files",
    [
        *({"labels.csv": "1.png,AB\n"}, {"1.txt": "AB"}),
        {"metadata.csv": "file_name,text\n1.png,AB\n"},
        {"labels.csv": "gone.png,XY\n1.png,AB\n"},
    ],
)
def test_an_image_without_a_row_or_a_text_file_is_unlabelled_and_so_is_a_row_without_its_image(
    files,
):
    found = find_labels(write_folder("1.png", "CD_2.png", "EF.png", files=files))
    assert texts(found) == {"1.png": "AB"}
    gone = ["gone.png"] if "gone" in str(files) else []
    assert sorted(found.problems) == ["CD_2.png", "EF.png", *gone]
    assert all(
        PurePath(next(iter(files))).stem in why or "text file" in why
        for why in found.problems.values()
    )


@pytest.mark.parametrize(
    ("folders", "splits"),
    [
        (["train", "valid", "test"], ["train", "val", "test"]),
        (["Train", "Validation", "other"], ["train", "val", None]),
        (["training/a", "dev/b", "testing"], ["train", "val", "test"]),
        (["train", "test", "train/test"], ["train", "test", "train"]),
        (["train", "a", "b"], [None, None, None]),  # one kind alone divides nothing
    ],
)
def test_folders_named_after_splits_keep_them(folders, splits):
    names = [f"{place}/{text}.png" for place, text in zip(folders, ["AB", "CD", "EF"], strict=True)]
    kept = {label.file: label.split for label in find_labels(write_folder(*names)).labels}
    assert [kept[name] for name in names] == splits


@pytest.mark.parametrize(
    "folders",
    [
        *(
            ["batch1", "batch2"],
            ["train", "test"],
            ["images", "photos"],
            ["2024-01-01 10-00", "AB"],
        ),
        *(
            ["batch A", "batch B"],
            ["2023", "2024"],
            ["2024-01", "2024-02"],
            ["anna", "bob"],
            ["new", "old"],
        ),
    ],
)
def test_folders_with_names_that_are_no_texts_give_no_labels(folders):
    found = find_labels(
        write_folder(*(f"{place}/img_{number}.png" for place in folders for number in range(20)))
    )
    assert found.labels == []
    with pytest.raises(UsageError, match=naming("img_0.png", r"`label_pattern`")):
        found.check()


@pytest.mark.parametrize("name", ["{}.png", " ".join(f"{{}}/img_{n}.png" for n in range(9))])
def test_the_alphabet_of_the_options_decides_how_names_are_read(name):
    expected = {file: text for text in ("7-3", "5-4") for file in name.replace("{}", text).split()}
    raw = write_folder(*expected)
    assert texts(find_labels(raw)) != expected
    assert texts(find_labels(raw, config=PrepareConfig(charset="0123456789-"))) == expected


def test_a_folder_of_other_files_names_their_kinds():
    files = {
        "a.avif": b"\0\0\0 ftypavif",
        "b.avif": b"\0",
        "notes.docx": b"PK",
        "README": b"read me",
    }
    with pytest.raises(UsageError, match=naming(".avif 2", ".docx 1", "without an extension 1")):
        find_labels(write_folder(files=files))
    found = find_labels(write_folder("AB.png", files=files))
    assert found.others == {".avif": 2, ".docx": 1, "without an extension": 1}
    assert re.search(naming(".avif", "PNG"), dict(found.rows())["not read"])


@pytest.mark.parametrize(
    ("files", "words"),
    [
        *(
            ({name: "1.png,AB\n"}, (name, "name it with `labels`"))
            for name in ("all.csv", "all.txt")
        ),
        ({"answers.json": '{"1": "AB", "2": "CD"}'}, ("answers.json", "name it with `labels`")),
        *(({name: "x"}, (name, "CSV", "`labels`")) for name in ("all.csv", "a.txt", "1.png.json")),
        *(({name: b"PK\x03\x04\0"}, (name, "CSV", "`labels`")) for name in ("a.xlsx", "a.parquet")),
        (dict.fromkeys(("a.txt", "b.txt", "c.txt", "d.txt"), "x"), None),
        ({f"j/{n}.json": f'{{"{n}.png": "AB"}}' for n in range(1, 9)}, ("1.json", "CSV")),
    ],
)
@pytest.mark.parametrize("names", ["1.png 2.png", "AB.png CD.png 1.png"])
def test_what_to_do_with_a_table_of_another_name_is_said(files, words, names):
    found = find_labels(write_folder(*names.split(), files=files))
    assert bool(found.hints) == (words is not None)
    if words:
        assert re.search(naming(*words), " ".join(found.hints))
        assert [words for name, words in found.rows() if name == "not read"] == [*found.hints][
            : len(found.labels)
        ]


def test_a_journal_is_read_line_by_line(tmp_path):
    journal = tmp_path / "journal.jsonl"
    assert read_journal(journal) == []
    journal.write_text('{"file": "a.png", "seconds": 1.5}\n{"file": "b.png", "seconds": null}\n')
    assert [line["seconds"] for line in read_journal(journal)] == [1.5, None]

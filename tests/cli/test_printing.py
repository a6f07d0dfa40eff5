import json
import shlex
import shutil
from pathlib import Path

import pytest
from conftest import invoke, naming
from PIL import Image

from captcha_ocr.cli.printing import Printer, labelled_paths, labels_to_score
from captcha_ocr.cli.wording import word_error
from captcha_ocr.data.labels import Label, read_labels
from captcha_ocr.errors import UsageError
from captcha_ocr.inference.decoding import Decoder, Reading
from captcha_ocr.inference.model_folder import PRETRAINED, read_model_config
from captcha_ocr.options.model import Lengths
from captcha_ocr.options.shared import ReadingOptions

SAMPLES = Path(__file__).parents[2] / "data" / "samples"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.png", "БЖ"),
        ("é.png", "a,b"),
        ("b;c.png", 'd"e'),
        ("中.png", "😀x"),
        ("x y.png", "=1+2"),
        ("t.png", "'0012"),
        ("u.png", '="0012"'),
        ("v.png", "'=1"),
        ("0.png", "é\u0301"),
    ],
)
def test_a_written_table_is_read_back_to_the_same_texts(tmp_path, capsysbinary, name, text):
    reading = Reading(text, 0.5)
    printer = Printer(False, ReadingOptions(), Decoder(read_model_config(PRETRAINED)))
    printer.print_table([(name, reading)], tmp_path / "codes.csv")
    printer.print_table([(name, reading)])
    assert (printer.total, printer.failed) == (2, 0)
    (tmp_path / "printed.csv").write_bytes(capsysbinary.readouterr().out)
    for table in ("codes.csv", "printed.csv"):
        assert read_labels(tmp_path / table) == ([Label(name, text)], {})


@pytest.mark.parametrize(
    ("text", "confidence", "line", "row", "result"),
    [
        ("3+8=?", 0.9, "a.png\t3+8=?\t0.9000\t11", "a.png,3+8=?,0.9000,11", 11),
        ("1-2", 0.9, "a.png\t1-2\t0.9000\t-1", "a.png,1-2,0.9000,-1", -1),
        ("AB12", 0.9, "a.png\tAB12\t0.9000\t", "a.png,AB12,0.9000,", None),
        ("3+8", 0.1, "a.png\t\t0.1000\t", "a.png,,0.1000,", None),
    ],
)
def test_the_result_of_a_sum_stands_beside_its_text(capsys, text, confidence, line, row, result):
    options = ReadingOptions(solve_sums=True, min_confidence=0.5)
    decoder, results = (
        Decoder(read_model_config(PRETRAINED)),
        [("a.png", Reading(text, confidence))],
    )
    Printer(False, options, decoder).print_all(results)
    assert capsys.readouterr().out == f"{line}\n"
    Printer(True, options, decoder).print_all(results)
    assert json.loads(capsys.readouterr().out)["result"] == result
    Printer(False, options, decoder).print_table(results)
    assert capsys.readouterr().out == f"filename,text,confidence,result\n{row}\n"


def test_what_a_folder_has_in_common_is_said_as_options_unless_it_is_told(tmp_path):
    for number, path in enumerate(list(SAMPLES.glob("*.png")) * 4):
        shutil.copy(path, tmp_path / f"{number}-{path.name}")
    eval_words = ("eval", "--model", "pretrained", "--device", "cpu", tmp_path)
    words = shlex.split(invoke(*eval_words).stderr.partition("to read only such: ")[2])
    assert words[:2] == ["--length", "4"]
    assert set("0ZLAYTX5C9GUSQ") <= set(words[3])
    assert "--fold-case" not in words  # no letter was read in the other case
    for told, named in ((words, ""), (words[2:], "--length"), (words[:2], "--charset")):
        said = invoke(*eval_words, *told).stderr
        assert ("in common" in said, named in said) == (bool(named), True)


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
    ("name", "file"),
    [
        ("a.png", "a.png"),
        ("raw/a.png", "a.png"),  # from the current folder
        ("sub/é.png", "sub/e\u0301.png"),  # decomposed in the folder
        ("a", "a.png"),
        ("/old/raw/a.png", "a.png"),
        ("file:///x/a.png", "a.png"),
        ("{}", "a.png"),
        ("C:\\raw\\a.png", "a.png"),
    ],
)
@pytest.mark.parametrize("place", ["tables", "raw"])
def test_names_mean_images_of_the_first_folder_that_has_them(name, file, place):
    for folder in ("raw/sub", "other", "tables"):
        Path(folder).mkdir(parents=True)
    for image in ("raw/a.png", "raw/sub/e\u0301.png"):
        Image.new("L", (4, 4)).save(image)
    table = Path(place, "x.csv")
    table.write_text(f"filename,text\n{name.format(Path('raw/a.png').resolve())},AB\n")
    found = labels_to_score(table, [table.parent, Path("other"), Path("raw")], ReadingOptions())
    assert found == (Path("raw"), [Label(file, "AB")], {})


def test_a_labelled_folder_can_be_scored_by_its_names_or_its_table(tmp_path):
    for name in ("AB.png", "CD_1.png"):
        Image.new("L", (4, 4)).save(tmp_path / name)
    labels = [Label("AB.png", "AB"), Label("CD_1.png", "CD")]
    assert labels_to_score(tmp_path, [], ReadingOptions()) == (tmp_path, labels, {})
    Image.new("L", (4, 4)).save(tmp_path / "E_FG.png")  # either may be the text
    told = ReadingOptions(lengths=Lengths(2, 2))
    assert labels_to_score(tmp_path, [], told)[1] == [*labels, Label("E_FG.png", "FG")]
    (tmp_path / "labels.csv").write_text("filename,text\nAB.png,EF\n")
    assert labels_to_score(tmp_path, [], ReadingOptions())[1] == [Label("AB.png", "EF")]


def test_a_table_without_any_of_the_images_asks_for_their_folder(tmp_path):
    (tmp_path / "x y.csv").write_text("filename,text\ngone.png,AB\n")
    with pytest.raises(UsageError, match=naming("x y.csv")) as raised:
        labels_to_score(tmp_path / "x y.csv", [tmp_path], ReadingOptions())
    assert "eval FOLDER --labels" in word_error(raised.value)
    assert str(tmp_path) in str(raised.value)
    (tmp_path / "x y.csv").write_text("filename,text\n,AB\n")
    with pytest.raises(UsageError, match=naming("x y.csv", "no file name")):
        labels_to_score(tmp_path / "x y.csv", [tmp_path], ReadingOptions())


@pytest.mark.parametrize(
    ("options", "told"), [((), True), (("--length", "4"), False), (("--quiet",), False)]
)
def test_an_unsure_eval_asks_what_to_expect_unless_that_is_said(options, told):
    Image.new("L", (160, 60)).save("blank.png")
    said = invoke("eval", "--model", "pretrained", "--device", "cpu", "blank.png", *options).stderr
    assert ("--charset, --length" in said) is told

from pathlib import Path

import numpy as np
import pytest
from conftest import invoke
from PIL import Image

from captcha_ocr.cli.printing import Printer, print_table
from captcha_ocr.data.labels import Label, read_labels
from captcha_ocr.inference.decoding import Reading

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
    assert print_table([(name, reading)], Printer(False, 0.0), tmp_path / "codes.csv") == 0
    print_table([(name, reading)], Printer(False, 0.0))
    (tmp_path / "printed.csv").write_bytes(capsysbinary.readouterr().out)
    for table in ("codes.csv", "printed.csv"):
        assert read_labels(tmp_path / table) == ([Label(name, text)], {})


def test_where_the_model_in_the_package_is_not_sure_eval_says_how_to_train_one(tmp_path):
    noise = np.random.default_rng(0).integers(0, 256, (4, 60, 160), dtype=np.uint8)
    for number, pixels in enumerate(noise):
        Image.fromarray(pixels).save(tmp_path / f"{number}.png")
    unsure = ("eval", "--model", "pretrained", "--device", "cpu", tmp_path)
    said = invoke(*unsure).stderr
    for command in (
        f"eval {tmp_path} --out {tmp_path}/labels.csv",
        f"prepare {tmp_path}",
        "captcha-ocr train",
    ):
        assert command in said
    assert "--charset" in said
    (tmp_path / "labels.csv").write_text("filename,text\n0.png,a\n1.png,b\n2.png,c\n3.png,d\n")
    for labels in ((), ("--labels", tmp_path / "labels.csv")):  # they are there already
        said = invoke(*unsure, *labels, "--length", "4").stderr
        assert f"prepare {tmp_path}, captcha-ocr train" in said
        assert "--out" not in said
        assert "--charset" not in said
    assert "not sure" not in invoke(*unsure, "--quiet").stderr
    assert "not sure" not in invoke(*unsure[:-1], SAMPLES).stderr

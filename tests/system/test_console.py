import io
import os
import sys
from pathlib import Path

import pytest

from captcha_ocr.system import console as progress
from captcha_ocr.system.console import (
    ProgressBar,
    Table,
    command_line,
    counted,
    duration,
    in_groups,
)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_durations_and_numbers_are_easy_to_read():
    durations = {0.4: "0 s", 59.6: "1 min 00 s", 365: "6 min 05 s", 7800: "2 h 10 min"}
    assert {seconds: duration(seconds) for seconds in durations} == durations
    counts = {
        (1, "epoch"): "1 epoch",
        (1000, "epoch"): "1,000 epochs",
        (1, "process"): "1 process",
        (2, "process"): "2 processes",
    }
    assert {words: counted(*words) for words in counts} == counts


@pytest.mark.skipif(os.name != "posix", reason="scripts have other names there")
@pytest.mark.parametrize(
    ("called", "path", "expected"),
    [
        (".venv/bin/captcha-ocr", "elsewhere", "captcha-ocr"),  # a link on PATH to the same program
        (
            ".venv/bin/captcha-ocr",
            "other",
            ".venv/bin/captcha-ocr",
        ),  # another program of this name is on PATH
        (".venv/bin/captcha-ocr", "empty", ".venv/bin/captcha-ocr"),
        ("my env/bin/captcha-ocr", "empty", "'my env/bin/captcha-ocr'"),
        ("captcha_ocr/__main__.py", "empty", "captcha-ocr"),
        ("gone/captcha-ocr", "empty", "captcha-ocr"),
    ],
)
def test_a_command_starts_the_program_that_prints_it(called, path, expected, monkeypatch):
    for name in (".venv/bin", "my env/bin", "other"):
        Path(name).mkdir(parents=True)
        Path(name, "captcha-ocr").touch(mode=0o755)
    Path("elsewhere").symlink_to(".venv/bin")
    monkeypatch.setattr(sys, "argv", [called, "train"])
    monkeypatch.setenv("PATH", path)
    assert command_line("eval", "a b.png") == f"{expected} eval 'a b.png'"


@pytest.mark.parametrize("quiet", [False, True])
def test_a_terminal_gets_a_bar_with_notes_unless_it_is_quiet(monkeypatch, quiet):
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setattr(progress, "SECONDS_BETWEEN_NOTES", -1.0)
    with ProgressBar("train", quiet) as bar:
        bar.show(10, 20)
        bar.note("loss 0.4")
        bar.show(20, 20)
        assert bar.text == ("" if quiet else "loss 0.4")
    assert all((word in terminal.getvalue()) != quiet for word in ("train", "20"))
    assert quiet == (terminal.getvalue() == "")


def test_a_file_gets_a_line_with_the_time_left_now_and_then(monkeypatch, capsys):
    with ProgressBar("prepare") as bar:
        bar.show(5, 20)  # these were there before: no part of the rate
        bar.started -= 1000
        bar.show(9, 20)
        assert capsys.readouterr().err == ""
        monkeypatch.setattr(progress, "_SECONDS_BETWEEN_LINES", -1.0)
        bar.show(10, 20)
    line = capsys.readouterr().err
    assert all(word in line for word in ("prepare", "10", "20", "33 min 20 s"))


@pytest.mark.parametrize(
    ("cells", "line"),
    [
        (("1/9", "0.5"), "  1/9   0.5"),
        ((1, ""), "    1"),
        (("", "9"), "          9"),
        (("123456", 7), "123456     7"),
    ],
)
def test_a_row_of_a_table_is_flush_with_the_names_of_its_columns(cells, line):
    table = Table({"epoch": 5, "left": 6})
    assert table.header == "epoch  left"
    assert table.row(*cells) == line
    with pytest.raises(ValueError, match="zip"):
        table.row(1)


def test_equal_reasons_are_told_once_with_their_number():
    problems = {
        **dict.fromkeys([f"{number}.png" for number in range(9)], "no text"),
        "x.png": "empty",
        "y.png": "its text 'ab' has 2 characters",
        "z.png": "its text 'abc' has 3 characters",
    }
    assert in_groups(problems) == [
        "0.png, 1.png, 2.png and 6 more: no text",
        "y.png, z.png: its text 'ab' has 2 characters",
        "x.png: empty",
    ]

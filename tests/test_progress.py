import io
import sys

import pytest

from captcha_ocr import progress
from captcha_ocr.progress import ProgressBar, counted, duration


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("seconds", "words"), [(0.4, "0 s"), (59.6, "1 min 00 s"), (365, "6 min 05 s"), (7800, "2 h 10 min")]
)
def test_durations_are_said_as_people_say_them(seconds, words):
    assert duration(seconds) == words


def test_a_terminal_gets_a_bar_with_its_note(monkeypatch):
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    with ProgressBar("train") as bar:
        bar.note("loss 0.5")
        bar.show(10, 20)
        bar.note("loss 0.4")
        bar.show(20, 20)
    assert "train" in terminal.getvalue()
    assert "20" in terminal.getvalue()


def test_elsewhere_a_plain_line_tells_rate_and_time_left(monkeypatch, capsys):
    monkeypatch.setattr(progress, "SECONDS_BETWEEN_LINES", -1.0)
    with ProgressBar("prepare") as bar:
        bar.show(5, 20)  # these were there before: no part of the rate
        bar.started -= 1000
        bar.show(10, 20)
    line = capsys.readouterr().err
    assert all(word in line for word in ("prepare", "10", "20", "33 min 20 s"))


@pytest.mark.parametrize(("number", "words"), [(1, "1 epoch"), (2, "2 epochs"), (1000, "1,000 epochs")])
def test_one_is_not_many(number, words):
    assert counted(number, "epoch") == words
    assert counted(number, "process") == words.replace("epochs", "processes").replace("epoch", "process")


def test_lines_come_now_and_then_only(capsys):
    with ProgressBar("prepare") as bar:
        for done in range(100):
            bar.show(done, 100)
    assert capsys.readouterr().err == ""


def test_a_quiet_bar_says_nothing_and_wants_no_notes(monkeypatch):
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setattr(progress, "SECONDS_BETWEEN_NOTES", -1.0)
    with ProgressBar("train", quiet=True) as bar:
        bar.show(1, 2)
        assert not bar.wants_note()
    assert terminal.getvalue() == ""

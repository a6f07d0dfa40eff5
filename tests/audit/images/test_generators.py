import re
import shlex
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest
from conftest import naming
from PIL import Image

from captcha_ocr.audit.images import generators
from captcha_ocr.audit.images.generators import CommandGenerator, DesignGenerator
from captcha_ocr.data.labels import find_labels
from captcha_ocr.errors import UsageError
from captcha_ocr.options.model import Lengths

PYTHON = shlex.quote(sys.executable)
DRAW = 'from PIL import Image; Image.new("L", (20, 10)).save(sys.argv[1])'


def command(code, words="{out} {text}", alphabet="01"):
    """A source that runs Python code with the output and a text as its arguments."""
    template = f"{PYTHON} -c {shlex.quote('import sys, time; ' + code)} {words}"
    return CommandGenerator.from_template(template, alphabet, Lengths(4, 4))


def texts_in(folder):
    return [label.text for label in find_labels(folder).labels]


def test_a_command_draws_an_image_for_each_text_which_its_seed_decides_and_none_again(tmp_path):
    for name in ("a", "b"):
        command(DRAW).draw(tmp_path / name, 5, 7, {})
    assert len(texts_in(tmp_path / "a")) == 5
    assert all(re.fullmatch("[01]{4}", text) for text in texts_in(tmp_path / "a"))
    assert texts_in(tmp_path / "b") == texts_in(tmp_path / "a")
    command("sys.exit(1)").draw(tmp_path / "a", 5, 7, {})  # labels.csv is there: nothing runs


LIST = (
    "import csv; from PIL import Image; rows = csv.reader(open(sys.argv[1])); next(rows);"
    '[Image.new("L", (20, 10)).save(f"{sys.argv[2]}/{row[0]}") for row in rows]'
)


@pytest.mark.parametrize(
    ("source", "count"),
    [
        (command(DRAW, alphabet=" ;&"), 5),  # a text never becomes a word or a command
        (command(LIST, "{list} {folder}"), 30),  # many images from a list
    ],
)
def test_every_image_of_a_command_is_drawn(tmp_path, source, count):
    source.draw(tmp_path, count, 0, {})
    assert (source.failures, len(texts_in(tmp_path))) == (0, count)


def test_a_slow_command_draws_fewer_images_and_shows_how_many(tmp_path, monkeypatch):
    monkeypatch.setattr(generators, "_FEWEST", 12)
    shown = []
    source = command(LIST, "{list} {folder}")
    source.draw(tmp_path, 500, 0, {}, lambda *counts: shown.append(counts), seconds=0)
    assert (shown, len(texts_in(tmp_path))) == ([(10, 500), (110, 500)], 110)


STAYS = "import subprocess; subprocess.Popen(['sleep', '77.5'], start_new_session=True);"


def is_sleeping():
    with suppress(OSError):  # a process has just ended
        return any(
            path.read_bytes() == b"sleep\x0077.5\0" for path in Path("/proc").glob("[0-9]*/cmdline")
        )
    return True


@pytest.mark.skipif(sys.platform != "linux", reason="others do not tell what a process started")
@pytest.mark.parametrize("code", ["", "sys.exit(1);", "time.sleep(77.5);"])
def test_what_a_command_leaves_behind_is_ended_with_it(tmp_path, monkeypatch, code):
    monkeypatch.setattr(generators, "_START_S", 1.0)
    with suppress(UsageError):
        command(f"{STAYS}{code}{DRAW}").draw(tmp_path, 4, 0, {})
    end = time.monotonic() + 30
    while is_sleeping() and time.monotonic() < end:  # the system takes a moment
        time.sleep(0.05)
    assert not is_sleeping()


def test_a_function_draws_with_its_knobs(tmp_path, monkeypatch):
    (tmp_path / "mine.py").write_text(
        "from PIL import Image\n"
        "def draw(text, seed, width=20):\n"
        "    return Image.new('L', (width, 10), seed % 256)\n"
    )
    monkeypatch.chdir(tmp_path)
    source = CommandGenerator.from_function("mine:draw", "01", Lengths(4, 4))
    source.draw(tmp_path / "images", 12, 3, {"width": 31})
    with Image.open(tmp_path / "images" / "000011.png") as image:
        assert image.size == (31, 10)


def test_some_failures_are_drawn_again_and_counted(tmp_path):
    source = command(f'sys.exit("no") if sys.argv[2] in ("0000", "1111") else None; {DRAW}')
    source.draw(tmp_path, 10, 1, {})
    assert source.failures > 0
    assert len(texts_in(tmp_path)) == 10
    assert not {"0000", "1111"} & {*texts_in(tmp_path)}


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("pass", "wrote no such file"),
        ('sys.exit("out of ink")', "out of ink"),
        ('open(sys.argv[1], "wb").write(b"no image")', "not a PNG"),
        ('open(sys.argv[1], "wb").write(bytes(50_000_000))', "000000.png"),
        # What a command left behind is killed with it.
        (
            'import subprocess; subprocess.Popen(["sleep", "3600.125"]); time.sleep(60)',
            "took more than",
        ),
    ],
)
def test_a_broken_command_is_one_sentence(tmp_path, monkeypatch, code, reason):
    monkeypatch.setattr(generators, "_START_S", 0.5)
    monkeypatch.setattr(generators, "_FIRST_PART", 2)
    with pytest.raises(UsageError, match=naming("`command`", "2 of 2", reason)):
        command(code).draw(tmp_path, 40, 0, {})
    assert not (tmp_path / "labels.csv").exists()
    assert all(path.stat().st_size <= generators.MAX_FILE for path in tmp_path.iterdir())
    assert generators.subprocess.run(["pgrep", "-f", "sleep 3600.125"]).returncode == 1


@pytest.mark.parametrize(
    ("template", "names"),
    [
        ("mygen {text}", ["`command`", "{out}"]),
        ("mygen 'x {text} {out}", ["`command`", "split"]),
        ("", ["`command`", "{text}"]),
        ("g {text} {out} {list}", ["`command`", "{list}"]),
        ("g {text} {out} {noise}", ["`command`", "{noise}", "`knobs`"]),  # which has no knob
    ],
)
def test_a_template_without_its_places_is_refused(template, names):
    with pytest.raises(UsageError, match=naming(*names)):
        CommandGenerator.from_template(template, "01", Lengths(4, 4)).check({})


def test_a_command_that_does_not_exist_is_named(tmp_path):
    source = CommandGenerator.from_template("no-such-program {text} {out}", "01", Lengths(4, 4))
    with pytest.raises(UsageError, match="no-such-program"):
        source.draw(tmp_path, 5, 0, {})


def test_a_function_that_is_no_place_is_refused():
    with pytest.raises(UsageError, match=naming("`call`", "module:function")):
        CommandGenerator.from_function("mine.draw", "01", Lengths(4, 4))


def test_a_design_has_the_same_texts_with_other_levels(tmp_path):
    source = DesignGenerator("captcha", "01", Lengths(3, 3))
    source.draw(tmp_path / "a", 5, 1, {})
    source.draw(
        tmp_path / "b", 5, 1, {"text.spacing": [0, 0.2], "operators.rotation.angle": [0, 1]}
    )
    assert texts_in(tmp_path / "a") == texts_in(tmp_path / "b")


@pytest.mark.parametrize(
    ("design", "levels", "name"),
    [
        ("captcha", {"operators.lines.count": 1}, "count"),
        ("captcha", {"operators.2.angle": 1}, "angle"),
        ("captcha", {"text.nothing": 1}, "nothing"),
        ("captcha", {"nothing": 1}, "nothing"),
        ("captcha", {"text": 1}, "text"),
        ("random", {}, "`design`"),  # these are many designs
    ],
)
def test_a_knob_that_is_no_field_and_many_designs_are_refused(design, levels, name):
    with pytest.raises(UsageError, match=naming(design, name)):
        DesignGenerator(design).check(levels)

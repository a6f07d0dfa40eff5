import shlex
import sys

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


def command(code, *words):
    """A source that runs Python code with the output as its argument."""
    template = (
        f"{PYTHON} -c {shlex.quote('import sys, time; ' + code)} {{out}} {{text}} "
        + " ".join(words)
    )
    return CommandGenerator.from_template(template, "01", Lengths(4, 4))


def texts_in(folder):
    return [label.text for label in find_labels(folder).labels]


def test_a_command_draws_one_image_each(tmp_path):
    command(DRAW).draw(tmp_path / "images", 12, 0, {})
    assert len(texts_in(tmp_path / "images")) == 12
    assert all(set(text) <= set("01") and len(text) == 4 for text in texts_in(tmp_path / "images"))


def test_the_same_seed_gives_the_same_texts_and_is_not_drawn_again(tmp_path):
    for name in ("a", "b"):
        command(DRAW).draw(tmp_path / name, 5, 7, {})
    assert texts_in(tmp_path / "a") == texts_in(tmp_path / "b")
    command("sys.exit(1)").draw(tmp_path / "a", 5, 7, {})  # labels.csv is there: nothing runs


def test_a_text_never_becomes_a_word_or_a_command(tmp_path):
    source = CommandGenerator.from_template(
        f"{PYTHON} -c {shlex.quote('import sys; ' + DRAW)} {{out}} {{text}}", " ;&", Lengths(3, 3)
    )
    source.draw(tmp_path / "images", 10, 0, {})
    assert source.failures == 0


def test_a_command_draws_many_images_from_a_list(tmp_path):
    code = (
        "import csv; from PIL import Image; rows = csv.DictReader(open(sys.argv[1]));"
        '[Image.new("L", (20, 10)).save('
        'f"{sys.argv[2]}/{row[chr(102)+chr(105)+chr(108)+chr(101)]}") for row in rows]'
    )
    template = f"{PYTHON} -c {shlex.quote('import sys; ' + code)} {{list}} {{folder}}"
    source = CommandGenerator.from_template(template, "01", Lengths(4, 4))
    source.draw(tmp_path / "images", 30, 0, {})
    assert source.failures == 0
    assert len(texts_in(tmp_path / "images")) == 30


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
    source.draw(tmp_path / "i", 20, 0, {})
    assert source.failures > 0
    assert len(texts_in(tmp_path / "i")) == 20
    assert not {"0000", "1111"} & {*texts_in(tmp_path / "i")}


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("pass", "wrote no such file"),
        ('sys.exit("out of ink")', "out of ink"),
        ('open(sys.argv[1], "wb").write(b"no image")', "not a PNG"),
        ('open(sys.argv[1], "wb").write(bytes(50_000_000))', "000000.png"),
        ("time.sleep(60)", "took more than"),
    ],
)
def test_a_broken_command_is_one_sentence(tmp_path, monkeypatch, code, reason):
    monkeypatch.setattr(generators, "_START_S", 0.5)
    monkeypatch.setattr(generators, "_FIRST_PART", 2)
    with pytest.raises(UsageError, match=naming("`command`", "2 of 2", reason)):
        command(code).draw(tmp_path / "images", 40, 0, {})
    assert not (tmp_path / "images" / "labels.csv").exists()
    assert [
        path
        for path in (tmp_path / "images").iterdir()
        if path.stat().st_size > generators.MAX_FILE
    ] == []


def test_what_a_command_left_behind_is_killed_with_it(tmp_path, monkeypatch):
    monkeypatch.setattr(generators, "_START_S", 0.5)
    monkeypatch.setattr(generators, "_FIRST_PART", 2)
    code = 'import subprocess; subprocess.Popen(["sleep", "3600.125"]); time.sleep(60)'
    with pytest.raises(UsageError, match="took more than"):
        command(code).draw(tmp_path / "images", 10, 0, {})
    assert generators.subprocess.run(["pgrep", "-f", "sleep 3600.125"], check=False).returncode == 1


@pytest.mark.parametrize(
    ("template", "words"),
    [
        ("mygen {text}", ("{out}",)),
        ("mygen 'x {text} {out}", ("split",)),
        ("", ("{text}",)),
        ("g {text} {out} {list}", ("{list}",)),
    ],
)
def test_a_template_without_its_places_is_refused(template, words):
    with pytest.raises(UsageError, match=naming("`command`", *words)):
        CommandGenerator.from_template(template, "01", Lengths(4, 4))


def test_a_placeholder_without_a_knob_is_refused():
    with pytest.raises(UsageError, match=naming("`command`", "{noise}", "`knobs`")):
        command(DRAW, "{noise}").check({})


def test_a_command_that_does_not_exist_is_named(tmp_path):
    with pytest.raises(UsageError, match=naming("no-such-program")):
        CommandGenerator.from_template("no-such-program {text} {out}", "01", Lengths(4, 4)).draw(
            tmp_path / "i", 5, 0, {}
        )


def test_a_function_that_is_no_place_is_refused():
    with pytest.raises(UsageError, match=naming("`call`", "module:function")):
        CommandGenerator.from_function("mine.draw", "01", Lengths(4, 4))


def test_a_design_has_the_same_texts_with_other_levels(tmp_path):
    source = DesignGenerator("captcha", "01", Lengths(3, 3))
    for name, levels in (
        ("a", {}),
        ("b", {"text.spacing": [0, 0.2], "operators.rotation.angle": [0, 1]}),
    ):
        source.draw(tmp_path / name, 5, 1, levels)
    assert texts_in(tmp_path / "a") == texts_in(tmp_path / "b")


@pytest.mark.parametrize(
    "place", ["operators.lines.count", "operators.2.angle", "text.nothing", "nothing", "text"]
)
def test_a_knob_that_is_no_field_is_refused(place):
    with pytest.raises(UsageError, match=naming("captcha", place.rpartition(".")[2])):
        DesignGenerator("captcha").check({place: 1})


def test_many_designs_are_refused():
    with pytest.raises(UsageError, match=naming("`design`", "random")):
        DesignGenerator("random").check({})

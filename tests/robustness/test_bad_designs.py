"""A mistake in a design is one sentence that names the file and the field, with exit status 2."""

import json
import os
from pathlib import Path

import pytest
from conftest import invoke

LARGE = "[text]\nsize = 512\nlength = 64"
STEP = "[[operators]]\nkind = "
CASES = {  # a design -> what the sentence names
    "canvas = 5": "canvas table",
    "canvas = []": "canvas table",
    "fonts = true": "fonts table",
    "[text.size.low]\nx = 1": "text.size range low",
    "[canvas.color.red]\nx = 1": "canvas.color.red 255",
    "[cnavas]\nwidth = 160": '"cnavas" canvas?',
    "[text]\ncolour = '#000000'": '"colour" color?',
    "[canvas]\nqqqq = 5": '"qqqq" width height padding color',
    "redraw_illegible = 1": "redraw_illegible true",
    "number = 'x'": "number",
    # Numbers
    "[canvas]\nwidth = 5": "canvas.width 16 4,096 pixels 5",
    "[canvas]\nwidth = 'wide'": 'canvas.width "wide"',
    "[canvas]\nwidth = 160.5": "canvas.width whole 160.5",
    "[canvas]\nwidth = true": "canvas.width true",
    "[canvas]\nwidth = ['text', 50]": "canvas.width text",
    "[canvas]\nwidth = {one_of = ['text', 5]}": "canvas.width 5",
    "[canvas]\nheight = 'auto'": 'canvas.height "text" auto',
    f"[canvas]\nheight = 'text'\nwidth = 'text'\n{LARGE}": "text.size text.length padding",
    "[canvas]\nheight = [60, 50]": "canvas.height [60, 50]",
    "[canvas]\nheight = [60]": "canvas.height [60]",
    "[canvas]\nheight = [60, 70, 80]": "canvas.height [60, 70, 80]",
    "[canvas]\nheight = [60, 70.5]": "canvas.height whole 70.5",
    "[canvas]\nheight = []": "canvas.height []",
    "[canvas]\npadding = -1": "canvas.padding -1",
    "[canvas]\nheight = {one_of = []}": "canvas.height one_of",
    "[canvas]\nheight = {one_of = 60}": "canvas.height one_of 60",
    "[canvas]\nheight = {one_of = [60], low = 5}": "canvas.height one_of low",
    "[canvas]\nheight = {one_of = [{one_of = [60]}]}": "canvas.height one_of",
    "[canvas]\nheight = {low = 60, high = 70}": "canvas.height [low, high]",
    "[canvas]\nwidth = 4000\nheight = 4000": "canvas 4000x4000 4,000,000",
    f"[canvas]\nwidth = 'text'\nheight = 4000\n{LARGE}": "canvas.height text.size text.length",
    "[text]\nsize = nan": "text.size 4 512 NaN",
    "[text]\nsize = inf": "text.size Infinity",
    "[text]\nsize = [40, inf]": "text.size Infinity",
    "[text]\nsize = [nan, 50]": "text.size NaN",
    "[text]\nsize = -0.0": "text.size -0.0",
    "[text]\nsize = 99999999999999999999999999": "text.size 99999999999999999999999999",
    f"[text]\nsize = 0x{'f' * 5000}": "text.size integer",
    f"[text]\nsize = {'9' * 5000}": "TOML 4300",
    "[text]\nsize = false": "text.size false",
    "[text]\nsize = 1979-05-27": "text.size 1979-05-27",
    "[text]\nx = -0.1": "text.x -0.1",
    "[text]\nspread = 'yes'": "text.spread true false yes",
    "[text]\nalign = 'top'": "text.align baseline middle top",
    "[text]\nalign = {one_of = ['middle', 'top']}": "text.align top",
    # Colours
    "[canvas]\ncolor = 'white'": "canvas.color #2f4f4f white",
    "[canvas]\ncolor = '#fff'": "canvas.color #2f4f4f #fff",
    "[canvas]\ncolor = '#gggggg'": "canvas.color #gggggg",
    "[canvas]\ncolor = [255, 255, 255]": "canvas.color [255, 255, 255]",
    "[canvas]\ncolor = 16777215": "canvas.color 16777215",
    "[canvas]\ncolor = {}": "canvas.color {}",
    "[canvas]\ncolor = {red = 256}": "canvas.color.red 255 256",
    "[canvas]\ncolor = {red = 0.5}": "canvas.color.red whole 0.5",
    "[canvas]\ncolor = {red = 1, hue = 5}": "canvas.color hue luminance",
    "[canvas]\ncolor = {luminance = [90, 20]}": "canvas.color.luminance [90, 20]",
    "[canvas]\ncolor = {hue = {one_of = []}}": "canvas.color.hue one_of",
    "[canvas]\ncolor = 'canvas'": "canvas.color",
    "[canvas]\ncolor = 'text'": "canvas.color",
    "[canvas]\ncolor = {one_of = ['#ffffff', 'text']}": "canvas.color",
    "[text]\ncolor = 'text'": "text.color",
    "[text]\ncolor = {one_of = ['text']}": "text.color",
    # Texts
    "[text]\nlength = 0": "text.length 64 0",
    "[text]\nlength = 70": "text.length 64 70",
    "[text]\nlength = -1": "text.length -1",
    "[text]\nlength = 'x'": "text.length x",
    "[text]\nlength = '6-4'": "text.length 6-4",
    "[text]\nlength = 4.0": "text.length 4.0",
    "[text]\nlength = true": "text.length true",
    "[text]\nlength = [4, 6]": "text.length 4-6 [4, 6]",
    "[text]\ncharset = ''": "text.charset digits alnum",
    "[text]\ncharset = 'a b'": "text.charset space",
    "[text]\ncharset = 'abca'": "text.charset 'a' twice",
    "[text]\ncharset = ['a', 'b']": "text.charset",
    '[text]\ncharset = "a\\tb"': "text.charset \\t",
    '[text]\ncharset = "\\u0301a"': "text.charset u0301",
    "[text]\ncharset = '字'\n[fonts]\nfaces = ['DejaVuSans.ttf']": "DejaVuSans.ttf glyph 字",
    "[text]\narithmetic = 1": "text.arithmetic true",
    "[text]\narithmetic = true\ncharset = 'digits'": "text.arithmetic text.charset",
    "[text]\narithmetic = true\nlength = 4": "text.arithmetic text.length",
    "[text]\npattern = 'a'\nlength = 4": "text.pattern text.length",
    "[text]\npattern = []": "text.pattern list []",
    "[text]\npattern = 5": "text.pattern list 5",
    "[text]\npattern = 'a b'": "text.pattern space",
    "[text]\npattern = '[9-0]x'": "text.pattern 9-0",
    # Fonts
    "[fonts]\nfaces = 'DejaVuSans.ttf'": "fonts.faces list DejaVuSans.ttf",
    "[fonts]\nfaces = [5]": "fonts.faces [5]",
    "[fonts]\nfaces = ['Gone.ttf']": "fonts.faces Gone.ttf --fonts",
    "[fonts]\nfaces = ['DejaVuSans.ttf']\nsha256 = ['00']": "fonts.sha256 DejaVuSans.ttf",
    "[fonts]\nfaces = ['DejaVuSans.ttf']\nsha256 = 5": "fonts.sha256",
    "[fonts]\nper_glyph = 'no'": "fonts.per_glyph true",
    "[fonts]\nkinds = 'sans'": "fonts.kinds list sans",
    "[fonts]\nkinds = ['sanss']": "fonts.kinds sanss sans?",
    "[fonts]\nkinds = ['sans']\nfaces = []": "fonts.faces fonts.kinds",
    # Bases
    "base = 'kaptsha'": "base kaptsha kaptcha?",
    "base = 5": "base 5 list",
    "base = 'wave'\noperators = 5": "operators [[operators]]",
    "base = 'wave'\n[text]\nsise = 5": "[text] sise size?",
    f"base = 'wave'\n{STEP}'lines'\ncount = 51": "operator 1 (lines).count 51",
    # Operators
    "operators = 5": "operators [[operators]]",
    "operators = 'lines'": "operators [[operators]]",
    "operators = ['lines']": "operator 1 [[operators]]",
    "[operators]\nkind = 'lines'": "operators [[operators]]",
    "[[operators]]\ncount = 5": "operator 1 kind",
    f"{STEP}5": "operator 1 kind",
    f"{STEP}'blur'\n{STEP}'line'": 'operator 2 "line" lines?',
    f"{STEP}'qqqq'": '"qqqq" rotation lines jpeg',
    f"{STEP}'lines'\ncuont = 5": 'operator 1 (lines) "cuont" count?',
    f"{STEP}'blur'\ncolor = '#ffffff'": 'operator 1 (blur) "color" sigma',
    f"{STEP}'lines'\ncount = 51": "(lines).count 1 50 51",
    f"{STEP}'lines'\ncount = 1.5": "(lines).count whole 1.5",
    f"{STEP}'lines'\nprobability = 2": "(lines).probability 0 1 2",
    f"{STEP}'lines'\nprobability = [0, 1]": "(lines).probability [0, 1]",
    f"{STEP}'lines'\nprobability = nan": "(lines).probability NaN",
    f"{STEP}'lines'\nprobability = true": "(lines).probability true",
    f"{STEP}'rotation'\nglyph_probability = -1": "(rotation).glyph_probability 0 1 -1",
    f"{STEP}'lines'\nglyph_probability = 0.5": "(lines).glyph_probability glyphs",
    "[text]\nsize = {once = [20, 10]}": "text.size [20, 10]",
    "[text]\nsize = {once = 20, one_of = [5]}": "text.size once",
    "[text]\nsize = {one_of = [{once = 20}]}": "text.size once",
    f"{STEP}'rotation'\nangle = {{onc = [1, 2]}}": "(rotation).angle once one_of onc",
    f"{STEP}'lines'\npath = 'spline'": "(lines).path bezier spline",
    f"{STEP}'decoys'\nletters = ''": "(decoys).letters characters",
    f"{STEP}'lines'\ncolor = 'red'": "(lines).color red",
    f"{STEP}'stretch'\nfactor = -0.0": "(stretch).factor 0.25 -0.0",
    f"{STEP}'scale'\nfactor = 4\n" * 9: "operators scale",
    f"{STEP}'scale'\nfactor = 0.1\n" * 9: "operators scale",
    f"{STEP}'blur'\n" * 65: "operators 65 64",
    # No TOML at all
    "[canvas": "TOML",
    "canvas = = 5": "TOML line 1",
    "a = 1\na = 2": "TOML",
    f"a = {'[' * 3000}": "TOML",
    "\0": "text UTF-16 UTF-8",
    "{}": "TOML line 1",
}
NAMELESS = (
    "an image of the design",
    "the operators of the design",
    "the font DejaVuSans.ttf",
)  # found while drawing


def check_refusal(result, *names):
    """Check for one line that names all of this, status 2, and that nothing was written."""
    ending = (type(result.exception), result.exit_code)
    assert ending == (SystemExit, 2), f"{result.exception!r} {result.stderr}"
    (line,) = result.stderr.splitlines()
    assert line.startswith("captcha-ocr: ")
    assert all(name in line for name in names), line
    assert len(line) < 700, line
    assert line.isprintable()
    assert not list(Path("new").glob("*.png"))


def draw(name):
    options = ["--out", "new", "--count", 1, "--workers", 1, "--quiet"]
    return invoke("generate", "--design", name, *options)


@pytest.mark.parametrize(("text", "names"), CASES.items(), ids=[case[:60] for case in CASES])
def test_a_mistake_in_a_design_is_one_sentence_with_the_name_of_the_field(text, names):
    Path("mine.toml").write_text(text, encoding="utf-8")
    result = draw("mine.toml")
    check_refusal(result, *names.split())
    assert "mine.toml" in result.stderr or any(words in result.stderr for words in NAMELESS)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[text]\nx = -0.0",
        "[canvas]\nwidth = 16\n[text]\nlength = 64",
        "operators = []",
        "[fonts]\nfaces = []",
    ],
)
def test_an_odd_design_that_is_fine_is_drawn(text):
    Path("mine.toml").write_text(text)
    result = draw("mine.toml")
    assert result.exit_code == 0, result.stderr
    assert len(list(Path("new").glob("*.png"))) == 1


def test_what_is_no_readable_file_is_refused_by_its_name():
    Path("folder").mkdir()
    Path("latin.toml").write_bytes(b"[text]\ncharset = '\xe9'\n")
    os.mkfifo("pipe.toml")
    Path("deep.toml").write_text(".".join("a" * 40_000) + " = 1")
    Path("loop.toml").symlink_to("loop.toml")
    for name, names in {
        "folder": "directory",
        "latin.toml": "UTF-8 byte 18 0xe9",
        "pipe.toml": "regular",
        "deep.toml": "deep.toml 65,536",
        "/dev/zero": "regular",
        "loop.toml": "no design",
        "gone.toml": "no design list",
        "": "no design list",
        "gone.jsonl": "gone.jsonl",
        "random:none": "--design easy hard",
    }.items():
        check_refusal(draw(name), name, *names.split())


FACES = {"faces": ["DejaVuSans.ttf"]}


@pytest.mark.parametrize(
    ("lines", "names"),
    [
        ("", "saved.jsonl"),
        ("5", "line 1"),
        ("{}\n[]", "line 2"),
        ("[" * 100_000, "line 1"),
        (json.dumps({"fonts": {}}), "line 1 fonts.faces"),
        (json.dumps({"fonts": 5}), "line 1 fonts"),
        (json.dumps({"fonts": {"faces": ["\ud800"]}}), "line 1 fonts.faces \\ud800"),
        (json.dumps({"fonts": {"faces": ["Gone.ttf"]}}), "line 1 fonts.faces Gone.ttf"),
        (
            json.dumps({"fonts": {**FACES, "sha256": ["0" * 64]}}),
            "line 1 fonts.sha256 DejaVuSans.ttf",
        ),
        (json.dumps({"fonts": FACES, "number": "x"}), "line 1 number"),
        (json.dumps({"fonts": FACES, "number": 10**20}), "line 1 number"),
        (
            json.dumps({"fonts": FACES, "canvas": {"height": float("nan")}}),
            "line 1 canvas.height NaN",
        ),
        (json.dumps({"fonts": FACES, "text": {"charset": "\ud800"}}), "line 1 text.charset"),
    ],
)
def test_a_mistake_in_saved_designs_is_one_sentence_with_its_line(lines, names):
    Path("saved.jsonl").write_text(lines + "\n")
    check_refusal(draw("saved.jsonl"), "saved.jsonl", *names.split())


@pytest.mark.parametrize(
    ("command", "options"),
    [
        ("generate --design random", ["--size 160x60", "--font-sizes 42", "--often 0O"]),
        ("generate --design wave", ["--designs 3", "--warp classic", "--renderer package"]),
        ("generate --design wave", ["--save-designs other.jsonl"]),
        ("generate --design saved.jsonl", ["--length 4", "--charset abc"]),
        ("design preview saved.jsonl", ["--length 4", "--charset abc"]),
    ],
)
def test_options_that_do_not_fit_a_design_are_named(command, options):
    Path("saved.jsonl").write_text(json.dumps({"fonts": FACES}) + "\n")
    for option in options:
        words = [*command.split(), *option.split(), "--out", "new"]
        check_refusal(invoke(*words), option.split()[0])
    assert not Path("new").exists()

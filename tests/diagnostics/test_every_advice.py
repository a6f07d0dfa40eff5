"""Every advice of inspect, prepare and eval, on a folder where it is true and on one where not.

That of train is in tests/robustness/test_advised_commands.py and tests/cli/test_advice.py.
"""

import csv
import random
import re
import shutil
from functools import partial
from operator import methodcaller
from pathlib import Path

import pytest
from conftest import invoke
from PIL import Image, ImageDraw, ImageFont

MINE = Path("mine")
SAMPLES = Path(__file__).parents[2] / "data" / "samples"
CHANCE = random.Random(7)
WORDS = ["".join(CHANCE.sample("ABDEFHKMNRTY2345679", 4)) for _ in range(60)]
NUMBERS = [f"{number:04}" for number in range(7, 10_000, 150)]
CUT = [str(int(number)) for number in NUMBERS]


def draw(text, sides=(100, 32), mode="RGB", ink="black", ground="white"):
    image = Image.new(mode, sides, ground)
    font = ImageFont.load_default(0.6 * min(32, sides[1]))
    ImageDraw.Draw(image).multiline_text((8, 3), text, ink, font, spacing=1)
    return image


def tabulate(rows, columns, table="labels.csv"):
    """Write rows of a name and a text, and as many more columns."""
    names = columns.split(",")
    with Path(MINE, table).open("a", newline="") as stream:
        cells = [[name, text, "0.9"][: len(names)] for name, text in rows]
        csv.writer(stream).writerows(cells if stream.tell() else [names, *cells])


def put(texts=WORDS, names="img_{}.png", columns="filename,text", shown="{}", **drawing):
    """Write an image of each text, and labels.csv if there are columns."""
    MINE.mkdir(exist_ok=True)
    rows = [(names.format(number, text=text), text) for number, text in enumerate(texts)]
    for name, text in rows:
        draw(shown.format(text), **drawing).save(MINE / name)
    if columns:
        tabulate(rows, columns)


def change(how):
    """Replace all images."""
    for path in MINE.glob("*.png"):
        with Image.open(path) as image:
            how(image).save(path)


def frame(image):
    """Return a page with a frame, and an image in its middle."""
    page = Image.new("RGB", (800, 500), "white")
    ImageDraw.Draw(page).rectangle((0, 0, 799, 499), outline="black")
    page.paste(image, (300, 200))
    return page


def touch(name, content=b"PK"):
    Path(MINE, name).write_bytes(content)


def animate():
    """Make the first image an animation."""
    frames = [Image.new("L", (100, 32), 255), draw("AB", mode="L", ground=255, ink=0)]
    frames[0].save(MINE / "img_0.png", save_all=True, append_images=frames[1:])


def swap(text):
    """Return another text of the same characters."""
    return text[1:] + text[0]


def copy(count=1, sides=None, change=str, columns="filename,text"):
    """Copy the drawn samples several times, every second time with other sides; write a table
    beside the folder.
    """
    MINE.mkdir(exist_ok=True)
    rows = []
    for number in range(count):
        for path in sorted(SAMPLES.glob("*.png")):
            rows.append((f"{number}-{path.name}", change(path.stem.split("-")[1])))
            with Image.open(path) as image:
                image.resize(sides if sides and number % 2 else image.size).save(MINE / rows[-1][0])
    tabulate(rows, columns, "../table.csv")


GOOD, FEW = (put,), (partial(put, WORDS[:20]),)
TURNED = partial(change, methodcaller("transpose", Image.Transpose.ROTATE_90))
PAGES = partial(change, frame)
LARGE = partial(change, methodcaller("resize", (800, 256), Image.Resampling.BICUBIC))
SAME = (put, partial(put, WORDS[:1], "same.png"))
OTHERS = partial(put, [f"{text}z" for text in WORDS], "other_{}.png", "")
BLANK = partial(put, WORDS[:9], columns="", ink="white")
READINGS = partial(put, WORDS[:9], columns="filename,text,confidence", ink="white")
EVAL = "eval mine --model pretrained --device cpu"
SCORE = f"{EVAL} --labels table.csv"
BOTH, INSPECT, PREPARE = "inspect mine|prepare mine", "inspect mine", "prepare mine"
ROWS = {  # the commands, the advice, what makes it true, and what does not
    "fit": (INSPECT, "fit for training", GOOD, FEW),
    "no label": (INSPECT, r"no image has a label.*adapt", (OTHERS,), GOOD),
    "adapt": (INSPECT, "next: .*adapt mine", (OTHERS,), GOOD),
    "adapt to readings": (
        *(INSPECT, "next: .*adapt mine"),
        *((partial(put, columns="filename,text,confidence"),), GOOD),
    ),
    "prepare": (INSPECT, "next: .*prepare mine", GOOD, (*FEW, OTHERS)),
    "label": (
        *(INSPECT, "next: .*label mine"),
        *((partial(put, WORDS[:9], columns=""),), (OTHERS,)),
    ),
    "few labels": (INSPECT, "most images have no label", (*FEW, OTHERS), GOOD),
    "few images": (BOTH, r"only 20 labelled images.*\b50\b", FEW, GOOD),
    "few different images": (
        *(BOTH, "only 20 labelled images"),
        (*FEW, partial(put, WORDS[:20], "b{}.png"), partial(put, WORDS[:20], "c{}.png")),
        GOOD,
    ),
    "cut zeros": (BOTH, "cut zeros", (partial(put, CUT),), (partial(put, NUMBERS),)),
    "numbers in names": (
        *(BOTH, "cut zeros", (partial(put, CUT),)),
        (partial(put, CUT, "{text}_.png", ""),),
    ),
    "rewritten": (
        *(BOTH, "TRUE: a spreadsheet"),
        (put, partial(put, ["TRUE"], "t.png")),
        (put, partial(put, ["TRUST"[:4]], "t.png")),
    ),
    "few texts": (
        *(BOTH, "all texts begin with 'A'"),
        *((partial(put, [f"A{w}" for w in WORDS]),), (partial(put, [f"A{w}" for w in WORDS[:9]]),)),
    ),
    "beginning": (BOTH, r"begin with 'OK\|'", (partial(put, [f"OK|{w}" for w in WORDS]),), GOOD),
    "end": (BOTH, r"end with '\.png'", (partial(put, [f"{w}.png" for w in WORDS]),), GOOD),
    "other script": (
        *(BOTH, r"hardly any other text has.*U\+0410.*a\.png"),
        (put, partial(put, ["\u0410BD2"], "a.png")),
        (put, partial(put, ["ABD2"], "a.png")),
    ),
    "readings": (
        *(BOTH, "60 texts.* are a model's readings"),
        *((partial(put, columns="filename,text,confidence"),), GOOD),
    ),
    "typing error": (
        *(INSPECT, r"hardly any other text has '#'.* \(t\.png\)"),
        (put, partial(put, names="b{}.png", ink="red"), partial(put, ["AB#2"], "t.png")),
        (put, partial(put, ["AB#2"] * 8, "t{}.png")),
    ),
    "rare": (
        *(INSPECT, "fewer than 3 texts contain each of #"),
        (put, partial(put, ["AB#2", "#2AB"], "t{}.png")),
        (put, partial(put, ["AB#2", "#2AB", "2#AB"], "t{}.png")),
    ),
    "both cases": (
        *(INSPECT, "A occur in both cases"),
        *((put, partial(put, ["aBD2"] * 3, "t{}.png")), GOOD),
    ),
    "cases apart": (
        *(f"{INSPECT} --case-sensitive", "fit for training"),
        *((put, partial(put, ["aBD2"] * 3, "t{}.png")), FEW),
    ),
    "conflict": (
        *(INSPECT, "the same image has different labels, 1 time"),
        *((put, partial(put, ["AAA2"], "t.png", shown=WORDS[0])), SAME),
    ),
    "copies": (PREPARE, "1 copies of other images", SAME, GOOD),
    "proportions": (
        *(INSPECT, "different proportions"),
        (put, partial(put, WORDS[:9], "b{}.png", sides=(120, 32))),
        (put, partial(put, WORDS[:9], "b{}.png", sides=(104, 32))),
    ),
    "rows": (BOTH, "several rows", (partial(put, shown="{0}\n{0}", sides=(100, 60)),), GOOD),
    "small": (BOTH, "less than 10 pixels", (partial(put, sides=(20, 5)),), GOOD),
    "turned": (BOTH, "higher than wide", (put, TURNED), (partial(put, sides=(50, 60)),)),
    "column": (
        *(BOTH, "several rows"),
        *((partial(put, shown="{0[0]}\n{0[1]}\n{0[2]}\n{0[3]}", sides=(80, 110)),), GOOD),
    ),
    "page": (BOTH, "cut the captcha out", (put, PAGES), (put, LARGE)),
    "page, read": (
        *(EVAL, "not fit .*cut the captcha out"),
        *((copy, PAGES), (copy, LARGE)),
    ),
    "page, in common": (EVAL, "in common", (put,), (put, PAGES)),
    "one colour": (
        *(BOTH, "one colour"),
        (put, partial(put, ["AB2D"], "t.png", ink="white")),
        (put, partial(put, ["AB2D"], "t.png", ink="#eeeeee")),
    ),
    "animated": (BOTH, "animated.* 1$", (put, animate), GOOD),
    "light": (
        *(BOTH, "light on transparency.* 60$"),
        (partial(put, mode="RGBA", ink="white", ground="#ffffff00"),),
        (partial(put, mode="RGBA", ground="#ffffff00"),),
    ),
    "versions": (
        *(BOTH, "same text "),
        tuple(partial(put, WORDS, f"{{text}}_{n}.png", sides=(100 + n, 32)) for n in range(3)),
        GOOD,
    ),
    "unreadable": (BOTH, r"left out +bad\.png", (put, partial(touch, "bad.png")), GOOD),
    "no text": (
        *(BOTH, "left out .*'null' is the text of 9 images"),
        (put, partial(put, ["null"] * 9, "n{}.png", sides=(99, 32))),
        (put, partial(put, ["null"], "n{}.png")),
    ),
    "odd length": (
        *(BOTH, "left out .*'AB2' has 3 characters"),
        (put, partial(put, names="b{}.png", ink="red"), partial(put, ["AB2"], "t.png")),
        (put, partial(put, ["AB2"] * 3, "t{}.png")),
    ),
    "table": (
        *(BOTH, r"texts\.xlsx has the texts, save them as a CSV"),
        (partial(put, names="{text}.png", columns=""), partial(touch, "texts.xlsx")),
        (put, partial(touch, "texts.xlsx")),
    ),
    "other formats": (BOTH, r"convert \.avif", (put, partial(touch, "a.avif")), GOOD),
    "other folder": (
        *(BOTH, "other folder +in the table"),
        (
            partial(put, columns=""),
            partial(
                tabulate, [(f"C:\\old\\img_{n}.png", WORDS[n]) for n in range(60)], "file,text"
            ),
        ),
        GOOD,
    ),
    "preset": (PREPARE, "preset +finetune", GOOD, (partial(put, [w * 6 for w in WORDS]),)),
    "wrong labels": (
        *("inspect mine --labels table.csv --model pretrained", "labels do not belong"),
        *((partial(copy, change=swap),), (copy,)),
    ),
    "in common": (EVAL, "in common .*--length 4", (partial(copy, 3),), (copy,)),
    "mixture": (
        *(EVAL, "mixed .*(160x60 and 120x60|120x60 and 160x60)"),
        *((partial(copy, 4, sides=(120, 60)),), (partial(copy, 4, sides=(150, 60)),)),
    ),
    "not sure": (EVAL, "not sure .*label mine", (BLANK,), (copy,)),
    "not sure, many": (
        EVAL,
        "not sure .*adapt mine",
        (partial(put, columns="", ink="white"),),
        (BLANK,),
    ),
    "not sure of labels": (
        *(f"{EVAL} --labels mine", "not sure .*train on these labels: .*prepare mine, "),
        *((partial(put, WORDS[:9], "{text}.png", "", ink="white"),), (READINGS,)),
    ),
    "never read": (
        SCORE,
        "labels are always counted",
        (partial(copy, change="Ж".__add__),),
        (copy,),
    ),
    "not scored": (SCORE, r"not scored .*t\.png", (copy, partial(put, ["A"], "t.png")), (copy,)),
    "against readings": (
        *(SCORE, "against +a model's readings"),
        *((partial(copy, columns="filename,text,confidence"),), (copy,)),
    ),
    "second reader": (
        *(f"{EVAL} --second table.csv", "second .*left out"),
        (partial(copy, 9, change="AB".__add__, columns="filename,text,confidence"),),
        (partial(copy, 9, columns="filename,text,confidence"),),
    ),
    "left unread": (f"{EVAL} --min-confidence 0.5", "9 of 9 left unread", (BLANK,), (copy,)),
    "other files": (EVAL, r"other files \.xlsx 1", (copy, partial(touch, "a.xlsx")), (copy,)),
}


@pytest.mark.parametrize(("commands", "advice", "true", "false"), ROWS.values(), ids=ROWS)
def test_an_advice_is_given_where_it_is_true_and_only_there(commands, advice, true, false):
    for steps, is_told in ((true, True), (false, False)):
        for step in steps:
            step()
        for command in commands.split("|"):
            output = invoke(*command.split()).output
            assert (re.search(advice, output, re.MULTILINE) is not None) == is_told, output
        for folder in (MINE, Path("data"), Path("runs")):
            shutil.rmtree(folder, ignore_errors=True)
        Path("table.csv").unlink(missing_ok=True)

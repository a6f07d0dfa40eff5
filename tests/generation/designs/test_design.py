import os
import random
import re
from collections import Counter
from pathlib import Path

import pytest
from conftest import naming

from captcha_ocr.charset import NAMED_ALPHABETS
from captcha_ocr.errors import UsageError
from captcha_ocr.generation.designs.design import (
    ARITHMETIC,
    parse_design,
    read_document,
    read_saved,
)
from captcha_ocr.generation.operators.registry import OPERATORS
from captcha_ocr.options.model import Lengths
from captcha_ocr.system.files import MAX_TEXT_BYTES


def texts(document, count=300):
    design, rng = parse_design(document, "it"), random.Random(1)
    return [design.texts.write(rng) for _ in range(count)]


def test_an_empty_document_is_a_design_of_defaults():
    design, rng = parse_design({}, "it"), random.Random(1)
    assert (design.canvas["width"](rng), design.canvas["height"](rng)) == (160, 60)
    assert (design.text["size"](rng), design.text["color"](rng)) == (42, (32, 32, 32))
    charset, lengths = NAMED_ALPHABETS["upper-alnum"], Lengths(4, 4)
    assert (design.texts.charset, design.texts.lengths) == (charset, lengths)
    assert (design.faces, design.steps, design.redraw_illegible) == ((), [], True)
    assert parse_design({"canvas": {"width": "text"}}, "it").canvas["width"](rng) == 0


def test_frequent_characters_come_ten_times_as_often():
    written = Counter("".join(texts({"text": {"charset": "0123", "often": "03", "length": 10}})))
    shares = {"0": 3000 * 10 / 22, "1": 3000 / 22, "2": 3000 / 22, "3": 3000 * 10 / 22}
    assert written == pytest.approx(shares, abs=100)


def test_texts_have_all_characters_and_lengths_and_no_others():
    written = texts({"text": {"charset": "a-c", "length": "1-3"}})
    assert ({*"".join(written)}, {*map(len, written)}) == ({*"abc"}, {1, 2, 3})
    assert {*map(len, texts({"text": {"length": 5}}))} == {5}
    marked = parse_design({"text": {"charset": "ax\u0302", "length": 2}}, "it")
    assert marked.texts.patterns == ((("a", "x\u0302"),) * 2,)


def test_fields_are_changed_by_their_places_and_the_design_itself_is_kept():
    lines = [{"kind": "lines", "count": 1}, {"kind": "lines", "count": 1}]
    design = parse_design({"operators": lines}, "it")
    changed = design.with_fields({"text.size": 30, "operators.lines.count": 5})
    assert changed.document["text"] == {"size": 30}
    assert [step["count"] for step in changed.document["operators"]] == [5, 1]
    assert design.document == {"operators": lines}


@pytest.mark.parametrize(
    ("place", "value", "named"),
    [
        ("size", 1, "'size' it text.spacing"),
        ("texts.size", 1, "texts.size"),
        ("text.size.low", 1, "text.size.low"),
        ("operators.blobs.count", 1, "operators.blobs.count"),
        ("text.sise", 1, "sise"),
        ("text.size", "big", "it text.size big"),
    ],
)
def test_a_change_of_what_is_no_field_is_refused(place, value, named):
    design = parse_design({"operators": [{"kind": "lines"}]}, "it")
    with pytest.raises(UsageError, match=naming(*named.split())):
        design.with_fields({place: value})


def test_sums_are_sums_of_the_lengths_that_are_promised():
    sums = texts({"text": {"arithmetic": True}}, 2000)
    assert all(re.fullmatch(r"[0-9]{1,2}[-+*/][0-9]{1,2}=\??", text) for text in sums)
    assert {*map(len, sums)} == {4, 5, 6, 7}
    assert {*"".join(sums)} == {*ARITHMETIC}
    assert texts({"text": {"arithmetic": True}}, 9) == sums[:9]


def test_a_pattern_has_alphabets_in_brackets_and_other_characters_as_they_are():
    written = texts({"text": {"pattern": ["[1-3][+-]7=", "x[A-B]"]}})
    assert {*written} == {*(f"{a}{b}7=" for a in "123" for b in "+-"), "xA", "xB"}
    design = parse_design({"text": {"pattern": "[b-d][ae]x"}}, "it")
    assert (design.texts.charset, design.texts.lengths) == ("bcdaex", Lengths(3, 3))


def test_a_design_changes_its_base_field_by_field(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text(
        'base = "wave"\n[text]\nsize = 20\n[[operators]]\nkind = "lines"\ncount = 3\n'
        '[[operators]]\nkind = "blur"\n[[operators]]\nkind = "lines"\nwidth = 9\n'
    )
    base, mine = read_document("wave"), read_document(str(path))
    assert mine["canvas"] == base["canvas"]
    assert mine["text"] == base["text"] | {"size": 20}
    kinds = [step["kind"] for step in base["operators"]]
    assert [step["kind"] for step in mine["operators"]] == [*kinds, "blur", "lines"]
    lines = kinds.index("lines")
    assert mine["operators"][lines] == base["operators"][lines] | {"count": 3}


def test_a_field_takes_the_place_of_those_of_the_base_that_it_excludes(tmp_path):
    path = tmp_path / "mine.toml"

    def read(text):
        path.write_text(text)
        return parse_design(read_document(str(path)), "it")

    assert read('base = "wave"\n[text]\npattern = "[0-9]+1="\n').texts.lengths == Lengths(4, 4)
    assert read('base = "ruoyi-math"\n[text]\nlength = 6\n').texts.lengths == Lengths(6, 6)
    assert read('base = "wave"\n[fonts]\nkinds = ["mono"]\n').faces == ()
    assert read('base = "kaptcha"\n[fonts]\nfaces = ["mine.ttf"]\n').kinds == ()
    assert read('base = "kaptcha"\n[text]\narithmetic = false\n').texts.lengths.longest == 5


def test_the_second_operator_of_a_kind_changes_the_second_of_the_base(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text(
        'base = "opencart"\n[[operators]]\nkind = "discs"\n'
        '[[operators]]\nkind = "discs"\nprobability = 0\n'
    )
    base, mine = (parse_design(read_document(str(name)), "it") for name in ("opencart", path))
    discs = [step.probability for step in mine.steps if step.operator == OPERATORS["discs"]]
    assert len(mine.steps) == len(base.steps)
    assert discs[:2] == [1, 0]


def test_a_step_draws_its_fields_anew_each_time():
    lines = {"kind": "lines", "count": [1, 9], "probability": 0.5}
    (step,), rng = parse_design({"operators": [lines]}, "it").steps, random.Random(1)
    assert (step.operator, step.probability) == (OPERATORS["lines"], 0.5)
    assert {step.values(rng)["count"] for _ in range(200)} == set(range(1, 10))


def test_what_is_drawn_once_is_settled_for_each_image():
    once = {"once": [10, 90]}
    document = {"text": {"size": once}, "operators": [{"kind": "rotation", "angle": once}]}
    design, rng = parse_design(document, "it"), random.Random(1)
    image = design.for_image(rng)
    drawn = {(image.text["size"](rng), image.steps[0].values(rng)["angle"]) for _ in range(9)}
    assert len(drawn) == 1
    assert design.for_image(rng).text["size"](rng) != image.text["size"](rng)
    plain = parse_design({}, "it")
    assert plain.for_image(rng) is plain


@pytest.mark.parametrize(
    ("document", "named"),
    [
        ({"cnavas": {}}, "'cnavas' did you mean canvas?".replace("'", '"')),
        ({"zzzz": {}}, "canvas text fonts operators"),
        ({"text": {"colour": "#ffffff"}}, "[text] color?"),
        ({"text": {"base": "captcha"}}, "base above [text]"),
        ({"operators": [{"kind": "lines"}, {"kind": "linse"}]}, "operator 2 lines?"),
        ({"operators": [{"kind": "blur", "sgima": 1}]}, "operator 1 (blur) sigma?"),
        ({"operators": [{"kind": "blur"}] * 65}, "operators 65 64"),
        ({"text": {"arithmetic": True, "length": 4}}, "text.length text.arithmetic"),
        ({"text": {"arithmetic": True, "often": "1"}}, "text.often text.arithmetic"),
        ({"text": {"arithmetic": True, "pattern": "1"}}, "text.pattern text.arithmetic"),
        ({"text": {"pattern": "[1-9"}}, "text.pattern ["),
        ({"text": {"pattern": ["5", "1-9]"]}}, "text.pattern ]"),
        ({"text": {"pattern": "A[]B"}}, "text.pattern ["),
        ({"text": {"pattern": "1" * 65}}, "text.pattern 64 65"),
        ({"text": {"often": 0}}, "text.often 0"),
        ({"fonts": {"faces": ["a"], "sha256": []}}, "fonts.sha256 fonts.faces"),
        ({"text": {"often": "a", "charset": "bc"}}, 'text.often "a"'),
        ({"text": {"length": 10**5000}}, "text.length thousands of digits"),
        ({"text": {"charset": "Z-A"}}, "text.charset Z-A"),
        ({"text": {"charset": "A-Z9-2"}}, "text.charset 9-2"),
        ({"text": {"charset": "numbers"}}, "text.charset numbers digits"),
        ({"text": {"charset": "a b"}}, "text.charset space"),
        ({"text": {"charset": "\ud800"}}, "text.charset"),
        ({"text": {"length": "6-4"}}, "text.length 64"),
        ({"canvas": {"width": "wide"}}, 'canvas.width "text" "wide"'),
        ({"number": "1"}, "number 10,000,000,000,000"),
        (
            {"operators": [{"kind": "blur", "glyph_probability": 1}]},
            "(blur).glyph_probability glyphs",
        ),
        (
            {"operators": [{"kind": "thin", "glyph_probability": 2}]},
            "(thin).glyph_probability 0 to 1",
        ),
    ],
)
def test_a_mistake_is_named_with_its_place_and_the_nearest_name(document, named):
    with pytest.raises(UsageError, match=naming("it: ", *named.split())):
        parse_design(document, "it")


def test_a_file_is_read_and_for_one_that_is_not_there_a_similar_name_is_proposed():
    Path("mine.toml").write_text('[text]\ncharset = "é"\n', encoding="utf-8")
    assert read_document("mine.toml") == {"text": {"charset": "é"}}
    with pytest.raises(UsageError, match=naming("gone.toml")) as error:
        read_document("gone.toml")
    assert error.value.advice.command.name == "design list"
    with pytest.raises(UsageError, match=naming("kaptsha", "kaptcha?")):
        read_document("kaptsha")


def test_saved_designs_are_read_line_by_line_from_a_file_that_is_not_too_large():
    Path("saved.jsonl").write_text('{"number": 3}\n{}\n')
    assert read_saved("saved.jsonl") == [{"number": 3}, {}]
    os.truncate("saved.jsonl", MAX_TEXT_BYTES + 1)
    with pytest.raises(UsageError, match=naming("saved.jsonl", "1,073,741,824")):
        read_saved("saved.jsonl")


@pytest.mark.parametrize(
    ("data", "named"),
    [
        (b"", "no design"),
        (b"{}\n[]\n", "line 2"),
        (b"{}\n{\n", "line 2"),
        (b"\n{}", "line 1"),
        (b"5", "line 1"),
        (b"[" * 100_000, "line 1"),
        (b"\xff{}", "UTF-8"),
        (b'{"number": "x"}', "line 1: number"),
        (b'{"fonts": 5}', "line 1: fonts"),
        (b'{"canvas": {"width": NaN}}', "line 1: canvas.width"),
        (b'{"text": {"size": %s}}' % (b"9" * 5000), "line 1"),
    ],
)
def test_a_damaged_file_of_designs_is_refused_with_its_line(data, named):
    Path("saved.jsonl").write_bytes(data)
    with pytest.raises(UsageError, match=naming("saved.jsonl", named)):
        read_saved("saved.jsonl")

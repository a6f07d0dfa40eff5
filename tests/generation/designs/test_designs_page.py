"""docs/designs.md names every operator, field and design, with their limits and defaults."""

import json
import re
import tomllib
from pathlib import Path

import pytest

from captcha_ocr.generation.designs.design import (
    CANVAS,
    FONTS,
    SECTIONS,
    TEXT,
    CanvasSide,
    describe_design,
    design_names,
    parse_design,
)
from captcha_ocr.generation.operators.registry import (
    COMMON,
    OPERATORS,
    Flag,
    Letters,
    Number,
    Word,
)

DOCS = Path(__file__).parents[3] / "docs"
PAGE = (DOCS / "designs.md").read_text(encoding="utf-8")
FIELD_COLUMNS = ("field", "takes", "default", "meaning")
COMMON_OF_MARKS = COMMON["mark"] | {"color_per_item": Flag(False)}  # of marks with items


def read_tables():
    """The rows of each table of the page, by its heading and its columns, as plain text."""
    tables, heading, rows = {}, "", None
    for line in PAGE.splitlines():
        cells = tuple(re.sub("[*`]", "", cell).strip() for cell in line.strip("|").split("|"))
        if line.startswith("#"):
            heading = line.strip("# `[]")
        elif not line.startswith("|"):
            rows = None
        elif rows is None:
            rows = tables[heading, cells] = []
        elif not line.startswith("|-"):
            rows.append(cells)
    return tables


TABLES = read_tables()


def fields_below(heading):
    """What a table of fields says of each: what it takes, and its default."""
    return {field: rest[:2] for field, *rest in TABLES[heading, FIELD_COLUMNS]}


def describe(kinds):
    """What a table should say of fields: what each takes, and its default."""
    described = {}
    for name, kind in kinds.items():
        takes = {Flag: "true, false", Letters: "characters"}.get(type(kind), "colour")
        if isinstance(kind, Number):
            takes = f"whole, {kind.limits}" if kind.whole else kind.limits
        elif isinstance(kind, Word):
            takes = ", ".join(f'"{word}"' for word in kind.words)
        takes += ', or "text"' if isinstance(kind, CanvasSide) else ""
        described[name] = [takes, json.loads(json.dumps(kind.default))]
    return described


def parsed(fields):
    """Fields with their defaults as values, not as text."""
    defaults = tomllib.loads("".join(f"{name} = {fields[name][1]}\n" for name in fields))
    return {name: [fields[name][0], default] for name, default in defaults.items()}


def test_the_page_has_every_operator_with_its_own_fields_and_no_other():
    documented = {}
    for (_, columns), rows in TABLES.items():
        if columns == ("operator", *FIELD_COLUMNS):
            for operator, field, *cells in rows:
                if operator:
                    assert operator not in documented
                    assert cells[-1].endswith("."), f"{operator} needs a sentence"
                    fields = documented[operator] = {}
                else:
                    fields[field] = cells[:2]
    assert documented.keys() == OPERATORS.keys()
    for name, operator in OPERATORS.items():
        common = COMMON_OF_MARKS if operator.stage == "mark" else COMMON.get(operator.stage, {})
        own = {field: kind for field, kind in operator.fields.items() if common.get(field) != kind}
        assert parsed(documented[name]) == describe(own), name


@pytest.mark.parametrize(
    ("heading", "kinds", "others"),
    [
        ("Under the text", COMMON["under"], ()),
        ("Marks: lines, patterns and shapes", COMMON_OF_MARKS, ()),
        ("canvas", CANVAS, ()),
        ("text", TEXT, ("length", "charset", "often", "arithmetic", "pattern")),
        ("fonts", FONTS, ("faces", "kinds", "sha256")),
    ],
)
def test_the_page_has_the_fields_of_a_section_and_those_that_operators_share(
    heading, kinds, others
):
    fields = fields_below(heading)
    assert fields.keys() == {*kinds, *others} == {*SECTIONS.get(heading, kinds)}
    assert parsed({name: fields[name] for name in kinds}) == describe(kinds)


def test_the_page_has_the_defaults_of_what_is_written():
    lines = []
    for section, heading, names in (
        ("", "Outside the sections", ["redraw_illegible"]),
        ("text.", "text", ["length", "charset", "arithmetic"]),
        ("fonts.", "fonts", ["faces"]),
    ):
        fields = fields_below(heading)
        lines += [f"{section}{name} = {fields[name][1]}" for name in names]
    document = tomllib.loads("\n".join(lines))
    assert document["text"].pop("arithmetic") is False
    design, empty = parse_design(document, "page"), parse_design({}, "")
    assert (design.texts, design.faces) == (empty.texts, empty.faces)
    assert design.redraw_illegible == empty.redraw_illegible


def test_the_page_has_every_named_design_and_pictures_that_exist():
    designs = TABLES["Named designs", ("name", "look", "read", "")]
    looks = {name: describe_design(name).replace("`", "") for name in design_names()}
    assert {name: look for name, look, *_ in designs} == looks
    pictures = re.findall(r"\]\(([^)]*\.png)\)", PAGE)
    assert [picture for picture in pictures if not (DOCS / picture).is_file()] == []
    assert [f"designs/{name}.png" in pictures for name in looks] == [True] * len(looks)


def test_the_first_design_of_the_page_is_complete():
    document = tomllib.loads(PAGE.split("```toml\n")[1].split("```")[0])
    assert parse_design(document, "mine.toml").steps

"""docs/designs.md names every operator, field and design, with the limits and defaults that the code has."""

import tomllib
from pathlib import Path
from typing import Any

import pytest

from captcha_ocr.generation.designs.design import (
    CANVAS,
    FONTS,
    SECTIONS,
    TEXT,
    CanvasSide,
    design_names,
    parse_design,
)
from captcha_ocr.generation.operators.registry import COMMON, OPERATORS
from captcha_ocr.generation.operators.values import Color, Flag, Kind, Number, Word

DOCS = Path(__file__).parents[3] / "docs"
PAGE = (DOCS / "designs.md").read_text(encoding="utf-8")
OPERATOR_TABLE = "| operator | field | takes | default | meaning |"
FIELD_TABLE = "| field | takes | default | meaning |"
GIVEN_TO_SOME = {"color_per_item": Flag(False)}  # marks with items: in the table of all marks


def rows_below(heading: str, header: str) -> list[list[str]]:
    """The cells of the first table with a header below a heading, without their marks of code and bold type."""
    lines = iter(PAGE.split(f"\n{heading}\n")[1].splitlines())
    for line in lines:
        assert not line.startswith("#"), f"there is no table {header} below {heading}"
        if line == header:
            break
    next(lines)  # the dashes
    rows = []
    for line in lines:
        if not line.startswith("|"):
            break
        rows.append([cell.strip() for cell in line.strip("|").split("|")])
    return rows


def plain(cell: str) -> str:
    return cell.strip("*`")


def takes(kind: Kind) -> str:
    """What a field takes, as the page says it."""
    if isinstance(kind, Number):
        text = f"whole, {kind.limits}" if kind.whole else kind.limits
        return f'{text}, or `"text"`' if isinstance(kind, CanvasSide) else text
    if isinstance(kind, Word):
        return ", ".join(f'`"{word}"`' for word in kind.words)
    if isinstance(kind, Flag):
        return "`true`, `false`"
    assert isinstance(kind, Color)
    return "colour"


def value_in(cell: str) -> Any:
    return tomllib.loads(f"value = {plain(cell)}")["value"]


def as_json(value: Any) -> Any:
    """A default as a TOML file would hold it: with lists for tuples."""
    if isinstance(value, dict):
        return {key: as_json(each) for key, each in value.items()}
    return [as_json(each) for each in value] if isinstance(value, (list, tuple)) else value


def operator_rows() -> dict[str, dict[str, list[str]]]:
    """The rows of each operator: its fields, with what they take, their defaults and meanings."""
    found: dict[str, dict[str, list[str]]] = {}
    headings = [
        line for line in PAGE.split("\n## Operators\n")[1].splitlines() if line.startswith("### ")
    ]
    for heading in headings:
        name = ""
        for operator, field, *others in rows_below(heading, OPERATOR_TABLE):
            if operator:
                name = plain(operator)
                assert name not in found
                assert others[-1].endswith("."), f"{name} needs a sentence"
                found[name] = {}
            else:
                found[name][plain(field)] = others
    return found


def check_rows(rows: dict[str, list[str]], kinds: dict[str, Kind]) -> None:
    assert {name: row[0] for name, row in rows.items()} == {
        name: takes(kind) for name, kind in kinds.items()
    }
    assert {name: value_in(row[1]) for name, row in rows.items()} == {
        name: as_json(kind.default) for name, kind in kinds.items()
    }


def section_rows(heading: str) -> dict[str, list[str]]:
    return {plain(field): others for field, *others in rows_below(heading, FIELD_TABLE)}


def test_the_page_has_every_operator_and_no_other():
    assert operator_rows().keys() == OPERATORS.keys()


@pytest.mark.parametrize("name", OPERATORS)
def test_the_page_has_the_fields_of_an_operator(name):
    operator = OPERATORS[name]
    common = COMMON.get(operator.stage, {}) | (GIVEN_TO_SOME if operator.stage == "mark" else {})
    own = {field: kind for field, kind in operator.fields.items() if common.get(field) != kind}
    check_rows(operator_rows()[name], own)


@pytest.mark.parametrize(
    ("heading", "kinds"),
    [
        ("### Under the text", COMMON["under"]),
        ("### Marks: lines, patterns and shapes", COMMON["mark"] | GIVEN_TO_SOME),
    ],
)
def test_the_page_has_the_fields_that_operators_share(heading, kinds):
    check_rows(section_rows(heading), kinds)


@pytest.mark.parametrize(
    ("section", "kinds"), [("canvas", CANVAS), ("text", TEXT), ("fonts", FONTS)]
)
def test_the_page_has_the_fields_of_a_section(section, kinds):
    rows = section_rows(f"### `[{section}]`")
    assert rows.keys() == set(SECTIONS[section])
    check_rows({name: row for name, row in rows.items() if name in kinds}, kinds)


def test_the_page_has_the_defaults_of_what_is_written():
    rows = section_rows("### `[text]`")
    text = {name: value_in(rows[name][1]) for name in ("length", "charset")}
    fonts = {"faces": value_in(section_rows("### `[fonts]`")["faces"][1])}
    redraw = value_in(section_rows("### Outside the sections")["redraw_illegible"][1])
    design = parse_design({"text": text, "fonts": fonts, "redraw_illegible": redraw}, "page")
    empty = parse_design({}, "")
    for name in ("texts", "faces", "redraw_illegible"):
        assert getattr(design, name) == getattr(empty, name), name
    assert value_in(rows["arithmetic"][1]) == empty.texts.arithmetic


def test_the_page_has_every_named_design_and_no_other():
    assert {
        plain(name) for name, *_ in rows_below("## Named designs", "| name | look | fonts |")
    } == {*design_names()}


def test_the_pictures_of_the_page_exist():
    names = {
        part.split(")")[0] for part in PAGE.split("](")[1:] if part.split(")")[0].endswith(".png")
    }
    assert len(names) == 7
    assert all((DOCS / name).is_file() for name in names)


def test_the_first_design_of_the_page_is_complete():
    document = tomllib.loads(PAGE.split("```toml\n")[1].split("```")[0])
    assert parse_design(document, "mine.toml").steps

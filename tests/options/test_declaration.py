"""One declaration gives the check, the JSON, the difference and the words of an option."""

import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import pytest
from conftest import naming

from captcha_ocr.errors import UsageError
from captcha_ocr.options.adapting import AdaptOptions
from captcha_ocr.options.declaration import Options, differences, flag_for, option, words


@dataclass(frozen=True)
class Baking(Options):
    minutes: int = option(20, "How long.", at_least=1, at_most=1000)
    heat: float = option(1.5, "How hot.", above=0, below=10, flag="--oven-heat")
    loaves: int | None = option(None, "How many.", at_least=2)
    flour: Literal["rye", "wheat"] = option("rye", "Of what.")
    salted: bool = option(False, "With salt.")
    tins: tuple[str, ...] = option((), "In what.")
    seeds: int = option(0, "On top.", is_newer=True)


@pytest.mark.parametrize(
    ("values", "names"),
    [
        ({"minutes": 0}, ("`minutes`", "1 to 1,000", "0")),
        ({"minutes": True}, ("`minutes`", "whole number", "True")),
        ({"minutes": "3"}, ("`minutes`", "3")),
        ({"heat": 10}, ("`heat`", "above 0 and below 10")),
        ({"heat": math.nan}, ("`heat`", "nan")),
        ({"loaves": 1}, ("`loaves`", "at least 2")),
        ({"flour": "oat"}, ("flour", "'oat'", "rye, wheat")),
        ({"salted": 1}, ("`salted`",)),
    ],
)
def test_a_value_beyond_its_declaration_is_an_error_that_names_the_field(values, names):
    with pytest.raises(UsageError, match=naming(*names)):
        Baking(**values)


def test_options_become_json_and_come_back():
    baking = Baking(minutes=5, tins=("a", "b"))
    document = {**baking.to_dict(), "tins": ["a", "b"]}
    assert Baking.from_dict(document) == baking
    assert "seeds" not in document
    assert Baking(seeds=3).to_dict()["seeds"] == 3
    for malformed, named in (({"yeast": 1}, "yeast"), (-1, "int")):
        with pytest.raises(UsageError, match=named):
            Baking.from_dict(malformed)


def test_options_become_words():
    options = {"minutes": 5, "salted": True, "loaves": None, "tins": ("a", "b"), "heat": 2.0}
    expected = ["--minutes", "5", "--salted", "--tins", "a", "--tins", "b", "--oven-heat", "2.0"]
    assert words(options) == expected
    assert words({"salted": False}) == []


def test_a_flag_follows_from_the_name_unless_a_declaration_names_it():
    assert flag_for("max_bytes") == "--max-bytes"
    assert flag_for("heat") == "--oven-heat"


def test_differences_name_the_field_and_both_values():
    changed = replace(Baking(), minutes=5, loaves=4)
    expected = [("minutes", "20 -> 5"), ("loaves", "unset -> 4")]
    assert list(differences(Baking(), changed)) == expected


def test_a_path_may_be_written_as_text():
    assert AdaptOptions(out="runs/mine", labels=None).out == Path("runs/mine")

from pathlib import Path

import click
import pytest

from captcha_ocr.cli.options import SHARDS, escape, next_command, parse_numbers, parse_size


@pytest.mark.parametrize(("text", "sides"), [("160x60", (160, 60)), ("0160x060", (160, 60)), (None, None)])
def test_a_size_is_a_width_and_a_height(text, sides):
    assert parse_size(None, None, text) == sides


@pytest.mark.parametrize("text", ["160", "160x", "0x60", "160X60", "-1x60", "1.5x60", "160x60x1", "9999999999x1"])
def test_another_size_is_refused_by_name(text):
    with pytest.raises(click.BadParameter, match=text):
        parse_size(None, None, text)


def test_numbers_are_separated_by_the_separator_alone():
    assert parse_numbers("/")(None, None, "80/10/ 10") == (80, 10, 10)
    assert parse_numbers(",")(None, None, None) == ()
    with pytest.raises(click.BadParameter, match="80/10"):
        parse_numbers(",")(None, None, "80/10")


def test_the_next_command_can_be_pasted_into_a_shell():
    assert next_command("train", SHARDS, SHARDS, "--data ") == "captcha-ocr train"
    assert next_command("train", Path("my shards"), SHARDS, "--data ") == "captcha-ocr train --data 'my shards'"
    assert next_command("prepare", Path("-x"), SHARDS) == "captcha-ocr prepare ./-x"


def test_an_escaped_path_is_one_line_that_tells_the_path():
    assert escape("a\nb\\c.png") == "a\\nb\\\\c.png"

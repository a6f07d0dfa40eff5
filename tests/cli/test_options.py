from pathlib import Path

import click
import pytest

from captcha_ocr.cli.options import (
    ARGUMENTS,
    MODEL,
    SHARDS,
    escape,
    given,
    next_command,
    parse_numbers,
    parse_size,
    place,
)
from captcha_ocr.inference.model_folder import PRETRAINED, name_model, resolve_model_name


@pytest.mark.parametrize(
    ("text", "sides"), [("160x60", (160, 60)), ("0160x060", (160, 60)), (None, None)]
)
def test_a_size_is_a_width_and_a_height(text, sides):
    assert parse_size(None, None, text) == sides


@pytest.mark.parametrize(
    "text", ["160", "160x", "0x60", "160X60", "-1x60", "1.5x60", "160x60x1", "9999999999x1"]
)
def test_another_size_is_refused_by_name(text):
    with pytest.raises(click.BadParameter, match=text):
        parse_size(None, None, text)


def test_numbers_are_separated_by_the_separator_alone():
    assert parse_numbers("/")(None, None, "80/10/ 10") == (80, 10, 10)
    assert parse_numbers(",")(None, None, None) == ()
    with pytest.raises(click.BadParameter, match="80/10"):
        parse_numbers(",")(None, None, "80/10")


def test_the_next_command_can_be_pasted_into_a_shell():
    assert next_command("train", *place(SHARDS, SHARDS, "--data")) == "captcha-ocr train"
    assert (
        next_command("train", *place(Path("a b"), SHARDS, "--data"))
        == "captcha-ocr train --data 'a b'"
    )
    assert next_command("prepare", *place(Path("-x"), SHARDS)) == "captcha-ocr prepare ./-x"


@pytest.mark.parametrize(
    "arguments",
    [["--folds", "2", "--strict"], ["--folds=2", "--strict"], ["-x y", "--strict", "--folds", "2"]],
)
def test_the_options_that_were_given_are_returned_as_they_were_given(arguments):
    @click.command()
    @click.argument("name", required=False)
    @click.option("--folds", type=int, default=1)
    @click.option("--strict", is_flag=True)
    @click.option("--seed", default=0)
    def command(**_):
        assert given("folds", "strict", "seed") == ["--folds=2", "--strict"]
        assert given("seed") == []

    words = ["--", "-x y"] if arguments[0].startswith("-x") else []
    options = [word for word in arguments if word != "-x y"]
    with command.make_context("command", [*options, *words]) as context:
        context.meta[ARGUMENTS] = [*options, *words]
        context.invoke(command.callback)


@pytest.mark.parametrize(
    ("value", "folder"),
    [
        ("pretrained", PRETRAINED),
        ("./pretrained", Path("pretrained")),
        ("runs/a", Path("runs/a")),
    ],
)
def test_pretrained_names_the_model_in_the_package(value, folder, monkeypatch):
    assert MODEL.convert(value, None, None) == folder
    assert resolve_model_name(name_model(folder)) == folder
    assert MODEL.convert(folder, None, None) == folder  # a default


def test_an_escaped_path_is_one_line_that_tells_the_path():
    assert escape("a\nb\\c.png") == "a\\nb\\\\c.png"

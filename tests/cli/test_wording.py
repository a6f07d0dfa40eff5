"""Flags stand for fields, and commands work as they stand."""

from dataclasses import dataclass
from pathlib import Path

import click
import pytest
from conftest import invoke

from captcha_ocr.cli.wording import (
    ARGUMENTS,
    escape,
    given_words,
    place,
    with_flags,
    word_command,
    word_error,
)
from captcha_ocr.errors import Advice, Command, UsageError
from captcha_ocr.options.declaration import Options, option
from captcha_ocr.options.shared import SHARDS
from captcha_ocr.system.console import command_line


@dataclass(frozen=True)
class Broiling(Options):
    embers: int = option(20, "How hot.", flag="--oven-heat")


def test_a_field_becomes_its_flag():
    assert with_flags("lower `embers`, or another `out`") == "lower --oven-heat, or another --out"
    assert with_flags("`Not a field` and `") == "`Not a field` and `"


def test_what_the_person_gave_keeps_its_backticks():
    result = invoke("train", "--data", "my `force`")
    assert "my `force`" in result.stderr


def test_a_command_is_worded_as_a_shell_takes_it():
    command = Command("design preview", ("a file",), {"lengths": "4", "force": True, "seed": None})
    assert word_command(command) == "captcha-ocr design preview 'a file' --length 4 --force"


def test_an_error_is_worded_with_the_command_that_helps():
    error = UsageError("there is no `data`", Advice("make it with", Command("generate")))
    assert str(error) == "there is no `data`"
    assert word_error(error) == "there is no --data; make it with: captcha-ocr generate"


def test_the_next_command_can_be_pasted_into_a_shell():
    assert command_line("train", *place(SHARDS, SHARDS, "--data")) == "captcha-ocr train"
    assert (
        command_line("train", *place(Path("a b"), SHARDS, "--data"))
        == "captcha-ocr train --data 'a b'"
    )
    assert command_line("prepare", *place(Path("-x"), SHARDS)) == "captcha-ocr prepare ./-x"


@pytest.mark.parametrize(
    "arguments",
    [
        ["--folds", "2", "--strict"],
        ["--folds=2", "--strict"],
        ["--strict", "--folds=2", "--", "-x"],
    ],
)
def test_the_options_that_were_given_are_returned_as_they_were_given(arguments):
    @click.command()
    @click.argument("name", required=False)
    @click.option("--folds", type=int, default=1)
    @click.option("--strict", is_flag=True)
    @click.option("--seed", default=0)
    def command(**_):
        assert given_words("folds", "strict", "seed") == ["--folds=2", "--strict"]
        assert given_words("seed") == []

    with command.make_context("command", [*arguments]) as context:
        context.meta[ARGUMENTS] = arguments
        context.invoke(command.callback)


def test_an_escaped_path_is_one_line_that_tells_the_path():
    assert escape("a\nb\\c.png") == "a\\nb\\\\c.png"

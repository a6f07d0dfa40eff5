"""The words of next commands."""

from pathlib import Path

import click
import pytest

from captcha_ocr.cli.options import ARGUMENTS, SHARDS
from captcha_ocr.cli.reporting import escape, given_words, next_command, place


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
        assert given_words("folds", "strict", "seed") == ["--folds=2", "--strict"]
        assert given_words("seed") == []

    words = ["--", "-x y"] if arguments[0].startswith("-x") else []
    options = [word for word in arguments if word != "-x y"]
    with command.make_context("command", [*options, *words]) as context:
        context.meta[ARGUMENTS] = [*options, *words]
        context.invoke(command.callback)


def test_an_escaped_path_is_one_line_that_tells_the_path():
    assert escape("a\nb\\c.png") == "a\\nb\\\\c.png"

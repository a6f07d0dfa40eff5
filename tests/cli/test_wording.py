"""The command line prints flags where the library names fields, and commands that work."""

import click

from captcha_ocr.cli.wording import with_flags, word_command, word_error
from captcha_ocr.errors import Advice, Command, UsageError


def test_a_field_becomes_the_flag_of_the_running_command():
    command = click.Command("bake", params=[click.Option(["--oven-heat", "heat"])])
    assert with_flags("a lower `heat`, or another `out`", command) == (
        "a lower --oven-heat, or another --out"
    )
    assert with_flags("`Not a field` and `") == "`Not a field` and `"


def test_a_command_is_worded_as_a_shell_takes_it():
    command = Command("design preview", ("a file",), {"lengths": "4", "force": True, "seed": None})
    assert word_command(command) == "captcha-ocr design preview 'a file' --length 4 --force"


def test_an_error_is_worded_with_the_command_that_helps():
    error = UsageError("there is no `data`", Advice("make it with", Command("generate")))
    assert str(error) == "there is no `data`"
    assert word_error(error) == "there is no --data; make it with: captcha-ocr generate"

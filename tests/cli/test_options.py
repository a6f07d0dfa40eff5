"""Options of click that follow from declarations, and the objects made of what was given."""

from dataclasses import dataclass
from importlib import import_module
from inspect import signature
from pathlib import Path
from typing import Literal

import click
import pytest
from click.testing import CliRunner
from conftest import naming

from captcha_ocr.cli.app import COMMANDS, main
from captcha_ocr.cli.options import DeclaredCommand, Given, takes
from captcha_ocr.errors import UsageError
from captcha_ocr.inference.model_folder import CHINESE, PRETRAINED, name_model, resolve_model_name
from captcha_ocr.options.declaration import Options, declarations, option
from captcha_ocr.options.shared import parse_numbers

for group in COMMANDS:
    import_module(f"captcha_ocr.cli.commands.{group}")


@dataclass(frozen=True)
class Baking(Options):
    minutes: int = option(20, "How long.", at_least=1, at_most=1000)
    flour: Literal["rye", "wheat"] = option("rye", "Of what.")
    salted: bool = option(False, "With salt.")
    tins: tuple[str, ...] = option((), "In what.")
    sides: tuple[int, int] | None = option(None, "How large.")
    parts: tuple[int, ...] = option((1, 2), "Ratios.", shown="1/2", parse=parse_numbers("/"))
    recipe: Path | None = option(None, "From what.", path="model")
    secret: int = option(7)


def run(*words: str) -> tuple[Baking, dict[str, object], str]:
    """Return what a command that takes all of it gets, what of it was given, and its help."""
    seen = []

    @click.command(cls=DeclaredCommand)
    @click.argument("oven", default="")
    @takes(Baking, "minutes", "flour")
    @takes(Baking, "salted", "tins", "sides", "parts", "recipe", section="The rest")
    def bake(oven: str, given: Given) -> None:
        seen.extend([given[Baking], given.values(Baking)])

    result = CliRunner().invoke(bake, words, standalone_mode=False)
    if result.exception is not None:
        raise result.exception
    return *(seen or [Baking(), {}]), result.output


def test_what_was_given_becomes_an_object_and_the_class_has_the_defaults():
    baking, given, _ = run("hot", "--minutes", "5", "--salted", "--tins", "a", "--tins", "b")
    assert given == {"minutes": 5, "salted": True, "tins": ("a", "b")}
    assert baking == Baking(minutes=5, salted=True, tins=("a", "b"))
    baking, *_ = run("--sides", "0160x060", "--parts", "3/ 4", "--flour", "wheat")
    assert baking == Baking(sides=(160, 60), parts=(3, 4), flour="wheat")
    assert run()[:2] == (Baking(), {})


def test_the_help_shows_defaults_and_headings():
    *_, text = run("--help")
    options, rest = text.split("The rest:")
    assert "How long.  [default: 20; 1 to 1,000]" in options
    assert "[rye|wheat]" in options
    assert "Ratios.  [default: 1/2]" in rest
    assert "--help" in options
    assert "secret" not in text


SIZES = ["160", "160x", "0x60", "160X60", "-1x60", "1.5x60", "160x60x1", "9999999999x1"]


@pytest.mark.parametrize(
    ("flag", "text"), [("--parts", "3,4"), *(("--sides", text) for text in SIZES)]
)
def test_what_cannot_be_parsed_is_refused_by_name(flag, text):
    with pytest.raises(UsageError, match=naming(flag, text)):
        run(flag, text)


@pytest.mark.parametrize(
    ("value", "folder"),
    [
        ("pretrained", PRETRAINED),
        ("chinese", CHINESE),
        ("./pretrained", Path("./pretrained")),
        ("runs/a", Path("runs/a")),
    ],
)
def test_a_name_means_a_model_in_the_package(value, folder):
    assert run("--recipe", value)[0].recipe == folder
    assert resolve_model_name(name_model(folder)) == folder


def test_a_name_has_one_flag_in_the_whole_program():
    flags = {}
    for kind in Options.__subclasses__():
        for name, declared in declarations(kind).items():
            if declared.help:
                assert flags.setdefault(name, declared.flag) == declared.flag, (kind, name)


def test_a_command_takes_its_arguments_and_one_object():
    commands = [*main.commands.values(), *main.commands["design"].commands.values()]
    for command in commands:
        arguments = [each.name for each in command.params if isinstance(each, click.Argument)]
        expected = {*arguments, "given"} if isinstance(command, DeclaredCommand) else set()
        assert signature(command.callback).parameters.keys() == expected, command.name

"""How the command line words what the library says: flags for fields, and commands that work as
they stand.
"""

import re

import click

from captcha_ocr.errors import Advice, CaptchaOcrError, Command
from captcha_ocr.options.declaration import flag_for, words
from captcha_ocr.system.console import command_line

_FIELD = re.compile(r"`([a-z][a-z0-9_]*)`")


def with_flags(text: str, running: click.Command | None = None) -> str:
    """Return a text of the library in which a flag stands for each `field`: that of the running
    command, if it has it.

    running: None takes the command of click's context.
    """
    context = click.get_current_context(silent=True)
    if running is None and context is not None:
        running = context.command
    flags = _flags_of(running)

    def name_flag(field: re.Match[str]) -> str:
        return flags.get(field[1]) or flag_for(field[1])

    return _FIELD.sub(name_flag, text)


def word_command(command: Command) -> str:
    """Return a command as a line that works as it stands in a shell."""
    arguments = [str(argument) for argument in command.arguments]
    options = words(command.options, _flags_of(_find(command.name)))
    return command_line(*command.name.split(), *arguments, *options)


def word_advice(advice: Advice) -> str:
    """Return what a command is for, and the command."""
    return f"{advice.purpose}: {word_command(advice.command)}"


def word_error(error: CaptchaOcrError, running: click.Command | None = None) -> str:
    """Return the sentence of an error, with the command that helps."""
    sentence = with_flags(str(error), running)
    return sentence if error.advice is None else f"{sentence}; {word_advice(error.advice)}"


def _find(name: str) -> click.Command | None:
    """Return a command of the program that runs; None where none runs."""
    context = click.get_current_context(silent=True)
    if context is None:
        return None
    group = context.find_root().command
    return group.get_command(context, name) if isinstance(group, click.Group) else None


def _flags_of(command: click.Command | None) -> dict[str, str]:
    flags = {}
    for parameter in command.params if command else ():
        if isinstance(parameter, click.Option) and parameter.name:
            flags[parameter.name] = parameter.opts[0]
    return flags

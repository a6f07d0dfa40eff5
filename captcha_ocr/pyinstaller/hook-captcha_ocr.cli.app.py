"""Bundle the commands, which the command line imports by name."""

from captcha_ocr.cli.app import COMMANDS

hiddenimports = [f"captcha_ocr.cli.commands.{group}" for group in COMMANDS]

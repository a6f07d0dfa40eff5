"""Ctrl-C and SIGTERM during training: the loop saves a checkpoint after the current step and exits."""

import os
import signal
import sys
from types import FrameType

from captcha_ocr.system.signals import Handler, replace_handlers, restore_handlers


class Interruption:
    """A context in which the first SIGINT or SIGTERM only sets `wanted`, and a second SIGINT ends the process at once.

    Ignored signals stay ignored. Outside the main thread nothing changes, since Python handles no signals there.
    """

    def __init__(self) -> None:
        self.wanted: int | None = None
        self.handlers: dict[signal.Signals, Handler] = {}

    def __enter__(self) -> "Interruption":
        self.handlers = replace_handlers(self._handle)
        return self

    def __exit__(self, *error: object) -> None:
        restore_handlers(self.handlers)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.wanted is None:
            self.wanted = number
            write_to_stderr(
                "stopping   after this step, with a checkpoint; Ctrl-C again leaves at once, without one"
            )
        elif number == signal.SIGINT:
            write_to_stderr("captcha-ocr: left at once; the last checkpoint is whole")
            os._exit(130)

    def leave(self, number: int) -> None:
        """Raise KeyboardInterrupt for SIGINT, else SystemExit with 128 + the signal's number."""
        if number == signal.SIGINT:
            raise KeyboardInterrupt
        raise SystemExit(128 + number)


def write_to_stderr(line: str) -> None:
    """Write a line to stderr, not through Python's stream: the signal may have interrupted a write to it."""
    if sys.stderr is not None:
        below_the_bar = "\n" if sys.stderr.isatty() else ""
        os.write(2, f"{below_the_bar}{line}\n".encode())

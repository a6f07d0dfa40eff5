"""Ctrl-C and SIGTERM during a training: the loop leaves at the next step, after a checkpoint."""

import os
import signal
import sys
from types import FrameType, TracebackType

from captcha_ocr.system.signals import Handler, replace_handlers, restore_handlers


class Interruption:
    """A context in which the first SIGINT or SIGTERM only sets `wanted`, and a second SIGINT ends the process at once.

    Signals that were ignored stay ignored. Outside the main thread, where Python handles no signals, nothing changes.
    """

    def __init__(self) -> None:
        self.wanted: int | None = None
        self.handlers: dict[signal.Signals, Handler] = {}

    def __enter__(self) -> "Interruption":
        self.handlers = replace_handlers(self._handle)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        restore_handlers(self.handlers)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.wanted is None:
            self.wanted = number
            tell("stopping   after this step, with a checkpoint; Ctrl-C again leaves at once, without one")
        elif number == signal.SIGINT:
            tell("captcha-ocr: left at once; the last checkpoint is whole")
            os._exit(130)

    def leave(self, number: int) -> None:
        """End as the signal asks: KeyboardInterrupt, or SystemExit with 128 more than its number."""
        if number == signal.SIGINT:
            raise KeyboardInterrupt
        raise SystemExit(128 + number)


def tell(line: str) -> None:
    """Write a line to stderr; not through Python's stream, in whose writing the signal may have come."""
    if sys.stderr is not None:
        below_the_bar = "\n" if sys.stderr.isatty() else ""
        os.write(2, f"{below_the_bar}{line}\n".encode())

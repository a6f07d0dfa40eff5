"""Ctrl-C and SIGTERM during training: after the current step, it saves a checkpoint and exits."""

import os
import signal
import sys
from collections.abc import Iterable, Iterator
from types import FrameType
from typing import TypeVar

from captcha_ocr.system.signals import Handler, replace_handlers, restore_handlers
from captcha_ocr.training.distributed import ProcessGroup

Batch = TypeVar("Batch")


class Interruption:
    """A context in which the first SIGINT or SIGTERM only sets `wanted`.

    A second SIGINT ends the process at once. Ignored signals stay ignored. Outside the main thread
    nothing changes, since Python handles no signals there.
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
            _write_to_stderr(
                "stopping   after this step, with a checkpoint; "
                "Ctrl-C again leaves at once, without one"
            )
        elif number == signal.SIGINT:
            _write_to_stderr("captcha-ocr: left at once; the last checkpoint is whole")
            os._exit(130)

    def leave(self, number: int) -> None:
        """Raise KeyboardInterrupt for SIGINT, else SystemExit with 128 + the signal's number."""
        if number == signal.SIGINT:
            raise KeyboardInterrupt
        raise SystemExit(128 + number)

    def leave_if_agreed(self, group: ProcessGroup, step: int) -> None:
        """Leave if one of the processes has received a signal; all leave at the same step."""
        number = group.agree_on_signal(self.wanted, step)
        if number is not None:
            self.leave(number)


def until_signal(
    batches: Iterable[Batch], group: ProcessGroup, interruption: Interruption
) -> Iterator[Batch]:
    """Yield batches until one of the processes has received a signal.

    All processes agree before each batch. A process with fewer batches waits for the others.
    """
    remaining = iter(batches)
    while True:
        batch = next(remaining, None)
        number, more = group.maximum(interruption.wanted or 0, batch is not None)
        if number:
            interruption.leave(number)
        if not more:
            return
        if batch is not None:  # another process may have more of them
            yield batch


def _write_to_stderr(line: str) -> None:
    """Write a line to stderr.

    Not through Python's stream: the signal may have interrupted a write to it.
    """
    if sys.stderr is not None:
        below_the_bar = "\n" if sys.stderr.isatty() else ""
        os.write(2, f"{below_the_bar}{line}\n".encode())

"""The log of a service: lines that are written in a thread, so that no reader holds it up."""

import threading
from contextlib import suppress
from io import FileIO
from queue import Full, Queue
from typing import Self

_MAX_WAITING = 10_000  # lines that wait to be written; more are dropped
_LAST_S = 1  # how long the last lines may take to be written


class LineLog:
    """Writes lines to an open file in a thread; those that nobody takes are dropped."""

    def __init__(self, descriptor: int) -> None:
        self.lines: Queue[str | None] = Queue(_MAX_WAITING)
        # Unbuffered: Python would wait for a thread that holds a buffer when the process ends.
        self.file = FileIO(descriptor, "w", closefd=False)
        self.thread = threading.Thread(target=self._work, daemon=True)
        self.thread.start()

    def __call__(self, line: str) -> None:
        """Take a line; this never waits."""
        with suppress(Full):
            self.lines.put_nowait(line)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Write what waits, for as long as somebody takes it."""
        with suppress(Full):
            self.lines.put_nowait(None)
        self.thread.join(_LAST_S)

    def _work(self) -> None:
        with suppress(OSError):  # nobody reads it any more, or the disk is full
            while (line := self.lines.get()) is not None:
                self.file.write(line.encode())

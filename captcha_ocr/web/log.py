"""What a service prints: lines that are written in a thread, so that no reader holds it up."""

import threading
from contextlib import suppress
from io import FileIO
from queue import Full, Queue
from typing import Self, TextIO

_MAX_WAITING = 10_000  # lines that wait to be written; more are dropped
_LAST_S = 1  # how long the last lines may take to be written


class LineLog:
    """A stream whose lines a thread writes to an open file; those that nobody takes are dropped."""

    def __init__(self, stream: TextIO | None) -> None:
        self.lines: Queue[str | None] = Queue(_MAX_WAITING)
        # Without the stream's buffer: Python would wait for a thread that holds it when the process
        # ends. A process may have no such stream.
        self.file = None if stream is None else FileIO(stream.fileno(), "w", closefd=False)
        self.thread = threading.Thread(target=self._work, daemon=True)
        self.thread.start()

    def write(self, line: str) -> None:
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
            while self.file is not None and (line := self.lines.get()) is not None:
                self.file.write(line.encode())

"""What a service prints: lines that are written in a thread, so that no reader holds it up."""

import threading
from collections import deque
from contextlib import suppress
from io import FileIO
from typing import Self, TextIO

_MAX_WAITING = 10_000  # lines that wait to be written; the oldest of more are dropped
_PAUSE_S = 0.1  # between two looks: a thread that wakes for each line costs a tenth of the readings
_LAST_S = 1  # how long the last lines may take to be written


class LineLog:
    """A stream whose lines a thread writes to an open file, for as long as somebody takes them."""

    def __init__(self, stream: TextIO | None) -> None:
        self.lines: deque[str] = deque(maxlen=_MAX_WAITING)
        # Without the stream's buffer: Python would wait for a thread that holds it when the process
        # ends. A process may have no such stream.
        self.file = None if stream is None else FileIO(stream.fileno(), "w", closefd=False)
        self.is_closed = threading.Event()
        self.thread = threading.Thread(target=self._work, daemon=True)
        self.thread.start()

    def write(self, line: str) -> None:
        """Take a line; this never waits."""
        self.lines.append(line)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Write what waits."""
        self.is_closed.set()
        self.thread.join(_LAST_S)

    def _work(self) -> None:
        is_last = self.file is None
        with suppress(OSError):  # nobody reads it any more, or the disk is full
            while not is_last:
                is_last = self.is_closed.wait(_PAUSE_S)
                lines = [self.lines.popleft() for _ in range(len(self.lines))]
                if self.file is not None:
                    self.file.write("".join(lines).encode())

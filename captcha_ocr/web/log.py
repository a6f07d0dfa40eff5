"""What a service prints: a line that nobody takes is dropped, so that no reader holds it up."""

import os
import select
from contextlib import suppress
from io import FileIO
from typing import TextIO

_PART = 512  # bytes; POSIX lets every pipe that select calls ready take so many at once


class LineLog:
    """An open stream to which one thread writes lines that it can do without."""

    def __init__(self, stream: TextIO | None) -> None:
        # Without the stream's buffer, whose rest would be written when Python ends. A process may
        # have no such stream.
        self.file = None if stream is None else FileIO(stream.fileno(), "w", closefd=False)

    def write(self, line: str) -> None:
        """Write a line; this never waits for a reader."""
        data = line.encode()
        with suppress(OSError):  # nobody reads it any more, or the disk is full
            for start in range(0, len(data), _PART):
                if self.file is not None and _is_ready(self.file):
                    self.file.write(data[start : start + _PART])


def _is_ready(file: FileIO) -> bool:
    # On Windows select knows no files
    return os.name == "nt" or bool(select.select([], [file], [], 0)[1])

"""Ctrl-C and SIGTERM while training: the run ends with a checkpoint, and can be resumed.

What happens at a SIGTERM, or at the first Ctrl-C:

1. Python calls `Interruption._receive`, which notes the signal. The current step goes on.
2. At the next place where a run can end, the processes agree whether one of them has received a
   signal. Such places are after every step (`leave_after_step`; on several GPUs after every 16th),
   before every batch that is scored (`watch`), and twice a second while drawings are awaited
   (`leave_if_received`).
3. There `leave_if_received` raises SystemExit(143) in all of them, for Ctrl-C KeyboardInterrupt.
4. `train()` catches it, writes the checkpoint `last`, and raises it again. On the way out, what is
   open is closed: the processes that draw, the lock of the run folder, the group of processes.
5. The command line ends with that exit status. The next `train` into that folder resumes.

Before the first epoch, while images are read, the handlers are those of the command line, which end
the process at once: the run has nothing to save yet. `deferred()` holds a signal back while modules
are imported, and `handling(SIG_DFL)` lets it end a process that waits for others to start. After
the last batch of the last test nothing is left to interrupt: the run ends as if no signal had come.
"""

import os
import signal
import sys
from collections.abc import Iterable, Iterator
from types import FrameType
from typing import Any, TypeVar

from captcha_ocr.system.signals import handling
from captcha_ocr.training.distributed import ProcessGroup

_Batch = TypeVar("_Batch")
_STEPS_BETWEEN_CHECKS = 16  # of several processes on an accelerator, where a check waits for it


class Interruption:
    """A context in which the first SIGINT or SIGTERM is only noted, until the run can end.

    A second SIGINT ends the process at once. Ignored signals stay ignored. Outside the main thread
    nothing changes, since Python handles no signals there. received: the signal's number, or 0.
    """

    def __init__(self, group: ProcessGroup) -> None:
        self.group = group
        self.received = 0
        self.handling = handling(self._receive)

    def __enter__(self) -> "Interruption":
        self.handling.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self.handling.__exit__(*error)

    def _receive(self, number: int, frame: FrameType | None) -> None:
        if not self.received:
            self.received = number
            _write_to_stderr(
                "stopping   after this step, with a checkpoint; "
                "Ctrl-C again leaves at once, without one"
            )
        elif number == signal.SIGINT:
            _write_to_stderr("captcha-ocr: left at once; the last checkpoint is whole")
            os._exit(130)

    def leave_if_received(self, *numbers: int) -> list[int]:
        """End the run in all processes if one has received a signal.

        Otherwise return the largest of each number over all processes.
        """
        received, *largest = self.group.maximum(self.received, *numbers)
        if received == signal.SIGINT:
            raise KeyboardInterrupt
        if received:
            raise SystemExit(128 + received)
        return largest

    def leave_after_step(self, step: int) -> None:
        """End the run, as `leave_if_received`; a check that would wait for a GPU comes seldom."""
        waits_for_device = self.group.world_size > 1 and self.group.device.type != "cpu"
        if not waits_for_device or step % _STEPS_BETWEEN_CHECKS == 0:
            self.leave_if_received()

    def watch(self, batches: Iterable[_Batch]) -> Iterator[_Batch]:
        """Yield batches, and end the run before one, as `leave_if_received`.

        A process with fewer batches waits for the others.
        """
        remaining = iter(batches)
        some_have_more = 1
        while some_have_more:
            batch = next(remaining, None)
            (some_have_more,) = self.leave_if_received(batch is not None)
            if batch is not None:
                yield batch


def _write_to_stderr(line: str) -> None:
    # Not through Python's stream: the signal may have interrupted a write to it.
    if sys.stderr is not None:
        below_the_bar = "\n" if sys.stderr.isatty() else ""
        os.write(2, f"{below_the_bar}{line}\n".encode())

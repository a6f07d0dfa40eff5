"""Ctrl-C and SIGTERM while training: the run ends with a checkpoint, and can be resumed.

What happens at a SIGTERM, or at the first Ctrl-C:

1. Python calls `Interruption.receive`, which notes the signal. The current step goes on.
2. At the next place where a run can end, the processes agree whether one of them has received a
   signal. Such places are after every step (`leave_after_step`; on several GPUs after every 16th),
   before every batch that is scored and twice a second while drawings are awaited (`watch`).
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
from typing import TypeVar

from captcha_ocr.training.distributed import ProcessGroup

_Item = TypeVar("_Item")  # batches, or what tells of drawings
_STEPS_BETWEEN_CHECKS = 16  # of several processes on an accelerator, where a check waits for it


class Interruption:
    """A SIGINT or SIGTERM, which is only noted until the run can end; a second SIGINT is not.

    received: the signal's number, or 0.
    """

    def __init__(self, group: ProcessGroup) -> None:
        self.group, self.received = group, 0

    def receive(self, number: int, frame: FrameType | None) -> None:
        """Handle a signal: note the first one, and end the process at once at a second SIGINT."""
        if not self.received:
            self.received = number
            _write_to_stderr(
                "stopping   after this step, with a checkpoint; "
                "Ctrl-C again leaves at once, without one"
            )
        elif number == signal.SIGINT:
            _write_to_stderr("captcha-ocr: left at once; the last checkpoint is whole")
            os._exit(130)

    def leave_if_received(self, has_more: bool = False) -> bool:
        """End the run in all processes if one has received a signal.

        Otherwise tell whether one of them has more to do.
        """
        received, some_have_more = self.group.maximum(self.received, has_more)
        if received:
            raise KeyboardInterrupt if received == signal.SIGINT else SystemExit(128 + received)
        return bool(some_have_more)

    def leave_after_step(self, step: int) -> None:
        """End the run, as `leave_if_received`; a check that would wait for a GPU comes seldom."""
        waits_for_device = self.group.world_size > 1 and self.group.device.type != "cpu"
        if not waits_for_device or step % _STEPS_BETWEEN_CHECKS == 0:
            self.leave_if_received()

    def watch(self, items: Iterable[_Item]) -> Iterator[_Item]:
        """Yield items, and end the run before one, as `leave_if_received`.

        A process with fewer items waits for the others.
        """
        remaining = iter(items)
        item = next(remaining, None)
        while self.leave_if_received(has_more=item is not None):
            if item is not None:
                yield item
            item = next(remaining, None)


def _write_to_stderr(line: str) -> None:
    # Not through Python's stream: the signal may have interrupted a write to it.
    if sys.stderr is not None:
        below_the_bar = "\n" if sys.stderr.isatty() else ""
        os.write(2, f"{below_the_bar}{line}\n".encode())

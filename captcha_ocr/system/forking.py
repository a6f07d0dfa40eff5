"""Let a process fork while its threads compute.

A library that computes holds locks. If another thread forks meanwhile, nobody releases them in the
child, which then waits forever: onnxruntime did so after one fork in some hundred, and torch after
one in ten that came just after the end of a thread that had read.
"""

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_LONGEST_END = 1.0  # s that a thread may take to end


def _wait_for_ending_threads() -> None:
    """Wait until no thread runs that Python does not know, on Linux.

    `Thread.join` returns before the thread has released what libraries keep for it, as torch's MKL
    does under a lock; so do the threads of OpenMP that computed for it.
    """
    latest = time.monotonic() + _LONGEST_END
    known = {str(thread.native_id) for thread in threading.enumerate()}
    for task in Path("/proc/self/task").glob("[0-9]*"):
        while task.name not in known and _is_running(task) and time.monotonic() < latest:
            time.sleep(0.001)


def _is_running(task: Path) -> bool:
    """Tell whether a thread of this process is neither asleep nor gone."""
    try:
        after_name = (task / "stat").read_text().rpartition(") ")[2]
    except OSError:
        return False
    return after_name.startswith("R")


class ForkGuard:
    """A fork waits until no other thread computes, and a thread that wants to compute waits for the
    fork.

    A thread that itself computes may fork in the handler of a signal, which runs between two calls
    of the library.
    """

    def __init__(self) -> None:
        self.reset()
        if hasattr(os, "register_at_fork"):  # not on Windows, which has no fork
            os.register_at_fork(
                before=self.acquire, after_in_parent=self.release, after_in_child=self.reset
            )

    def reset(self) -> None:
        """Start as in a new process."""
        self.gate, self.idle = threading.RLock(), threading.Condition()
        self.computing = set[int]()  # numbers of threads

    def acquire(self) -> None:
        """Let no other thread start to compute, and wait until none computes or ends."""
        own = threading.get_ident()
        self.gate.acquire()
        with self.idle:
            self.idle.wait_for(lambda: self.computing <= {own})
        _wait_for_ending_threads()

    def release(self) -> None:
        """Let threads compute again."""
        self.gate.release()

    @contextmanager
    def __call__(self) -> Iterator[None]:
        """Compute in the block."""
        own = threading.get_ident()
        with self.gate, self.idle:
            self.computing.add(own)
        try:
            yield
        finally:
            with self.idle:
                self.computing.discard(own)  # in a child that was forked meanwhile it is not there
                self.idle.notify_all()


computing = ForkGuard()

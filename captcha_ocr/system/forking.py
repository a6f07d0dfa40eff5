"""Let a process fork while its threads compute.

A library that computes holds locks. If another thread forks meanwhile, nobody releases them in the child, which then
waits forever: onnxruntime did so after one fork in some hundred.
"""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager


class ForkGuard:
    """A fork waits until no thread computes, and a thread that wants to compute waits for the fork."""

    def __init__(self) -> None:
        self.reset()
        if hasattr(os, "register_at_fork"):  # not on Windows, which has no fork
            os.register_at_fork(before=self.acquire, after_in_parent=self.release, after_in_child=self.reset)

    def reset(self) -> None:
        """Start as in a new process."""
        self.gate, self.idle, self.computing = threading.Lock(), threading.Condition(threading.Lock()), 0

    def acquire(self) -> None:
        """Let no thread start to compute, and wait until none computes."""
        self.gate.acquire()
        with self.idle:
            self.idle.wait_for(lambda: self.computing == 0)

    def release(self) -> None:
        """Let threads compute again."""
        self.gate.release()

    @contextmanager
    def __call__(self) -> Iterator[None]:
        """Compute in the block."""
        with self.gate, self.idle:
            self.computing += 1
        try:
            yield
        finally:
            with self.idle:
                self.computing -= 1
                self.idle.notify_all()


computing = ForkGuard()

"""Let a process fork while its threads compute.

A library that computes holds locks. If another thread forks meanwhile, nobody releases them in the
child, which then waits forever: onnxruntime did so after one fork in some hundred.
"""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager


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
        """Let no other thread start to compute, and wait until none computes."""
        own = threading.get_ident()
        self.gate.acquire()
        with self.idle:
            self.idle.wait_for(lambda: self.computing <= {own})

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

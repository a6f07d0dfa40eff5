"""Handle SIGINT and SIGTERM while work must not be interrupted."""

import contextlib
import signal
import threading
from collections.abc import Iterator
from typing import Any

SIGNALS = (signal.SIGINT, signal.SIGTERM)


@contextlib.contextmanager
def handling(handler: Any) -> Iterator[None]:
    """Set a handler in the block for the signals that are not ignored, as `signal.signal` takes it.

    Outside the main thread, where Python handles no signals, nothing changes.
    """
    before = {}
    if threading.current_thread() is threading.main_thread():
        before = {
            number: signal.signal(number, handler)
            for number in SIGNALS
            if signal.getsignal(number) is not signal.SIG_IGN
        }
    try:
        yield
    finally:
        for number, former in before.items():
            signal.signal(number, former)


@contextlib.contextmanager
def deferred() -> Iterator[None]:
    """Delay the signals until the end of the block.

    An exception from a handler would be swallowed by the import of torch or leave torch half
    imported, and would end the process in torch's exporter, which is C++. Blocking the signals is
    not enough: a thread that numpy starts receives those that this thread does not.
    """
    received: dict[int, None] = {}
    try:
        with handling(lambda number, _: received.setdefault(number)):
            yield
    finally:
        for number in received:
            signal.raise_signal(number)


@contextlib.contextmanager
def blocked(*signals: signal.Signals) -> Iterator[None]:
    """Block signals in this thread in the block.

    Processes and threads that start there inherit the mask.
    """
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)

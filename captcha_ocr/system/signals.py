"""Who hears of SIGINT and SIGTERM while something goes on that must not be disturbed, or that would not hear."""

import contextlib
import signal
import threading
from collections.abc import Iterator
from typing import Any

SIGNALS = (signal.SIGINT, signal.SIGTERM)
Handler = Any  # what signal.signal takes and gives


def replace_handlers(handler: Handler) -> dict[signal.Signals, Handler]:
    """Let a handler hear of the signals, but for those that are ignored, and outside the main thread of none.

    Returns the handlers that did before.
    """
    if threading.current_thread() is not threading.main_thread():
        return {}
    return {
        number: signal.signal(number, handler) for number in SIGNALS if signal.getsignal(number) is not signal.SIG_IGN
    }


def restore_handlers(before: dict[signal.Signals, Handler]) -> None:
    """The inverse of `replace_handlers`."""
    for number, handler in before.items():
        signal.signal(number, handler)


@contextlib.contextmanager
def ended_at_once() -> Iterator[None]:
    """Within it the signals end the process as the system does it: where torch waits, Python hears of none."""
    before = replace_handlers(signal.SIG_DFL)
    try:
        yield
    finally:
        restore_handlers(before)


@contextlib.contextmanager
def deferred() -> Iterator[None]:
    """Within it signals wait, until its end: what they raise torch swallows while it is imported, or is left half so,
    and its exporter, in C++, ends the process by it.

    To block them would not do: what numpy imports has a thread of its own, which takes those that this one does not.
    """
    heard: dict[int, None] = {}
    before = replace_handlers(lambda number, _: heard.setdefault(number))
    try:
        yield
    finally:
        restore_handlers(before)
        for number in heard:
            signal.raise_signal(number)


@contextlib.contextmanager
def held(*signals: signal.Signals) -> Iterator[None]:
    """Hold signals back from every process or thread that begins meanwhile, and, until the end, from this thread."""
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)

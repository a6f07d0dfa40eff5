"""Handle SIGINT and SIGTERM while work must not be interrupted."""

import contextlib
import signal
import threading
from collections.abc import Iterator
from typing import Any

SIGNALS = (signal.SIGINT, signal.SIGTERM)
Handler = Any  # what signal.signal takes and returns


def replace_handlers(handler: Handler) -> dict[signal.Signals, Handler]:
    """Set a handler for the signals that are not ignored; return the handlers before.

    Outside the main thread, where Python handles no signals, do nothing and return {}.
    """
    if threading.current_thread() is not threading.main_thread():
        return {}
    return {
        number: signal.signal(number, handler)
        for number in SIGNALS
        if signal.getsignal(number) is not signal.SIG_IGN
    }


def restore_handlers(before: dict[signal.Signals, Handler]) -> None:
    """Undo `replace_handlers`."""
    for number, handler in before.items():
        signal.signal(number, handler)


@contextlib.contextmanager
def default_handlers() -> Iterator[None]:
    """Let the signals end the process in the block, because Python runs no handler while torch
    waits.
    """
    before = replace_handlers(signal.SIG_DFL)
    try:
        yield
    finally:
        restore_handlers(before)


@contextlib.contextmanager
def deferred() -> Iterator[None]:
    """Delay the signals until the end of the block.

    An exception from a handler would be swallowed by the import of torch or leave torch half
    imported, and would end the process in torch's exporter, which is C++. Blocking the signals is
    not enough: a thread that numpy starts receives those that this thread does not.
    """
    received: dict[int, None] = {}
    before = replace_handlers(lambda number, _: received.setdefault(number))
    try:
        yield
    finally:
        restore_handlers(before)
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

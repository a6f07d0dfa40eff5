"""Ctrl-C and SIGTERM as a wish, granted where a run can be saved; a second Ctrl-C ends it at once."""

import os
import signal
import socket
import sys
import threading
from types import TracebackType

from captcha_ocr.system.console import say
from captcha_ocr.system.signals import Handler, replace_handlers, restore_handlers


class Interruption:
    """Within it, the first SIGINT or SIGTERM only sets `wanted`; a second SIGINT ends the process at once.

    A thread hears of the signals through Python's wake-up socket, so even while the main thread is inside a long
    operation of torch. Signals that were ignored stay so; outside the main thread, where Python handles none, and after
    the end everything is as it was.
    """

    def __init__(self) -> None:
        self.wanted: int | None = None

    def __enter__(self) -> "Interruption":
        self.handlers: dict[signal.Signals, Handler] = {}
        if threading.current_thread() is threading.main_thread():
            self.hearing, speaking = socket.socketpair()
            speaking.setblocking(False)
            self.speaking, self.speaking_before = speaking, signal.set_wakeup_fd(speaking.fileno())
            self.handlers = replace_handlers(lambda *_: None)
            self.thread = threading.Thread(target=self._hear, daemon=True)
            self.thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        restore_handlers(self.handlers)
        if threading.current_thread() is threading.main_thread():
            signal.set_wakeup_fd(self.speaking_before)
            self.speaking.close()
            self.thread.join()
            self.hearing.close()

    def _hear(self) -> None:
        while heard := self.hearing.recv(1):
            number = heard[0]
            if number not in self.handlers:
                continue
            if self.wanted is None:
                self.wanted = number
                say("stopping   after this step, with a checkpoint; Ctrl-C once more leaves at once, without one")
            elif number == signal.SIGINT:
                sys.stderr.write("captcha-ocr: left at once; the checkpoint before is as it was\n")
                os._exit(130)

    def leave(self, number: int) -> None:
        """End as the signal asks: KeyboardInterrupt, or SystemExit with 128 more than its number."""
        if number == signal.SIGINT:
            raise KeyboardInterrupt
        raise SystemExit(128 + number)

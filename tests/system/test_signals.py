import os
import signal
import threading

import pytest

from captcha_ocr.system.signals import deferred


@pytest.mark.skipif(os.name != "posix", reason="only POSIX lets a process send itself signals")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_wait_even_if_another_thread_receives_them(number):
    heard, leave = [], threading.Event()
    other = threading.Thread(target=leave.wait)
    other.start()
    before = signal.signal(number, lambda number, _: heard.append(number))
    try:
        with deferred():
            os.kill(os.getpid(), number)
            os.kill(os.getpid(), number)
            assert heard == []
        assert heard == [number]
    finally:
        signal.signal(number, before)
        leave.set()
        other.join()

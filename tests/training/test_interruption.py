import os
import signal
import subprocess
import sys
import threading

import pytest

from captcha_ocr.system.signals import SIGNALS
from captcha_ocr.training.interruption import Interruption

LISTENING = """
import os, signal, sys, time
from captcha_ocr.training.interruption import Interruption
from captcha_ocr.system.signals import SIGNALS
with Interruption() as interruption:
    for number in map(int, sys.argv[1:]):
        os.kill(os.getpid(), number)
        time.sleep(0.5)
    print(interruption.wanted)
"""


def heard(*numbers: int) -> subprocess.CompletedProcess:
    command = [sys.executable, "-c", LISTENING, *map(str, numbers)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize("numbers", [[signal.SIGINT], [signal.SIGTERM], [signal.SIGTERM, signal.SIGTERM]])
def test_a_signal_is_a_wish_and_a_second_sigterm_changes_nothing(numbers):
    result = heard(*numbers)
    assert (result.returncode, result.stdout) == (0, f"{int(numbers[0])}\n")
    assert len(result.stderr.splitlines()) == 1


@pytest.mark.parametrize("first", [signal.SIGINT, signal.SIGTERM])
def test_a_second_ctrl_c_leaves_at_once(first):
    result = heard(first, signal.SIGINT)
    assert (result.returncode, result.stdout) == (130, "")
    assert len(result.stderr.splitlines()) == 2


def test_a_signal_that_was_ignored_stays_so():
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with Interruption() as interruption:
            os.kill(os.getpid(), signal.SIGINT)
        assert interruption.wanted is None
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


def test_afterwards_everything_is_as_it_was():
    before = [signal.getsignal(number) for number in SIGNALS]
    with Interruption():
        assert [signal.getsignal(number) for number in SIGNALS] != before
    assert [signal.getsignal(number) for number in SIGNALS] == before


def test_outside_the_main_thread_signals_are_left_alone():
    before, seen = signal.getsignal(signal.SIGINT), []

    def elsewhere():
        with Interruption():
            seen.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    assert seen == [before]

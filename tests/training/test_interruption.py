import os
import signal
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest

from captcha_ocr.system.signals import SIGNALS, handling
from captcha_ocr.training.interruption import Interruption

from .conftest import ALONE


@contextmanager
def noting():
    """Handle signals as a run does."""
    interruption = Interruption(ALONE)
    with handling(interruption.receive):
        yield interruption


@pytest.mark.parametrize("numbers", [[2], [15], [15, 15], [2, 2], [15, 2]], ids=str)
def test_a_signal_is_a_wish_and_a_second_ctrl_c_leaves_at_once(numbers, monkeypatch, capfd):
    left: list[int] = []
    monkeypatch.setattr(os, "_exit", left.append)
    with noting() as interruption:
        for number in numbers:
            signal.raise_signal(number)
    assert interruption.received == numbers[0]
    assert left == ([130] if numbers[1:] == [signal.SIGINT] else [])
    assert len(capfd.readouterr().err.splitlines()) == 1 + len(left)
    with pytest.raises((KeyboardInterrupt, SystemExit)) as ending:
        interruption.leave_after_step(1)
    assert repr(ending.value) == {2: "KeyboardInterrupt()", 15: "SystemExit(143)"}[numbers[0]]


def test_handlers_come_back_and_signals_that_were_ignored_stay_so():
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        handlers = [signal.getsignal(number) for number in SIGNALS]
        with noting() as interruption:
            assert [signal.getsignal(number) for number in SIGNALS] != handlers
            os.kill(os.getpid(), signal.SIGINT)
        assert interruption.received == 0
        assert [signal.getsignal(number) for number in SIGNALS] == handlers
    finally:
        signal.signal(signal.SIGINT, before)


def test_outside_the_main_thread_signals_are_left_alone():
    def enter_elsewhere():
        with noting():
            return signal.getsignal(signal.SIGINT)

    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(enter_elsewhere).result() is signal.getsignal(signal.SIGINT)

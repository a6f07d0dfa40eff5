import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from captcha_ocr.system.signals import SIGNALS
from captcha_ocr.training.interruption import Interruption

from .conftest import ALONE

LISTENING = """
import os, signal, sys, time
import torch
from captcha_ocr.training.distributed import ProcessGroup
from captcha_ocr.training.interruption import Interruption
from captcha_ocr.system.signals import SIGNALS
with Interruption(ProcessGroup(torch.device("cpu"))) as interruption:
    for number in map(int, sys.argv[1:]):
        os.kill(os.getpid(), number)
        time.sleep(0.5)
    print(interruption.received)
"""


@pytest.mark.parametrize("numbers", [[2], [15], [15, 15], [2, 2], [15, 2]], ids=str)
def test_a_signal_is_a_wish_and_a_second_ctrl_c_leaves_at_once(numbers):
    command = [sys.executable, "-c", LISTENING, *map(str, numbers)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=60)
    leaves = len(numbers) == 2 and numbers[1] == signal.SIGINT
    assert (result.returncode, result.stdout) == ((130, "") if leaves else (0, f"{numbers[0]}\n"))
    assert len(result.stderr.splitlines()) == 1 + leaves


def test_handlers_come_back_and_signals_that_were_ignored_stay_so():
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        handlers = [signal.getsignal(number) for number in SIGNALS]
        with Interruption(ALONE) as interruption:
            assert [signal.getsignal(number) for number in SIGNALS] != handlers
            os.kill(os.getpid(), signal.SIGINT)
        assert interruption.received == 0
        assert [signal.getsignal(number) for number in SIGNALS] == handlers
    finally:
        signal.signal(signal.SIGINT, before)


def test_outside_the_main_thread_signals_are_left_alone():
    def elsewhere():
        with Interruption(ALONE):
            return signal.getsignal(signal.SIGINT)

    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(elsewhere).result() is signal.getsignal(signal.SIGINT)

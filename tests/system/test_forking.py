import os
import signal
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from captcha_ocr.system.forking import ForkGuard


def test_a_fork_waits_for_the_threads_that_compute_and_they_for_it():
    guard, inside, leave, order = ForkGuard(), threading.Event(), threading.Event(), []

    def compute(result):
        with guard():
            inside.set()
            leave.wait()
            order.append(result)

    def fork():
        guard.acquire()
        order.append("forked")
        guard.release()

    with ThreadPoolExecutor(3) as pool:
        pool.submit(compute, "computed")
        inside.wait()
        pool.submit(fork)
        while guard.gate.acquire(blocking=False):
            guard.gate.release()
        pool.submit(compute, "computed again")
        leave.set()
    assert order == ["computed", "forked", "computed again"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_thread_that_computes_may_fork_in_the_handler_of_a_signal():
    guard, codes = ForkGuard(), []

    def fork(*_):
        child = os.fork()
        if child == 0:
            os._exit(7)
        codes.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))

    before = signal.signal(signal.SIGUSR1, fork)
    try:
        with guard():
            os.kill(os.getpid(), signal.SIGUSR1)
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert codes == [7]


def test_an_error_ends_the_computation_and_a_fork_all_others():
    guard = ForkGuard()
    with pytest.raises(ValueError, match="wrong"), guard():
        raise ValueError("wrong")
    guard.acquire()  # for the process, which forks
    guard.computing = {1}  # as where a server in C forks without asking Python
    guard.reset()  # in the child
    guard.acquire()
    guard.release()

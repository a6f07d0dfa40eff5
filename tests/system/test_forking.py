import os
import signal
import threading

import pytest

from captcha_ocr.system.forking import ForkGuard


def test_a_fork_waits_for_the_threads_that_compute_and_they_for_it():
    guard, inside, leave, order = ForkGuard(), threading.Event(), threading.Event(), []

    def compute():
        with guard():
            inside.set()
            leave.wait()
            order.append("computed")

    def fork():
        guard.acquire()
        order.append("forked")
        guard.release()

    def compute_later():
        with guard():
            order.append("computed again")

    threads = [threading.Thread(target=each) for each in (compute, fork, compute_later)]
    threads[0].start()
    inside.wait()
    threads[1].start()
    while guard.gate.acquire(blocking=False):
        guard.gate.release()
    threads[2].start()
    leave.set()
    for thread in threads:
        thread.join()
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
        with guard():
            pass
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert codes == [7]


def test_an_error_ends_the_computation():
    guard = ForkGuard()
    with pytest.raises(ValueError, match="wrong"), guard():
        raise ValueError("wrong")
    guard.acquire()
    guard.release()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="Windows has no fork")
def test_the_child_of_a_thread_that_computes_may_compute():
    guard = ForkGuard()
    guard.computing = 1  # as where a server in C forks without asking Python
    guard.reset()
    guard.acquire()
    guard.release()

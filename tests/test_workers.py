import gc
import itertools
import os
import threading
import weakref

import pytest

from captcha_ocr.errors import CaptchaOcrError
from captcha_ocr.workers import SLICE, available_workers, map_in_threads, map_jobs


def process_of(job):
    return os.getpid()


@pytest.mark.parametrize("workers", [1, 2])
def test_results_come_in_the_order_of_the_jobs(workers):
    assert list(map_jobs(str, range(20), workers)) == [str(number) for number in range(20)]


def test_one_worker_is_this_very_process():
    assert set(map_jobs(process_of, [1, 2], 1)) == {os.getpid()}


def test_one_job_is_done_in_this_very_process():
    assert list(map_jobs(process_of, [1], 8)) == [os.getpid()]


def test_two_workers_are_other_processes():
    assert os.getpid() not in set(map_jobs(process_of, [1, 2], 2))


def test_no_jobs_have_no_results():
    assert list(map_jobs(str, [], 2)) == []


def test_jobs_are_not_done_ahead_by_one_worker():
    done = []
    next(map_jobs(done.append, ["first", "second"], 1))
    assert done == ["first"]


@pytest.mark.parametrize("workers", [1, 2])
def test_the_error_of_a_job_reaches_the_caller(workers):
    with pytest.raises(ValueError, match="'x'"):
        list(map_jobs(int, ["1", "x"], workers))


def test_a_worker_that_dies_is_an_error_that_says_so():
    with pytest.raises(CaptchaOcrError, match="--workers"):
        list(map_jobs(os._exit, [1, 1], 2))


def test_the_caller_may_stop_early():
    results = map_jobs(str, range(100), 2)
    assert next(results) == "0"
    results.close()
    assert list(results) == []


def texts(numbers):
    return [str(number) for number in numbers]


@pytest.mark.parametrize("count", [0, 1, 64, 65, 1000])
def test_threads_give_results_in_the_order_of_the_jobs(count):
    assert list(map_in_threads(texts, range(count))) == texts(range(count))


def test_as_many_slices_are_at_work_as_there_are_processors(monkeypatch):
    monkeypatch.setattr("captcha_ocr.workers.available_workers", lambda: 3)
    monkeypatch.setattr("captcha_ocr.workers.MOMENT", 3600)
    all_at_work = threading.Barrier(3, timeout=60)  # each slice waits for the others: none may come after another

    def thread_of(jobs):
        all_at_work.wait()
        return [threading.get_ident()] * len(jobs)

    threads = list(map_in_threads(thread_of, range(3 * SLICE)))
    assert [len(set(threads[first : first + SLICE])) for first in (0, SLICE, 2 * SLICE)] == [1, 1, 1]
    assert len(set(threads)) == 3


def test_a_slow_source_is_not_waited_for_until_a_slice_is_full(monkeypatch):
    monkeypatch.setattr("captcha_ocr.workers.MOMENT", -1)
    taken = itertools.count()
    assert next(map_in_threads(texts, taken, threads=2)) == "0"
    assert next(taken) == 4  # one is used, and three are at work or next


@pytest.mark.parametrize("count", [0, 10, 1000])
def test_an_error_among_the_jobs_comes_after_the_results_before_it(count):
    def jobs():
        yield from range(count)
        raise RuntimeError("no more")

    results = map_in_threads(texts, jobs(), threads=2)
    assert list(itertools.islice(results, count)) == texts(range(count))
    with pytest.raises(RuntimeError, match="no more"):
        next(results)


def test_jobs_without_end_are_taken_a_few_slices_ahead(monkeypatch):
    monkeypatch.setattr("captcha_ocr.workers.MOMENT", 3600)
    taken = itertools.count()
    results = map_in_threads(texts, taken, threads=2)
    assert list(itertools.islice(results, 3)) == ["0", "1", "2"]
    results.close()
    assert next(taken) == 4 * SLICE  # one is used, and three are at work or next


def test_an_iterator_left_halfway_may_be_collected_by_a_thread_of_its_own(monkeypatch):
    errors = []
    monkeypatch.setattr("sys.unraisablehook", errors.append)
    left, collected = threading.Event(), threading.Event()

    def collect(numbers):
        if numbers[0]:
            assert left.wait(60)
            gc.collect()
            collected.set()
        return texts(numbers)

    results = map_in_threads(collect, range(3 * SLICE), threads=2)
    assert next(results) == "0"
    ring = [results]
    ring.append(ring)  # counting references does not free it
    gone = weakref.ref(results)
    gc.disable()  # but for the thread, which asks for it
    try:
        del results, ring
        left.set()
        assert collected.wait(60)
    finally:
        gc.enable()
    assert gone() is None
    assert not errors


def test_the_error_of_a_job_in_a_thread_reaches_the_caller():
    with pytest.raises(ValueError, match="'x'"):
        list(map_in_threads(lambda some: list(map(int, some)), ["1", "2", "x", "3"]))


def test_there_is_a_processor_to_work_with():
    assert available_workers() >= 1

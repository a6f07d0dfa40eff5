import os

import pytest

from captcha_ocr.errors import CaptchaOcrError
from captcha_ocr.workers import available_workers, map_jobs


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
    with pytest.raises(CaptchaOcrError, match="a worker process was killed"):
        list(map_jobs(os._exit, [1, 1], 2))


def test_the_caller_may_stop_early():
    results = map_jobs(str, range(100), 2)
    assert next(results) == "0"
    results.close()
    assert list(results) == []


def test_there_is_a_processor_to_work_with():
    assert available_workers() >= 1

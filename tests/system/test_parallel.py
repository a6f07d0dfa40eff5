import errno
import gc
import itertools
import multiprocessing.connection
import multiprocessing.synchronize
import os
import signal
import threading
import time
import weakref

import pytest

from captcha_ocr.errors import CaptchaOcrError, UsageError
from captcha_ocr.system.parallel import JOBS_PER_SLICE, Workers, map_in_threads, map_jobs


def with_process(job):
    return job, os.getpid()


def texts(numbers):
    return [str(number) for number in numbers]


@pytest.mark.parametrize(("jobs", "workers"), [([], 2), ([1], 8), ([1, 2], 1)])
def test_one_worker_or_job_needs_no_other_process(jobs, workers):
    assert list(map_jobs(with_process, jobs, workers)) == [(job, os.getpid()) for job in jobs]


@pytest.mark.parametrize(
    "code", [errno.EROFS, errno.ENOSPC, errno.ENOSYS, errno.EACCES, errno.ENOENT, errno.EMFILE]
)
def test_one_process_works_where_the_system_has_no_semaphores(monkeypatch, capsys, code):
    def refuse(*_):
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(multiprocessing.synchronize._multiprocessing, "SemLock", refuse)
    with Workers(2) as workers:
        results = workers.start(with_process, range(3))
        assert [results.wait(seconds) for seconds in (0, 60)] == [3, 0]
        assert list(results) == [(job, os.getpid()) for job in range(3)]
    (line,) = capsys.readouterr().err.splitlines()
    assert all(word in line for word in ("/dev/shm", "2", os.strerror(code)))


def test_one_worker_does_no_job_ahead():
    done = []
    next(map_jobs(done.append, ["first", "second"], 1))
    assert done == ["first"]


def test_two_workers_are_other_processes_and_may_be_stopped_early():
    results = map_jobs(with_process, range(100), 2)
    first = list(itertools.islice(results, 20))
    assert [job for job, _ in first] == list(range(20))
    assert os.getpid() not in {process for _, process in first}
    results.close()
    assert list(results) == []


@pytest.mark.parametrize(
    "start",
    [
        lambda: map_jobs(int, "1x", 1),
        lambda: map_jobs(int, "1x", 2),
        lambda: map_in_threads(lambda some: [*map(int, some)], "1x"),
    ],
    ids=["this process", "processes", "threads"],
)
def test_the_error_of_a_job_reaches_the_caller(start):
    with pytest.raises(ValueError, match="'x'"):
        list(start())


def wait_for_file(path):
    """Wait for a file, unless it is none; return the process."""
    while path != "none" and not path.exists():
        time.sleep(0.01)
    return os.getpid()


def niceness(_):
    return os.getpid(), os.nice(0)


@pytest.mark.skipif(not hasattr(os, "nice"), reason="needs nice")
def test_workers_stay_for_the_next_jobs_and_yield_to_other_processes():
    with Workers(1, niceness=19) as workers:
        found = [process for _ in range(2) for process in workers.start(niceness, range(3))]
    assert set(found) == {(found[0][0], 19)}
    assert os.nice(0) < 19


def test_who_waits_does_the_jobs_that_no_worker_has_begun(tmp_path):
    with Workers(1) as workers:
        results = workers.start(wait_for_file, [tmp_path / "file", *["none"] * 20])
        assert results.wait(0) == 21
        while results.wait(0.1) > 3:  # the worker has the first, and keeps up to two others
            pass
        (tmp_path / "file").touch()
        assert results.wait(60) == 0
        assert {*results} >= {os.getpid()}


def test_workers_that_were_killed_take_no_more_jobs():
    with Workers(1) as workers:
        for function in (os._exit, str):
            with pytest.raises(CaptchaOcrError, match="`workers`"):
                list(workers.start(function, [1]))


def end_other_process(job):
    """Touch the file in one process; in others, end when it is there."""
    process, path = job
    if os.getpid() != process:
        wait_for_file(path)
        os._exit(1)
    path.touch()
    time.sleep(0.01)


def send_a_part(share):
    """Be killed halfway through sending a result."""

    def send(connection, data):
        os.write(connection.fileno(), bytes(data)[: int(len(data) * share)])
        os.kill(os.getpid(), signal.SIGKILL)

    multiprocessing.connection.Connection._send = send
    return bytes(10**6)


@pytest.mark.skipif(os.name != "posix", reason="no such signal there")
@pytest.mark.parametrize("share", [0.01, 0.3, 0.5, 0.99])
def test_a_worker_that_is_killed_while_it_sends_ends_the_work(share, monkeypatch):
    monkeypatch.setattr("captcha_ocr.system.parallel._SENDING_S", 0.1)
    with pytest.raises(CaptchaOcrError, match="killed"), Workers(2) as workers:
        list(workers.start(send_a_part, [share] * 8))


def send_while_another_is_killed(file):
    """Kill another worker, which waits for a job, halfway through sending a result."""

    def send(connection, data):
        half = len(data) // 2
        write(connection, data[:half])
        if half > 2:  # else it is the length of the result
            os.kill(other, signal.SIGKILL)
            time.sleep(2)  # the pool is looked after every second
        write(connection, data[half:])

    while not file.exists():
        time.sleep(0.01)
    other = int(file.read_text())
    write = multiprocessing.connection.Connection._send
    multiprocessing.connection.Connection._send = send
    return b"\x7f" * 10**6


def work_beside(job):
    file, is_other = job
    if not is_other:
        return send_while_another_is_killed(file)
    temporary = file.with_suffix(".new")
    temporary.write_text(str(os.getpid()))
    return temporary.rename(file).name.encode()


@pytest.mark.skipif(os.name != "posix", reason="no such signal there")
def test_the_result_of_a_worker_is_whole_while_another_is_killed(tmp_path):
    with Workers(2) as workers:
        jobs = [(tmp_path / "pid", False), (tmp_path / "pid", True)]
        assert list(workers.start(work_beside, jobs)) == [b"\x7f" * 10**6, b"pid"]
        # Python's pool would not end if it were closed before it has seen the loss
        with pytest.raises(CaptchaOcrError, match="killed"):
            list(workers.start(abs, [1, 2]))


def test_who_does_jobs_while_it_waits_hears_of_a_killed_worker(tmp_path):
    with Workers(2) as workers, pytest.raises(CaptchaOcrError, match="`workers`"):
        workers.start(end_other_process, [(os.getpid(), tmp_path / "file")] * 1000).finish()


@pytest.mark.parametrize("workers", [0, 1])
def test_results_that_were_taken_are_not_waited_for(workers):
    with Workers(workers) as pool:
        results = pool.start(with_process, range(9))
        first = next(results)
        assert [job for job, _ in [first, *results.finish()]] == list(range(9))
        assert results.wait(0) == 0


def test_as_many_slices_run_at_a_time_as_there_are_processors(monkeypatch):
    monkeypatch.setattr("captcha_ocr.system.parallel.available_workers", lambda: 3)
    monkeypatch.setattr("captcha_ocr.system.parallel._MAX_WAIT_S", 3600)
    all_at_work = threading.Barrier(3, timeout=60)  # each slice waits for the others

    def thread_of(jobs):
        all_at_work.wait()
        return [threading.get_ident()] * len(jobs)

    threads = list(map_in_threads(thread_of, range(3 * JOBS_PER_SLICE)))
    assert [threads.count(thread) for thread in {*threads}] == [JOBS_PER_SLICE] * 3


@pytest.mark.parametrize(
    ("moment", "slice_length"),
    [(-1, 1), (3600, JOBS_PER_SLICE)],
    ids=["slow source", "fast source"],
)
def test_an_endless_source_is_read_a_few_slices_ahead(monkeypatch, moment, slice_length):
    monkeypatch.setattr("captcha_ocr.system.parallel._MAX_WAIT_S", moment)
    source = itertools.count()
    results = map_in_threads(texts, source, threads=2)
    assert next(results) == "0"
    results.close()
    assert next(source) == 4 * slice_length  # one is used, and three are at work or next


@pytest.mark.parametrize("count", [0, 1, 64, 65, 1000])
def test_threads_give_results_in_order_and_then_the_error_of_the_source(count):
    def jobs():
        yield from range(count)
        raise RuntimeError("no more")

    assert list(map_in_threads(texts, range(count))) == texts(range(count))
    results = map_in_threads(texts, jobs(), threads=2)
    assert list(itertools.islice(results, count)) == texts(range(count))
    with pytest.raises(RuntimeError, match="no more"):
        next(results)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_an_iterator_that_another_process_began_is_refused_at_once():
    results = map_in_threads(lambda some: some, iter(range(1000)))
    next(results)
    child = os.fork()
    if child == 0:
        try:
            next(results)
        except UsageError as error:
            os._exit(7 if "process" in str(error) else 8)
        os._exit(9)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    assert len(list(results)) == 999


def test_a_thread_of_an_abandoned_iterator_may_collect_it(monkeypatch):
    errors = []
    monkeypatch.setattr("sys.unraisablehook", errors.append)
    left, collected = threading.Event(), threading.Event()

    def collect(numbers):
        if numbers[0]:
            assert left.wait(60)
            gc.collect()
            collected.set()
        return texts(numbers)

    results = map_in_threads(collect, range(3 * JOBS_PER_SLICE), threads=2)
    assert next(results) == "0"
    ring = [results]
    ring.append(ring)  # counting references does not free it
    gone = weakref.ref(results)
    gc.disable()  # only the thread collects
    try:
        del results, ring
        left.set()
        assert collected.wait(60)
    finally:
        gc.enable()
    assert gone() is None
    assert not errors

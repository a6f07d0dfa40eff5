"""Map a function over jobs in processes or threads; the results come in the order of the jobs."""

import os
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent import futures
from contextlib import AbstractContextManager, contextmanager, suppress
from itertools import islice
from typing import Any, Generic, TypeVar

from captcha_ocr.errors import CaptchaOcrError, check
from captcha_ocr.system.console import say
from captcha_ocr.system.processors import available_workers
from captcha_ocr.system.signals import blocked, deferred

_Job = TypeVar("_Job")
_Result = TypeVar("_Result")

JOBS_PER_SLICE = 64  # at most, as a thread finishes its slice after Ctrl-C
_MAX_WAIT_S = 0.05  # that a slice waits for more jobs from a slow source
_JOBS_PER_WORKER = 2  # that it has: one is done while the next one comes
_WATCHED_S, _SENDING_S = 1.0, 3.0  # between two looks at the workers; for a result at most
_PIPE_BYTES = 2**16  # that a pipe takes
_TELL_S = 0.2  # after so long, who waits for results hears how many are missing


def map_in_threads(
    function: Callable[[list[_Job]], list[_Result]],
    jobs: Iterable[_Job],
    threads: int | None = None,
) -> Generator[_Result, None, None]:
    """Yield a result for each job, in order.

    `function` gets slices of jobs, and the threads are some slices ahead.

    Passing small jobs, such as files, to a thread one by one would take longer than to do them. An
    error in `jobs` is raised after the results of the jobs before it. A forked process has none of
    the threads: it gets a UsageError.
    """
    threads, process = threads or available_workers(), os.getpid()
    slices = _cut_slices(jobs)
    first = list(islice(slices, threads + 1))

    def work(some: list[_Job] | Exception) -> list[_Result]:
        if isinstance(some, Exception):
            raise some
        return function(some)

    if len(first) < 2:
        for some in first:  # to start a thread would take longer than to read a file
            yield from work(some)
        return
    pool = futures.ThreadPoolExecutor(threads)
    try:
        results = deque(pool.submit(work, some) for some in first)
        while results:
            result = results.popleft().result()
            results.extend(pool.submit(work, some) for some in islice(slices, 1))
            for each in result:
                yield each
                check(
                    os.getpid() == process,
                    "an iterator of readings belongs to the process that began it",
                )
    finally:
        # Waiting could deadlock: any thread, also one of these, may collect a generator that was
        # left halfway.
        pool.shutdown(wait=False, cancel_futures=True)


def _cut_slices(jobs: Iterable[_Job]) -> Iterator[list[_Job] | Exception]:
    """Yield slices of jobs; an error of their source comes as the last one."""
    some: list[_Job] = []
    started, failure = time.monotonic(), None
    try:
        for job in jobs:
            some.append(job)
            if len(some) == JOBS_PER_SLICE or time.monotonic() - started > _MAX_WAIT_S:
                yield some
                some, started = [], time.monotonic()
    except Exception as error:
        failure = error
    yield from filter(None, [some, failure])


class Workers(AbstractContextManager["Workers"]):
    """Worker processes for several series of jobs; `with` or `close` ends them.

    This process works alone if there are to be 0; also, and it says so, where the system has no
    semaphores for others (/dev/shm is read-only or full, or AWS Lambda). niceness: by how much they
    yield to other processes, 0 to 19.
    """

    def __init__(self, workers: int, niceness: int = 0) -> None:
        self.workers = workers
        self.pool: futures.Executor | None = None
        if workers == 0:
            return
        import multiprocessing  # reading one image starts no process, and would take longer

        try:
            self.pool = futures.ProcessPoolExecutor(
                workers,
                multiprocessing.get_context("spawn"),  # the same everywhere, and safe with threads
                initializer=_prepare_worker,
                initargs=(niceness,),
            )
        except OSError as error:
            reason = error.strerror or error
            say(f"one process instead of {workers}: /dev/shm takes no semaphores ({reason})")
        self.is_closed = threading.Event()
        threading.Thread(target=self._watch, daemon=True).start()

    def _watch(self) -> None:
        """Complete the result of a worker that was killed while it sent it, so that it is damaged.

        Python's pool would wait for the rest for ever, and hear no signal. Such a worker keeps the
        lock of those that send; the results of the others stay whole.
        """
        pool: Any = self.pool
        if pool is None:
            return
        results = pool._result_queue
        # On Windows, where a result is sent as a whole, there is no lock
        while results._wlock is not None and not self.is_closed.wait(_WATCHED_S):
            if not any(process.exitcode for process in [*(pool._processes or {}).values()]):
                continue
            if results._wlock.acquire(timeout=_SENDING_S):
                results._wlock.release()
                continue
            with suppress(OSError):
                os.write(results._writer.fileno(), bytes(_PIPE_BYTES))

    def start(
        self, function: Callable[[_Job], _Result], jobs: Iterable[_Job]
    ) -> "JobResults[_Job, _Result]":
        """Start jobs, and return their results, which come in the order of the jobs."""
        return JobResults(self, function, jobs)

    def close(self) -> None:
        """End the workers after the jobs that they are doing; the jobs after these are not done."""
        if self.pool is not None:
            with deferred():  # a second Ctrl-C here would leave workers that wait for jobs forever
                self.pool.shutdown(cancel_futures=True)
            self.is_closed.set()

    def __exit__(self, *error: object) -> None:
        self.close()


class JobResults(Iterator[_Result], Generic[_Job, _Result]):
    """The results of a series of jobs, in order; CaptchaOcrError if a worker is killed.

    The workers get the first jobs, a few at a time. While this process waits,
    it does the last ones. It never cancels a job to do it itself: a pool that loses a worker stops
    at a cancelled job with a traceback, and its jobs never end.
    """

    def __init__(
        self, workers: Workers, function: Callable[[_Job], _Result], jobs: Iterable[_Job]
    ) -> None:
        self.pool, self.function, self.jobs = workers.pool, function, list(jobs)
        self.taken = 0
        self.open = deque(range(len(self.jobs)))  # the numbers of the jobs that nobody has
        self.futures: dict[int, futures.Future[_Result]] = {}  # of the others, until taken
        self.lock = threading.Lock()  # for both
        with _translate_killed_workers():
            for _ in range(workers.workers * _JOBS_PER_WORKER):
                self._hand_out()

    def __next__(self) -> _Result:
        if self.taken == len(self.jobs):
            raise StopIteration
        number, self.taken = self.taken, self.taken + 1
        with _translate_killed_workers():
            if number not in self.futures:
                self._hand_out()
            if number in self.futures:
                return self.futures.pop(number).result()
        return self.function(self.jobs[self.open.popleft()])  # there are no workers

    def _hand_out(self) -> None:
        """Give the first open job to the workers, if there are any of both."""
        # A worker that starts here inherits the blocked signal. This process defers it as well,
        # because another of its threads may receive it meanwhile.
        with deferred(), blocked(signal.SIGINT), self.lock:
            if self.pool is None or not self.open:
                return
            future = self.pool.submit(self.function, self.jobs[self.open[0]])
            self.futures[self.open.popleft()] = future

        def hand_out_next(done: "futures.Future[_Result]") -> None:
            if not done.cancelled() and not _lost_worker(done):
                # The pool was closed, has lost a worker, or cannot start one
                with suppress(RuntimeError, OSError):
                    self._hand_out()

        future.add_done_callback(hand_out_next)

    def finish(self, tell: Callable[[int], None] = lambda missing: None) -> list[_Result]:
        """Return all results that are left, with the help of this process.

        `tell` hears how many are missing.
        """
        while missing := self.wait(_TELL_S):
            tell(missing)
        return list(self)

    def wait(self, seconds: float) -> int:
        """Wait at most so long for all results; return how many are not there yet.

        Meanwhile this process does open jobs, the last ones first: workers that yield to other
        programs may get little time.
        """
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            with self.lock:
                if not self.open:
                    break
                number = self.open.pop()
            result = self.function(self.jobs[number])
            self.futures[number] = futures.Future()
            self.futures[number].set_result(result)
        done = futures.wait(self.futures.values(), max(0.0, end - time.monotonic())).done
        with _translate_killed_workers():
            for future in filter(_lost_worker, done):
                future.result()
        return len(self.jobs) - self.taken - len(done)


def _lost_worker(done: "futures.Future[_Result]") -> bool:
    return isinstance(done.exception(), futures.BrokenExecutor)


@contextmanager
def _translate_killed_workers() -> Iterator[None]:
    try:
        yield
    except futures.BrokenExecutor:
        raise CaptchaOcrError(
            "a worker process was killed; try fewer `workers` or more memory"
        ) from None


def map_jobs(
    function: Callable[[_Job], _Result], jobs: Sequence[_Job], workers: int | None = None
) -> Iterator[_Result]:
    """Yield `function(job)` for each job, in order.

    One worker means this process. CaptchaOcrError if one is killed.

    `function` must be a function of a module, since the workers are new processes.
    """
    with Workers(processes_for(len(jobs), workers)) as pool:
        yield from pool.start(function, jobs)


def processes_for(jobs: int, workers: int | None = None) -> int:
    """Return how many other processes do so many jobs.

    0 means this one. workers: at most, None as many as useful.
    """
    processes = min(workers or available_workers(), jobs)
    return processes if processes > 1 else 0


def _prepare_worker(niceness: int) -> None:
    """Ignore Ctrl-C, which the parent handles, and end with the parent even if it is killed."""
    from multiprocessing import parent_process

    def end_with_parent() -> None:
        if (parent := parent_process()) is not None:
            parent.join()
            os._exit(1)

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=end_with_parent, daemon=True).start()
    if niceness and hasattr(os, "nice"):
        os.nice(niceness)

"""Work spread over processes or threads: a function mapped over jobs, the results in the order of the jobs."""

import os
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from itertools import islice
from typing import TypeVar

from captcha_ocr.errors import CaptchaOcrError, UsageError
from captcha_ocr.system.signals import deferred, held

Job = TypeVar("Job")
Result = TypeVar("Result")

SLICE = 64  # jobs that a thread takes at a time, at most: those it has are still done after Ctrl-C
MOMENT = 0.05  # seconds that a thread waits for further jobs of a slow source before it does those it has


def rank_and_world_size() -> tuple[int, int]:
    """Which of how many processes this one is, where torchrun, or a launcher like it, started several for one task.

    UsageError where what such a launcher sets cannot be.
    """
    words = os.environ.get("RANK", "0"), os.environ.get("WORLD_SIZE", "1")
    try:
        count = int(words[1])
        rank = int(words[0]) if count > 1 else 0
        if not 0 <= rank < max(1, count):
            raise ValueError
    except ValueError:
        raise UsageError(
            f"WORLD_SIZE={words[1]} and RANK={words[0]} in the environment should be torchrun's numbers"
        ) from None
    return rank, max(1, count)


def available_workers() -> int:
    """The number of processors that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def map_in_threads(
    function: Callable[[list[Job]], list[Result]], jobs: Iterable[Job], threads: int | None = None
) -> Generator[Result, None, None]:
    """Yield a result for each job in order; `function` does a slice of them, and the threads are some slices ahead.

    Handed over one by one, small jobs such as files would take longer to pass from thread to thread than to do. What
    `jobs` raises is raised after the results of those before it.
    """
    threads = threads or available_workers()
    slices = Slices(jobs)
    first = list(islice(slices, threads + 1))
    if len(first) < 2:
        for some in first:  # a new thread would take longer to start than a file to do
            yield from function(some)
        slices.raise_error()
        return
    from concurrent.futures import ThreadPoolExecutor

    pool = ThreadPoolExecutor(threads)
    try:
        results = deque(pool.submit(function, some) for some in first)
        while results:
            result = results.popleft().result()
            results.extend(pool.submit(function, some) for some in islice(slices, 1))
            yield from result
        slices.raise_error()
    finally:
        # What nobody waits for any more is not begun. What has begun is not waited for: an iterator left halfway
        # may be collected by any thread, one of these too, and none can wait for itself.
        pool.shutdown(wait=False, cancel_futures=True)


class Slices(Iterator[list[Job]]):
    """Jobs, some at a time; an error among them ends them, and is kept."""

    def __init__(self, jobs: Iterable[Job]) -> None:
        self.jobs = iter(jobs)
        self.error: Exception | None = None

    def __next__(self) -> list[Job]:
        some: list[Job] = []
        begun = time.monotonic()
        try:
            for job in self.jobs:
                some.append(job)
                if len(some) == SLICE or time.monotonic() - begun > MOMENT:
                    break
        except Exception as error:
            self.jobs, self.error = iter(()), error
        if not some:
            raise StopIteration
        return some

    def raise_error(self) -> None:
        """Raise what ended the jobs, if it was an error."""
        if self.error is not None:
            raise self.error


def map_jobs(function: Callable[[Job], Result], jobs: Sequence[Job], workers: int | None = None) -> Iterator[Result]:
    """Yield `function(job)` for each job in order; one worker means this very process.

    `function` is a module's own function and jobs are small: both travel to fresh processes
    ("spawn": the same on every system, and safe beside threads).
    """
    workers = min(workers or available_workers(), len(jobs))
    if workers <= 1:
        yield from map(function, jobs)
        return
    # Not at the top, for what reads one image starts no process: a seventh of its time would go there.
    import multiprocessing
    from concurrent.futures import ProcessPoolExecutor
    from concurrent.futures.process import BrokenProcessPool

    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(workers, context, initializer=_prepare_worker)
    try:
        # All workers start here, and inherit that it is held. This process waits, too: what a worker is to do it hands
        # over when that has started, and another thread than this one may hear of the signal.
        with deferred(), held(signal.SIGINT):
            results = deque(pool.submit(function, job) for job in jobs)
        # Not pool.map: it cancels futures behind the executor's back, which ends in a traceback
        # or for ever waiting where a worker was killed by the same signal.
        while results:
            yield results.popleft().result()
    except BrokenProcessPool:
        raise CaptchaOcrError("a worker process was killed; try fewer --workers or more memory") from None
    finally:
        pool.shutdown(cancel_futures=True)


def _prepare_worker() -> None:
    """Leave Ctrl-C to the parent, and end with it even where it is killed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    from multiprocessing import parent_process

    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)

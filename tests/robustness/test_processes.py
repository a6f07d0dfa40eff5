"""A Recognizer reads in forked and new processes, in threads and with asyncio as it does alone."""

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from itertools import cycle, islice

import pytest
from conftest import MOST_GROWTH_MB, resident_mb

from captcha_ocr import Recognizer

SCRIPT = r"""
import asyncio, json, multiprocessing, os, signal, sys, threading, warnings
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor

from captcha_ocr import Recognizer

warnings.simplefilter("ignore", DeprecationWarning)  # of Python 3.12, for a fork beside threads


def text(path):
    return recognizer.predict(path).text


def in_fork(read):
    output, input = os.pipe()
    if not (child := os.fork()):
        signal.alarm(60)
        try:
            os.write(input, read().encode())
        finally:
            os._exit(0)
    os.close(input)
    with open(output, "rb") as stream:
        found = stream.read().decode()
    os.waitpid(child, 0)
    return found


def many():
    return ",".join(sorted({reading.text for reading in recognizer.predict([paths[0]] * 100)}))


def in_pool(method, function, workers):
    with multiprocessing.get_context(method).Pool(workers) as pool:
        results = pool.map_async(function, paths).get(60)
        return ",".join(getattr(result, "text", result) for result in results)


def in_executor():
    with ProcessPoolExecutor(1, multiprocessing.get_context("fork")) as pool:
        return pool.submit(recognizer.predict, paths[0]).result(60).text


def in_threads():
    with ThreadPoolExecutor(4) as pool:
        return ",".join(pool.map(text, paths))


def while_another_thread_reads():
    stop = threading.Event()

    def read():
        while not stop.is_set():
            text(paths[0])

    thread = threading.Thread(target=read)
    thread.start()
    try:
        return ",".join(sorted({in_fork(lambda: text(paths[0])) for _ in range(5)}))
    finally:
        stop.set()
        thread.join()


async def with_asyncio():
    found = await asyncio.gather(*(asyncio.to_thread(text, path) for path in paths))
    return ",".join(found)


if __name__ == "__main__":
    engine, *paths = sys.argv[1:]
    recognizer = Recognizer(engine=engine)
    ways = {
        "before it was used": lambda: in_fork(lambda: text(paths[0])),
        "used": lambda: text(paths[0]),
        "after it was used": lambda: in_fork(lambda: text(paths[0])),
        "many images": lambda: in_fork(many),
        "a fork of a fork": lambda: in_fork(lambda: in_fork(lambda: text(paths[0]))),
        "made after the fork": lambda: in_fork(
            lambda: Recognizer(engine=engine).predict(paths[0]).text
        ),
        "read in a thread of the fork": lambda: in_fork(in_threads),
        "while another thread reads": while_another_thread_reads,
        "forked Pool, its method": lambda: in_pool("fork", recognizer.predict, 2),
        "forked Pool, a function": lambda: in_pool("fork", text, 2),
        "forked ProcessPoolExecutor": in_executor,
        "Pool of new processes": lambda: in_pool("spawn", recognizer.predict, 1),
        "threads": in_threads,
        "asyncio": lambda: asyncio.run(with_asyncio()),
    }
    print(json.dumps({way: read() for way, read in ways.items()}))
"""
ALL = (
    "forked Pool, its method",
    "forked Pool, a function",
    "Pool of new processes",
    "threads",
    "asyncio",
    "read in a thread of the fork",
)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="Windows has no fork")
@pytest.mark.parametrize("engine", ["onnx", "torch"])
def test_every_process_reads_what_one_reads(images, tmp_path, engine):
    (tmp_path / "read.py").write_text(SCRIPT)
    paths = [str(path) for path in sorted(images.glob("*.png"))[:4]]
    done = subprocess.run(
        [sys.executable, tmp_path / "read.py", engine, *paths],
        # With one thread, torch has no other to wait for. Passive ones do not spin while they wait.
        env={**os.environ, "OMP_NUM_THREADS": "2", "OMP_WAIT_POLICY": "passive"},
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert done.returncode == 0, done.stderr
    texts = [reading.text for reading in Recognizer(engine=engine).predict(paths)]
    ways = json.loads(done.stdout)
    assert ways == {way: ",".join(texts) if way in ALL else texts[0] for way in ways}


@pytest.mark.parametrize("engine", ["onnx", "torch"])
def test_eight_threads_read_what_one_reads(exported, images, soak, figure, engine):
    recognizer = Recognizer(None if soak else exported, engine=engine)
    files = [path.read_bytes() for path in sorted(images.glob("*.png"))]
    rounds, reads = (10, 10_000) if soak else (2, 500)
    alone, memory = cycle([recognizer.predict(file) for file in files]), []
    expected = [
        (reading.text, pytest.approx(reading.confidence, abs=1e-5))
        for reading in islice(alone, reads)
    ]
    with ThreadPoolExecutor(8) as pool:
        for _ in range(rounds):
            together = pool.map(recognizer.predict, islice(cycle(files), reads))
            assert [(reading.text, reading.confidence) for reading in together] == expected
            memory.append(resident_mb() if soak else 0.0)
    growth = memory[-1] - memory[0]
    figure(
        f"{rounds * reads:,} reads, as by one thread; {growth:.1f} MB more than after the first "
        f"{reads:,}"
    )
    assert growth < MOST_GROWTH_MB

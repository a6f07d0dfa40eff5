"""A Recognizer reads in forked and in new processes, in threads and with asyncio what it reads alone."""

import json
import os
import subprocess
import sys

import pytest

from captcha_ocr import Recognizer

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="Windows has no fork")

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
    return ",".join(sorted({reading.text for reading in recognizer.predict([paths[0]] * 200)}))


def in_pool(method, function):
    with multiprocessing.get_context(method).Pool(2) as pool:
        return ",".join(getattr(found, "text", found) for found in pool.map_async(function, paths).get(60))


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
        return ",".join(sorted({in_fork(lambda: text(paths[0])) for _ in range(10)}))
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
        "made after the fork": lambda: in_fork(lambda: Recognizer(engine=engine).predict(paths[0]).text),
        "read in a thread of the fork": lambda: in_fork(in_threads),
        "while another thread reads": while_another_thread_reads,
        "forked Pool, its method": lambda: in_pool("fork", recognizer.predict),
        "forked Pool, a function": lambda: in_pool("fork", text),
        "forked ProcessPoolExecutor": in_executor,
        "Pool of new processes": lambda: in_pool("spawn", recognizer.predict),
        "threads": in_threads,
        "asyncio": lambda: asyncio.run(with_asyncio()),
    }
    print(json.dumps({way: read() for way, read in ways.items()}))
"""
ONE = (
    "before it was used",
    "used",
    "after it was used",
    "many images",
    "a fork of a fork",
    "made after the fork",
)
ONE += ("while another thread reads", "forked ProcessPoolExecutor")
ALL = (
    "forked Pool, its method",
    "forked Pool, a function",
    "Pool of new processes",
    "threads",
    "asyncio",
)
ALL += ("read in a thread of the fork",)


@pytest.fixture(scope="module", params=["onnx", "torch"])
def read(request, images, tmp_path_factory) -> tuple[dict[str, str], list[str]]:
    """What each way of SCRIPT reads, and the texts of one process."""
    script = tmp_path_factory.mktemp("script") / "read.py"
    script.write_text(SCRIPT)
    paths = [str(path) for path in sorted(images.glob("*.png"))[:4]]
    threads = {"OMP_NUM_THREADS": "2"}  # with one, torch has no other thread to wait for
    done = subprocess.run(
        [sys.executable, script, request.param, *paths],
        env={**os.environ, **threads},
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout), [
        reading.text for reading in Recognizer(engine=request.param).predict(paths)
    ]


@pytest.mark.parametrize("way", ONE)
def test_one_image_is_read_in_every_process(read, way):
    found, texts = read
    assert found[way] == texts[0]


@pytest.mark.parametrize("way", ALL)
def test_all_images_are_read_in_every_process(read, way):
    found, texts = read
    assert found[way] == ",".join(texts)

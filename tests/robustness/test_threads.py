"""Eight threads that share one Recognizer read the codes that one thread reads, and memory does not grow."""

from concurrent.futures import ThreadPoolExecutor
from itertools import cycle, islice

import pytest
from conftest import MOST_GROWTH_MB, resident_mb

from captcha_ocr import Recognizer


@pytest.mark.parametrize("engine", ["onnx", "torch"])
def test_eight_threads_read_what_one_reads(images, soak, figure, engine):
    recognizer = Recognizer(engine=engine)
    files = [path.read_bytes() for path in sorted(images.glob("*.png"))]
    alone = [recognizer.predict(file) for file in files]
    rounds, reads = (10, 10_000) if soak else (2, 100)
    expected, memory = list(islice(cycle(alone), reads)), []
    with ThreadPoolExecutor(8) as pool:
        for _ in range(rounds):
            together = list(pool.map(recognizer.predict, islice(cycle(files), reads)))
            assert [reading.text for reading in together] == [reading.text for reading in expected]
            confidences = [reading.confidence for reading in together]
            assert confidences == pytest.approx(
                [reading.confidence for reading in expected], abs=1e-5
            )
            memory.append(resident_mb() if soak else 0.0)
    growth = memory[-1] - memory[0]
    figure(
        f"{rounds * reads:,} reads, as by one thread; {growth:.1f} MB more than after the first {reads:,}"
    )
    assert growth < MOST_GROWTH_MB

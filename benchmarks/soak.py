"""100,000 reads from 8 threads: are all codes right, and does memory stay where it is?

    python benchmarks/soak.py

Right is what one thread read beforehand. Memory is that of the process after each tenth of the reads.
"""

import argparse
import tempfile
from concurrent.futures import ThreadPoolExecutor
from itertools import cycle, islice
from pathlib import Path

from captcha_ocr import Recognizer
from captcha_ocr.config import GeneratorConfig
from captcha_ocr.synth import generate

ROUNDS = 10


def resident_mb() -> float:
    """The memory that this process holds now (Linux)."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1e3 for line in lines if line.startswith("VmRSS"))


def main() -> None:
    """Read, and print a line a round."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--reads", type=int, default=100_000)
    parser.add_argument("--threads", type=int, default=8)
    parser.add_argument("--model", type=Path, help="the default is the model in the package")
    parser.add_argument("--engine", default="auto")
    arguments = parser.parse_args()
    recognizer = Recognizer(arguments.model, engine=arguments.engine)
    with tempfile.TemporaryDirectory() as folder:
        generate(GeneratorConfig(count=1000, seed=9), Path(folder))
        files = [path.read_bytes() for path in sorted(Path(folder).glob("*.png"))]
    expected = [recognizer.predict(file).code for file in files]
    each, wrong = arguments.reads // ROUNDS, 0
    print(f"before: {resident_mb():.1f} MB")
    with ThreadPoolExecutor(arguments.threads) as pool:
        for number in range(1, ROUNDS + 1):
            codes = pool.map(lambda file: recognizer.predict(file).code, islice(cycle(files), each))
            wrong += sum(code != right for code, right in zip(codes, cycle(expected), strict=False))
            print(f"{number * each:,} reads, {wrong} read otherwise than by one thread, {resident_mb():.1f} MB")


if __name__ == "__main__":
    main()

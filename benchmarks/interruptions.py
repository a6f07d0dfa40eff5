"""Does a training that was interrupted end as one that was not? Runs are ended in the midst and resumed, and compared.

    python benchmarks/interruptions.py [--kills 50] [--signals 20] [--seed 0]

--kills runs are ended by SIGKILL: half of them at any moment, half inside the saving, which is to say just before one
of the operations by which `train` changes files and folders. --signals runs each are ended by SIGINT and by SIGTERM.
Every run is then started again with the same command, and the weights and the optimiser's state with which it ends have
to be, byte for byte, those of a run that nobody touched. The last line is one JSON object, with the longest time from
one of those two signals to the end; exit 1 if a run ended otherwise.
"""

import argparse
import json
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from bench import OCR, end_cleanly, hardware, output_of, versions

from captcha_ocr.files import sha256

# `train` as it is, but for a checkpoint several times a second and the shortest trial beforehand.
TRAIN = """
import sys
import captcha_ocr.train
from captcha_ocr.cli import main
captcha_ocr.train.SECONDS_BETWEEN_CHECKPOINTS, captcha_ocr.train.TRIAL_SECONDS = 0.3, 0.0
main()
"""
# Before it: ends itself at the Nth operation that changes a file or folder; at the end says how many there were.
DYING = """
import atexit, os, signal, sys
last, done = int(sys.argv.pop()), 0
def watch(event, arguments):
    global done
    writing = event == "open" and "w" in (arguments[1] or "")
    if writing or event in ("os.rename", "os.mkdir", "os.rmdir", "os.remove"):
        done += 1
        if done == last:
            os.kill(os.getpid(), signal.SIGKILL)
sys.addaudithook(watch)
atexit.register(lambda: print(done))
"""
NEVER = 10**9
COMPARED = ("best/model.safetensors", "last/model.safetensors", "last/optimizer.safetensors")
IMAGES = ["--count", "800", "--length", "2", "--charset", "digits", "--size", "48x16", "--font-sizes", "14"]


class Trial:
    """One run folder and the command that trains in it."""

    def __init__(self, scratch: Path, name: str) -> None:
        self.out = scratch / name
        options = ["--epochs", "4", "--batch-size", "32", "--device", "cpu", "--quiet"]
        self.options = ["train", "--data", str(scratch / "shards"), "--out", str(self.out), *options]

    def start(self, dying_at: int | None = None) -> subprocess.Popen[str]:
        """Start training; it ends itself at an operation on files where one is named."""
        code = TRAIN if dying_at is None else DYING + TRAIN
        command = [sys.executable, "-c", code, *self.options, *([] if dying_at is None else [str(dying_at)])]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def wait_for_training(self, process: subprocess.Popen[str]) -> None:
        """Wait until the first step is about to be made."""
        while process.poll() is None and not (self.out / "metrics.jsonl").exists():
            time.sleep(0.02)

    def interrupt(self, way: str, seconds: float, operations: int, chance: random.Random) -> tuple[int, float]:
        """Start, and end it in a way, after at most so many seconds of training or operations on files.

        Returns the exit status, and the seconds from the signal to the end.
        """
        inside = way == "inside the saving"
        with self.start(chance.randint(1, operations) if inside else None) as process:
            if not inside:
                self.wait_for_training(process)
                time.sleep(chance.uniform(0, seconds))
                process.send_signal(getattr(signal, way))
            sent = time.monotonic()
            process.communicate()
        return process.returncode, time.monotonic() - sent

    def has_finished(self) -> bool:
        """Whether the run has come to its end."""
        file = self.out / "run.json"
        return file.exists() and json.loads(file.read_bytes())["finished"] is not None

    def finish(self) -> list[str]:
        """Train to the end, and give the hashes."""
        with self.start() as process:
            _, errors = process.communicate()
        if process.returncode:
            sys.exit(f"{self.out.name} did not go on: {(errors.strip() or 'no word why').splitlines()[-1]}")
        return self.hashes()

    def hashes(self) -> list[str]:
        """The hashes of what is compared."""
        return [sha256((self.out / name).read_bytes()) for name in COMPARED]


def measure_whole_run(trial: Trial) -> tuple[list[str], float, int]:
    """A run that nobody touches: its hashes, the seconds that it trains and its number of operations on files."""
    with trial.start(NEVER) as process:
        trial.wait_for_training(process)
        started = time.monotonic()
        output, _ = process.communicate()
    seconds = time.monotonic() - started
    return trial.hashes(), seconds, int(output.splitlines()[-1])


def interrupt_runs(scratch: Path, arguments: argparse.Namespace) -> dict[str, Any]:
    """End runs, each in a folder of its own, resume them and compare."""
    output_of([*OCR, "generate", *IMAGES, "--quiet", "--out", str(scratch / "images")])
    output_of(
        [*OCR, "prepare", "--size", "48x16", "--quiet", str(scratch / "images"), "--out", str(scratch / "shards")]
    )
    chance = random.Random(arguments.seed)
    expected, seconds, operations = measure_whole_run(Trial(scratch, "whole"))
    ways = ["inside the saving"] * (arguments.kills // 2) + ["SIGKILL"] * (arguments.kills - arguments.kills // 2)
    ways += ["SIGINT", "SIGTERM"] * arguments.signals
    document: dict[str, Any] = {"runs": len(ways), "identical": 0, "too_late": 0, "longest_s": 0.0}
    for number, way in enumerate(ways, 1):
        trial = Trial(scratch, f"run {number}, {way}")
        status, took = trial.interrupt(way, seconds, operations, chance)
        while trial.has_finished():  # it came too late, perhaps at Python's own end: once more, sooner or later
            document["too_late"] += 1
            shutil.rmtree(trial.out)
            status, took = trial.interrupt(way, seconds, operations, chance)
        wanted = {"SIGINT": 130, "SIGTERM": 143}.get(way, -signal.SIGKILL)
        if status != wanted:
            sys.exit(f"{trial.out.name} ended with exit status {status} and not {wanted}")
        if way in ("SIGINT", "SIGTERM"):
            document["longest_s"] = max(document["longest_s"], took)
        same = trial.finish() == expected
        document["identical"] += same
        print(f"{trial.out.name}: exit status {status}, {'identical' if same else 'NOT identical'}", file=sys.stderr)
        shutil.rmtree(trial.out)
    return document | {"versions": versions(), "hardware": hardware("cpu")}


def main() -> None:
    """Parse the arguments, end runs and compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--signals", type=int, default=20, help="each of SIGINT and SIGTERM")
    parser.add_argument("--seed", type=int, default=0, help="of the moments")
    arguments = parser.parse_args()
    end_cleanly()
    with tempfile.TemporaryDirectory() as scratch:
        document = interrupt_runs(Path(scratch), arguments)
    print(json.dumps(document))
    sys.exit(0 if document["identical"] == document["runs"] else 1)


if __name__ == "__main__":
    main()

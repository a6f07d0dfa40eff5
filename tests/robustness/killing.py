"""Commands in processes of their own that are ended in the midst, at any moment or inside the saving."""

import contextlib
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

# `captcha-ocr` as it is, but for a checkpoint several times a second and the shortest trial beforehand.
BETWEEN_CHECKPOINTS_S = 0.3
COMMAND = f"""
import sys
if sys.argv[1] == "train":
    from captcha_ocr.training import loop, train
    loop.SECONDS_BETWEEN_CHECKPOINTS, train.TRIAL_SECONDS = {BETWEEN_CHECKPOINTS_S}, 0.0
from captcha_ocr.cli.app import main
main()
"""
# Before it: ends itself just before the Nth operation that changes files or folders; else says how many there were.
DYING = """
import atexit, os, signal, sys
last, done = int(sys.argv.pop()), 0
def watch(event, arguments):
    global done
    writing = event == "open" and ("w" in (arguments[1] or "") or "+" in (arguments[1] or ""))
    if writing or event in ("os.rename", "os.mkdir", "os.rmdir", "os.remove"):
        done += 1
        if done == last:
            os.kill(os.getpid(), signal.SIGKILL)
sys.addaudithook(watch)
atexit.register(lambda: print(done, file=sys.stderr))
"""
NEVER = 10**9


class Command:
    """A captcha-ocr command, and what is there once its work has begun."""

    def __init__(self, arguments: list[str], begun: Callable[[], bool]) -> None:
        self.arguments, self.begun = arguments, begun

    def start(self, dying_at: int | None = None) -> subprocess.Popen[str]:
        """Start it; it ends itself at an operation on files where one is named."""
        code = COMMAND if dying_at is None else DYING + COMMAND
        words = [sys.executable, "-c", code, *self.arguments, *([] if dying_at is None else [str(dying_at)])]
        return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def finish(self) -> None:
        """Let it come to its end, which has to be a good one."""
        with self.start() as process:
            _, errors = process.communicate()
        assert process.returncode == 0, errors

    def measure(self, watched: Path) -> tuple[float, int, float]:
        """How many seconds it works, by how many operations on files, and for how long it leaves a file as it is."""
        with self.start(NEVER) as process:
            self.wait(process)
            begun = time.time()
            moments = [begun]
            while process.poll() is None:
                with contextlib.suppress(FileNotFoundError):
                    moments.append(max(moments[-1], watched.stat().st_mtime))
                time.sleep(0.002)
            _, errors = process.communicate()
        assert process.returncode == 0, errors
        return time.time() - begun, int(errors.splitlines()[-1]), max(b - a for a, b in pairwise(moments))

    def wait(self, process: subprocess.Popen[str]) -> None:
        """Wait until its work has begun."""
        while process.poll() is None and not self.begun():
            time.sleep(0.005)

    def kill_inside_saving(self, operations: int, chance: random.Random) -> int:
        """Let it end itself just before one of so many operations on files; its exit status."""
        with self.start(chance.randint(1, operations)) as process:
            process.communicate()
        return process.returncode

    def end_at_any_moment(
        self, number: signal.Signals, seconds: float, chance: random.Random
    ) -> tuple[int, float, float]:
        """Send a signal within so many seconds of its work, or as many as there are.

        Its exit status, the seconds that it worked, and those from the signal to its end.
        """
        with self.start() as process:
            self.wait(process)
            begun = time.monotonic()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(chance.uniform(0, seconds))
            sent = time.monotonic()
            process.send_signal(number)
            process.communicate()
        return process.returncode, sent - begun, time.monotonic() - sent


def contents(folder: Path) -> dict[str, bytes]:
    """Every file in a folder, by its path there."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}

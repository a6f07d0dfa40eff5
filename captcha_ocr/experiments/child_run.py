"""Run commands of this program in child processes, which whoever started them can end."""

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial

from captcha_ocr.errors import CaptchaOcrError, check
from captcha_ocr.options.declaration import words

_WATCHED_S = 1.0  # between two looks at a command that runs


class Stopped(CaptchaOcrError):
    """A command was ended, or not begun, because `ChildRuns.stop` was called."""


class ChildRuns:
    """The commands of this program that run; several threads may use it.

    niceness: by how much the priority of each is lowered.
    """

    def __init__(self, niceness: int = 0) -> None:
        self.niceness = niceness
        self.processes: set[subprocess.Popen[bytes]] = set()
        self.lock, self.is_stopped = threading.Lock(), False

    def run_command(
        self,
        name: str,
        arguments: Sequence[object] = (),
        options: Mapping[str, object] = {},
        watch: Callable[[], None] = lambda: None,
    ) -> None:
        """Run a command until it ends; options: by the names of their fields, such as `max_bytes`.

        watch: called every second meanwhile.
        CaptchaOcrError with the last line of a command that fails; Stopped if `stop` ended it.
        """
        with self.lock:
            check(not self.is_stopped, "stopped", Stopped)
            process = subprocess.Popen(
                [sys.executable, "-m", "captcha_ocr", name, *map(str, arguments), *words(options)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                preexec_fn=partial(os.nice, self.niceness) if self.niceness else None,
            )
            self.processes.add(process)
        while True:
            with suppress(subprocess.TimeoutExpired):
                _, errors = process.communicate(timeout=_WATCHED_S)
                break
            watch()
        with self.lock:
            self.processes.discard(process)
        if process.returncode != 0:
            check(not self.is_stopped, "stopped", Stopped)
            last_line = errors.decode("utf-8", "replace").strip().rpartition("\n")[2]
            raise CaptchaOcrError(last_line.removeprefix("captcha-ocr: "))

    def stop(self) -> None:
        """End the commands that run, and begin no more."""
        with self.lock:
            self.is_stopped = True
            for process in self.processes:
                process.terminate()

"""Progress on stderr: a bar on a terminal, a plain line now and then elsewhere."""

import sys
import time
from types import TracebackType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tqdm import tqdm

SECONDS_BETWEEN_LINES = 30.0
SECONDS_BETWEEN_NOTES = 0.5


def say(line: str, quiet: bool = False) -> None:
    """Write one line to stderr, above the bar if there is one; nothing where it is to be quiet."""
    if not quiet and sys.stderr is not None:
        from tqdm import tqdm  # a reader is installed without it

        tqdm.write(line, file=sys.stderr)


def duration(seconds: float) -> str:
    """Seconds as people say them: `42 s`, `6 min 05 s`, `2 h 10 min`."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


def counted(number: int, noun: str) -> str:
    """`1 epoch`, `2 epochs`, `1,000 processes`."""
    ending = "es" if noun.endswith("s") else "s"
    return f"{number:,} {noun}{'' if number == 1 else ending}"


class ProgressBar:
    """Counts images: `show` says how many of how many are done, `note` a few words beside it."""

    def __init__(self, name: str, quiet: bool = False) -> None:
        self.name, self.quiet, self.text = name, quiet, ""
        self.started = self.last_line = self.last_note = time.monotonic()
        self.first: int | None = None  # what was there at the first `show`: no part of the rate
        self.bar: tqdm[Any] | None = None

    def __enter__(self) -> "ProgressBar":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.bar is not None:
            self.bar.close()

    def show(self, done: int, total: int) -> None:
        """Show that `done` of `total` images are done."""
        if self.quiet or sys.stderr is None:
            return
        if self.first is None:
            self.first, self.started = done, time.monotonic()
        if sys.stderr.isatty():
            if self.bar is None:
                from tqdm import tqdm

                self.bar = tqdm(
                    initial=done,
                    total=total,
                    desc=self.name,
                    unit=" images",
                    leave=False,
                    file=sys.stderr,
                    dynamic_ncols=True,
                )
            self.bar.update(done - self.bar.n)
        elif done > self.first and time.monotonic() - self.last_line > SECONDS_BETWEEN_LINES:
            self.last_line = time.monotonic()
            rate = (done - self.first) / (self.last_line - self.started)
            line = f"{self.name}: {done:,} of {total:,}, {rate:,.0f} images/s, {duration((total - done) / rate)} left"
            say(f"{line} {self.text}".rstrip())

    def wants_note(self) -> bool:
        """Whether it is time for another `note`: asking the device for its figures makes it wait."""
        now = time.monotonic()
        if self.quiet or now - self.last_note < SECONDS_BETWEEN_NOTES:
            return False
        self.last_note = now
        return True

    def note(self, text: str) -> None:
        """Show a few words beside the bar, and in the next plain line."""
        self.text = text
        if self.bar is not None:
            self.bar.set_postfix_str(text, refresh=False)

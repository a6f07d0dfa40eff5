"""What is known about font files, kept between runs: a file in the user's cache folder.

The cache saves time and nothing else. One that is missing, damaged, foreign or cannot be written is
ignored.
"""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from PIL import features

from captcha_ocr.errors import CaptchaOcrError
from captcha_ocr.system.documents import read_sealed, sealed
from captcha_ocr.system.files import write_atomic

FORMAT = "captcha-ocr faces"
VERSION = 1  # raise it when `survey.examine` finds something else

KINDS = [
    int,
    int,
    str,
    str,
    str,
    str,
    bool,
]  # of an entry: size and time of the file, and the facts about it

Facts = list[Any]


def cache_file() -> Path:
    """Return the file of the cache: `captcha-ocr/faces.json` in $XDG_CACHE_HOME, or in ~/.cache."""
    folder = os.environ.get("XDG_CACHE_HOME", "")
    # The standard of the variable says that a relative path is to be ignored.
    parent = Path(folder) if os.path.isabs(folder) else Path(os.path.expanduser("~")) / ".cache"
    return parent / "captcha-ocr" / "faces.json"


class FaceCache:
    """Facts about files by their paths; those of a file that has changed are not found."""

    def __init__(self) -> None:
        self.path = cache_file()
        self.changed = False
        self.entries: dict[str, Any] = {}
        # Which pixels are drawn, and so which characters look alike, depends on FreeType.
        self.freetype = str(features.version("freetype2"))
        with contextlib.suppress(CaptchaOcrError):
            document = read_sealed(self.path, FORMAT, VERSION)
            entries = document.get("faces")
            if document.get("freetype") == self.freetype and isinstance(entries, dict):
                self.entries = entries

    def get(self, path: str, status: os.stat_result) -> Facts | None:
        """Return the facts about a file; None if they are not known."""
        entry = self.entries.get(path)
        if not isinstance(entry, list) or [type(value) for value in entry] != KINDS:
            return None
        return entry[2:] if entry[:2] == [status.st_size, status.st_mtime_ns] else None

    def put(self, path: str, status: os.stat_result, facts: Facts) -> None:
        """Remember the facts about a file, JSON values.

        Not if its path is no text, which JSON cannot hold.
        """
        with contextlib.suppress(UnicodeEncodeError):
            path.encode()
            self.entries[path] = [status.st_size, status.st_mtime_ns, *facts]
            self.changed = True

    def save(self) -> None:
        """Write the file if something has changed; forget the files that no longer exist."""
        if self.changed and self.path.is_absolute():  # it is not if the user has no home
            entries = {path: entry for path, entry in self.entries.items() if os.path.exists(path)}
            document = {
                "format": FORMAT,
                "version": VERSION,
                "freetype": self.freetype,
                "faces": entries,
            }
            with contextlib.suppress(OSError, CaptchaOcrError):
                self.path.parent.mkdir(parents=True, exist_ok=True)
                write_atomic(self.path, sealed(document), durable=False)


@contextlib.contextmanager
def face_cache() -> Iterator[FaceCache]:
    """Open the cache, and save it at the end, also after an error."""
    cache = FaceCache()
    try:
        yield cache
    finally:
        cache.save()

"""What is known about font files, kept between runs: a file in the user's cache folder.

The cache saves time and nothing else. One that is missing, damaged, foreign or cannot be written is
ignored.
"""

import contextlib
import os
from pathlib import Path
from typing import Any

from PIL import features

from captcha_ocr.errors import CaptchaOcrError
from captcha_ocr.system.documents import read_sealed, sealed
from captcha_ocr.system.files import write_atomic

_FORMAT = "captcha-ocr faces"
_VERSION = 1  # raise it when `survey.examine` finds something else, or the facts have other types


class FaceCache:
    """Facts about files by their paths; those of a file that has changed are not found.

    path: of the cache, `captcha-ocr/faces.json` in $XDG_CACHE_HOME, or in ~/.cache.
    """

    def __init__(self) -> None:
        folder = os.environ.get("XDG_CACHE_HOME", "")
        if not os.path.isabs(folder):  # the standard of the variable says that it is to be ignored
            folder = os.path.join(os.path.expanduser("~"), ".cache")
        self.path = Path(folder, "captcha-ocr", "faces.json")
        # Which pixels are drawn, and so which characters look alike, depends on FreeType.
        self._freetype = str(features.version("freetype2"))
        self._changed = False
        self._entries: dict[str, Any] = {}  # size and time of the file, and the facts about it
        with contextlib.suppress(CaptchaOcrError):
            document = read_sealed(self.path, _FORMAT, _VERSION)
            if document["freetype"] == self._freetype:
                self._entries = document["faces"]

    def get(self, path: str, status: os.stat_result) -> list[Any] | None:
        """Return the facts about a file; None if they are not known."""
        entry = self._entries.get(path, [])
        return entry[2:] if entry[:2] == [status.st_size, status.st_mtime_ns] else None

    def put(self, path: str, status: os.stat_result, facts: list[Any]) -> None:
        """Remember the facts about a file, JSON values.

        Not if its path is no text, which JSON cannot hold.
        """
        with contextlib.suppress(UnicodeEncodeError):
            path.encode()
            self._entries[path] = [status.st_size, status.st_mtime_ns, *facts]
            self._changed = True

    def close(self) -> None:
        """Write the file if something has changed; forget the files that no longer exist."""
        if not self._changed or not self.path.is_absolute():  # it is not if the user has no home
            return
        document = {
            "format": _FORMAT,
            "version": _VERSION,
            "freetype": self._freetype,
            "faces": {path: entry for path, entry in self._entries.items() if os.path.exists(path)},
        }
        with contextlib.suppress(OSError, CaptchaOcrError):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            write_atomic(self.path, sealed(document), durable=False)

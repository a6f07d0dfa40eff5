"""Find the images that a table means by its file names."""

import os
import posixpath
import unicodedata
from collections import Counter
from collections.abc import Iterable
from pathlib import Path, PurePosixPath


def in_folder(folder: Path, path: Path) -> str | None:
    """Return a path relative to a folder, as POSIX; None if it lies elsewhere."""
    whole, inside = Path(os.path.abspath(path)), os.path.abspath(folder)
    return whole.relative_to(inside).as_posix() if whole.is_relative_to(inside) else None


class FileNames:
    """The names of the images in a folder, as tables write them.

    beside: the table's folder, relative to it.
    """

    def __init__(self, folder: Path | None, beside: str | None, files: Iterable[str]) -> None:
        self.folder, self.files = folder, set(files)
        self.beside = None if beside == "." else beside
        self.composed = {unicodedata.normalize("NFC", file): file for file in self.files}
        counts = Counter(map(without_extension, self.composed))
        self.by_stem = {
            without_extension(name): file
            for name, file in self.composed.items()
            if counts[without_extension(name)] == 1
        }

    def find(self, name: str) -> str:
        """Return the file that a name means; the name, with slashes, if there is none.

        An absolute name, or one from the current folder, may lead into the folder.
        """
        if self.beside is None and name in self.files:
            return name
        name = PurePosixPath(name.replace("\\", "/")).as_posix()
        for path in [name] if self.beside is None else [f"{self.beside}/{name}", name]:
            composed = unicodedata.normalize("NFC", path)
            file = path if path in self.files else self.composed.get(composed)
            file = file or self.by_stem.get(composed)
            if file is not None:
                return file
        if self.folder is None or "\0" in name:
            return name
        is_inside = not os.path.isabs(name) and ".." not in PurePosixPath(name).parts
        if is_inside and os.path.exists(self.folder / name):
            return name
        inside = in_folder(self.folder, Path(name))
        # `exists` comes last, so that nothing outside the folder is looked for.
        return name if inside is None or not os.path.exists(name) else inside


def without_extension(file: str) -> str:
    """Return a file's path without its extension."""
    return posixpath.splitext(file)[0]

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
        self.folder, self.beside, self.files = folder, beside, set(files)
        self.composed = {unicodedata.normalize("NFC", file): file for file in self.files}
        stems = [without_extension(composed) for composed in self.composed]
        counts = Counter(stems)
        pairs = zip(stems, self.composed.values(), strict=True)
        self.by_stem = {stem: file for stem, file in pairs if counts[stem] == 1}

    def find(self, name: str) -> str:
        """Return the file that a name means; the name, with slashes, if there is none."""
        if self.beside in (None, ".") and name in self.files:
            return name
        name = PurePosixPath(name.replace("\\", "/")).as_posix()
        paths = [name] if self.beside in (None, ".") else [f"{self.beside}/{name}", name]
        for path in paths:
            if path in self.files:
                return path
            composed = unicodedata.normalize("NFC", path)
            file = self.composed.get(composed) or self.by_stem.get(composed)
            if file is not None:
                return file
        return name if self.folder is None else file_in_folder(self.folder, name)


def without_extension(file: str) -> str:
    """Return a file's path without its extension."""
    return posixpath.splitext(file)[0]


def file_in_folder(folder: Path | None, file: str) -> str:
    """Return a file name relative to `folder` if it is an absolute one, or one from the current
    folder, in `folder`.
    """
    path = Path(file)
    is_relative = not path.is_absolute() and ".." not in path.parts
    if folder is None or "\0" in file or (is_relative and os.path.exists(folder / file)):
        return file
    path, inside = Path(os.path.abspath(file)), os.path.abspath(folder)
    # `exists` comes last, so that nothing outside the folder is looked for.
    return (
        path.relative_to(inside).as_posix()
        if path.is_relative_to(inside) and os.path.exists(path)
        else file
    )

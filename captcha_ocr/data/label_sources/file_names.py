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
        composed = {unicodedata.normalize("NFC", file): file for file in self.files}
        stems = list(map(without_extension, composed))
        by_stem = dict(zip(stems, composed.values(), strict=True))
        unique = {stem: by_stem[stem] for stem, count in Counter(stems).items() if count == 1}
        self.file_of = unique | composed

    def find(self, name: str) -> str:
        """Return the file that a name means; the name, with slashes, if there is none.

        An absolute name, or one from the current folder, may lead into the folder.
        """
        plain = PurePosixPath(name.replace("\\", "/")).as_posix()
        for path in (name if self.beside is None else f"{self.beside}/{plain}", plain):
            composed = unicodedata.normalize("NFC", path)
            if path in self.files or composed in self.file_of:
                return path if path in self.files else self.file_of[composed]
        if self.folder is None:
            return plain
        is_inside = not os.path.isabs(plain) and ".." not in PurePosixPath(plain).parts
        if is_inside and os.path.exists(self.folder / plain):
            return plain
        inside = in_folder(self.folder, Path(plain))
        # `exists` comes last, so that nothing outside the folder is looked for.
        return plain if inside is None or not os.path.exists(plain) else inside


def without_extension(file: str) -> str:
    """Return a file's path without its extension."""
    return posixpath.splitext(file)[0]

"""Find font files, and what is worth knowing about each.

Its characters, and those that look alike.
"""

import contextlib
import csv
import importlib.metadata
import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from pathlib import Path

from captcha_ocr.errors import UsageError, check
from captcha_ocr.generation.fonts.cache import FaceCache
from captcha_ocr.generation.fonts.survey import Glyphs, examine
from captcha_ocr.system.files import open_regular, printable, sha256, walk_files

_EXTENSIONS = (".ttf", ".otf", ".ttc", ".pfb", ".woff", ".woff2")
_MAX_FONT_BYTES = 2**28  # the largest fonts, of Chinese, have a tenth
# In most sans-serif fonts some ten letters have one shape in both cases, in other sizes.
_MAX_CASE_TWINS = 14
_MAX_CONFUSIONS = 4  # as many as 0 and O, and 1, I and l
# Fonts with all of ALPHABET, but with drawings or foreign letters in its place. No measure of the
# pixels that we tried tells them from decorated letters. The last three are TeX's symbols, which
# matplotlib brings, and Zapf Dingbats.
_NO_LETTERS = re.compile(
    "symbol|dingbat|wingding|webding|emoji|icons|cmsy10|cmmi10|d050000l", re.IGNORECASE
)


_IN_ORDER = attrgetter("name", "sha256", "path")


@dataclass(frozen=True)
class Face(Glyphs):
    """A font file, with what it draws; of a collection, the first font in it.

    path: absolute.
    name: how a design names the face, the name of the file. If another file has this name, all but
        the first of them get the start of their sha256 as a suffix, such as
        `DejaVuSans.ttf#1a2b3c4d`; the first has the least sha256.
    sha256: of the file.
    """

    path: str
    name: str
    sha256: str

    @property
    def is_unicase(self) -> bool:
        """Whether the face draws capitals for small letters."""
        twins = [pair for pair in self.look_alikes if pair[0].lower() == pair[1].lower()]
        return len(twins) > _MAX_CASE_TWINS

    @property
    def confusions(self) -> set[str]:
        """The look-alikes that are different letters or digits, in upper case.

        `xX` is none, `0o` and `0O` are one.
        """
        folded = {"".join(sorted(pair.upper())) for pair in self.look_alikes}
        return {pair for pair in folded if pair[0] != pair[1]}

    @property
    def legible(self) -> bool:
        """Whether a person can probably read the characters.

        No frames, few confusions, and no font of symbols.
        """
        return (
            self.characters != ""
            and not self.framed
            and len(self.confusions) <= _MAX_CONFUSIONS
            and not _NO_LETTERS.search(self.family)
        )


def find_faces(paths: Sequence[Path]) -> list[Face]:
    """Return the faces of font files, and of folders at any depth, by (name, sha256).

    Without paths: the fonts that installed Python packages bring. Files with the same bytes are one
    face, and so are named once. UsageError for a file that is no font, and for a folder without
    one; other files in it do not matter.
    """
    with contextlib.closing(FaceCache()) as cache:
        faces = [face for path in paths for face in _faces_at(path, cache)]
        if not paths:
            faces = _readable(_installed_fonts(), cache)
    unique: dict[str, Face] = {}
    names: set[str] = set()
    for face in sorted(faces, key=_IN_ORDER):
        if face.sha256 not in unique:
            is_taken = face.name in names
            unique[face.sha256] = replace(face, name=_suffixed(face)) if is_taken else face
            names.add(face.name)
    return sorted(unique.values(), key=_IN_ORDER)


def index_by_name(faces: Sequence[Face]) -> dict[str, Face]:
    """Return the faces by their names, and by those with a suffix, such as `A.ttf#1a2b3c4d`.

    Other machines, with other files, may have given them the suffix.
    """
    named = {_suffixed(face): face for face in faces}
    named.update((face.name, face) for face in faces)
    return named


def _faces_at(path: Path, cache: FaceCache) -> list[Face]:
    """Return the face of a file, or those of a folder; UsageError if there is none."""
    if not path.is_dir():
        try:
            return [_read_face(str(path), cache)]
        except FileNotFoundError:
            raise UsageError(
                f"{path} does not exist; name a font file, or a folder of fonts"
            ) from None
        except OSError as error:
            raise UsageError(
                f"{path} cannot be read as a font ({error.strerror or error}); choose another file"
            ) from None
    faces = _readable(_font_files(path), cache)
    check(
        bool(faces),
        f"{path} holds no font that can be read ({', '.join(_EXTENSIONS)}); name a folder of fonts",
    )
    return faces


def _readable(paths: Iterable[str], cache: FaceCache) -> list[Face]:
    """Return the faces of those files that can be read as fonts."""
    faces = []
    for path in paths:
        with contextlib.suppress(OSError):
            faces.append(_read_face(path, cache))
    return faces


def _read_face(path: str, cache: FaceCache) -> Face:
    """Return the face of a file, from the cache if it knows it.

    OSError if it cannot be read as a font.
    """
    path = os.path.abspath(path)
    status = os.stat(path)
    facts = cache.get(path, status)
    if facts is None:
        if status.st_size > _MAX_FONT_BYTES:
            raise OSError(f"more than {_MAX_FONT_BYTES:,} bytes")
        with open_regular(path) as stream:
            data = stream.read() or b""
        glyphs = examine(data)
        facts = [
            sha256(data),
            glyphs.family,
            glyphs.characters,
            " ".join(glyphs.look_alikes),
            glyphs.framed,
        ]
        cache.put(path, status, facts)
    digest, family, characters, pairs, framed = facts
    return Face(
        family=family,
        characters=characters,
        look_alikes=tuple(pairs.split()),
        framed=framed,
        path=path,
        name=printable(Path(os.path.basename(path))),
        sha256=digest,
    )


def _font_files(folder: Path) -> list[str]:
    """Return the font files below a folder, also through links; hidden ones are left out."""
    names = (name for name in walk_files(folder) if name.lower().endswith(_EXTENSIONS))
    return [os.path.join(folder, name) for name in names]


def _installed_fonts() -> list[str]:
    """Return the TrueType and OpenType files of every installed Python package.

    The packages of fonts on PyPI announce their files as an entry point `fonts_ttf`, matplotlib and
    others do not. The list of installed files, RECORD, knows all of them, and no code of the
    packages has to run.
    """
    import captcha.image  # late, as is matplotlib: who names fonts need not wait for them
    import matplotlib

    # These two are found even where the lists are missing, as in a frozen program.
    folder = Path(matplotlib.get_data_path(), "fonts", "ttf")
    paths = [*captcha.image.DEFAULT_FONTS, *_font_files(folder)]
    for distribution in importlib.metadata.distributions():
        record = distribution.read_text("RECORD") or ""
        # `distribution.files` makes an object for each of 25,000 files, which takes 15 times as
        # long.
        lines = [
            line for line in record.splitlines() if ".ttf" in line.lower() or ".otf" in line.lower()
        ]
        files = [row[0] for row in csv.reader(lines) if row[0].lower().endswith((".ttf", ".otf"))]
        paths += [str(distribution.locate_file(file)) for file in files]
    return paths


def _suffixed(face: Face) -> str:
    return f"{printable(Path(os.path.basename(face.path)))}#{face.sha256[:8]}"

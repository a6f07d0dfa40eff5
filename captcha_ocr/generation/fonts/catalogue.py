"""Find font files, and choose those to draw with.

What is worth knowing about each is kept between runs: its characters, and those that look alike.
"""

import contextlib
import csv
import importlib.metadata
import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from operator import attrgetter
from pathlib import Path
from typing import Any

from PIL import ImageFont, features

from captcha_ocr.charset import shorten
from captcha_ocr.errors import CaptchaOcrError, UsageError, check
from captcha_ocr.generation.designs.design import Design, kinds_of_fonts, parse_faces
from captcha_ocr.generation.fonts.survey import ALPHABET, Glyphs, examine
from captcha_ocr.system.documents import read_sealed, sealed
from captcha_ocr.system.files import (
    open_regular,
    printable,
    sha256,
    walk_files,
    write_atomic,
)

_RECOMMENDED = "docs/designs.md has the command that installs the recommended ones"
_CACHE_FORMAT = "captcha-ocr faces"
_CACHE_VERSION = 2  # raise it when `examine` finds something else, or the facts have other types
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
_RECORDED_FONT = re.compile(r'\.[ot]tf"?,', re.IGNORECASE)  # the name in a line of RECORD
_IN_ORDER = attrgetter("name", "sha256", "path")
# By the path of a font: the size and the time of the file, and the facts about it.
_Known = dict[str, list[Any]]


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

    @cached_property
    def is_unicase(self) -> bool:
        """Whether the face draws capitals for small letters."""
        twins = (pair[0].lower() == pair[1].lower() for pair in self.look_alikes)
        return sum(twins) > _MAX_CASE_TWINS

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


def choose_faces(
    fonts: Sequence[str], characters: Iterable[str], design: Design | None
) -> list[Face]:
    """Return the fonts that a design names, or else those of files and folders: `fonts`.

    Of the kinds that a design names there are those that are at hand, or any others if none of
    these has the characters. Of folders those that lack some of the characters are left out.
    UsageError for one that is missing, for one that is meant but lacks characters, and if no font
    has all of them.
    """
    kinds, known = design.kinds if design else (), kinds_of_fonts()
    names = {name for kind in kinds for name in known[kind]}
    faces = find_faces([Path(font) for font in fonts], names)
    if design is not None and design.faces:
        faces = meant = _find_named(design.document["fonts"], design.name, index_by_name(faces))
    else:
        # A file that the user names is meant; in a folder there may be fonts of symbols.
        files = {os.path.abspath(font) for font in fonts}
        meant = [face for face in faces if face.path in files]
        faces = [face for face in faces if face.path in files or face.legible]
    check(bool(faces), f"`fonts`: there is no legible font; {_RECOMMENDED}")
    usable = [face for face in faces if has_glyphs(face, characters)]
    if kinds and not usable:
        return choose_faces(fonts, characters, None)
    for face in meant if usable else faces:
        missing = "".join(lacking(face, characters))
        check(
            not missing,
            f"the font {face.name} has no glyph for {shorten(missing)!r}; choose others with"
            " `fonts`",
        )
    return usable


def faces_of_saved(
    documents: Sequence[dict[str, Any]], path: str, fonts: Sequence[str]
) -> list[Face]:
    """Return the fonts that saved designs name; UsageError for one that is missing or another file.

    path: of the file with the designs.
    """
    named, chosen = index_by_name(find_faces([Path(font) for font in fonts])), {}
    for line, document in enumerate(documents, 1):
        place = f"{path}, line {line}"
        faces = _find_named(document.get("fonts", {}), place, named)
        check(bool(faces), f"{place}: fonts.faces names no font")
        chosen.update({face.name: face for face in faces})
    return list(chosen.values())


def _find_named(fonts: Any, place: str, named: Mapping[str, Face]) -> list[Face]:
    """Return the fonts that the fields of [fonts] name.

    UsageError that begins with `place` for one that is missing or another file.
    """
    check(isinstance(fonts, Mapping), f"{place}: fonts must be a table")
    chosen = []
    for name, digest in zip(*parse_faces(fonts, place), strict=True):
        check(
            name in named,
            f"{place}: fonts.faces: the font {name} is not here;"
            " name the folder that holds it with `fonts` FOLDER",
        )
        check(
            digest in ("", named[name].sha256),
            f"{place}: fonts.sha256: the font {name} is another version than the design was made"
            " with",
        )
        chosen.append(named[name])
    return chosen


def has_glyphs(face: Face, characters: Iterable[str]) -> bool:
    """Tell whether a font has a glyph for each of the characters; stops at the first that lacks."""
    return next(lacking(face, characters), None) is None


def lacking(face: Face, characters: Iterable[str]) -> Iterator[str]:
    """Yield the characters that a font has no glyph for."""
    unknown = [character for character in characters if character not in face.characters]
    if set(unknown) <= {*ALPHABET}:
        yield from unknown
        return
    font = ImageFont.truetype(face.path, 48)
    missing_glyph = bytes(font.getmask("\U0010ffff"))  # what a font draws for a noncharacter
    for character in unknown:
        if character in ALPHABET or bytes(font.getmask(character)) == missing_glyph:
            yield character


def find_faces(paths: Sequence[Path], names: Collection[str] = ()) -> list[Face]:
    """Return the faces of font files, and of folders at any depth, by (name, sha256).

    Without paths: the fonts that installed Python packages bring, or those of some names, that are
    searched among the fonts of the system, too. With paths, of some names if one of them is there.
    Files with the same bytes are one face, and so are named once. UsageError for a file that is no
    font, and for a folder without one; other files in it do not matter.
    """
    with _remembered() as known:
        faces = [face for path in paths for face in _faces_at(path, known)]
        faces = [face for face in faces if os.path.basename(face.path) in names] or faces
        if not paths:
            faces = _readable(_named_fonts(names) if names else _installed_fonts(), known)
    unique = {face.sha256: face for face in sorted(faces, key=_IN_ORDER, reverse=True)}
    named: dict[str, Face] = {}
    for face in sorted(unique.values(), key=_IN_ORDER):
        name = _suffixed(face) if face.name in named else face.name
        named[name] = replace(face, name=name)
    return sorted(named.values(), key=_IN_ORDER)


@contextlib.contextmanager
def _remembered() -> Iterator[_Known]:
    """Yield what is known about fonts; keep what is added to it in the user's cache folder.

    The cache saves time and nothing else. One that is missing, damaged, foreign or cannot be
    written is ignored.
    """
    folder = os.environ.get("XDG_CACHE_HOME", "")
    if not os.path.isabs(folder):  # the standard of the variable says that it is to be ignored
        folder = os.path.expanduser("~/.cache")
    path = Path(folder, "captcha-ocr", "faces.json")
    # Which pixels are drawn, and so which characters look alike, depends on FreeType.
    freetype, known = str(features.version("freetype2")), {}
    with contextlib.suppress(CaptchaOcrError):
        document = read_sealed(path, _CACHE_FORMAT, _CACHE_VERSION)
        if document["freetype"] == freetype:
            known = document["faces"]
    before = known.copy()
    try:
        yield known
    finally:
        if known != before and path.is_absolute():  # it is not if the user has no home
            document = {
                "format": _CACHE_FORMAT,
                "version": _CACHE_VERSION,
                "freetype": freetype,
                # Without files that are gone, and paths that are no text, which JSON cannot hold.
                "faces": {
                    file: facts
                    for file, facts in known.items()
                    if file.isprintable() and os.path.exists(file)
                },
            }
            with contextlib.suppress(OSError, CaptchaOcrError):
                path.parent.mkdir(parents=True, exist_ok=True)
                write_atomic(path, sealed(document), durable=False)


def index_by_name(faces: Sequence[Face]) -> dict[str, Face]:
    """Return the faces by their names, and by those with a suffix, such as `A.ttf#1a2b3c4d`.

    Other machines, with other files, may have given them the suffix.
    """
    named = {_suffixed(face): face for face in faces}
    named.update((face.name, face) for face in faces)
    return named


def _faces_at(path: Path, known: _Known) -> list[Face]:
    """Return the face of a file, or those of a folder; UsageError if there is none."""
    if not path.is_dir():
        try:
            return [_read_face(str(path), known)]
        except FileNotFoundError:
            raise UsageError(
                f"{path} does not exist; name a font file, or a folder of fonts"
            ) from None
        except OSError as error:
            raise UsageError(
                f"{path} cannot be read as a font ({error.strerror or error}); choose another file"
            ) from None
    faces = _readable(_font_files(path), known)
    check(
        bool(faces),
        f"{path} holds no font that can be read ({', '.join(_EXTENSIONS)}); name a folder of fonts",
    )
    return faces


def _readable(paths: Iterable[str], known: _Known) -> list[Face]:
    """Return the faces of those files that can be read as fonts."""
    faces = []
    for path in paths:
        with contextlib.suppress(OSError):
            faces.append(_read_face(path, known))
    return faces


def _read_face(path: str, known: _Known) -> Face:
    """Return the face of a file, unless it is known read it.

    OSError if it cannot be read as a font.
    """
    path = os.path.abspath(path)
    status = os.stat(path)
    identity = [status.st_size, status.st_mtime_ns]
    if known.get(path, [])[:2] != identity:
        if status.st_size > _MAX_FONT_BYTES:
            raise OSError(f"more than {_MAX_FONT_BYTES:,} bytes")
        with open_regular(path) as stream:
            data = stream.read()
        glyphs = examine(data)
        facts = [glyphs.family, glyphs.characters, " ".join(glyphs.look_alikes), glyphs.framed]
        known[path] = [*identity, sha256(data), *facts]
    digest, family, characters, pairs, framed = known[path][2:]
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
        lines = [line for line in record.splitlines() if _RECORDED_FONT.search(line)]
        paths += [str(distribution.locate_file(row[0])) for row in csv.reader(lines)]
    return paths


def _named_fonts(names: Collection[str]) -> list[str]:
    """Return the files with some names among installed packages and the fonts of the system."""
    paths = [path for path in _installed_fonts() if os.path.basename(path) in names]
    for name in sorted(names):
        with contextlib.suppress(OSError):
            paths.append(str(ImageFont.truetype(name).path))
    return paths


def _suffixed(face: Face) -> str:
    return f"{printable(Path(os.path.basename(face.path)))}#{face.sha256[:8]}"

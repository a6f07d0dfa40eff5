"""Which fonts are drawn with: those of a design, or those at hand that have all the characters."""

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from PIL import ImageFont

from captcha_ocr.charset import shorten
from captcha_ocr.errors import check
from captcha_ocr.generation.designs.design import Design, parse_faces
from captcha_ocr.generation.fonts.catalogue import Face, find_faces, index_by_name
from captcha_ocr.generation.fonts.survey import ALPHABET

_RECOMMENDED = "docs/designs.md has the command that installs the recommended ones"


def choose_faces(
    fonts: Sequence[str], characters: Iterable[str], design: Design | None
) -> list[Face]:
    """Return the fonts that a design names, or else those of files and folders: `fonts`.

    Of folders those that lack some of the characters are left out. UsageError for one that is
    missing, for one that is meant but lacks characters, and if no font has all of them.
    """
    faces = find_faces([Path(font) for font in fonts])
    if design is not None and design.faces:
        faces = meant = _find_named(design.document["fonts"], design.name, index_by_name(faces))
    else:
        # A file that the user names is meant; in a folder there may be fonts of symbols.
        files = {os.path.abspath(font) for font in fonts}
        meant = [face for face in faces if face.path in files]
        faces = [face for face in faces if face.path in files or face.legible]
    check(bool(faces), f"`fonts`: there is no legible font; {_RECOMMENDED}")
    usable = [face for face in faces if not lacking(face, characters)]
    for face in meant if usable else faces:
        missing = lacking(face, characters)
        text = f"the font {face.name} has no glyph for {shorten(missing)!r}"
        check(not missing, f"{text}; choose others with `fonts`")
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


def lacking(face: Face, characters: Iterable[str]) -> str:
    """Return the characters that a font has no glyph for."""
    unknown = [character for character in characters if character not in face.characters]
    if set(unknown) <= {*ALPHABET}:
        return "".join(unknown)
    font = ImageFont.truetype(face.path, 48)
    missing_glyph = bytes(font.getmask("\U0010ffff"))  # what a font draws for a noncharacter
    return "".join(
        character
        for character in unknown
        if character in ALPHABET or bytes(font.getmask(character)) == missing_glyph
    )

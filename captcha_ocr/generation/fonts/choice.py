"""Which fonts are drawn with: those of a design, or those at hand that have all the characters."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from PIL import ImageFont

from captcha_ocr.charset import shorten
from captcha_ocr.errors import UsageError, check
from captcha_ocr.generation.designs.design import Design, parse_faces
from captcha_ocr.generation.fonts.catalogue import Face, find_faces, index_by_name
from captcha_ocr.generation.fonts.survey import ALPHABET

_RECOMMENDED = "docs/designs.md has the command that installs the recommended ones"


def choose_faces(
    fonts: Sequence[str], characters: Iterable[str], design: Design | None
) -> list[Face]:
    """Return the fonts that a design names, or else those of files and folders: `fonts`.

    Those that lack some of the characters are left out. UsageError for one that is missing, for a
    file in `fonts` that lacks characters, and if no font has all of them.
    """
    faces, meant = find_faces([Path(font) for font in fonts]), set()
    if design is not None and design.faces:
        named, pairs = index_by_name(faces), parse_faces(design.document["fonts"], design.name)
        faces = [_find_face(*pair, design.name, named) for pair in zip(*pairs, strict=True)]
    else:
        # A file that the user names is meant; in a folder there may be fonts of symbols.
        meant = {str(Path(font).absolute()) for font in fonts if Path(font).is_file()}
        faces = [face for face in faces if face.path in meant or face.legible]
    check(bool(faces), f"`fonts`: there is no legible font; {_RECOMMENDED}")
    usable = [face for face in faces if not lacking(face, characters)]
    for face in faces:
        if face.path in meant or not usable:
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
    named = index_by_name(find_faces([Path(font) for font in fonts]))
    chosen: dict[str, Face] = {}
    for line, document in enumerate(documents, 1):
        place, section = f"{path}, line {line}", document.get("fonts", {})
        check(isinstance(section, dict), f"{place}: fonts must be a table")
        names, digests = parse_faces(section, place)
        check(bool(names), f"{place}: fonts.faces names no font")
        for name, digest in zip(names, digests, strict=True):
            face = _find_face(name, digest, place, named)
            chosen[face.name] = face
    return list(chosen.values())


def _find_face(name: str, digest: str, place: str, named: Mapping[str, Face]) -> Face:
    """Return the font with this name and sha256; UsageError that begins with `place`."""
    if name not in named:
        raise UsageError(
            f"{place}: fonts.faces: the font {name} is not here;"
            " name the folder that holds it with `fonts` FOLDER"
        )
    if digest not in ("", named[name].sha256):
        raise UsageError(
            f"{place}: fonts.sha256: the font {name} is another version than the design was made"
            " with"
        )
    return named[name]


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

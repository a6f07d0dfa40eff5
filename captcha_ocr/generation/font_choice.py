"""Which fonts a configuration draws with: those of its design, or those at hand that have all the characters."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from PIL import ImageFont

from captcha_ocr.charset import shorten
from captcha_ocr.errors import UsageError, check
from captcha_ocr.generation.design import parse_faces, read_saved
from captcha_ocr.generation.fonts import ALPHABET, Face, faces_named, find_faces

if TYPE_CHECKING:
    from captcha_ocr.generation.config import GeneratorConfig

RECOMMENDED = "docs/designs.md has the command that installs the recommended ones"


def choose_faces(config: "GeneratorConfig") -> list[Face]:
    """Return the fonts to choose from; UsageError for a missing one, and if none has all the characters."""
    faces, design = find_faces([Path(font) for font in config.fonts]), config.parsed
    if config.is_saved:
        return named_in(read_saved(config.design), config.design, faces)
    if design is not None and design.faces:
        faces = named_by(
            *parse_faces(design.document["fonts"], config.design), config.design, faces
        )
    else:
        # A file that the user names is meant; in a folder there may be fonts of symbols.
        meant = {str(Path(font).absolute()) for font in config.fonts if Path(font).is_file()}
        faces = [face for face in faces if face.path in meant or face.legible]
        for face in faces:
            if face.path in meant:
                check_complete(face, config.text_kind[0])
    usable = [face for face in faces if not lacking(face, config.text_kind[0])]
    if not usable:
        check(bool(faces), f"--fonts: there is no legible font; {RECOMMENDED}")
        check_complete(faces[0], config.text_kind[0])
    return usable


def named_in(saved: Sequence[dict[str, Any]], path: str, faces: Sequence[Face]) -> list[Face]:
    """Return the fonts that saved designs name; UsageError for one that is missing, or that is another file."""
    wanted: dict[
        tuple[str, str], str
    ] = {}  # where a font is named first; many designs share some fonts
    for line, document in enumerate(saved, 1):
        place, fonts = f"{path}, line {line}", document.get("fonts", {})
        check(isinstance(fonts, dict), f"{place}: fonts must be a table")
        names, digests = parse_faces(fonts, place)
        check(bool(names), f"{place}: fonts.faces names no font")
        for pair in zip(names, digests, strict=True):
            wanted.setdefault(pair, place)
    found = [
        face
        for (name, digest), place in wanted.items()
        for face in named_by([name], [digest], place, faces)
    ]
    return list({face.name: face for face in found}.values())


def named_by(
    names: Sequence[str], digests: Sequence[str], place: str, faces: Sequence[Face]
) -> list[Face]:
    """Return the fonts with these names and sha256; UsageError that begins with `place`."""
    try:
        found = faces_named(names, faces)
    except UsageError as error:
        raise UsageError(f"{place}: fonts.faces: {error}") from None
    for face, digest in zip(found, digests, strict=True):
        fine = digest in ("", face.sha256)
        check(
            fine,
            f"{place}: fonts.sha256: the font {face.name} is another version than the design was made with",
        )
    return found


def check_complete(face: Face, characters: Iterable[str]) -> None:
    """Raise UsageError for a font that has no glyph for a character."""
    missing = lacking(face, characters)
    if missing:
        raise UsageError(
            f"the font {face.name} has no glyph for {shorten(missing)!r}; choose others with --fonts"
        )


def lacking(face: Face, characters: Iterable[str]) -> str:
    """Return the characters that a font has no glyph for."""
    unknown = [character for character in characters if character not in face.characters]
    others = [character for character in unknown if character not in ALPHABET]
    if others:
        font = ImageFont.truetype(face.path, 48)
        missing_glyph = bytes(font.getmask("\U0010ffff"))  # what a font draws for a noncharacter
        drawn = {
            character for character in others if bytes(font.getmask(character)) != missing_glyph
        }
        unknown = [character for character in unknown if character not in drawn]
    return "".join(unknown)

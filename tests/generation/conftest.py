import io

import pytest
from fontTools.fontBuilder import FontBuilder
from fontTools.pens.ttGlyphPen import TTGlyphPen

EM = 1000  # units of the fonts that are built here


@pytest.fixture
def cache_home(tmp_path, monkeypatch):
    """The folder of the user's caches, an empty one for this test."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


def font_of_boxes(glyphs, family="Boxes", notdef=((50, 0, 450, 700),)):
    """The bytes of a TrueType font: glyphs is character -> boxes (left, bottom, right, top) in thousandths of an em."""
    names = {character: f"g{ord(character):x}" for character in glyphs}
    shapes = {".notdef": notdef} | {names[character]: boxes for character, boxes in glyphs.items()}
    builder = FontBuilder(EM)
    builder.setupGlyphOrder(list(shapes))
    builder.setupCharacterMap({ord(character): name for character, name in names.items()})
    outlines = {}
    for name, boxes in shapes.items():
        pen = TTGlyphPen(None)
        for left, bottom, right, top in boxes:
            pen.moveTo((left, bottom))
            for point in ((left, top), (right, top), (right, bottom)):
                pen.lineTo(point)
            pen.closePath()
        outlines[name] = pen.glyph()
    builder.setupGlyf(outlines)
    builder.setupHorizontalMetrics(dict.fromkeys(shapes, (600, 0)))
    builder.setupHorizontalHeader(ascent=800, descent=-200)
    builder.setupNameTable({"familyName": family, "styleName": "Regular"})
    builder.setupPost()
    stream = io.BytesIO()
    builder.save(stream)
    return stream.getvalue()


@pytest.fixture(scope="session")
def make_font():
    """The function that builds a font."""
    return font_of_boxes

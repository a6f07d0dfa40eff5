import importlib.util
import io
from pathlib import Path

import captcha.image
from fontTools.fontBuilder import FontBuilder
from fontTools.pens.ttGlyphPen import TTGlyphPen

MATPLOTLIB = importlib.util.find_spec("matplotlib").submodule_search_locations[0]  # slow to import
FONTS = Path(MATPLOTLIB, "mpl-data", "fonts", "ttf")
DEJAVU, SERIF = str(FONTS / "DejaVuSans.ttf"), str(FONTS / "DejaVuSerif.ttf")
DROID = captcha.image.DEFAULT_FONTS[0]
BAR = ((0, 0, 100, 700),)
TEE = ((150, 0, 250, 700), (0, 600, 400, 700))


def make_font(glyphs, family="Boxes", notdef=((50, 0, 450, 700),)):
    """The bytes of a TrueType font.

    glyphs: character -> boxes (left, bottom, right, top) in thousandths of an em.
    """
    names = {character: f"g{ord(character):x}" for character in glyphs}
    shapes = {".notdef": notdef} | {names[character]: boxes for character, boxes in glyphs.items()}
    builder = FontBuilder(unitsPerEm=1000)
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

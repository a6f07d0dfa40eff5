import json
import shutil
from pathlib import Path

import pytest
from conftest import naming

from captcha_ocr.errors import UsageError
from captcha_ocr.generation.drawer import Drawer
from captcha_ocr.generation.fonts.catalogue import find_faces
from captcha_ocr.generation.fonts.choice import lacking
from captcha_ocr.generation.plan import plan_drawing
from captcha_ocr.options.drawing import DrawingOptions

from ..conftest import DEJAVU, DROID, FONTS, SERIF, TEE, make_font


@pytest.fixture
def folder(tmp_path):
    """A folder with a readable font, one of symbols, and a file that is no font."""
    (tmp_path / "fonts").mkdir()
    for name in ("DejaVuSans.ttf", "cmsy10.ttf"):
        shutil.copy(FONTS / name, tmp_path / "fonts")
    (tmp_path / "fonts" / "broken.ttf").write_bytes(b"text")
    return tmp_path / "fonts"


def names(*fonts, **options):
    plan = plan_drawing(DrawingOptions(fonts=tuple(map(str, fonts)), **options))
    return [face.name for face in Drawer(plan).faces]


SAVED = (DEJAVU, FONTS / "cmsy10.ttf", SERIF)


def save(*documents):
    """Save designs to a file."""
    Path("a.jsonl").write_text("".join(json.dumps(document) + "\n" for document in documents))


def test_a_design_has_its_own_fonts_and_those_of_the_package_can_be_replaced(folder):
    assert names() == [Path(DROID).name]
    assert names(design="speckle") == ["DejaVuSans-Bold.ttf", "DejaVuSans-BoldOblique.ttf"]
    assert names(folder) == names(folder, design="speckle") == ["DejaVuSans.ttf"]
    for text in ('fonts.faces = ["DejaVuSans.ttf"]', "[fonts]\n"):
        Path("mine.toml").write_text(text)
        assert names(folder, design="mine.toml") == ["DejaVuSans.ttf"]
    Path("mine.toml").write_text('fonts.faces = ["Gone.ttf"]')
    with pytest.raises(UsageError, match=naming("mine.toml", "fonts.faces", "Gone.ttf", "`fonts`")):
        names(folder, design="mine.toml")


def test_of_a_folder_the_legible_fonts_are_taken_and_a_file_that_is_named_is_meant(folder):
    symbols = folder / "cmsy10.ttf"
    assert names(folder, design="random") == ["DejaVuSans.ttf"]
    assert names(symbols, design="random", charset="+") == ["cmsy10.ttf"]
    both = ["DejaVuSans.ttf", "cmsy10.ttf"]
    assert names(folder, symbols, design="random", charset="+") == both
    (folder / "DejaVuSans.ttf").unlink()
    with pytest.raises(UsageError, match=naming("`fonts`", "docs/designs.md")):
        names(folder, design="random")


@pytest.mark.parametrize("charset", ["a☃", "☃"])
def test_a_font_without_a_glyph_is_refused_by_name_if_it_is_meant_and_left_out_if_not(
    folder, charset
):
    both = ["DejaVuSans.ttf", "DejaVuSerif.ttf"]
    assert names(folder, SERIF, design="random", charset="a") == both
    shutil.copy(FONTS / "STIXGeneral.ttf", folder)
    assert names(folder, design="random", charset=charset) == ["DejaVuSans.ttf"]
    for fonts in ([DROID], [folder, DROID]):
        with pytest.raises(UsageError, match=naming("DroidSansMono.ttf", "☃", "`fonts`")):
            names(*fonts, design="random", charset=charset)


def test_characters_that_no_font_has_are_named():
    with pytest.raises(UsageError, match=naming("DejaVuSans-Bold.ttf", "字")):
        names(FONTS, design="random", charset="a字")


def test_what_a_font_lacks_is_found_by_its_glyphs(tmp_path):
    (tmp_path / "boxes.ttf").write_bytes(make_font({"A": TEE, "é": ((0, 0, 90, 90),)}))
    (face,) = find_faces([tmp_path])
    assert (lacking(face, "A"), lacking(face, "Aé"), lacking(face, "ABéü")) == ("", "", "Bü")


def test_saved_designs_have_the_fonts_that_they_name():
    digest = find_faces([Path(DEJAVU)])[0].sha256
    fonts = {"faces": ["DejaVuSans.ttf"], "sha256": [digest]}
    save({"fonts": fonts}, {"fonts": fonts}, {"fonts": {"faces": ["cmsy10.ttf"]}})
    assert names(*SAVED, design="a.jsonl") == ["DejaVuSans.ttf", "cmsy10.ttf"]


@pytest.mark.parametrize(
    ("fonts", "named"),
    [
        ({"faces": ["Gone.ttf"], "sha256": ["00"]}, "Gone.ttf"),
        ({"faces": ["DejaVuSans.ttf"], "sha256": ["00"]}, "DejaVuSans.ttf version"),
        ({"faces": ["DejaVuSans.ttf"], "sha256": [5]}, "fonts.sha256"),
        ({"faces": ["DejaVuSans.ttf"], "sha256": 5}, "fonts.sha256"),
        ({"faces": ["DejaVuSans.ttf", "cmsy10.ttf"], "sha256": ["00"]}, "fonts.sha256"),
        ({"faces": []}, "fonts.faces"),
        ({"faces": "DejaVuSans.ttf"}, "fonts.faces"),
        ([], "fonts"),
        ({}, "fonts.faces"),
    ],
)
def test_a_saved_font_that_is_missing_or_another_is_refused_by_name_and_line(fonts, named):
    save({"fonts": {"faces": ["DejaVuSans.ttf"]}}, {"fonts": fonts})
    with pytest.raises(UsageError, match=naming("a.jsonl, line 2", *named.split())):
        names(*SAVED, design="a.jsonl")

import importlib.util
import json
import shutil
from pathlib import Path

import captcha.image
import pytest
from conftest import naming

from captcha_ocr.errors import UsageError
from captcha_ocr.generation.drawer import Drawer
from captcha_ocr.generation.fonts.catalogue import find_faces
from captcha_ocr.generation.fonts.choice import lacking
from captcha_ocr.generation.plan import plan_drawing
from captcha_ocr.options.drawing import DrawingOptions

MATPLOTLIB = Path(
    importlib.util.find_spec("matplotlib").submodule_search_locations[0]
)  # not imported: it is slow
FONTS = MATPLOTLIB / "mpl-data" / "fonts" / "ttf"
DROID = Path(captcha.image.DEFAULT_FONTS[0])
TEE = ((150, 0, 250, 700), (0, 600, 400, 700))


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


def saved(path, *documents):
    """A file of saved designs."""
    path.write_text("".join(json.dumps(document) + "\n" for document in documents))
    return str(path)


def test_a_design_has_its_own_fonts_from_the_installed_packages_or_from_a_folder(folder):
    assert names() == [DROID.name]
    assert names(design="speckle") == ["DejaVuSans-Bold.ttf", "DejaVuSans-BoldOblique.ttf"]
    Path("mine.toml").write_text('fonts.faces = ["DejaVuSans.ttf"]')
    assert names(folder, design="mine.toml") == ["DejaVuSans.ttf"]


def test_fonts_that_are_given_replace_those_of_a_design_of_the_package(folder):
    assert names(folder) == names(folder, design="speckle") == ["DejaVuSans.ttf"]


def test_of_a_folder_the_legible_fonts_are_taken_and_a_file_that_is_named_is_meant(folder):
    assert names(folder, design="random") == ["DejaVuSans.ttf"]
    assert names(folder / "cmsy10.ttf", design="random", charset="+") == ["cmsy10.ttf"]
    assert names(folder, folder / "cmsy10.ttf", design="random", charset="+") == [
        "DejaVuSans.ttf",
        "cmsy10.ttf",
    ]


def test_without_a_legible_font_there_is_advice(tmp_path):
    shutil.copy(FONTS / "cmsy10.ttf", tmp_path)
    with pytest.raises(UsageError, match=naming("`fonts`", "docs/designs.md")):
        names(tmp_path, design="random")


@pytest.mark.parametrize("charset", ["a☃", "☃"])
def test_a_font_without_a_glyph_is_refused_by_name_if_it_is_meant_and_left_out_if_not(
    folder, charset
):
    assert names(folder, FONTS / "DejaVuSerif.ttf", design="random", charset="a") == [
        "DejaVuSans.ttf",
        "DejaVuSerif.ttf",
    ]
    shutil.copy(FONTS / "STIXGeneral.ttf", folder)
    assert names(folder, design="random", charset=charset) == ["DejaVuSans.ttf"]
    for fonts in ([DROID], [folder, DROID]):
        with pytest.raises(UsageError, match=naming("DroidSansMono.ttf", "☃", "`fonts`")):
            names(*fonts, design="random", charset=charset)


def test_characters_that_no_font_has_are_named(folder):
    with pytest.raises(UsageError, match=naming("DejaVuSans.ttf", "字")):
        names(folder, design="random", charset="a字")


def test_what_a_font_lacks_is_found_by_its_glyphs(tmp_path, make_font):
    (tmp_path / "boxes.ttf").write_bytes(make_font({"A": TEE, "é": ((0, 0, 90, 90),)}))
    (face,) = find_faces([tmp_path])
    assert (lacking(face, "A"), lacking(face, "Aé"), lacking(face, "ABéü")) == ("", "", "Bü")


def test_saved_designs_have_the_fonts_that_they_name(folder, tmp_path):
    digest = find_faces([folder / "DejaVuSans.ttf"])[0].sha256
    fonts = {"faces": ["DejaVuSans.ttf"], "sha256": [digest]}
    path = saved(
        tmp_path / "a.jsonl",
        {"fonts": fonts},
        {"fonts": fonts},
        {"fonts": {"faces": ["cmsy10.ttf"]}},
    )
    assert names(folder, design=path) == ["DejaVuSans.ttf", "cmsy10.ttf"]


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
def test_a_saved_font_that_is_missing_or_another_is_refused_by_name_and_line(
    folder, tmp_path, fonts, named
):
    path = saved(tmp_path / "a.jsonl", {"fonts": {"faces": ["DejaVuSans.ttf"]}}, {"fonts": fonts})
    with pytest.raises(UsageError, match=naming("a.jsonl, line 2", *named.split())):
        names(folder, design=path)


@pytest.mark.parametrize(("fonts", "named"), [('faces = ["Gone.ttf"]', "Gone.ttf"), ("", "")])
def test_a_font_of_a_design_that_is_missing_is_refused_by_name(folder, fonts, named):
    Path("mine.toml").write_text(f"[fonts]\n{fonts}\n")
    if not named:
        assert names(folder, design="mine.toml") == ["DejaVuSans.ttf"]
        return
    with pytest.raises(UsageError, match=naming("mine.toml", "fonts.faces", named)):
        names(folder, design="mine.toml")

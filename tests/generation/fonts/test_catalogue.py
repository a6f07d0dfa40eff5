import json
import os
import shutil
import sys
from pathlib import Path

import matplotlib
import pytest
from conftest import naming

from captcha_ocr.errors import UsageError
from captcha_ocr.generation.drawer import Drawer, plan_drawing
from captcha_ocr.generation.fonts.catalogue import Face, find_faces, index_by_name, lacking
from captcha_ocr.generation.fonts.survey import ALPHABET
from captcha_ocr.options.drawing import DrawingOptions
from captcha_ocr.system.documents import sealed
from captcha_ocr.system.files import sha256

from ..conftest import BAR, DEJAVU, DROID, FONTS, SERIF, TEE, make_font


def names(*paths):
    return [face.name for face in find_faces(paths)]


@pytest.fixture
def folder(tmp_path):
    """A folder with two fonts, one of them in a folder in it."""
    (tmp_path / "fonts" / "inner").mkdir(parents=True)
    shutil.copy(DEJAVU, tmp_path / "fonts" / "inner" / "Sans.TTF")
    shutil.copy(DROID, tmp_path / "fonts" / "Droid.ttf")
    return tmp_path / "fonts"


def test_a_file_gives_one_legible_face_with_its_absolute_path(folder, monkeypatch):
    monkeypatch.chdir(folder)
    (face,) = find_faces([Path("inner/Sans.TTF")])
    path = folder / "inner" / "Sans.TTF"
    facts = ("DejaVu Sans", ALPHABET, ("Il",), False)
    assert face == Face(*facts, str(path), "Sans.TTF", sha256(path.read_bytes()))
    assert face.legible


def test_a_folder_is_searched_for_files_that_can_be_read_as_fonts(folder):
    for data, name in ((b"text", "broken.ttf"), (b"", "empty.otf"), (b"text", "notes.txt")):
        (folder / name).write_bytes(data)
    (folder / "inner.ttf").mkdir()
    if hasattr(os, "mkfifo"):
        os.mkfifo(folder / "pipe.ttf")
    assert names(folder) == ["Droid.ttf", "Sans.TTF"]
    assert find_faces([folder / "inner", folder / "Droid.ttf"]) == find_faces([folder])


def test_links_are_followed_once_and_hidden_files_left_out(folder):
    (folder / ".git").mkdir()
    for name in (".hidden.ttf", ".git/a.ttf"):
        shutil.copy(FONTS / "cmr10.ttf", folder / name)
    (folder / "inner" / "loop").symlink_to(folder)
    (folder / "nowhere.ttf").symlink_to(folder / "gone")
    assert names(folder) == ["Droid.ttf", "Sans.TTF"]


def test_files_with_the_same_bytes_are_one_face_with_the_first_name(folder):
    shutil.copy(DROID, folder / "Another.ttf")
    assert names(folder, Path(DROID)) == ["Another.ttf", "Sans.TTF"]


def test_of_files_with_one_name_all_but_the_first_get_a_suffix(tmp_path):
    for number, family in enumerate("abc"):
        (tmp_path / str(number)).mkdir()
        (tmp_path / str(number) / "Same.ttf").write_bytes(make_font({"T": TEE}, family))
    faces = find_faces([tmp_path])
    digests = sorted(sha256(path.read_bytes()) for path in tmp_path.glob("*/Same.ttf"))
    suffixed = [f"Same.ttf#{digest[:8]}" for digest in digests]
    assert [face.sha256 for face in faces] == digests
    assert [face.name for face in faces] == ["Same.ttf", *suffixed[1:]]
    assert find_faces([tmp_path / "2", tmp_path / "0", tmp_path / "1"]) == faces
    # A suffix finds also the one that has the plain name.
    assert [index_by_name(faces)[name] for name in suffixed] == faces
    (alone,) = find_faces([Path(faces[2].path)])
    assert index_by_name([alone]) == {"Same.ttf": alone, suffixed[2]: alone}


def test_a_path_without_a_font_is_an_error(tmp_path):
    named = {"gone": "gone not exist", "huge.ttf": "huge.ttf 268,435,456", "": tmp_path.name}
    (tmp_path / "huge.ttf").touch()
    os.truncate(tmp_path / "huge.ttf", 2**28 + 1)
    for number, data in enumerate((b"text", b"", b"\x00\x01\x00\x00" + bytes(100))):
        (tmp_path / f"{number}.ttf").write_bytes(data)
        named[f"{number}.ttf"] = f"{number}.ttf"
    if hasattr(os, "mkfifo"):
        os.mkfifo(tmp_path / "pipe.ttf")
        named["pipe.ttf"] = "pipe.ttf"
    for name, words in named.items():
        with pytest.raises(UsageError, match=naming(*words.split())):
            find_faces([Path(DROID), tmp_path / name])


def test_without_paths_the_fonts_of_installed_packages_are_found(tmp_path, monkeypatch):
    font = tmp_path / "some_font" / "files" / "Some, font.otf"
    font.parent.mkdir(parents=True)
    font.write_bytes(make_font({"T": TEE}))
    font.with_name("broken.ttf").write_bytes(b"text")
    info = tmp_path / "some_font-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: some-font\nVersion: 1.0\n")
    (info / "RECORD").write_text(
        '"some_font/files/Some, font.otf",sha256=x,1\nsome_font/files/broken.ttf,,\n'
        "some_font/gone.ttf,,\nsome_font/about.ttf.txt,,\n"
    )
    (tmp_path / "fonts" / "ttf").mkdir(parents=True)
    shutil.copy(DEJAVU, tmp_path / "fonts" / "ttf")
    # All others would take seconds.
    monkeypatch.setattr(matplotlib, "get_data_path", lambda: str(tmp_path))
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    faces = {face.name: face for face in find_faces([])}
    assert [*faces] == ["DejaVuSans.ttf", Path(DROID).name, "Some, font.otf"]
    assert faces["Some, font.otf"].path == str(font)


def test_symbols_and_frames_and_too_many_confusions_are_not_legible(tmp_path):
    readable = {
        face.name for face in find_faces([FONTS]) if face.characters == ALPHABET and face.legible
    }
    assert {"DejaVuSans.ttf", "cmr10.ttf", "STIXGeneral.ttf"} <= readable
    assert not {"cmsy10.ttf", "cmmi10.ttf", "LastResortHE-Regular.ttf"} & readable

    digits = {str(number): ((0, 70 * number, 200, 70 * number + 60),) for number in range(10)}
    for bars, family, confusions, legible in (
        ("aA", "Boxes", {"TX"}, True),
        ("aAbB", "Boxes", {"AB", "TX"}, True),
        ("aAbBc", "Boxes", {"AB", "AC", "BC", "TX"}, True),
        ("ABCD", "Boxes", {"AB", "AC", "AD", "BC", "BD", "CD", "TX"}, False),
        ("aA", "My Dingbats", {"TX"}, False),
    ):
        glyphs = digits | dict.fromkeys(bars, BAR) | dict.fromkeys("TX", TEE)
        (tmp_path / "boxes.ttf").write_bytes(make_font(glyphs, family))
        (face,) = find_faces([tmp_path])
        assert (face.confusions, face.legible) == (confusions, legible)
    (tmp_path / "boxes.ttf").write_bytes(make_font({"é": TEE}))
    (face,) = find_faces([tmp_path])
    assert (face.characters, face.legible) == ("", False)


@pytest.fixture
def font(tmp_path, cache_home):
    """A font that is in the cache."""
    (tmp_path / "a.ttf").write_bytes(make_font({"A": TEE, "B": TEE}))
    assert not is_known(tmp_path / "a.ttf")
    assert names(tmp_path / "a.ttf") == ["a.ttf"]
    return tmp_path / "a.ttf"


@pytest.fixture
def cache(cache_home):
    """The file with what is known about fonts."""
    return cache_home / "captcha-ocr" / "faces.json"


def is_known(path):
    """Whether a file passes for a font when other bytes are in it, unless size or time differ."""
    data, status = path.read_bytes(), path.stat()
    path.write_bytes(bytes(len(data)))
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    try:
        return names(path) == [path.name]
    except UsageError:
        return False
    finally:
        path.write_bytes(data)
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def test_a_font_is_known_in_the_next_run_from_one_file_that_is_written_if_something_is_new(
    font, cache
):
    before = cache.stat().st_ino
    (face,) = find_faces([font])
    assert (face.family, face.characters, face.look_alikes) == ("Boxes", "AB", ("AB",))
    assert is_known(font)
    assert (os.listdir(cache.parent), cache.stat().st_ino) == (["faces.json"], before)


def test_a_font_with_another_size_or_time_is_not_known(font):
    data, status = font.read_bytes(), font.stat()
    for added, time, known in ((b"x", 0, False), (b"", 1, False), (b"", 0, True)):
        font.write_bytes(bytes(len(data)) + added)
        os.utime(font, ns=(status.st_atime_ns, status.st_mtime_ns + time))
        assert is_known(font) == known
    font.write_bytes(make_font({"T": TEE}, "Other"))
    assert find_faces([font])[0].family == "Other"


def test_what_is_known_is_kept_after_an_error(folder, cache_home):
    with pytest.raises(UsageError, match="gone"):
        find_faces([folder, folder / "gone"])
    assert is_known(folder / "Droid.ttf")


@pytest.mark.parametrize(
    "change", ["version", "format", "freetype", "bit", "cut", "text", "empty", "folder"]
)
def test_a_cache_that_is_damaged_or_foreign_is_ignored_and_written_anew(font, cache, change):
    data = cache.read_bytes()
    document = json.loads(data)
    written = {
        "version": sealed(document | {"version": document["version"] + 1}),
        "format": sealed(document | {"format": "other"}),
        "freetype": sealed(document | {"freetype": "1.0"}),
        "bit": data.replace(b"Boxes", b"Foxes"),
        "cut": data[:-20],
        "text": b"\xff not JSON",
        "empty": b"",
    }
    cache.unlink()
    cache.write_bytes(written[change]) if change in written else cache.mkdir()
    assert not is_known(font)
    assert names(font) == ["a.ttf"]
    assert is_known(font) == (change != "folder")


def test_a_cache_that_cannot_be_written_is_no_error(font, tmp_path, monkeypatch):
    (tmp_path / "blocked").write_text("a file, no folder")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "blocked"))
    assert names(font) == ["a.ttf"]
    assert not is_known(font)


def test_a_path_that_is_no_text_and_files_that_no_longer_exist_are_left_out(font, cache):
    odd, other = font.with_name(os.fsdecode(b"\xff.ttf")), font.with_name("b.ttf")
    shutil.copy(font, odd)
    font.rename(other)
    assert names(odd, other) == [r"\xff.ttf"]
    assert [*json.loads(cache.read_bytes())["faces"]] == [str(other)]


@pytest.mark.parametrize("value", ["", "relative/folder"])
def test_without_a_folder_in_the_environment_the_cache_is_below_home(
    folder, tmp_path, monkeypatch, value
):
    monkeypatch.setenv("XDG_CACHE_HOME", value)
    monkeypatch.setenv("HOME", str(tmp_path))
    find_faces([folder])
    assert (tmp_path / ".cache" / "captcha-ocr" / "faces.json").is_file()


@pytest.fixture
def mixed(tmp_path):
    """A folder with a readable font, one of symbols, and a file that is no font."""
    (tmp_path / "fonts").mkdir()
    for name in ("DejaVuSans.ttf", "cmsy10.ttf"):
        shutil.copy(FONTS / name, tmp_path / "fonts")
    (tmp_path / "fonts" / "broken.ttf").write_bytes(b"text")
    return tmp_path / "fonts"


def drawn(*fonts, **options):
    plan = plan_drawing(DrawingOptions(fonts=tuple(map(str, fonts)), **options))
    return [face.name for face in Drawer(plan).faces]


SAVED = (DEJAVU, FONTS / "cmsy10.ttf", SERIF)


def save(*documents):
    """Save designs to a file."""
    Path("a.jsonl").write_text("".join(json.dumps(document) + "\n" for document in documents))


def test_a_design_has_its_own_fonts_and_those_of_the_package_can_be_replaced(mixed):
    assert drawn() == [Path(DROID).name]
    assert drawn(design="speckle") == ["DejaVuSans-Bold.ttf", "DejaVuSans-BoldOblique.ttf"]
    assert drawn(mixed) == drawn(mixed, design="speckle") == ["DejaVuSans.ttf"]
    for text in ('fonts.faces = ["DejaVuSans.ttf"]', "[fonts]\n"):
        Path("mine.toml").write_text(text)
        assert drawn(mixed, design="mine.toml") == ["DejaVuSans.ttf"]
    Path("mine.toml").write_text('fonts.faces = ["Gone.ttf"]')
    with pytest.raises(UsageError, match=naming("mine.toml", "fonts.faces", "Gone.ttf", "`fonts`")):
        drawn(mixed, design="mine.toml")


def test_of_a_folder_the_legible_fonts_are_taken_and_a_file_that_is_named_is_meant(mixed):
    symbols = mixed / "cmsy10.ttf"
    assert drawn(mixed, design="random") == ["DejaVuSans.ttf"]
    assert drawn(symbols, design="random", charset="+") == ["cmsy10.ttf"]
    both = ["DejaVuSans.ttf", "cmsy10.ttf"]
    assert drawn(mixed, symbols, design="random", charset="+") == both
    (mixed / "DejaVuSans.ttf").unlink()
    with pytest.raises(UsageError, match=naming("`fonts`", "docs/designs.md")):
        drawn(mixed, design="random")


@pytest.mark.parametrize("charset", ["a☃", "☃"])
def test_a_font_without_a_glyph_is_refused_by_name_if_it_is_meant_and_left_out_if_not(
    mixed, charset
):
    both = ["DejaVuSans.ttf", "DejaVuSerif.ttf"]
    assert drawn(mixed, SERIF, design="random", charset="a") == both
    shutil.copy(FONTS / "STIXGeneral.ttf", mixed)
    assert drawn(mixed, design="random", charset=charset) == ["DejaVuSans.ttf"]
    for fonts in ([DROID], [mixed, DROID]):
        with pytest.raises(UsageError, match=naming("DroidSansMono.ttf", "☃", "`fonts`")):
            drawn(*fonts, design="random", charset=charset)


def test_a_font_that_a_design_names_is_refused_if_it_lacks_a_character():
    Path("mine.toml").write_text('fonts.faces = ["DejaVuSans.ttf", "STIXGeneral.ttf"]')
    with pytest.raises(UsageError, match=naming("STIXGeneral.ttf", "☃")):
        drawn(FONTS, design="mine.toml", charset="a☃")


def test_characters_that_no_font_has_are_named():
    with pytest.raises(UsageError, match=naming("DejaVuSans-Bold.ttf", "字")):
        drawn(FONTS, design="random", charset="a字")


def test_what_a_font_lacks_is_found_by_its_glyphs(tmp_path):
    (tmp_path / "boxes.ttf").write_bytes(make_font({"A": TEE, "é": ((0, 0, 90, 90),)}))
    (face,) = find_faces([tmp_path])
    assert (lacking(face, "A"), lacking(face, "Aé"), lacking(face, "ABéü")) == ("", "", "Bü")


def test_saved_designs_have_the_fonts_that_they_name():
    digest = find_faces([Path(DEJAVU)])[0].sha256
    fonts = {"faces": ["DejaVuSans.ttf"], "sha256": [digest]}
    save({"fonts": fonts}, {"fonts": fonts}, {"fonts": {"faces": ["cmsy10.ttf"]}})
    assert drawn(*SAVED, design="a.jsonl") == ["DejaVuSans.ttf", "cmsy10.ttf"]


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
        drawn(*SAVED, design="a.jsonl")

import json
import os
import shutil
import sys
from pathlib import Path

import matplotlib
import pytest
from conftest import naming

from captcha_ocr.errors import UsageError
from captcha_ocr.generation.designs.design import kinds_of_fonts
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
    path = folder / "inner" / "Sans.TTF"
    facts = ("DejaVu Sans", ALPHABET, ("Il",), False)
    face = Face(*facts, str(path), "Sans.TTF", sha256(path.read_bytes()))
    assert find_faces([Path("inner/Sans.TTF")]) == [face]
    assert face.legible


def test_a_folder_is_searched_for_fonts_links_are_followed_once_and_hidden_files_left_out(folder):
    hidden = (FONTS / "cmr10.ttf").read_bytes()
    (folder / ".git").mkdir()
    (folder / "inner.ttf").mkdir()
    for name, data in (
        (".hidden.ttf", hidden),
        (".git/a.ttf", hidden),
        ("broken.ttf", b"text"),
        ("empty.otf", b""),
        ("notes.txt", b"text"),
    ):
        (folder / name).write_bytes(data)
    (folder / "inner" / "loop").symlink_to(folder)
    (folder / "nowhere.ttf").symlink_to(folder / "gone")
    assert names(folder) == ["Droid.ttf", "Sans.TTF"]
    assert find_faces([folder / "inner", folder / "Droid.ttf"]) == find_faces([folder])


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs mkfifo")
def test_a_pipe_is_no_font(folder):
    os.mkfifo(folder / "pipe.ttf")
    assert names(folder) == ["Droid.ttf", "Sans.TTF"]
    with pytest.raises(UsageError, match=r"pipe\.ttf"):
        find_faces([folder / "pipe.ttf"])


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
    named = {
        "gone": "gone not exist",
        "huge.ttf": "huge.ttf 268,435,456",
        "text.ttf": "text.ttf",
        "": tmp_path.name,
    }
    for name, size in (("huge.ttf", 2**28 + 1), ("text.ttf", 9)):
        (tmp_path / name).touch()
        os.truncate(tmp_path / name, size)
    for name, words in named.items():
        with pytest.raises(UsageError, match=naming(*words.split())):
            find_faces([Path(DROID), tmp_path / name])


def test_without_paths_the_fonts_of_installed_packages_are_found(tmp_path, monkeypatch):
    for name, data in {
        "some_font/files/Some, font.otf": make_font({"T": TEE}),
        "some_font/files/broken.ttf": b"text",
        "some_font-1.dist-info/METADATA": b"Metadata-Version: 2.1\nName: some-font\nVersion: 1\n",
        "some_font-1.dist-info/RECORD": b'"some_font/files/Some, font.otf",sha256=x,1\n'
        b"some_font/files/broken.ttf,,\nsome_font/gone.ttf,,\nsome_font/about.ttf.txt,,\n",
        "fonts/ttf/DejaVuSans.ttf": Path(DEJAVU).read_bytes(),
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(data)
    # All others would take seconds.
    monkeypatch.setattr(matplotlib, "get_data_path", lambda: str(tmp_path))
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    assert {face.name: face.path for face in find_faces([])} == {
        "DejaVuSans.ttf": str(tmp_path / "fonts/ttf/DejaVuSans.ttf"),
        "DroidSansMono.ttf": DROID,
        "Some, font.otf": str(tmp_path / "some_font/files/Some, font.otf"),
    }


def test_symbols_and_frames_and_too_many_confusions_are_not_legible(tmp_path):
    readable = ["DejaVuSans.ttf", "STIXGeneral.ttf", "cmr10.ttf"]
    others = ["LastResortHE-Regular.ttf", "cmmi10.ttf", "cmsy10.ttf"]
    faces = find_faces([FONTS / name for name in readable + others])
    assert [face.name for face in faces if face.legible] == readable

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


def test_what_a_font_lacks_is_found_by_its_glyphs(tmp_path):
    (tmp_path / "boxes.ttf").write_bytes(make_font({"é": TEE, "è": ((0, 0, 90, 90),)}))
    (face,) = find_faces([tmp_path])
    assert (face.characters, face.legible) == ("", False)
    missing = ["".join(lacking(face, characters)) for characters in ("é", "éè", "éBèü")]
    assert missing == ["", "", "Bü"]


@pytest.fixture
def font(tmp_path, cache):
    """A font that is in the cache."""
    (tmp_path / "a.ttf").write_bytes(make_font({"A": TEE, "B": TEE}))
    assert not is_known(tmp_path / "a.ttf")
    assert names(tmp_path / "a.ttf") == ["a.ttf"]
    return tmp_path / "a.ttf"


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """The file with what is known about fonts, which is not there yet."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "captcha-ocr" / "faces.json"


def is_known(path, added=b"", later=0):
    """Whether a file passes for a font when other bytes are in it."""
    data, status = path.read_bytes(), path.stat()
    path.write_bytes(bytes(len(data)) + added)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns + later))
    try:
        return names(path) == [path.name]
    except UsageError:
        return False
    finally:
        path.write_bytes(data)
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def test_a_font_of_the_same_size_and_time_is_known_from_a_file_that_is_written_if_it_is_new(
    font, cache
):
    before = cache.stat().st_ino
    (face,) = find_faces([font])
    assert (face.family, face.characters, face.look_alikes) == ("Boxes", "AB", ("AB",))
    assert is_known(font)
    assert (os.listdir(cache.parent), cache.stat().st_ino) == (["faces.json"], before)
    assert not is_known(font, added=b"x")
    assert not is_known(font, later=1)
    font.write_bytes(make_font({"T": TEE}, "Other"))
    assert find_faces([font])[0].family == "Other"


def test_what_is_known_is_kept_after_an_error(folder, cache):
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


def save(*fonts):
    """Save designs with these fonts to a file."""
    Path("a.jsonl").write_text("".join(json.dumps({"fonts": names}) + "\n" for names in fonts))


def test_a_design_has_its_own_fonts_and_those_of_the_package_can_be_replaced(mixed):
    assert drawn() == [Path(DROID).name]
    assert drawn(design="speckle") == ["DejaVuSans-Bold.ttf", "DejaVuSans-BoldOblique.ttf"]
    assert drawn(mixed) == drawn(mixed, design="speckle") == ["DejaVuSans.ttf"]
    for text in ('fonts.faces = ["DejaVuSans.ttf"]', "[fonts]\n"):
        Path("mine.toml").write_text(text)
        assert drawn(mixed, design="mine.toml") == ["DejaVuSans.ttf"]


def test_of_the_kinds_of_a_design_there_are_the_fonts_at_hand(mixed, tmp_path, monkeypatch):
    Path("mine.toml").write_text('[fonts]\nkinds = ["sans", "wide-sans"]\n')
    monkeypatch.setenv("XDG_DATA_DIRS", str(tmp_path / "system"))
    assert drawn(design="mine.toml") == ["DejaVuSans.ttf"]  # comes with matplotlib
    (tmp_path / "system" / "fonts").mkdir(parents=True)
    shutil.copy(SERIF, tmp_path / "system" / "fonts" / "LiberationSans-Regular.ttf")
    assert drawn(design="mine.toml") == ["DejaVuSans.ttf", "LiberationSans-Regular.ttf"]
    shutil.copy(SERIF, mixed)
    assert drawn(mixed, design="mine.toml") == ["DejaVuSans.ttf"]
    assert drawn(SERIF, design="mine.toml") == [Path(SERIF).name]  # none of the kinds


def test_every_kind_of_fonts_has_one_that_comes_with_the_dependencies():
    at_hand = {Path(DROID).name, *os.listdir(FONTS)}
    for kind, names_of_kind in kinds_of_fonts().items():
        assert at_hand & {*names_of_kind}, kind
        assert len({*names_of_kind}) == len(names_of_kind)


def test_of_a_folder_the_legible_fonts_are_taken_and_a_file_that_is_named_is_meant(mixed):
    symbols = mixed / "cmsy10.ttf"
    assert drawn(mixed, design="random") == ["DejaVuSans.ttf"]
    assert drawn(symbols, design="random", charset="+") == ["cmsy10.ttf"]
    both = ["DejaVuSans.ttf", "cmsy10.ttf"]
    assert drawn(mixed, symbols, design="random", charset="+") == both
    (mixed / "DejaVuSans.ttf").unlink()
    with pytest.raises(UsageError, match=naming("`fonts`", "docs/designs.md")):
        drawn(mixed, design="random")


def test_a_font_of_a_folder_that_lacks_a_glyph_is_left_out(mixed):
    shutil.copy(FONTS / "STIXGeneral.ttf", mixed)
    for charset in ("a☃", "☃"):
        assert drawn(mixed, design="random", charset=charset) == ["DejaVuSans.ttf"]


@pytest.mark.parametrize(
    ("fonts", "options", "named"),
    [
        ([DROID], {"design": "random", "charset": "a☃"}, "DroidSansMono.ttf ☃ `fonts`"),
        ([FONTS, DROID], {"design": "random", "charset": "☃"}, "DroidSansMono.ttf ☃ `fonts`"),
        ([FONTS], {"design": "mine.toml", "charset": "a☃"}, "STIXGeneral.ttf ☃"),
        ([FONTS], {"design": "random", "charset": "a字"}, "DejaVuSans-Bold.ttf 字"),
        ([DEJAVU], {"design": "mine.toml"}, "mine.toml fonts.faces STIXGeneral.ttf `fonts`"),
    ],
)
def test_a_font_that_is_named_and_is_missing_or_lacks_a_character_is_refused(fonts, options, named):
    Path("mine.toml").write_text('fonts.faces = ["DejaVuSans.ttf", "STIXGeneral.ttf"]')
    with pytest.raises(UsageError, match=naming(*named.split())):
        drawn(*fonts, **options)


def test_saved_designs_have_the_fonts_that_they_name():
    fonts = {"faces": ["DejaVuSans.ttf"], "sha256": [sha256(Path(DEJAVU).read_bytes())]}
    save(fonts, fonts, {"faces": ["cmsy10.ttf"]})
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
    save({"faces": ["DejaVuSans.ttf"]}, fonts)
    with pytest.raises(UsageError, match=naming("a.jsonl, line 2", *named.split())):
        drawn(*SAVED, design="a.jsonl")

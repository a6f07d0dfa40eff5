import hashlib
import importlib.util
import json
import os
import shutil
import sys
from pathlib import Path

import captcha.image
import pytest

from captcha_ocr.errors import UsageError
from captcha_ocr.generation.fonts.cache import cache_file
from captcha_ocr.generation.fonts.catalogue import Face, faces_named, find_faces, manifest
from captcha_ocr.generation.fonts.survey import ALPHABET

MATPLOTLIB = Path(
    importlib.util.find_spec("matplotlib").submodule_search_locations[0]
)  # not imported: it is slow
FONTS = MATPLOTLIB / "mpl-data" / "fonts" / "ttf"
DROID = Path(captcha.image.DEFAULT_FONTS[0])
BAR, TEE = ((0, 0, 100, 700),), ((150, 0, 250, 700), (0, 600, 400, 700))
pytestmark = pytest.mark.usefixtures("cache_home")


def sha256_of(path):
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()


def names(faces):
    return [face.name for face in faces]


@pytest.fixture
def folder(tmp_path):
    """A folder with two fonts, one of them in a folder in it."""
    (tmp_path / "fonts" / "inner").mkdir(parents=True)
    shutil.copy(FONTS / "DejaVuSans.ttf", tmp_path / "fonts" / "inner" / "Sans.TTF")
    shutil.copy(DROID, tmp_path / "fonts" / "Droid.ttf")
    return tmp_path / "fonts"


def test_a_file_gives_one_face():
    path = FONTS / "DejaVuSans.ttf"
    face = Face(
        str(path), "DejaVuSans.ttf", "DejaVu Sans", sha256_of(path), ALPHABET, ("Il",), False
    )
    assert find_faces([path]) == [face]
    assert face.characters == ALPHABET
    assert face.legible


def test_a_relative_path_becomes_absolute(folder, monkeypatch):
    monkeypatch.chdir(folder)
    assert [face.path for face in find_faces([Path("Droid.ttf")])] == [str(folder / "Droid.ttf")]


def test_a_folder_is_searched_with_its_folders_in_the_order_of_names(folder):
    assert names(find_faces([folder])) == ["Droid.ttf", "Sans.TTF"]
    assert find_faces([folder / "inner", folder / "Droid.ttf"]) == find_faces([folder])


def test_links_are_followed_once_and_hidden_files_left_out(folder):
    shutil.copy(FONTS / "cmr10.ttf", folder / ".hidden.ttf")
    (folder / ".git").mkdir()
    shutil.copy(FONTS / "cmtt10.ttf", folder / ".git" / "a.ttf")
    (folder / "inner" / "loop").symlink_to(folder)
    (folder / "nowhere.ttf").symlink_to(folder / "gone")
    assert names(find_faces([folder])) == ["Droid.ttf", "Sans.TTF"]


def test_broken_files_in_a_folder_are_left_out_and_other_files_do_not_matter(folder):
    (folder / "broken.ttf").write_bytes(b"text")
    (folder / "empty.otf").touch()
    (folder / "inner.ttf").mkdir()
    if hasattr(os, "mkfifo"):
        os.mkfifo(folder / "pipe.ttf")
    (folder / "notes.txt").write_text("text")
    assert names(find_faces([folder])) == ["Droid.ttf", "Sans.TTF"]


def test_files_with_the_same_bytes_are_one_face_with_the_first_name(folder):
    shutil.copy(DROID, folder / "Another.ttf")
    assert names(find_faces([folder, DROID])) == ["Another.ttf", "Sans.TTF"]


def test_of_files_with_one_name_all_but_the_first_get_a_suffix(tmp_path, make_font):
    for number, family in enumerate("abc"):
        (tmp_path / str(number)).mkdir()
        (tmp_path / str(number) / "Same.ttf").write_bytes(make_font({"T": TEE}, family))
    faces = find_faces([tmp_path])
    digests = sorted(sha256_of(path) for path in tmp_path.glob("*/Same.ttf"))
    assert manifest(faces) == [
        ["Same.ttf", digests[0]],
        *([f"Same.ttf#{digest[:8]}", digest] for digest in digests[1:]),
    ]
    assert find_faces([tmp_path / "2", tmp_path / "0", tmp_path / "1"]) == faces
    suffixed = [
        f"Same.ttf#{digest[:8]}" for digest in digests
    ]  # finds also the one that has the plain name
    assert faces_named(suffixed, faces) == faces
    alone = find_faces([Path(faces[2].path)])
    assert (names(alone), faces_named(suffixed[2:], alone)) == (["Same.ttf"], alone)


@pytest.mark.parametrize("data", [b"text", b"", b"\x00\x01\x00\x00" + bytes(100)])
def test_a_named_file_that_is_no_font_is_an_error(tmp_path, data):
    path = tmp_path / "broken.ttf"
    path.write_bytes(data)
    with pytest.raises(UsageError, match=r"broken\.ttf"):
        find_faces([DROID, path])


def test_a_path_that_does_not_exist_is_an_error(tmp_path):
    with pytest.raises(UsageError, match=r"gone.*not exist"):
        find_faces([tmp_path / "gone"])


def test_a_folder_without_a_font_is_an_error(tmp_path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "broken.ttf").write_bytes(b"text")
    with pytest.raises(UsageError, match="empty"):
        find_faces([DROID, tmp_path / "empty"])


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs pipes in folders")
def test_a_pipe_is_an_error_and_does_not_wait(tmp_path):
    os.mkfifo(tmp_path / "pipe.ttf")
    with pytest.raises(UsageError, match=r"pipe\.ttf"):
        find_faces([tmp_path / "pipe.ttf"])


def test_a_file_that_is_too_large_is_not_read(tmp_path):
    with open(tmp_path / "huge.ttf", "wb") as stream:
        stream.truncate(2**28 + 1)
    with pytest.raises(UsageError, match=r"huge\.ttf.*268,435,456"):
        find_faces([tmp_path / "huge.ttf"])


def test_without_paths_the_fonts_of_installed_packages_are_found(tmp_path, monkeypatch, make_font):
    (tmp_path / "some_font" / "files").mkdir(parents=True)
    (tmp_path / "some_font" / "files" / "Some, font.otf").write_bytes(make_font({"T": TEE}))
    (tmp_path / "some_font" / "files" / "broken.ttf").write_bytes(b"text")
    info = tmp_path / "some_font-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: some-font\nVersion: 1.0\n")
    rows = [
        '"some_font/files/Some, font.otf",sha256=x,1',
        "some_font/files/broken.ttf,,",
        "some_font/gone.ttf,,",
    ]
    (info / "RECORD").write_text("\n".join([*rows, "some_font/about.ttf.txt,,", ""]))
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    faces = {face.name: face for face in find_faces([])}
    assert {"Some, font.otf", DROID.name, "DejaVuSans.ttf", "STIXGeneral.ttf"} <= faces.keys()
    assert faces["Some, font.otf"].path == str(tmp_path / "some_font" / "files" / "Some, font.otf")
    assert names(find_faces([])) == sorted(faces)


def test_symbols_and_frames_and_too_many_confusions_are_not_legible(tmp_path, make_font):
    readable = {
        face.name for face in find_faces([FONTS]) if face.characters == ALPHABET and face.legible
    }
    assert {"DejaVuSans.ttf", "cmr10.ttf", "STIXGeneral.ttf"} <= readable
    assert not {"cmsy10.ttf", "cmmi10.ttf", "LastResortHE-Regular.ttf"} & readable

    def face_of(letters, family="Boxes"):
        path = tmp_path / "boxes.ttf"
        digits = {str(number): ((0, 70 * number, 200, 70 * number + 60),) for number in range(10)}
        path.write_bytes(
            make_font(digits | dict.fromkeys(letters, BAR) | dict.fromkeys("TX", TEE), family)
        )
        return find_faces([path])[0]

    assert face_of("aA").look_alikes == ("Aa", "TX")
    assert face_of("aA").confusions == {"TX"}
    assert face_of("aAbB").confusions == {"AB", "TX"}
    assert face_of("aAbBc").legible  # AB, AC, BC, TX
    assert not face_of("ABCD").legible
    assert not face_of("aA", "My Dingbats").legible


def test_a_face_without_a_character_is_neither_complete_nor_legible(tmp_path, make_font):
    (tmp_path / "a.ttf").write_bytes(make_font({"é": TEE}))
    (face,) = find_faces([tmp_path])
    assert (face.characters, face.legible) == ("", False)


def test_the_second_time_the_cache_answers_without_reading_the_font(folder, monkeypatch):
    first = find_faces([folder])
    known = folder / "Droid.ttf"
    status = known.stat()
    known.write_bytes(bytes(status.st_size))
    os.utime(known, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert find_faces([folder]) == first
    cache_file().unlink()
    assert names(find_faces([folder])) == ["Sans.TTF"]


def test_a_changed_font_is_read_again(folder):
    find_faces([folder])
    shutil.copy(FONTS / "cmr10.ttf", folder / "Droid.ttf")
    assert find_faces([folder / "Droid.ttf"])[0].family == "cmr10"


def test_faces_are_found_by_name_in_the_order_of_the_names(folder):
    faces = find_faces([folder])
    assert names(faces_named(["Sans.TTF", "Droid.ttf", "Sans.TTF"], faces)) == [
        "Sans.TTF",
        "Droid.ttf",
        "Sans.TTF",
    ]
    assert json.loads(json.dumps(manifest(faces))) == [[face.name, face.sha256] for face in faces]


def test_a_name_that_no_face_has_is_an_error_with_a_way_out(folder):
    with pytest.raises(UsageError, match=r"Gone\.ttf.*`fonts` FOLDER"):
        faces_named(["Droid.ttf", "Gone.ttf"], find_faces([folder]))

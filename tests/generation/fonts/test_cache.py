import json
import os

import pytest

from captcha_ocr.errors import UsageError
from captcha_ocr.generation.fonts.cache import FORMAT, VERSION, FaceCache, cache_file, face_cache
from captcha_ocr.system.documents import sealed

FACTS = ["00ff", "Family", "0Oab", "0O", False]
pytestmark = pytest.mark.usefixtures("cache_home")


@pytest.fixture
def font(tmp_path):
    """A file that stands for a font, with its facts in the cache."""
    path = tmp_path / "a.ttf"
    path.write_bytes(b"font")
    with face_cache() as cache:
        cache.put(str(path), path.stat(), FACTS)
    return path


def known(path):
    return FaceCache().get(str(path), path.stat())


def test_facts_are_kept_between_runs(font, cache_home):
    assert known(font) == FACTS
    assert cache_file() == cache_home / "captcha-ocr" / "faces.json"
    assert os.listdir(cache_file().parent) == ["faces.json"]


def test_a_file_with_another_size_or_time_is_not_known(font):
    status = font.stat()
    font.write_bytes(b"other font")
    os.utime(font, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert known(font) is None
    font.write_bytes(b"font")
    os.utime(font, ns=(status.st_atime_ns, status.st_mtime_ns + 1))
    assert known(font) is None
    os.utime(font, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert known(font) == FACTS


@pytest.mark.parametrize(
    "change", ["version", "format", "freetype", "faces", "bit", "cut", "text", "empty", "folder"]
)
def test_a_cache_that_is_damaged_or_foreign_is_ignored_and_written_anew(font, change):
    path = cache_file()
    document, data = json.loads(path.read_bytes()), path.read_bytes()
    written = {
        "version": sealed(document | {"version": VERSION + 1}),
        "format": sealed(document | {"format": f"other {FORMAT}"}),
        "freetype": sealed(document | {"freetype": "1.0"}),
        "faces": sealed(document | {"faces": [FACTS]}),
        "bit": data.replace(b"Family", b"Gamily"),
        "cut": data[:-20],
        "text": b"\xff not JSON",
        "empty": b"",
    }
    path.unlink()
    path.write_bytes(written[change]) if change in written else path.mkdir()
    assert known(font) is None
    with face_cache() as cache:
        cache.put(str(font), font.stat(), FACTS)
    assert known(font) == (None if change == "folder" else FACTS)


@pytest.mark.parametrize(
    "entry", [None, [], [4, 0], "text", [4, 0, *FACTS, 1], [4, 0, "00ff", "Family", "0O", 1, False]]
)
def test_an_entry_of_another_shape_is_ignored(font, entry):
    document = json.loads(cache_file().read_bytes())
    cache_file().write_bytes(sealed(document | {"faces": {str(font): entry}}))
    assert known(font) is None


def test_a_cache_that_cannot_be_written_is_no_error(tmp_path, monkeypatch):
    blocked = tmp_path / "blocked"
    blocked.write_text("a file, no folder")
    monkeypatch.setenv("XDG_CACHE_HOME", str(blocked))
    with face_cache() as cache:
        cache.put("a", os.stat(blocked), FACTS)
    assert blocked.read_text() == "a file, no folder"


def test_a_path_that_is_no_text_is_left_out(font, tmp_path):
    path, other = tmp_path / os.fsdecode(b"\xff.ttf"), tmp_path / "b.ttf"
    with face_cache() as cache:
        for each in (path, other):
            each.write_bytes(b"font")
            cache.put(str(each), each.stat(), FACTS)
    assert (known(path), known(font), known(other)) == (None, FACTS, FACTS)


def test_files_that_no_longer_exist_are_forgotten(font, tmp_path):
    font.unlink()
    other = tmp_path / "b.ttf"
    other.write_bytes(b"other")
    with face_cache() as cache:
        cache.put(str(other), other.stat(), FACTS)
    assert list(FaceCache().entries) == [str(other)]


def test_nothing_is_written_if_nothing_is_new(font):
    before = cache_file().stat().st_ino
    with face_cache() as cache:
        cache.get(str(font), font.stat())
    assert cache_file().stat().st_ino == before


def test_facts_found_before_an_error_are_kept(tmp_path):
    path = tmp_path / "a.ttf"
    path.write_bytes(b"font")

    def fail():
        with face_cache() as cache:
            cache.put(str(path), path.stat(), FACTS)
            raise UsageError("later")

    with pytest.raises(UsageError, match="later"):
        fail()
    assert known(path) == FACTS


@pytest.mark.parametrize("value", ["", "relative/folder"])
def test_without_a_folder_in_the_environment_the_cache_is_below_home(tmp_path, monkeypatch, value):
    monkeypatch.setenv("XDG_CACHE_HOME", value)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_file() == tmp_path / ".cache" / "captcha-ocr" / "faces.json"

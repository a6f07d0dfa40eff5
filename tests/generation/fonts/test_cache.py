import json
import os
from contextlib import closing

import pytest

from captcha_ocr.generation.fonts.cache import FaceCache
from captcha_ocr.system.documents import sealed

FACTS = ["00ff", "Family", "0Oab", "0O", False]
pytestmark = pytest.mark.usefixtures("cache_home")


def put(*paths):
    """Save the facts about files that stand for fonts."""
    with closing(FaceCache()) as cache:
        for path in paths:
            path.write_bytes(b"font")
            cache.put(str(path), path.stat(), FACTS)


def known(path):
    return FaceCache().get(str(path), path.stat())


@pytest.fixture
def font(tmp_path):
    """A file that stands for a font, with its facts in the cache."""
    put(tmp_path / "a.ttf")
    return tmp_path / "a.ttf"


def test_facts_are_kept_between_runs_in_one_file_that_is_written_if_something_is_new(
    font, cache_home
):
    path = cache_home / "captcha-ocr" / "faces.json"
    before = path.stat().st_ino
    assert known(font) == FACTS
    FaceCache().close()
    assert (os.listdir(path.parent), path.stat().st_ino) == (["faces.json"], before)


def test_a_file_with_another_size_or_time_is_not_known(font):
    status = font.stat()
    for data, time, facts in ((b"other font", 0, None), (b"font", 1, None), (b"font", 0, FACTS)):
        font.write_bytes(data)
        os.utime(font, ns=(status.st_atime_ns, status.st_mtime_ns + time))
        assert known(font) == facts


@pytest.mark.parametrize(
    "change", ["version", "format", "freetype", "bit", "cut", "text", "empty", "folder"]
)
def test_a_cache_that_is_damaged_or_foreign_is_ignored_and_written_anew(font, change):
    path = FaceCache().path
    data = path.read_bytes()
    document = json.loads(data)
    written = {
        "version": sealed(document | {"version": document["version"] + 1}),
        "format": sealed(document | {"format": "other"}),
        "freetype": sealed(document | {"freetype": "1.0"}),
        "bit": data.replace(b"Family", b"Gamily"),
        "cut": data[:-20],
        "text": b"\xff not JSON",
        "empty": b"",
    }
    path.unlink()
    path.write_bytes(written[change]) if change in written else path.mkdir()
    assert known(font) is None
    put(font)
    assert known(font) == (None if change == "folder" else FACTS)


def test_a_cache_that_cannot_be_written_is_no_error(tmp_path, monkeypatch):
    (tmp_path / "blocked").write_text("a file, no folder")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "blocked"))
    put(tmp_path / "a.ttf")
    assert known(tmp_path / "a.ttf") is None


def test_a_path_that_is_no_text_and_files_that_no_longer_exist_are_left_out(font, tmp_path):
    odd, other = tmp_path / os.fsdecode(b"\xff.ttf"), tmp_path / "b.ttf"
    font.unlink()
    put(odd, other)
    assert [*json.loads(FaceCache().path.read_bytes())["faces"]] == [str(other)]
    assert (known(odd), known(other)) == (None, FACTS)


@pytest.mark.parametrize("value", ["", "relative/folder"])
def test_without_a_folder_in_the_environment_the_cache_is_below_home(tmp_path, monkeypatch, value):
    monkeypatch.setenv("XDG_CACHE_HOME", value)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert FaceCache().path == tmp_path / ".cache" / "captcha-ocr" / "faces.json"

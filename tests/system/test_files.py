import errno
import json
import os
import re
import subprocess
import sys

import pytest

from captcha_ocr.errors import CaptchaOcrError, DamagedError, UsageError
from captcha_ocr.system.documents import MAX_NESTING, read_json, read_sealed, seal, sealed, to_json
from captcha_ocr.system.files import LOCK_FILE, TEMPORARY, read_checked, sha256, write_in_turn, writing_to

DOCUMENT = {"format": "captcha-ocr test", "version": 1, "text": "é", "numbers": [1, 2.5, None]}


def names(folder) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def nested(levels: int) -> bytes:
    """Return a JSON document of nested objects."""
    return b'{"a":' * levels + b"0" + b"}" * levels


def test_a_write_replaces_the_old_file_and_leaves_nothing_else(tmp_path):
    a, b = tmp_path / "a", tmp_path / "b"
    a.write_bytes(b"a longer old content")
    write_in_turn([(a, b"1"), (b, b"2"), (a, b"3")])
    assert (a.read_bytes(), b.read_bytes(), names(tmp_path)) == (b"3", b"2", ["a", "b"])


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG])
def test_a_write_that_fails_names_the_file_and_keeps_all_old_ones(tmp_path, monkeypatch, number):
    def fail_at_second(_):
        if len(list(tmp_path.glob("*" + TEMPORARY))) == 2:
            raise OSError(number, os.strerror(number))

    a, b = tmp_path / "a.json", tmp_path / "b.json"
    a.write_bytes(b"old")
    monkeypatch.setattr(os, "fsync", fail_at_second)
    error, named = (OSError, r"a\.json") if number == errno.EFBIG else (CaptchaOcrError, r"a\.json.*\b6\b")
    with pytest.raises(error, match=named):
        write_in_turn([(a, b"new"), (b, b"new")])
    assert (a.read_bytes(), names(tmp_path)) == (b"old", ["a.json"])


def test_a_second_writer_is_refused_until_the_first_has_ended(tmp_path):
    folder = tmp_path / "a" / "b"
    with writing_to(folder):
        with pytest.raises(CaptchaOcrError, match=re.escape(str(folder))), writing_to(folder):
            raise AssertionError
        assert names(folder) == [LOCK_FILE]
    assert names(tmp_path / "a") == []  # a folder that stays empty is removed
    with writing_to(folder):
        pass


def test_the_next_writer_takes_over_from_a_killed_one(tmp_path):
    code = "import os, sys; from captcha_ocr.system.files import *; from pathlib import Path\n"
    code += "with writing_to(Path(sys.argv[1])): os.kill(os.getpid(), 9)"
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=False)
    (tmp_path / ("a.json.0" + TEMPORARY)).write_bytes(b"half")
    (tmp_path / ("new" + TEMPORARY)).mkdir()
    (tmp_path / ("new" + TEMPORARY) / "shard").write_bytes(b"half")
    (tmp_path / "mine.tmp").touch()
    assert LOCK_FILE in names(tmp_path)
    with writing_to(tmp_path):
        assert names(tmp_path) == [LOCK_FILE, "mine.tmp"]
    assert names(tmp_path) == ["mine.tmp"]


def test_a_folder_that_is_a_file_or_a_broken_link_is_refused(tmp_path):
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to("nothing")
    for name in ("file", "link"):
        with pytest.raises(UsageError, match=re.escape(str(tmp_path / name))), writing_to(tmp_path / name):
            raise AssertionError


def test_a_document_is_readable_text_that_comes_back(tmp_path):
    assert to_json({"text": "é"}).decode() == '{\n  "text": "é"\n}\n'
    for data, document in ((to_json(DOCUMENT), DOCUMENT), (nested(MAX_NESTING), json.loads(nested(MAX_NESTING)))):
        (tmp_path / "a.json").write_bytes(data)
        assert read_json(tmp_path / "a.json") == document


def test_a_file_that_is_no_json_object_is_damage(tmp_path):
    path = tmp_path / "a.json"
    broken = [b"", b'{"a": 1', b"[1, 2]", b"null", b'{"a": "\xff"}', b'{"a": ' + b"9" * 5000 + b"}"]
    for content in [*broken, b"[" * 100_000, nested(MAX_NESTING + 1)]:
        path.write_bytes(content)
        with pytest.raises(DamagedError, match=r"a\.json"):
            read_json(path)


def test_a_folder_a_missing_and_a_too_large_file_are_damage(tmp_path, monkeypatch):
    monkeypatch.setattr("captcha_ocr.system.documents.MAX_DOCUMENT_BYTES", 2)
    (tmp_path / "folder").mkdir()
    (tmp_path / "large").write_bytes(b"{} ")
    for name in ("folder", "gone", "large"):
        with pytest.raises(DamagedError, match=re.escape(str(tmp_path / name))):
            read_json(tmp_path / name)


def test_the_seal_covers_every_key_in_any_order():
    assert seal(dict(reversed(DOCUMENT.items())))["sha256"] == seal(DOCUMENT)["sha256"]
    assert seal(seal(DOCUMENT)) == seal(DOCUMENT)
    for key in DOCUMENT:
        assert seal({**DOCUMENT, key: "changed"})["sha256"] != seal(DOCUMENT)["sha256"]


def test_a_sealed_document_comes_back(tmp_path):
    (tmp_path / "a.json").write_bytes(sealed(DOCUMENT))
    assert read_sealed(tmp_path / "a.json", "captcha-ocr test", 1) == seal(DOCUMENT)
    for file_format, version, named in (("captcha-ocr other", 1, "captcha-ocr other"), ("captcha-ocr test", 77, "77")):
        with pytest.raises(DamagedError, match=named):
            read_sealed(tmp_path / "a.json", file_format, version)


def test_any_other_bytes_break_the_seal(tmp_path):
    whole = sealed(DOCUMENT)
    for data in (whole.replace(b"2.5", b"2.6"), whole.replace(b"  ", b"   "), to_json(DOCUMENT)):
        (tmp_path / "a.json").write_bytes(data)
        with pytest.raises(DamagedError, match=r"a\.json"):
            read_sealed(tmp_path / "a.json", "captcha-ocr test", 1)


def test_bytes_are_read_only_with_the_expected_hash(tmp_path):
    (tmp_path / "a.bin").write_bytes(b"content")
    assert read_checked(tmp_path / "a.bin", sha256(b"content")) == b"content"
    for name, digest in (("a.bin", sha256(b"cOntent")), ("gone.bin", sha256(b"content"))):
        with pytest.raises(DamagedError, match=re.escape(name)):
            read_checked(tmp_path / name, digest)

import errno
import json
import os
import re
import subprocess
import sys
from contextlib import suppress

import pytest

from captcha_ocr.errors import CaptchaOcrError, DamagedError, UsageError
from captcha_ocr.files import (
    LOCK_FILE,
    MOST_DOCUMENT_BYTES,
    MOST_NESTED,
    TEMPORARY,
    read_checked,
    read_json,
    read_sealed,
    remove_files,
    seal,
    sha256,
    to_json,
    write_atomic,
    write_in_turn,
    writing_to,
)

DOCUMENT = {"format": "captcha-ocr test", "version": 1, "text": "é", "numbers": [1, 2.5, None]}


def test_sha256_is_the_standard_one():
    assert sha256(b"abc") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"


def test_writing_replaces_the_old_file(tmp_path):
    path = tmp_path / "a.json"
    path.write_bytes(b"a longer old content")
    write_atomic(path, b"new")
    assert path.read_bytes() == b"new"


def test_writing_leaves_nothing_else_behind(tmp_path):
    write_atomic(tmp_path / "a.json", b"new")
    assert [path.name for path in tmp_path.iterdir()] == ["a.json"]


def test_a_write_that_fails_leaves_the_old_file_whole(tmp_path):
    path = tmp_path / "a.json"
    path.write_bytes(b"old")
    with pytest.raises(TypeError):
        write_atomic(path, "text is not bytes")
    assert path.read_bytes() == b"old"


def test_files_written_in_turn_are_replaced_one_after_the_other_once_all_are_written(tmp_path, monkeypatch):
    a, b = tmp_path / "a", tmp_path / "b"
    turns, replace = [], os.replace

    def watched(source, target):
        turns.append((target.name, len(list(tmp_path.glob("*" + TEMPORARY)))))
        replace(source, target)

    monkeypatch.setattr(os, "replace", watched)
    write_in_turn([(a, b"1"), (b, b"2"), (a, b"3")])
    assert turns == [("a", 3), ("b", 2), ("a", 1)]
    assert (a.read_bytes(), b.read_bytes()) == (b"3", b"2")


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_leaves_the_old_file_and_says_how_much_was_needed(tmp_path, monkeypatch, number):
    path = tmp_path / "a.json"
    path.write_bytes(b"old")

    def full(_):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(CaptchaOcrError, match=r"a\.json.*\b3\b"):
        write_atomic(path, b"new")
    assert [path.name for path in tmp_path.iterdir()] == ["a.json"]
    assert path.read_bytes() == b"old"


def test_a_second_writer_is_refused_until_the_first_has_ended(tmp_path):
    with (
        writing_to(tmp_path),
        pytest.raises(CaptchaOcrError, match=re.escape(str(tmp_path))),
        writing_to(tmp_path),
    ):
        raise AssertionError
    with writing_to(tmp_path):
        assert (tmp_path / LOCK_FILE).exists()


def test_a_writer_that_was_killed_keeps_nobody_out(tmp_path):
    code = "import os, sys; from captcha_ocr.files import *; from pathlib import Path\n"
    code += "with writing_to(Path(sys.argv[1])): os.kill(os.getpid(), 9)"
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=False)
    assert (tmp_path / LOCK_FILE).exists()
    with writing_to(tmp_path):
        (tmp_path / "a").touch()
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_what_a_killed_writer_left_half_written_is_removed_by_the_next(tmp_path):
    (tmp_path / ("a.json.0" + TEMPORARY)).write_bytes(b"half")
    (tmp_path / ("new" + TEMPORARY)).mkdir()
    (tmp_path / ("new" + TEMPORARY) / "shard").write_bytes(b"half")
    (tmp_path / "mine.tmp").touch()
    with writing_to(tmp_path):
        assert sorted(path.name for path in tmp_path.iterdir()) == [LOCK_FILE, "mine.tmp"]


def test_a_folder_that_stays_empty_goes_again(tmp_path):
    with writing_to(tmp_path / "a" / "b"):
        assert (tmp_path / "a" / "b").is_dir()
    assert list((tmp_path / "a").iterdir()) == []


def test_a_document_is_written_as_it_is_read(tmp_path):
    (tmp_path / "a.json").write_bytes(to_json(DOCUMENT))
    assert read_json(tmp_path / "a.json") == DOCUMENT


def test_a_document_is_readable_text_with_a_newline_at_the_end():
    assert to_json({"text": "é"}).decode() == '{\n  "text": "é"\n}\n'


def test_a_missing_document_is_damage(tmp_path):
    with pytest.raises(DamagedError, match=r"a\.json"):
        read_json(tmp_path / "a.json")


@pytest.mark.parametrize(
    "content",
    [b"", b'{"a": 1', b"[1, 2]", b"null", b'{"a": "\xff"}', b"[" * 100_000, b'{"a": ' + b"9" * 5000 + b"}"],
    ids=["empty", "cut", "list", "null", "not UTF-8", "too deep", "endless number"],
)
def test_a_file_that_is_no_json_object_is_damage(tmp_path, content):
    (tmp_path / "a.json").write_bytes(content)
    with pytest.raises(DamagedError, match=r"a\.json"):
        read_json(tmp_path / "a.json")


def test_a_folder_in_place_of_a_document_is_damage(tmp_path):
    with pytest.raises(DamagedError):
        read_json(tmp_path)


def test_the_seal_does_not_depend_on_the_order_of_keys():
    assert seal(dict(reversed(DOCUMENT.items())))["sha256"] == seal(DOCUMENT)["sha256"]


def test_sealing_again_changes_nothing():
    assert seal(seal(DOCUMENT)) == seal(DOCUMENT)


@pytest.mark.parametrize("key", list(DOCUMENT))
def test_the_seal_covers_every_key(key):
    assert seal({**DOCUMENT, key: "changed"})["sha256"] != seal(DOCUMENT)["sha256"]


def test_a_sealed_document_is_read_back(tmp_path):
    path = tmp_path / "a.json"
    path.write_bytes(to_json(seal(DOCUMENT)))
    assert read_sealed(path, "captcha-ocr test", 1) == seal(DOCUMENT)


def test_a_flipped_bit_anywhere_in_a_sealed_document_changes_nothing_that_is_read(tmp_path):
    path, whole = tmp_path / "a.json", to_json(seal(DOCUMENT))
    for place in range(len(whole)):
        flipped = bytearray(whole)
        flipped[place] ^= 1 << place % 8
        path.write_bytes(flipped)
        with suppress(DamagedError):  # a flip in the white space between two values may do no harm
            assert read_sealed(path, "captcha-ocr test", 1) == seal(DOCUMENT)


def test_a_changed_value_breaks_the_seal(tmp_path):
    path = tmp_path / "a.json"
    path.write_bytes(to_json(seal(DOCUMENT)).replace(b"2.5", b"2.6"))
    with pytest.raises(DamagedError, match=r"a\.json"):
        read_sealed(path, "captcha-ocr test", 1)


def test_a_document_without_a_seal_is_damage(tmp_path):
    path = tmp_path / "a.json"
    path.write_bytes(json.dumps(DOCUMENT).encode())
    with pytest.raises(DamagedError):
        read_sealed(path, "captcha-ocr test", 1)


@pytest.mark.parametrize(
    ("file_format", "version", "named"), [("captcha-ocr other", 1, "captcha-ocr other"), ("captcha-ocr test", 77, "77")]
)
def test_a_document_of_another_kind_or_version_is_refused(tmp_path, file_format, version, named):
    path = tmp_path / "a.json"
    path.write_bytes(to_json(seal(DOCUMENT)))
    with pytest.raises(DamagedError, match=named):
        read_sealed(path, file_format, version)


def test_checked_bytes_are_read_back(tmp_path):
    (tmp_path / "a").write_bytes(b"content")
    assert read_checked(tmp_path / "a", sha256(b"content")) == b"content"


def test_bytes_with_another_hash_are_refused(tmp_path):
    (tmp_path / "a.bin").write_bytes(b"cOntent")
    with pytest.raises(DamagedError, match=r"a\.bin"):
        read_checked(tmp_path / "a.bin", sha256(b"content"))


def test_a_missing_file_is_damage_and_named(tmp_path):
    with pytest.raises(DamagedError, match=r"gone\.bin"):
        read_checked(tmp_path / "gone.bin", sha256(b""))


def test_files_that_are_not_there_need_no_removing(tmp_path):
    (tmp_path / "a").touch()
    remove_files([tmp_path / "gone", tmp_path / "a"])
    assert not list(tmp_path.iterdir())


def test_a_folder_that_is_a_file_or_a_link_to_nothing_is_refused(tmp_path):
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to("nothing")
    for name in ("file", "link"):
        with pytest.raises(UsageError, match=re.escape(str(tmp_path / name))), writing_to(tmp_path / name):
            raise AssertionError


def test_an_error_of_writing_names_the_file(tmp_path, monkeypatch):
    def too_large(_):
        raise OSError(errno.EFBIG, "File too large")

    monkeypatch.setattr(os, "fsync", too_large)
    with pytest.raises(OSError, match="File too large") as error:
        write_atomic(tmp_path / "a.json", b"new")
    assert error.value.filename == str(tmp_path / "a.json")


def test_a_document_nests_no_deeper_than_ours_do(tmp_path):
    deep = b'{"a":' * MOST_NESTED + b"0" + b"}" * MOST_NESTED
    (tmp_path / "a.json").write_bytes(deep)
    read_json(tmp_path / "a.json")
    (tmp_path / "a.json").write_bytes(b'{"a":' + deep + b"}")
    with pytest.raises(DamagedError, match=r"a\.json"):
        read_json(tmp_path / "a.json")


def test_a_document_has_a_size_that_it_cannot_exceed(tmp_path):
    with open(tmp_path / "a.json", "wb") as stream:
        stream.truncate(MOST_DOCUMENT_BYTES + 1)
    with pytest.raises(DamagedError, match=r"a\.json"):
        read_json(tmp_path / "a.json")

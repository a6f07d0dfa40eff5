import errno
import fcntl
import os
import re
import subprocess
import sys

import pytest
from conftest import contents, naming

from captcha_ocr.errors import CaptchaOcrError, DamagedError, UsageError
from captcha_ocr.system.files import (
    LOCK_FILE,
    TEMPORARY,
    read_checked,
    read_text,
    read_whole,
    sha256,
    write_in_turn,
    writing_to,
)


def names(folder) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_write_replaces_the_old_file_and_leaves_nothing_else(tmp_path):
    a, b = tmp_path / "a", tmp_path / "b"
    a.write_bytes(b"a longer old content")
    write_in_turn([(a, b"1"), (b, b"2"), (a, b"3")])
    assert contents(tmp_path) == {"a": b"3", "b": b"2"}


@pytest.mark.parametrize(
    ("number", "error", "named"),
    [
        (errno.ENOSPC, CaptchaOcrError, r"a\.json.*\b6\b"),
        (errno.EDQUOT, CaptchaOcrError, r"a\.json.*\b6\b"),
        (errno.EFBIG, OSError, r"a\.json"),
    ],
)
def test_a_write_that_fails_names_the_file_and_keeps_all_old_ones(
    tmp_path, monkeypatch, number, error, named
):
    def fail_at_second(_):
        if len(list(tmp_path.glob("*" + TEMPORARY))) == 2:
            raise OSError(number, os.strerror(number))

    a, b = tmp_path / "a.json", tmp_path / "b.json"
    a.write_bytes(b"old")
    monkeypatch.setattr(os, "fsync", fail_at_second)
    with pytest.raises(error, match=named):
        write_in_turn([(a, b"new"), (b, b"new")])
    assert contents(tmp_path) == {"a.json": b"old"}


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
    for name in ("a.json.0" + TEMPORARY, f"new{TEMPORARY}/shard", "mine.tmp"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    assert LOCK_FILE in names(tmp_path)
    with writing_to(tmp_path):
        assert names(tmp_path) == [LOCK_FILE, "mine.tmp"]
    assert names(tmp_path) == ["mine.tmp"]


@pytest.mark.parametrize("name", ["ENOLCK", "EOPNOTSUPP", "ENOSYS"])
def test_a_folder_is_written_to_where_the_file_system_has_no_locks(tmp_path, monkeypatch, name):
    def refuse(*_):
        raise OSError(getattr(errno, name), "no locks")

    monkeypatch.setattr(fcntl, "flock", refuse)
    with writing_to(tmp_path / "new"):
        write_in_turn([(tmp_path / "new" / "a", b"1")])
    assert (tmp_path / "new" / "a").read_bytes() == b"1"


@pytest.mark.parametrize("target", ["victim", "nothing", "folder"])
def test_nothing_is_written_through_a_link(tmp_path, target):
    (tmp_path / "victim").write_bytes(b"precious")
    (tmp_path / "folder").mkdir()
    (tmp_path / f"a.0{TEMPORARY}").symlink_to(target)
    write_in_turn([(tmp_path / "a", b"1")])
    assert contents(tmp_path) == {"a": b"1", "victim": b"precious"}
    assert not (tmp_path / "a").is_symlink()


@pytest.mark.parametrize("read", [read_whole, read_text])
def test_a_pointer_of_git_lfs_is_named(tmp_path, read):
    (tmp_path / "a.csv").write_bytes(b"version https://git-lfs.github.com/spec/v1\nsize 9\n")
    with pytest.raises(CaptchaOcrError, match=naming("a.csv", "git lfs pull")):
        read(tmp_path / "a.csv")


@pytest.mark.parametrize("read", [read_whole, read_text])
def test_a_file_is_missing_or_a_link_leads_to_none(tmp_path, read):
    (tmp_path / "link.csv").symlink_to("gone.csv")
    (tmp_path / "loop.csv").symlink_to("loop.csv")
    for name, what in (("gone.csv", "is"), ("link.csv", "leads"), ("loop.csv", "cannot")):
        with pytest.raises(CaptchaOcrError, match=naming(f"{name} {what}")):
            read(tmp_path / name)


def test_a_broken_link_is_no_folder_to_write_to(tmp_path):
    link = tmp_path / "link"
    link.symlink_to("nothing")
    with pytest.raises(UsageError, match=re.escape(str(link))), writing_to(link):
        raise AssertionError


def test_bytes_are_read_only_with_the_expected_hash(tmp_path):
    (tmp_path / "a.bin").write_bytes(b"content")
    assert read_checked(tmp_path / "a.bin", sha256(b"content")) == b"content"
    for name, digest in (("a.bin", sha256(b"cOntent")), ("gone.bin", sha256(b"content"))):
        with pytest.raises(DamagedError, match=re.escape(name)):
            read_checked(tmp_path / name, digest)

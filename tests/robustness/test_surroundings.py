"""What is around the program.

Closed pipes, full and read-only disks, odd names, forbidden files, no home, no network.
"""

import errno
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import AS_ROOT, DRAWN_ALIKE, invoke, run_elsewhere

from captcha_ocr.cli.app import main

OCR = [sys.executable, "-m", "captcha_ocr"]
UNQUIETS_ONNXRUNTIME = (
    *("--unset=ORT_DISABLE_TELEMETRY", "--unset=ORT_RUNNING_UNIT_TESTS"),
    *("--unset=CI", "--unset=XDG_CACHE_HOME"),
)
ODD = ["with space.png", "new\nline.png", "tab\there.png", "-dash.png", "back\\slash.png"]
ODD += ["\udcff\udcfe.png", "é.png", "*.png", "\u202e.png", "\x1b[31m.png"]


def ocr(*arguments, before: tuple = ()) -> subprocess.CompletedProcess:
    """Run a command in a process of its own, perhaps started by another program."""
    return subprocess.run([*before, *OCR, *arguments], capture_output=True)


def test_every_odd_name_can_be_named_takes_one_line_and_is_given_back_as_it_is(
    images, tmp_path, monkeypatch
):
    odd = tmp_path / "an odd\nfolder \udcff"
    odd.mkdir()
    for path, name in zip(sorted(images.glob("*.png")), ODD, strict=False):
        shutil.copy(path, odd / name)
    done = ocr("eval", "--json", odd)
    paths = {json.loads(line)["path"] for line in done.stdout.splitlines()}
    assert done.returncode == 0, done.stderr
    assert paths == {os.fspath(odd / name) for name in ODD}
    monkeypatch.chdir(odd)
    assert all(invoke("eval", "--", name).exit_code == 0 for name in ODD)
    (odd / "new\nline.png").write_bytes(b"no image")
    done = ocr("eval", odd)
    lines = done.stdout.splitlines()
    assert (done.returncode, len(lines)) == (1, len(ODD) - 1)
    assert all(line.decode().count("\t") == 2 for line in lines)
    shown = ["tab\\there", "back\\\\slash", "\\udcff\\udcfe", "\\u202e", "\\x1b[31m"]
    assert all(f"/{name}.png\t".encode() in done.stdout for name in shown)
    assert [rb"new\nline.png" in line for line in done.stderr.splitlines()].count(True) == 1


@pytest.mark.parametrize("options", ["ro,mode=000", "size=64k,nr_inodes=1"])
def test_commands_with_workers_run_where_dev_shm_takes_no_files(tmp_path, options):
    mount = f"mount -t tmpfs -o {options} none /dev/shm"
    if subprocess.run(["unshare", "-rm", "sh", "-c", mount], capture_output=True).returncode:
        pytest.skip("this machine forbids to mount in a namespace of one's own")
    words = ["generate", "--count", "300", "--workers", "2", *DRAWN_ALIKE, "--out"]
    before = ("unshare", "-rm", "sh", "-c", mount + ' && "$@"', "sh")
    done = ocr(*words, tmp_path / "images", before=before)
    assert done.returncode == 0, done.stderr
    assert b"/dev/shm" in done.stderr
    assert len(list((tmp_path / "images").glob("*.png"))) == 300


INSPECT = "inspect --out inspected --workers 1"


@pytest.mark.parametrize(
    ("command", "home"),
    [("eval", []), ("eval", ["HOME="]), (INSPECT, []), (INSPECT, ["HOME=/dev/null"])],
)
def test_no_command_needs_a_home(images, command, home):
    before = ("env", "--unset=HOME", "--unset=XDG_CACHE_HOME", *home)
    done = ocr(*command.split(), images, before=before)
    assert done.returncode == 0, done.stderr


def test_odd_names_are_prepared_and_trained_on(images, tmp_path):
    folder = tmp_path / "an odd\nfolder \udcff"
    table = shutil.copytree(images, folder / "images") / "labels.csv"
    file = min(images.glob("*.png")).name
    (table.parent / file).rename(table.parent / "new\nline.png")
    table.write_text(table.read_text().replace(file, '"new\nline.png"'))
    shards, run = folder / "shards", folder / "run"
    for words in (
        ["prepare", table.parent, "--out", shards, "--size", "48x16", "--quiet"],
        ["train", "--preset", "tiny", "--data", shards, "--out", run, "--epochs", 1, "--quiet"],
        ["eval", "--model", run, table.parent],
    ):
        result = invoke(*words)
        assert result.exit_code == 0, result.stderr


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="/dev/full is Linux's")
def test_a_full_standard_output_is_a_sentence(images):
    for words in (["eval", images], ["eval", images, "--csv"], ["--help"]):
        with open("/dev/full", "wb") as full:
            done = subprocess.run([*OCR, *words], stdout=full, stderr=subprocess.PIPE)
        assert done.returncode == 1
        assert os.strerror(errno.ENOSPC).encode() in done.stderr.splitlines()[-1]
        assert b"Traceback" not in done.stderr


def test_a_full_temporary_folder_is_named_as_one(run, images, monkeypatch, capfd):
    name = "captcha_ocr.network.onnx_export.to_onnx"
    monkeypatch.setattr(name, lambda *_: Path("/dev/full").write_bytes(b"a"))
    with pytest.raises(SystemExit, match="1"):
        main(["export", str(images), "--model", str(run)])
    assert "temporary file" in capfd.readouterr().err.splitlines()[-1]


def test_a_read_only_folder_is_read_and_a_sentence_says_that_it_cannot_be_written(
    images, run, tmp_path
):
    source, folder = tmp_path / "source", tmp_path / "read-only"
    shutil.copytree(images, source / "images")
    shutil.copytree(run, source / "run")
    folder.mkdir()
    # `source` at `folder`, where nobody can write, not even root
    mount = 'mount --bind "$0" "$1" && mount -o remount,ro,bind "$1" && shift && exec "$@"'
    before = ("unshare", *AS_ROOT, "--mount", "sh", "-c", mount, source, folder)
    if not shutil.which("unshare") or subprocess.run([*before, "true"]).returncode:
        pytest.skip("only Linux has read-only folders, for users who may call unshare")
    done = ocr("eval", "--model", folder / "run", folder / "images", before=before)
    assert done.returncode == 0, done.stderr
    drawing = ["generate", "--count", "60", *DRAWN_ALIKE, "--out"]
    done = ocr(*drawing, folder / "images", before=before)
    assert done.returncode == 0, done.stderr
    for words in (drawing, ["prepare", images, "--out"], ["inspect", images, "--out"]):
        done = ocr(*words, folder / "new", before=before)
        assert done.returncode == 1
        assert str(folder / "new") in done.stderr.splitlines()[-1].decode()


def test_a_file_that_may_not_be_read_is_a_sentence(images, tmp_path):
    path = shutil.copy(next(images.glob("*.png")), tmp_path / "a.png")
    path.chmod(0)
    # Root may read all files, unless it lacks these capabilities.
    as_anybody = ["setpriv", "--bounding-set=-dac_override,-dac_read_search", "--inh-caps=-all"]
    if os.geteuid() != 0:
        as_anybody = []
    elif shutil.which("setpriv") is None:
        pytest.skip("root may read every file")
    done = ocr("eval", path, before=as_anybody)
    assert done.returncode == 1
    assert str(path) in done.stderr.splitlines()[-1].decode()


def test_reading_leaves_nothing_in_the_home_folder(images, tmp_path):
    """By default onnxruntime keeps the events that it wants to send there."""
    before = ("env", *UNQUIETS_ONNXRUNTIME, f"HOME={tmp_path}")
    done = ocr("eval", images, "--engine", "onnx", before=before)
    assert done.returncode == 0, done.stderr
    assert not list(tmp_path.iterdir())


ALONE = """
import os, sys
ASKS = ("connect", "getaddrinfo", "gethostby", "sendto", "sendmsg")
ASKS = (*(f"socket.{name}" for name in ASKS), "urllib.", "http.", "ftplib.", "smtplib.")
def watch(event, arguments):
    if event.startswith(ASKS):
        with open("asked for the network", "a") as file:
            file.write(f"{event} {arguments}")
sys.addaudithook(watch)
os.closerange(0, 3)
sys.stdin = sys.stdout = sys.stderr = None
"""


def test_every_command_does_without_the_network_and_the_standard_streams(images):
    run_elsewhere(
        "generate --count 5 --workers 1 --out images",
        f"prepare {images} --preset tiny --workers 1 --out shards",
        "train --preset tiny --data shards --out run --epochs 1 --tensorboard",
        f"export {images} --model run",
        f"inspect {images} --model run --workers 1 --out looked",
        f"eval --model run {images} --out own.csv",
        f"eval {images} --out built-in.csv",
        "doctor",
        code=ALONE,
    )
    assert not Path("asked for the network").exists()
    assert len(list(Path("images").glob("*.png"))) == 5
    assert Path("run", "confusion.png").exists()

"""What is around the program: closed pipes, full and read-only disks, odd names, forbidden files, no network."""

import errno
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import DRAWN_ALIKE, invoke
from test_full_disk import AS_ROOT

import captcha_ocr.network.onnx_export
from captcha_ocr.cli.app import main

OCR = [sys.executable, "-m", "captcha_ocr"]
QUIETS_ONNXRUNTIME = ("ORT_DISABLE_TELEMETRY", "ORT_RUNNING_UNIT_TESTS", "CI", "XDG_CACHE_HOME")
ODD = [
    *("with space.png", "new\nline.png", "tab\there.png", "-dash.png", "back\\slash.png", "\udcff\udcfe.png"),
    *("é.png", "*.png"),
]


def ocr(*arguments, **options) -> subprocess.CompletedProcess:
    return subprocess.run([*OCR, *map(os.fspath, arguments)], capture_output=True, **options)


@pytest.fixture
def odd(images, tmp_path) -> Path:
    """Images with odd names in a folder with an odd name."""
    folder = tmp_path / "an odd\nfolder \udcff"
    folder.mkdir()
    for path, name in zip(sorted(images.glob("*.png")), ODD, strict=False):
        shutil.copy(path, folder / name)
    return folder


def test_every_odd_name_takes_one_line_and_is_given_back_as_it_is(odd):
    done = ocr("eval", "--json", odd)
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert done.returncode == 0, done.stderr
    assert {row["path"] for row in rows} == {os.fspath(odd / name) for name in ODD}
    (odd / "new\nline.png").write_bytes(b"no image")
    done = ocr("eval", odd)
    assert done.returncode == 1
    assert len(done.stdout.splitlines()) == len(ODD) - 1
    assert all(line.decode().count("\t") == 2 for line in done.stdout.splitlines())
    assert rb"new\nline.png" in done.stderr.splitlines()[-1]
    assert done.stderr.count(rb"new\nline.png") == 1


def test_an_odd_name_can_be_named(odd, monkeypatch):
    monkeypatch.chdir(odd)
    for name in ODD:
        assert invoke("eval", "--", name).exit_code == 0


def test_odd_names_are_prepared_and_trained_on(images, tmp_path):
    folder = tmp_path / "an odd\nfolder \udcff"
    shutil.copytree(images, folder / "images")
    heading, first, *others = (folder / "images" / "labels.csv").read_text().splitlines()
    file, text = first.split(",")
    (folder / "images" / file).rename(folder / "images" / "new\nline.png")
    (folder / "images" / "labels.csv").write_text("\n".join([heading, f'"new\nline.png",{text}', *others]))
    shards, run = folder / "shards", folder / "run"
    for words in (
        ["prepare", folder / "images", "--out", shards, "--size", "48x16", "--quiet"],
        ["train", "--preset", "tiny", "--data", shards, "--out", run, "--epochs", 1, "--quiet"],
        ["eval", "--model", run, folder / "images"],
    ):
        result = invoke(*words)
        assert result.exit_code == 0, result.stderr


def test_a_reader_that_left_is_no_error_of_ours(images):
    process = subprocess.Popen([*OCR, "eval", images], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    process.stdout.close()
    errors = process.stderr.read()
    process.stderr.close()
    assert process.wait() == 1
    assert b"Traceback" not in errors
    assert b"Exception ignored" not in errors


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="/dev/full is Linux's")
@pytest.mark.parametrize("arguments", [["eval"], ["eval", "--csv"], ["--help"]])
def test_a_full_standard_output_is_a_sentence(images, arguments):
    words = [*OCR, *arguments, *([images] if arguments[0] == "eval" else [])]
    with open("/dev/full", "wb") as full:
        done = subprocess.run(words, stdout=full, stderr=subprocess.PIPE)
    assert done.returncode == 1
    assert os.strerror(errno.ENOSPC).encode() in done.stderr.splitlines()[-1]
    assert b"Traceback" not in done.stderr


@pytest.mark.skipif(os.name != "posix", reason="a shell closes them")
@pytest.mark.parametrize("closed", ["2>&-", "1>&-", "0<&- 1>&- 2>&-"])
def test_every_step_does_without_the_standard_streams(images, tmp_path, closed):
    script = """
        ocr() { "$0" -m captcha_ocr "$@" CLOSED; }
        ocr generate --count 5 --workers 1 --out "$2/images" && ocr eval "$2/images" || exit
    """.replace("CLOSED", closed)
    if closed.startswith("0"):
        script += """
        ocr prepare "$1" --size 48x16 --out "$2/shards" &&
        ocr train --data "$2/shards" --epochs 1 --out "$2/run" && ocr eval "$1" --model "$2/run"
        """
    done = subprocess.run(["sh", "-c", script, sys.executable, images, tmp_path], capture_output=True)
    assert done.returncode == 0, done.stderr
    assert len(list((tmp_path / "images").glob("*.png"))) == 5
    assert (tmp_path / "run" / "confusion.png").exists() == closed.startswith("0")


def test_a_full_temporary_folder_is_named_as_one(run, images, monkeypatch, capfd):
    def full(*_):
        with open("/dev/full", "wb", buffering=0) as stream:
            stream.write(b"a")

    monkeypatch.setattr(captcha_ocr.network.onnx_export, "to_onnx", full)
    with pytest.raises(SystemExit, match="1"):
        main(["export", str(images), "--model", str(run)])
    assert "temporary file" in capfd.readouterr().err.splitlines()[-1]


@pytest.mark.skipif(os.name != "posix", reason="a shell sets the limit")
def test_a_file_that_may_not_be_as_large_is_named(images, tmp_path):
    script = 'ulimit -f 10; exec "$0" -m captcha_ocr prepare "$1" --size 480x160 --out "$2/shards"'
    done = subprocess.run(["sh", "-c", script, sys.executable, images, tmp_path], capture_output=True, text=True)
    assert done.returncode == 1
    assert f"{tmp_path}/shards/" in done.stderr.splitlines()[-1]
    assert not (tmp_path / "shards").exists()


def read_only(source: Path, folder: Path, command: list) -> subprocess.CompletedProcess:
    """Run a command with `source` at `folder`, where nobody can write, not even root."""
    mount = 'mount --bind "$0" "$1" && mount -o remount,ro,bind "$1" && shift && exec "$@"'
    words = ["unshare", *AS_ROOT, "--mount", "sh", "-c", mount, source, folder, *command]
    return subprocess.run(words, capture_output=True)


@pytest.fixture
def sealed_off(tmp_path) -> Path:
    (tmp_path / "source").mkdir()
    (tmp_path / "read-only").mkdir()
    if shutil.which("unshare") is None or read_only(tmp_path / "source", tmp_path / "read-only", ["true"]).returncode:
        pytest.skip("a read-only folder can be had on Linux alone, by those who may use unshare")
    return tmp_path / "read-only"


def test_a_read_only_folder_is_read_and_a_sentence_says_that_it_cannot_be_written(images, run, sealed_off, tmp_path):
    for name, source in (("images", images), ("run", run)):
        shutil.copytree(source, tmp_path / "source" / name)
    for words in (
        ["generate", "--out", sealed_off / "images", "--count", "60", *DRAWN_ALIKE],
        ["eval", "--model", sealed_off / "run", sealed_off / "images"],
    ):
        done = read_only(tmp_path / "source", sealed_off, [*OCR, *words])
        assert done.returncode == 0, done.stderr
    for words in (["generate", "--count", "5"], ["prepare", images], ["inspect", images, "--quiet"]):
        done = read_only(tmp_path / "source", sealed_off, [*OCR, *words, "--out", sealed_off / "new"])
        assert done.returncode == 1
        assert str(sealed_off / "new") in done.stderr.splitlines()[-1].decode()


def test_a_file_that_may_not_be_read_is_a_sentence(images, tmp_path):
    path = shutil.copy(next(images.glob("*.png")), tmp_path / "a.png")
    path.chmod(0)
    as_anybody = []
    if os.geteuid() == 0:  # root may read all files, unless it lacks these capabilities
        if shutil.which("setpriv") is None:
            pytest.skip("root may read every file")
        as_anybody = ["setpriv", "--bounding-set=-dac_override,-dac_read_search", "--inh-caps=-all"]
    done = subprocess.run([*as_anybody, *OCR, "eval", path], capture_output=True)
    assert done.returncode == 1
    assert str(path) in done.stderr.splitlines()[-1].decode()


def test_reading_leaves_nothing_in_the_home_folder(images, tmp_path):
    """By default onnxruntime keeps the events that it wants to send there."""
    environment = {name: value for name, value in os.environ.items() if name not in QUIETS_ONNXRUNTIME}
    done = ocr("eval", images, "--engine", "onnx", env=environment | {"HOME": os.fspath(tmp_path)})
    assert done.returncode == 0, done.stderr
    assert not list(tmp_path.iterdir())


OFFLINE = """
import json, sys
ASKS = ("connect", "getaddrinfo", "gethostby", "sendto", "sendmsg", "urlopen", "http", "urllib", "ftplib", "smtplib")
def watch(event, arguments):
    if event.startswith(("socket.", "urllib.", "http.", "ftplib.", "smtplib.")) and any(word in event for word in ASKS):
        sys.stderr.write(f"ASKED FOR THE NETWORK: {event} {arguments}")
sys.addaudithook(watch)
from captcha_ocr.cli.app import main
for words in json.loads(sys.argv[1]):
    try:
        main(words)
    except SystemExit as leaving:
        assert not leaving.code, words
"""


def test_no_command_asks_for_the_network(images, tmp_path):
    shards, run = tmp_path / "shards", tmp_path / "run"
    commands = [
        ["generate", "--count", "5", "--workers", "1", "--out", tmp_path / "images"],
        ["prepare", images, "--size", "48x16", "--workers", "1", "--out", shards],
        ["train", "--data", shards, "--out", run, "--epochs", "1", "--tensorboard"],
        ["export", images, "--model", run],
        ["inspect", images, "--model", run, "--workers", "1", "--out", tmp_path / "looked"],
        ["eval", "--model", run, images],
        ["eval", images],
        ["doctor"],
    ]
    words = json.dumps(commands, default=str)
    done = subprocess.run([sys.executable, "-c", OFFLINE, words], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "ASKED FOR THE NETWORK" not in done.stderr

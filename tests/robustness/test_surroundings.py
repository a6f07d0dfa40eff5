"""What is around the program: closed pipes, full and read-only disks, odd names, forbidden files, no network."""

import errno
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import AS_ROOT, DRAWN_ALIKE, invoke

import captcha_ocr.network.onnx_export
from captcha_ocr.cli.app import main

OCR = [sys.executable, "-m", "captcha_ocr"]
QUIETS_ONNXRUNTIME = ("ORT_DISABLE_TELEMETRY", "ORT_RUNNING_UNIT_TESTS", "CI", "XDG_CACHE_HOME")
ODD = [
    *(
        "with space.png",
        "new\nline.png",
        "tab\there.png",
        "-dash.png",
        "back\\slash.png",
        "\udcff\udcfe.png",
    ),
    *("é.png", "*.png", "\u202e.png", "\x1b[31m.png"),
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


def test_every_odd_name_can_be_named_takes_one_line_and_is_given_back_as_it_is(odd, monkeypatch):
    done = ocr("eval", "--json", odd)
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert done.returncode == 0, done.stderr
    assert {row["path"] for row in rows} == {os.fspath(odd / name) for name in ODD}
    monkeypatch.chdir(odd)
    assert all(invoke("eval", "--", name).exit_code == 0 for name in ODD)
    (odd / "new\nline.png").write_bytes(b"no image")
    done = ocr("eval", odd)
    assert done.returncode == 1
    assert len(done.stdout.splitlines()) == len(ODD) - 1
    assert all(line.decode().count("\t") == 2 for line in done.stdout.splitlines())
    for shown in (
        rb"/tab\there.png",
        rb"/back\\slash.png",
        rb"/\udcff\udcfe.png",
        rb"/\u202e.png",
        rb"/\x1b[31m.png",
    ):
        assert shown + b"\t" in done.stdout
    assert any(rb"new\nline.png" in line for line in done.stderr.splitlines())
    assert done.stderr.count(rb"new\nline.png") == 1


@pytest.mark.parametrize("options", ["ro", "size=4k", "size=64k,nr_inodes=1", "ro,mode=000"])
def test_commands_with_workers_run_where_dev_shm_takes_no_files(tmp_path, options):
    mount = f"mount -t tmpfs -o {options} none /dev/shm"
    if subprocess.run(["unshare", "-rm", "sh", "-c", mount], capture_output=True).returncode:
        pytest.skip("this machine forbids to mount in a namespace of one's own")
    command = [
        *OCR,
        "generate",
        "--count",
        "300",
        "--workers",
        "2",
        *DRAWN_ALIKE,
        "--out",
        tmp_path / "images",
    ]
    done = subprocess.run(
        ["unshare", "-rm", "sh", "-c", mount + ' && "$@"', "sh", *command], capture_output=True
    )
    assert done.returncode == 0, done.stderr
    assert b"/dev/shm" in done.stderr
    assert len(list((tmp_path / "images").glob("*.png"))) == 300


@pytest.mark.parametrize(
    ("command", "home"),
    [
        ("eval", None),
        ("eval", ""),
        ("eval", "/nowhere"),
        ("eval", "/dev/null"),
        ("inspect", None),
        ("inspect", "/nowhere"),
    ],
)
def test_no_command_needs_a_home(images, tmp_path, command, home):
    environment = {
        name: value for name, value in os.environ.items() if name not in ("HOME", "XDG_CACHE_HOME")
    }
    paths = (
        [images]
        if command == "eval"
        else [images, "--out", tmp_path / "inspected", "--workers", "1"]
    )
    done = ocr(command, *paths, env=environment if home is None else {**environment, "HOME": home})
    assert done.returncode == 0, done.stderr


def test_odd_names_are_prepared_and_trained_on(images, tmp_path):
    folder = tmp_path / "an odd\nfolder \udcff"
    shutil.copytree(images, folder / "images")
    heading, first, *others = (folder / "images" / "labels.csv").read_text().splitlines()
    file, text = first.split(",")
    (folder / "images" / file).rename(folder / "images" / "new\nline.png")
    (folder / "images" / "labels.csv").write_text(
        "\n".join([heading, f'"new\nline.png",{text}', *others])
    )
    shards, run = folder / "shards", folder / "run"
    for words in (
        ["prepare", folder / "images", "--out", shards, "--size", "48x16", "--quiet"],
        ["train", "--preset", "tiny", "--data", shards, "--out", run, "--epochs", 1, "--quiet"],
        ["eval", "--model", run, folder / "images"],
    ):
        result = invoke(*words)
        assert result.exit_code == 0, result.stderr


def test_a_reader_that_left_is_no_error_of_ours(images):
    process = subprocess.Popen(
        [*OCR, "eval", images], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    process.stdout.close()
    errors = process.stderr.read()
    process.stderr.close()
    assert process.wait() == 1
    assert b"Traceback" not in errors
    assert b"Exception ignored" not in errors


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="/dev/full is Linux's")
def test_a_full_standard_output_is_a_sentence(images):
    for words in (["eval", images], ["eval", images, "--csv"], ["--help"]):
        with open("/dev/full", "wb") as full:
            done = subprocess.run([*OCR, *words], stdout=full, stderr=subprocess.PIPE)
        assert done.returncode == 1
        assert os.strerror(errno.ENOSPC).encode() in done.stderr.splitlines()[-1]
        assert b"Traceback" not in done.stderr


@pytest.mark.skipif(os.name != "posix", reason="a shell closes them")
def test_every_step_does_without_the_standard_streams(images, tmp_path):
    script = """
        ocr() { "$0" -m captcha_ocr "$@" 0<&- 1>&- 2>&-; }
        ocr generate --count 5 --workers 1 --out "$2/images" && ocr prepare "$1" --size 48x16 --out "$2/shards" &&
        ocr train --data "$2/shards" --epochs 1 --out "$2/run" && ocr eval "$1" --model "$2/run"
    """
    done = subprocess.run(
        ["sh", "-c", script, sys.executable, images, tmp_path], capture_output=True
    )
    assert done.returncode == 0, done.stderr
    assert len(list((tmp_path / "images").glob("*.png"))) == 5
    assert (tmp_path / "run" / "confusion.png").exists()


def test_a_full_temporary_folder_is_named_as_one(run, images, monkeypatch, capfd):
    def full(*_):
        with open("/dev/full", "wb", buffering=0) as stream:
            stream.write(b"a")

    monkeypatch.setattr(captcha_ocr.network.onnx_export, "to_onnx", full)
    with pytest.raises(SystemExit, match="1"):
        main(["export", str(images), "--model", str(run)])
    assert "temporary file" in capfd.readouterr().err.splitlines()[-1]


def test_a_read_only_folder_is_read_and_a_sentence_says_that_it_cannot_be_written(
    images, run, tmp_path
):
    source, folder = tmp_path / "source", tmp_path / "read-only"
    for name, original in (("images", images), ("run", run)):
        shutil.copytree(original, source / name)
    folder.mkdir()

    def read_only(*command) -> subprocess.CompletedProcess:
        """Run a command with `source` at `folder`, where nobody can write, not even root."""
        mount = 'mount --bind "$0" "$1" && mount -o remount,ro,bind "$1" && shift && exec "$@"'
        words = ["unshare", *AS_ROOT, "--mount", "sh", "-c", mount, source, folder, *command]
        return subprocess.run(words, capture_output=True)

    if shutil.which("unshare") is None or read_only("true").returncode:
        pytest.skip("only Linux has read-only folders, for users who may call unshare")
    done = read_only(*OCR, "generate", "--out", folder / "images", "--count", "60", *DRAWN_ALIKE)
    assert done.returncode == 0, done.stderr
    done = read_only(*OCR, "eval", "--model", folder / "run", folder / "images")
    assert done.returncode == 0, done.stderr
    for words in (
        ["generate", "--count", "5"],
        ["prepare", images],
        ["inspect", images, "--quiet"],
    ):
        done = read_only(*OCR, *words, "--out", folder / "new")
        assert done.returncode == 1
        assert str(folder / "new") in done.stderr.splitlines()[-1].decode()


def test_a_file_that_may_not_be_read_is_a_sentence(images, tmp_path):
    path = shutil.copy(next(images.glob("*.png")), tmp_path / "a.png")
    path.chmod(0)
    # Root may read all files, unless it lacks these capabilities.
    as_anybody = ["setpriv", "--bounding-set=-dac_override,-dac_read_search", "--inh-caps=-all"]
    as_anybody = as_anybody if os.geteuid() == 0 else []
    if as_anybody and shutil.which("setpriv") is None:
        pytest.skip("root may read every file")
    done = subprocess.run([*as_anybody, *OCR, "eval", path], capture_output=True)
    assert done.returncode == 1
    assert str(path) in done.stderr.splitlines()[-1].decode()


def test_reading_leaves_nothing_in_the_home_folder(images, tmp_path):
    """By default onnxruntime keeps the events that it wants to send there."""
    environment = {
        name: value for name, value in os.environ.items() if name not in QUIETS_ONNXRUNTIME
    }
    done = ocr("eval", images, "--engine", "onnx", env=environment | {"HOME": os.fspath(tmp_path)})
    assert done.returncode == 0, done.stderr
    assert not list(tmp_path.iterdir())


OFFLINE = """
import json, sys
ASKS = ("connect", "getaddrinfo", "gethostby", "sendto", "sendmsg")
ASKS = (*(f"socket.{name}" for name in ASKS), "urllib.", "http.", "ftplib.", "smtplib.")
def watch(event, arguments):
    if event.startswith(ASKS):
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

"""Real tiny data that several tests share, and helpers.

The data: 60 captchas of two digits, their shards, a trained run.
"""

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import click
import numpy as np
import pytest
import torch
from click.testing import CliRunner, Result
from filelock import FileLock

from captcha_ocr.charset import Charset, visual_order
from captcha_ocr.cli.app import main
from captcha_ocr.data.labels import find_labels
from captcha_ocr.data.prepare import prepare
from captcha_ocr.data.shards import read_manifest, read_shard
from captcha_ocr.experiments.child_run import ChildRuns
from captcha_ocr.generation.drawer import plan_drawing
from captcha_ocr.generation.folder import generate
from captcha_ocr.input_size import InputSize
from captcha_ocr.options.adapting import AdaptOptions
from captcha_ocr.options.declaration import words
from captcha_ocr.options.drawing import DrawingOptions
from captcha_ocr.options.model import Lengths, NetworkConfig
from captcha_ocr.options.preparation import PrepareConfig, PrepareOptions
from captcha_ocr.options.shared import ReadingOptions
from captcha_ocr.options.training import PRESETS, DrawOptions, Preset, TrainConfig, TrainOptions
from captcha_ocr.system.documents import sealed
from captcha_ocr.system.files import sha256

# Tiny tensors gain nothing from more threads, and lose much on a busy machine.
torch.set_num_threads(1)
# A shell's background jobs ignore it, and so would the tests.
signal.signal(signal.SIGINT, signal.default_int_handler)

ONE_WORKER = PrepareOptions(workers=1)
QUIET = TrainOptions(device="cpu", quiet=True)
CAPTCHAS = DrawingOptions(
    count=60, lengths=Lengths(2, 2), charset="digits", width=48, height=16, font_sizes=(14,)
)
DRAWN_ALIKE = [
    "--length",
    "2",
    "--charset",
    "digits",
    "--size",
    "48x16",
    "--font-sizes",
    "14",
]  # as CAPTCHAS
TINY = Preset(
    size=InputSize(height=16, width=48, channels=1),
    network=NetworkConfig(width=8, stem="3x3"),
    training=TrainConfig(preset="tiny", batch_size=10, patience=3),
    images_seen=96,
)

PRESETS["tiny"] = TINY  # small enough to train in a second
MOST_GROWTH_MB = 50  # of the memory of a process that reads a great many images


def pytest_addoption(parser):
    parser.addoption(
        "--soak", action="store_true", help="tests/robustness at full length: an hour (make soak)"
    )


def pytest_configure(config):
    # What is known about fonts is kept there: not in the folder of the user who runs the tests.
    cache = tempfile.TemporaryDirectory()
    config.add_cleanup(cache.cleanup)
    os.environ["XDG_CACHE_HOME"] = cache.name
    os.environ.pop("CAPTCHA_OCR_MODEL", None)
    if not config.getoption("--soak"):
        # For the commands that tests start, while other tests run beside them.
        os.environ["OMP_NUM_THREADS"] = "1"


@pytest.fixture(autouse=True)
def own_folder():
    """Run every test, and the commands that it starts, in an empty folder of its own."""
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        yield


@pytest.fixture
def torch_threads():
    """Restore the number of torch's threads, which a test or a command in its process sets."""
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def soak(request) -> bool:
    """Whether tests have the length of docs/reliability.md, and may look at the clock."""
    return request.config.getoption("--soak")


@pytest.fixture
def figure(record_property):
    """Record a line about what a test counted or measured; the end of the run shows it."""
    return partial(record_property, "figure")


def pytest_terminal_summary(terminalreporter):
    for report in (*terminalreporter.getreports("passed"), *terminalreporter.getreports("failed")):
        for name, line in report.user_properties if report.when == "call" else []:
            if name == "figure":
                terminalreporter.write_line(f"{report.nodeid.partition('::')[2]}: {line}")


@pytest.fixture(scope="session")
def tiny_preset():
    """The preset `tiny`."""
    return TINY


@pytest.fixture(scope="session")
def four_digits(make_once) -> Path:
    """60 captchas of four digits, with labels.csv. Read only."""
    captchas = DrawingOptions(count=60, lengths=Lengths(4, 4), charset="digits")
    return make_once("four-digits", lambda folder: generate(plan_drawing(captchas), folder, 1))


def draw(folder: Path, seed: int, count: int = 60) -> Path:
    """Draw images of two digits, with labels.csv."""
    generate(plan_drawing(replace(CAPTCHAS, count=count, seed=seed)), folder, 1)
    return folder


def read_shards(folder: Path) -> None:
    """Read all the shards of a folder."""
    manifest = read_manifest(folder)
    for shard in manifest.shards:
        read_shard(folder, manifest, shard)


def decode(charset: Charset, ids: np.ndarray) -> list[str]:
    """Return the texts of class ids, (N, L); each ends before its first K."""
    texts = []
    for row in ids.tolist():
        characters = [charset.symbols[number] for number in row if number < len(charset)]
        texts.append("".join(characters[number] for number in visual_order(characters)))
    return texts


def naming(*names: object) -> str:
    """Return a pattern for `pytest.raises`: the message holds all of these names, in any order."""
    return "".join(f"(?=.*{re.escape(str(name))})" for name in names)


def invoke(*arguments: object, **settings) -> Result:
    """Run a command in this process."""
    return CliRunner().invoke(main, [str(argument) for argument in arguments], **settings)


# Runs commands, given as JSON, one after another.
_COMMANDS = """
import json, sys
from conftest import main
for words in json.loads(sys.argv[1]):
    try:
        main(words)
    except SystemExit as leaving:
        assert not leaving.code, words
"""


def run_elsewhere(*commands: str, code: str = "", **environment: str) -> str:
    """Run commands in one new process, after some code; return what they write to stderr."""
    words = json.dumps([command.split() for command in commands])
    path = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-c", code + _COMMANDS, words],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": path, **environment},
    )
    assert done.returncode == 0, done.stderr
    return done.stderr


def contents(folder: Path) -> dict[str, bytes]:
    """Return every file in a folder, by its path there."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def weights(folder: Path) -> bytes:
    """Return the weights in a model folder."""
    return (folder / "model.safetensors").read_bytes()


def flip_bit(path: Path) -> None:
    """Flip one bit in the middle of a file; the result is not UTF-8 where the file was ASCII."""
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0x80
    path.write_bytes(data)


def amend(path: Path, **changes: object) -> None:
    """Change values of one of our JSON documents, and give it the right hash."""
    path.write_bytes(sealed({**json.loads(path.read_bytes()), **changes}))


def put(path: Path, data: bytes) -> None:
    """Write a file of a model folder, and its hash into config.json, as a stranger could do it."""
    path.write_bytes(data)
    config = path.with_name("config.json")
    amend(config, files={**json.loads(config.read_bytes())["files"], path.name: sha256(data)})


def resident_mb() -> float:
    """Return the memory that this process holds now (Linux)."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1e3 for line in lines if line.startswith("VmRSS"))


@pytest.fixture(scope="session")
def make_once(tmp_path_factory):
    """Return a function that makes a folder once for all processes of pytest-xdist."""
    root = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        root = root.parent

    def make(name: str, fill: Callable[[Path], object]) -> Path:
        with FileLock(root / f"{name}.lock"):
            if not (root / name).exists():
                fill(root / name)
        return root / name

    return make


@pytest.fixture(scope="session")
def images(make_once) -> Path:
    """60 images. Read only."""
    return make_once("images", lambda folder: draw(folder, seed=0))


@pytest.fixture(scope="session")
def other_images(tmp_path_factory) -> Path:
    """60 others. Read only."""
    return draw(tmp_path_factory.mktemp("data") / "others", seed=1)


@pytest.fixture(scope="session")
def shards(images, make_once) -> Path:
    """Their shards: 48 to train on, 6 to validate, 6 to test. Read only."""
    config = PrepareConfig(preset="tiny")
    return make_once("shards", lambda folder: prepare(images, folder, config, ONE_WORKER))


@pytest.fixture(scope="session")
def run(shards, make_once) -> Path:
    """A finished run of two epochs on them. Read only."""
    from captcha_ocr.training.train import train

    return make_once("run", lambda folder: train([shards], folder, TINY.training, QUIET))


@pytest.fixture(scope="session")
def exported(run, images, make_once) -> Path:
    """The best model of that run with its network exported, which takes long. Read only."""
    from captcha_ocr.network.onnx_export import export_onnx

    def export(folder):
        shutil.copytree(run / "best", folder)
        export_onnx(folder, images, find_labels(images).labels)

    return make_once("exported", export)


@pytest.fixture
def short_runs(monkeypatch):
    """Measure no speed and draw no pictures, which takes most of a tiny run; fixture `run` does."""
    monkeypatch.setattr("captcha_ocr.training.reporting.measure_rate", lambda *_: 1000.0)
    for name in ("draw_curves", "draw_confusions"):
        monkeypatch.setattr(f"captcha_ocr.pictures.plots.{name}", lambda *_: None)
    monkeypatch.setattr("captcha_ocr.pictures.plots.save_figure", lambda _, path: path.touch())


@pytest.fixture
def adapting_here(monkeypatch, short_runs):
    """What would start `adapt` in another process runs it here, in one short round."""
    from captcha_ocr.experiments import adaptation

    monkeypatch.setattr(adaptation, "_RECIPE", replace(adaptation._RECIPE, epochs=1))
    monkeypatch.setattr(adaptation, "MOST_ROUNDS", 1)

    def run_here(_, name, arguments, options, watch=lambda: None):
        line = [*map(str, arguments), *words(options)]
        main.get_command(click.Context(main), name).make_context(name, line)  # else UsageError
        reading = ReadingOptions(device="cpu", threads=options.pop("threads", 1))
        adaptation.adapt(*arguments, AdaptOptions(second="none", quiet=True, **options), reading)
        watch()

    monkeypatch.setattr(ChildRuns, "run_command", run_here)


@pytest.fixture
def drawings(monkeypatch) -> DrawOptions:
    """Options that draw 24 captchas of two digits for every two epochs.

    6 others are for validation, and 6 for the test.
    """
    monkeypatch.setattr("captcha_ocr.training.samples.dataset.HELD_OUT", 6)
    return DrawOptions(length="2", charset="digits", images=24, repeat=2, workers=1)


@pytest.fixture
def whole(run, shards, images, exported, tmp_path):
    """A copy of everything that a loader reads; the run has not finished."""
    sources = {"run": run, "shards": shards, "images": images, "model": exported}
    for name, source in sources.items():
        shutil.copytree(source, tmp_path / name)
    amend(tmp_path / "run" / "run.json", finished=None)
    return tmp_path


AS_ROOT = [] if os.name == "posix" and os.geteuid() == 0 else ["--user", "--map-root-user"]


def small_disk(folder: Path, script: str) -> list[str]:
    """Return a command that runs a shell script with a tmpfs of 16 MB at `folder`.

    No other process sees it.
    """
    mount = f"mount -t tmpfs -o size=16m tmpfs '{folder}' && {script}"
    return ["unshare", *AS_ROOT, "--mount", "sh", "-c", mount]


def skip_without_small_disks(folder: Path) -> None:
    """Skip the test where `small_disk` does not work."""
    if (
        shutil.which("unshare") is None
        or subprocess.run(small_disk(folder, "true"), capture_output=True).returncode
    ):
        pytest.skip("only Linux has small disks, for users who may call unshare")

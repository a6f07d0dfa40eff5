import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from unittest.mock import Mock

import click
import pytest
from conftest import invoke, naming

from captcha_ocr.cli.app import COMMANDS as GROUPS
from captcha_ocr.cli.app import main
from captcha_ocr.diagnostics import doctor
from captcha_ocr.network.torch_engine import TorchEngine

from .conftest import COMMAND, after_device


@pytest.mark.usefixtures("short_runs")
def test_four_commands_lead_from_nothing_to_read_codes():
    size = ["--size", "48x16", "--workers", 1, "--json"]
    text = ["--charset", "01", "--length", 2, "--font-sizes", 14, "--seed", 5]
    drawn = invoke("generate", "--count", 200, *text, *size)
    prepared = invoke("prepare", *size)
    training = ["--preset", "tiny", "--epochs", 6, "--device", "cpu", "--quiet", "--json"]
    trained = invoke("train", *training)
    facts = {}
    for result in (drawn, prepared, trained):
        facts |= json.loads(result.stdout)
    assert [facts[name] for name in ("drawn", "train", "val")] == [200, 167, 17]
    assert facts["test"]["exact_match"] > 0.5  # guessing gives 25 %
    read = invoke("eval", "data/images", "--device", "cpu")
    lines = [line.split("\t") for line in read.stdout.splitlines()]
    assert len(lines) == 200
    assert sum(Path(path).stem.split("-")[1] == code for path, code, _ in lines) > 120
    assert all(0 < float(confidence) <= 1 for _, _, confidence in lines)


@pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")
@pytest.mark.parametrize("path", [".", "a b.png", "0.png", "sub/train.png"])
def test_a_path_alone_is_read(path, some):
    Path("sub").mkdir()
    for name in ("a b.png", "0.png", "sub/train.png"):
        shutil.copy(some[0], name)
    plain, named = invoke(path, "--json"), invoke("eval", path, "--json")
    assert (plain.stdout, plain.exit_code) == (named.stdout, 0)
    assert invoke("gone.png").stderr == invoke("eval", "gone.png").stderr
    assert (invoke("gone").exit_code, invoke("*.png").exit_code) == (2, 0)


@pytest.mark.parametrize(
    ("name", "meant"),
    [("evl", "eval"), ("serv", "serve"), ("lable", "label"), ("Train", "train"), ("gone", None)],
)
def test_a_mistyped_command_gets_the_one_that_is_similar(name, meant):
    result = invoke(name, "images")
    assert (result.exit_code, f"{name!r}" in result.stderr) == (2, True)
    assert (f"did you mean {meant}?" in result.stderr) == (meant is not None)


@pytest.mark.parametrize(("target", "number"), [("demo", 5), ("all", 8), ("accuracy", 5)])
def test_the_commands_in_the_makefile_exist_with_their_options(target, number):
    root = Path(__file__).parents[2]
    printed = subprocess.run(
        ["make", "-n", "-C", str(root), target], capture_output=True, text=True, check=True
    ).stdout
    commands = [
        shlex.split(line)[1:]
        for line in printed.splitlines()
        if line.startswith(".venv/bin/captcha-ocr ")
    ]
    assert len(commands) == number
    with click.Context(main) as context:
        for name, *words in commands:
            main.get_command(context, name).make_context(
                name, words, parent=context, resilient_parsing=True
            )


def test_a_prompt_survives_every_error(exported, some):
    pty = pytest.importorskip("pty", reason="terminals of this kind are POSIX's")
    parent, child = pty.openpty()
    process = subprocess.Popen(
        [*COMMAND, "eval", "--model", exported],
        stdin=child,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    os.close(child)
    os.write(parent, f"nowhere.png\n\n{os.path.dirname(COMMAND[0])}\n{some[0]}\n\x04".encode())
    output, errors = process.communicate(timeout=120)
    os.close(parent)
    assert str(some[0]).encode() + b"\t" in output
    assert b"nowhere.png: " in errors
    assert os.path.dirname(COMMAND[0]).encode() + b": " in errors
    assert process.returncode == 0


def test_a_reader_that_leaves_ends_a_command_silently(exported, some):
    command = [*COMMAND, "eval", "--model", exported, "--quiet", *some]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    process.stdout.close()
    assert (process.wait(timeout=120), process.stderr.read()) == (1, b"")
    process.stderr.close()


@pytest.mark.skipif(os.name != "posix", reason="signals are POSIX's")
@pytest.mark.parametrize(
    ("send", "number", "times"),
    [(os.killpg, signal.SIGINT, 2), (os.killpg, signal.SIGTERM, 1), (os.kill, signal.SIGTERM, 1)],
)
def test_signals_have_their_sentences_and_exit_codes(send, number, times):
    process = subprocess.Popen(
        [*COMMAND, "generate", "--count", "100000", "--workers", "2", "--out", "images"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
    )  # fmt: skip
    while process.poll() is None and len(list(Path().glob("images/*.png"))) < 50:
        time.sleep(0.05)
    for _ in range(times):
        send(process.pid, number)
        time.sleep(0.1)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 128 + number
    assert errors.startswith(b"captcha-ocr: ")
    assert errors.count(b"\n") == 1
    assert b"same command again to resume" in errors
    assert not Path("images", "labels.csv").exists()


@pytest.mark.parametrize(
    ("command", "said"),
    [
        *((name, "same command again to resume") for name in ("generate", "train", "curve")),
        *(
            (name, "same command again")
            for name in ("prepare", "inspect", "eval", "export", "bench")
        ),
        ("doctor", ""),
    ],
)
@pytest.mark.parametrize(
    ("stop", "code", "word"),
    [(KeyboardInterrupt(), 130, "interrupted"), (SystemExit(143), 143, "terminated")],
)
def test_every_command_says_how_to_go_on_after_either_signal(
    monkeypatch, command, said, stop, code, word
):
    main.get_command(click.Context(main), command)  # imports it
    monkeypatch.setattr(main.commands[command], "invoke", Mock(side_effect=stop))
    result = invoke(command)
    assert result.exit_code == code
    (line,) = result.stderr.splitlines()
    assert line.startswith(f"captcha-ocr: {word}")
    assert said in line
    assert ("again" in line) == bool(said)


# Sends itself a signal when the import of numpy or torch begins. An unguarded import sometimes
# swallows it. Torch, which takes seconds, is not imported then.
IMPORTING = """
import os, signal, sys
number, imported = int(sys.argv.pop(1)), []

def watch(event, arguments):
    if event == "import" and arguments[0] in ("numpy", "torch") and not imported:
        imported.append(arguments[0])
        try:
            os.kill(os.getpid(), number)
        except BaseException:
            print("not held back")
            raise
    if event == "import" and arguments[0] == "torch":
        raise ModuleNotFoundError(name="torch")

sys.addaudithook(watch)
from captcha_ocr.cli.app import main
main()
"""
COMMANDS = [
    ("generate", 2),
    ("prepare", 15),
    ("train", 2),
    ("eval", 15),
    ("bench", 15),
    ("doctor", 2),
]


@pytest.mark.skipif(os.name != "posix", reason="no such signals there")
@pytest.mark.parametrize(("command", "number"), COMMANDS)
def test_a_signal_during_an_import_is_heard_after_it(command, number):
    result = subprocess.run(
        [sys.executable, "-c", IMPORTING, str(number), command], capture_output=True
    )
    assert (result.returncode, result.stdout) == (128 + number, b"")
    assert result.stderr.startswith(b"captcha-ocr: ")
    assert result.stderr.count(b"\n") == 1


def test_what_a_launcher_sets_wrongly_is_one_sentence_and_no_matter_to_the_doctor(tmp_path):
    for variables, names in (
        ({"WORLD_SIZE": "abc"}, ("WORLD_SIZE=abc", "RANK=0")),
        ({"WORLD_SIZE": "2", "RANK": "x"}, ("WORLD_SIZE=2", "RANK=x")),
        ({"WORLD_SIZE": "2", "RANK": "2"}, ("WORLD_SIZE=2", "RANK=2")),
        ({"WORLD_SIZE": "2", "RANK": "0"}, ("eval", "torchrun")),
    ):
        result = invoke("eval", tmp_path, "--device", "cpu", env=variables)
        assert (result.exit_code, result.stdout) == (2, "")
        assert re.search(naming(*names), result.stderr)
        assert invoke("doctor", env=variables).exit_code == 0


def test_a_lack_of_memory_is_one_sentence(read, some, monkeypatch):
    error = "DefaultCPUAllocator: can't allocate memory: you tried to allocate 4915200 bytes."
    monkeypatch.setattr(TorchEngine, "logits", Mock(side_effect=RuntimeError(error)))
    result = read(*some)
    assert (result.exit_code, len(after_device(result.stderr))) == (1, 1)
    assert re.search(naming("cpu", " GB", "--device"), result.stderr)
    monkeypatch.setattr(doctor, "examine_machine", Mock(side_effect=MemoryError))
    result = invoke("doctor")
    assert (result.exit_code, result.stderr.count("\n")) == (1, 1)


def test_the_help_lists_every_command_once_in_its_group_with_an_example():
    text = invoke("--help").stdout
    for group, names in GROUPS.items():
        assert f"{group.capitalize()}:" in text
        for name in names:
            assert len(re.findall(rf"^  {name} ", text, re.MULTILINE)) == 1
            assert f"captcha-ocr {name}" in text
            assert f"Example: captcha-ocr {name}" in invoke(name, "--help").stdout
    assert "..." not in text.replace("[ARGS]...", "")  # no summary is cut off
    assert re.fullmatch(r"captcha-ocr \d+\.\d+\.\d+\n", invoke("--version").stdout)

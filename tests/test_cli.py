import csv
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import onnx
import pytest
from click.testing import Result
from conftest import invoke, naming

from captcha_ocr.cli.reading import labelled_paths
from captcha_ocr.config import PRESETS
from captcha_ocr.data.labels import read_labels

COMMAND = [sys.executable, "-W", "error", "-m", "captcha_ocr"]


def test_four_commands_lead_from_nothing_to_read_codes():
    options = ["--count", 200, "--charset", "0123", "--length", 2, "--size", "80x40", "--workers", 1, "--seed", 5]
    drawn = invoke("generate", *options, "--json")
    assert json.loads(drawn.stdout)["drawn"] == 200
    assert "captcha-ocr prepare" in drawn.stderr
    prepared = json.loads(invoke("prepare", "--size", "80x40", "--workers", 1, "--json").stdout)
    assert [prepared[split] for split in ("train", "val", "test")] == [160, 20, 20]
    trained = json.loads(invoke("train", "--epochs", 16, "--device", "cpu", "--quiet", "--json").stdout)
    assert trained["test"]["exact_match"] > 0.5  # guessing gives 6 %
    read = invoke("eval", "data/images", "--device", "cpu")
    lines = [line.split("\t") for line in read.stdout.splitlines()]
    assert len(lines) == 200
    assert sum(Path(path).stem.split("-")[1] == code for path, code, _ in lines) > 120
    assert all(0 < float(confidence) <= 1 for _, _, confidence in lines)


@pytest.fixture
def read(run):
    """Run eval with the tiny model."""
    return lambda *arguments, **settings: invoke("eval", "--model", run, "--device", "cpu", *arguments, **settings)


@pytest.fixture
def some(images, tmp_path) -> list[Path]:
    """Three images in a folder of their own."""
    (tmp_path / "some").mkdir()
    return [Path(shutil.copy(path, tmp_path / "some")) for path in sorted(images.glob("*.png"))[:3]]


def after_device(stderr: str) -> list[str]:
    """The lines of eval's stderr after the first two, which name the model, and the device with its precision."""
    _, second, *others = stderr.splitlines()
    assert re.search(naming("cpu", "fp32"), second)
    return others


def rows(result: Result) -> list[dict]:
    """The JSON objects on standard output."""
    return [json.loads(line) for line in result.stdout.splitlines()]


def codes(result: Result) -> list[str]:
    return [line.split("\t")[1] for line in result.stdout.splitlines()]


def test_files_folders_globs_and_standard_input_mean_the_same(read, some, monkeypatch):
    folder, expected = some[0].parent, codes(read(*some))
    assert len(expected) == 3
    assert codes(read(folder)) == codes(read(folder / "*.png")) == expected
    assert codes(read(input="\n".join(map(str, some)))) == expected
    assert [codes(read("-", input=path.read_bytes()))[0] for path in some] == expected
    assert set("".join(codes(read(*some, "--charset", "37")))) <= set("37")
    monkeypatch.chdir(folder)
    assert [line.split("\t")[0] for line in read(".").stdout.splitlines()] == [path.name for path in some]
    odd = shutil.move(some[0], folder / "[0-9]*.png")  # a path that exists is no glob
    assert read(odd).stdout.startswith(f"{odd}\t")


def test_what_cannot_be_read_is_named_and_the_rest_is_read(read, some, tmp_path):
    (tmp_path / "empty").mkdir()
    some[1].write_bytes(some[1].read_bytes()[:60])
    paths = [tmp_path / "*.png", tmp_path / "empty", *some]
    result = read(*paths)
    assert result.exit_code == 1
    assert [line.split("\t")[0] for line in result.stdout.splitlines()] == [str(some[0]), str(some[2])]
    assert [line.split(": ")[0] for line in after_device(result.stderr)] == [*map(str, paths[:2]), str(some[1])]
    result = read(*paths, "--json")
    assert result.exit_code == 1
    error, reading = {"path", "error"}, {"path", "text", "confidence"}
    assert [set(row) for row in rows(result)] == [error, error, reading, error, reading]


def test_scores_are_of_the_images_that_are_named_and_have_a_row(read, images, some, tmp_path):
    whole = read("--labels", images / "labels.csv")
    assert re.search(r"\d%.*\b60\b", whole.stdout)
    assert (whole.exit_code, after_device(whole.stderr)) == (0, [])
    shutil.copy(some[0], some[0].with_name("stranger.png"))
    part = read("--labels", images / "labels.csv", some[0].parent, "--json")
    assert part.exit_code == 1
    assert re.search(naming("stranger.png", "labels.csv"), part.stderr)
    *readings, summary = rows(part)
    assert [set(row) for row in readings] == [{"path", "text", "confidence"}] * 3
    assert summary["summary"]["images"] == 3
    table, names = tmp_path / "labels.csv", [path.name for path in some]
    table.write_text(f"filename,text\nsome/{names[0]},123\nsome/{names[1]},1X\nsome/{names[2]},12\n")
    result = read("--labels", table)  # counts beside the score the labels that this model cannot read
    (line,) = after_device(result.stderr)
    assert (result.exit_code, bool(re.search(r"\b2\b.*\b3\b.*\b2\b.*0123456789", line))) == (0, True)


def test_a_label_is_found_by_its_place_beside_the_labels_file_and_elsewhere_by_a_unique_name(tmp_path):
    table = tmp_path / "labels.csv"
    table.write_text("filename,text\na/1.png,A\nb/1.png,B\na/2.png,C\n")
    text_of = labelled_paths(table, read_labels(table)[0])
    assert [text_of(str(tmp_path / place / "1.png")) for place in "abc"] == ["A", "B", None]
    assert text_of(str(tmp_path / "b" / "2.png")) is None
    assert (text_of("elsewhere/1.png"), text_of("elsewhere/2.png")) == (None, "C")


def test_a_reading_below_the_least_confidence_is_left_unread_and_unscored(read, images, some):
    confidences = [row["confidence"] for row in rows(read(*some, "--json"))]
    least = max(confidences)
    result = read(*some, "--min-confidence", least)
    assert result.exit_code == 0
    assert [code != "" for code in codes(result)] == [each == least for each in confidences]
    assert re.search(naming(2, 3, f"{least:g}"), after_device(result.stderr)[-1])
    assert [row["text"] for row in rows(read(*some, "--min-confidence", 1, "--json"))] == [None] * 3
    table = csv.DictReader(read(*some, "--min-confidence", 1, "--csv").stdout.splitlines())
    assert [row["text"] for row in table] == [""] * 3
    scoring = ["--labels", images / "labels.csv", "--json", "--min-confidence"]
    in_order = sorted(row["confidence"] for row in rows(read(*scoring, 0))[:-1])
    summary = rows(read(*scoring, in_order[20]))[-1]["summary"]
    assert (summary["images"], summary["unread"]) == (40, 20)
    nothing = read("--labels", images / "labels.csv", "--min-confidence", 1)
    assert (nothing.exit_code, nothing.stdout) == (1, "")
    assert re.search(naming(60, 1), nothing.stderr.splitlines()[-1])


def test_the_model_is_the_option_or_the_variable_or_the_run_or_the_packages(run, images, monkeypatch):
    path, folders = next(images.glob("*.png")), [Path(name, "best") for name in ("option", "variable", "runs/default")]
    for folder in folders:
        shutil.copytree(run / "best", folder)

    def said(*options) -> str:
        return invoke("eval", path, *options).stderr.splitlines()[0]

    monkeypatch.setenv("CAPTCHA_OCR_MODEL", "variable")
    assert said("--model", "option").endswith(f" {folders[0]}")
    assert said().endswith(f" {folders[1]}")
    monkeypatch.setenv("CAPTCHA_OCR_MODEL", "nowhere")
    assert re.search(naming("CAPTCHA_OCR_MODEL", "nowhere"), said())
    monkeypatch.delenv("CAPTCHA_OCR_MODEL")
    assert said().endswith(f" {folders[2]}")
    shutil.rmtree("runs")
    assert "package" in said()


def test_export_writes_a_file_that_reads_the_same(run, exported, images, tmp_path, monkeypatch):
    network = onnx.load(exported / "model.onnx")  # the export of the same model, which takes long
    monkeypatch.setattr("captcha_ocr.network.onnx_export.to_onnx", lambda _: network)
    model = shutil.copytree(run, tmp_path / "run")
    result = invoke("export", images, "--model", model, "--json")
    assert result.exit_code == 0
    assert (json.loads(result.stdout)["images"], json.loads(result.stdout)["texts_changed"]) == (60, 0)
    assert f"captcha-ocr eval image.png --model {model}" in result.stderr
    by_onnx = invoke("eval", images, "--model", model)
    assert "onnxruntime" in by_onnx.stderr.splitlines()[1]
    assert codes(by_onnx) == codes(invoke("eval", images, "--model", model, "--engine", "torch", "--device", "cpu"))


@pytest.mark.parametrize("encoding", ["cp1252", "ascii"])
def test_odd_names_pass_through_every_encoding(exported, some, encoding):
    shutil.copy(some[0], some[0].with_name("中.png"))
    how = {"env": {**os.environ, "PYTHONIOENCODING": encoding}, "capture_output": True}
    command = [*COMMAND, "eval", "--model", exported]
    result = subprocess.run([*command, some[0].parent], **how)
    assert (result.returncode, len(result.stderr.decode(encoding).splitlines())) == (0, 2)
    result = subprocess.run(command, input=b"\xff\xe4.png\n", **how)
    assert (result.returncode, result.stdout) == (1, b"")
    assert b".png: " in result.stderr.splitlines()[-1]


def test_a_prompt_survives_every_error(exported, some):
    pty = pytest.importorskip("pty", reason="terminals of this kind are POSIX's")
    parent, child = pty.openpty()
    process = subprocess.Popen(
        [*COMMAND, "eval", "--model", exported], stdin=child, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    os.close(child)
    os.write(parent, f"nowhere.png\n\n{os.path.dirname(COMMAND[0])}\n{some[0]}\n\x04".encode())
    output, errors = process.communicate(timeout=120)
    os.close(parent)
    assert str(some[0]).encode() + b"\t" in output
    assert b"nowhere.png: " in errors
    assert os.path.dirname(COMMAND[0]).encode() + b": " in errors
    assert process.returncode == 0


@pytest.mark.skipif(os.name != "posix", reason="signals are POSIX's")
@pytest.mark.parametrize(
    ("send", "number", "code"),
    [(os.killpg, signal.SIGINT, 130), (os.killpg, signal.SIGTERM, 143), (os.kill, signal.SIGTERM, 143)],
)
def test_signals_have_their_sentences_and_exit_codes(send, number, code):
    process = subprocess.Popen(
        [*COMMAND, "generate", "--count", "100000", "--workers", "2", "--out", "images"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
    )  # fmt: skip
    while process.poll() is None and len(list(Path().glob("images/*.png"))) < 50:
        time.sleep(0.05)
    send(process.pid, number)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == code
    assert errors.startswith(b"captcha-ocr: ")
    assert errors.count(b"\n") == 1
    assert not Path("images", "labels.csv").exists()


# Sends itself a signal when the import of numpy begins. An unguarded import may swallow it, or may not.
IMPORTING = """
import os, signal, sys
number, imported = int(sys.argv.pop(1)), []

def watch(event, arguments):
    if event == "import" and arguments[0] == "numpy" and not imported:
        imported.append("numpy")
        try:
            os.kill(os.getpid(), number)
        except BaseException:
            print("not held back")
            raise

sys.addaudithook(watch)
from captcha_ocr.cli.app import main
main()
"""
COMMANDS = [("generate", 2), ("prepare", 15), ("train", 2), ("eval", 15), ("bench", 15), ("doctor", 2)]


@pytest.mark.skipif(os.name != "posix", reason="no such signals there")
@pytest.mark.parametrize(("command", "number"), COMMANDS)
def test_a_signal_during_an_import_is_heard_after_it(command, number):
    result = subprocess.run([sys.executable, "-c", IMPORTING, str(number), command], capture_output=True)
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
    def exhausted(*_):
        raise MemoryError

    def exhausted_in_torch(*_):
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 4915200 bytes.")

    monkeypatch.setattr("captcha_ocr.network.torch_engine.TorchEngine.logits", exhausted_in_torch)
    result = read(*some)
    assert (result.exit_code, len(after_device(result.stderr))) == (1, 1)
    assert re.search(naming("cpu", " GB", "--device"), result.stderr)
    monkeypatch.setattr("captcha_ocr.diagnostics.doctor.examine", exhausted)
    result = invoke("doctor")
    assert (result.exit_code, result.stderr.count("\n")) == (1, 1)


@pytest.mark.skipif(os.name != "posix", reason="shells of other systems close it otherwise")
def test_no_standard_input_or_an_image_where_paths_should_be_is_one_sentence(read, images):
    command = ["sh", "-c", '"$@" <&-', "sh", *COMMAND, "eval"]
    result = subprocess.run(command, capture_output=True)
    assert result.returncode == 2
    assert re.fullmatch(b"captcha-ocr: .*PATH.*\n", result.stderr)
    assert subprocess.run([*command, "-"], capture_output=True).returncode == 1  # as an empty file
    result = read(input=next(images.glob("*.png")).read_bytes())
    assert (result.exit_code, result.stdout) == (2, "")
    (line,) = after_device(result.stderr)
    assert line.endswith("captcha-ocr eval -")


def test_bench_prints_a_line_for_each_device_with_its_two_speeds(tiny_preset, monkeypatch):
    monkeypatch.setitem(PRESETS, "default", tiny_preset)
    monkeypatch.setattr("captcha_ocr.diagnostics.bench.SECONDS", 0.01)
    monkeypatch.setattr("captcha_ocr.diagnostics.bench.DRAWN", 12)
    heading, *lines = invoke("bench").stdout.splitlines()
    assert "default" in heading
    assert lines[-1].startswith("cpu (")
    assert list(rows(invoke("bench", "--json"))[-1]) == ["device", "training", "reading"]


def test_a_table_comes_least_confident_first_and_goes_back_in_as_labels(read, images):
    shutil.copytree(images, "mine", ignore=shutil.ignore_patterns("*.csv", "*.json"))
    Path("mine", "bad.png").write_bytes(b"no image")
    result = read("mine", "--csv")
    assert result.exit_code == 1
    assert [line.split(": ")[0] for line in after_device(result.stderr)] == ["mine/bad.png"]
    table = list(csv.DictReader(result.stdout.splitlines()))
    assert list(table[0]) == ["filename", "text", "confidence"]
    confidences = [float(row["confidence"]) for row in table]
    assert confidences == sorted(confidences)
    assert len(table) == 60
    Path("fixed.csv").write_text(result.stdout)
    options = ["--corrections", "fixed.csv", "--size", "48x16", "--out", "my shards", "--workers", 1, "--json"]
    result = invoke("prepare", "mine", *options)
    assert result.exit_code == 1
    assert "bad.png: " in result.stderr
    assert "captcha-ocr train --data 'my shards'" in result.stderr
    prepared = json.loads(result.stdout)
    assert [prepared[name] for name in ("train", "val", "test", "left_out")] == [48, 6, 6, 1]


def test_inspect_counts_draws_and_names_what_was_read_wrong(images, run, tmp_path):
    options = ["--out", tmp_path, "--model", run, "--device", "cpu", "--workers", 1, "--quiet"]
    facts = json.loads(invoke("inspect", images, *options, "--json").stdout)
    assert facts["images"] == 60
    assert facts["advice"]
    assert set(facts["wrong"][0]) == {"file", "label", "text", "confidence"}
    lines = invoke("inspect", images, *options).stdout.splitlines()
    for picture in (tmp_path / "contact-sheet.png", tmp_path / "read-wrong.png"):
        assert picture.exists()
        assert any(line.endswith(f" {picture}") for line in lines)
    assert len([line for line in lines if "\t" in line]) == len(facts["wrong"])


def test_folds_are_trained_on_one_by_one_and_their_tests_pooled(images, tmp_path):
    options = ["--folds", 2, "--out", tmp_path / "folds", "--size", "48x16", "--workers", 1, "--json"]
    made = invoke("prepare", images, *options)
    assert [json.loads(made.stdout)[split] for split in ("train", "val", "test")] == [27, 3, 30]
    assert f"captcha-ocr train --cross-validate --data {tmp_path / 'folds'}" in made.stderr
    options = ["--data", tmp_path / "folds", "--preset", "tiny", "--epochs", 1, "--device", "cpu", "--quiet", "--json"]
    result = invoke("train", "--cross-validate", *options)
    assert json.loads(result.stdout)["test"]["images"] == 60


def test_curve_says_what_it_would_take(shards, tmp_path):
    options = ["--images", "10,20", "--epochs", 1, "--device", "cpu", "--quiet", "--json"]
    found = json.loads(invoke("curve", shards, "--out", tmp_path / "curve", *options).stdout)
    assert [point["images"] for point in found["points"]] == [10, 20]
    assert [line.split("%")[0] for line in found["outlook"]] == ["exact match 95", "exact match 99"]
    assert (tmp_path / "curve" / "curve.png").exists()

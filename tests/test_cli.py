import csv
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from conftest import naming

from captcha_ocr.cli import main
from captcha_ocr.cli.group import escape
from captcha_ocr.cli.reading import labelled_paths
from captcha_ocr.config import PRESETS
from captcha_ocr.labels import read_labels

COMMAND = [sys.executable, "-W", "error", "-m", "captcha_ocr"]


def invoke(*arguments: object, **settings) -> Result:
    """Run a command in this process."""
    return CliRunner().invoke(main, [str(argument) for argument in arguments], **settings)


def spawn(*arguments: object, **settings) -> subprocess.CompletedProcess[bytes]:
    """Run a command as its own process."""
    return subprocess.run([*COMMAND, *map(str, arguments)], capture_output=True, **settings)


def flip_bit(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


# --- from images to a read code ------------------------------------------------------------------


def test_four_commands_lead_from_nothing_to_read_codes(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    options = ["--count", 400, "--charset", "0123", "--length", 2, "--size", "80x40", "--workers", 1, "--seed", 5]
    drawn = invoke("generate", *options, "--json")
    assert json.loads(drawn.stdout)["drawn"] == 400
    assert "captcha-ocr prepare" in drawn.stderr
    prepared = json.loads(invoke("prepare", "--size", "80x40", "--workers", 1, "--json").stdout)
    assert [prepared[split] for split in ("train", "val", "test")] == [320, 40, 40]
    trained = json.loads(invoke("train", "--epochs", 20, "--device", "cpu", "--quiet", "--json").stdout)
    assert trained["test"]["exact_match"] > 0.6  # guessing gives 6 %
    read = invoke("eval", "data/images", "--device", "cpu")
    lines = [line.split("\t") for line in read.stdout.splitlines()]
    assert len(lines) == 400
    right = sum(Path(path).stem.split("-")[1] == code for path, code, _ in lines)
    assert right > 300
    assert all(0 < float(confidence) <= 1 for _, _, confidence in lines)


def test_a_finished_step_is_left_as_it_is(images, shards, run):
    options = ["--length", 2, "--charset", "digits", "--size", "48x16", "--font-sizes", 14, "--count", 60]
    before = [(path, path.stat().st_mtime_ns) for path in sorted(images.iterdir())]
    assert json.loads(invoke("generate", *options, "--out", images, "--json").stdout)["drawn"] == 0
    assert before == [(path, path.stat().st_mtime_ns) for path in sorted(images.iterdir())]


def test_the_next_command_names_folders_that_are_not_the_default(images, tmp_path):
    result = invoke("prepare", images, "--out", tmp_path / "my shards", "--size", "48x16", "--workers", 1, "--json")
    assert f"captcha-ocr train --data '{tmp_path / 'my shards'}'" in result.stderr
    assert json.loads(result.stdout)["train"] == 48


# --- eval ----------------------------------------------------------------------------------------


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


def codes(result: Result) -> list[str]:
    return [line.split("\t")[1] for line in result.stdout.splitlines()]


def test_files_folders_globs_and_standard_input_mean_the_same(read, some):
    expected = codes(read(*some))
    assert len(expected) == 3
    assert codes(read(some[0].parent)) == expected
    assert codes(read(some[0].parent / "*.png")) == expected
    assert codes(read(input="\n".join(map(str, some)))) == expected
    assert [codes(read("-", input=path.read_bytes()))[0] for path in some] == expected


def test_the_images_of_this_folder_are_named_without_it(read, some, monkeypatch):
    monkeypatch.chdir(some[0].parent)
    assert [line.split("\t")[0] for line in read(".").stdout.splitlines()] == [path.name for path in some]


def test_a_path_that_exists_is_never_a_glob(read, some):
    odd = some[0].with_name("[0-9]*.png")
    shutil.move(some[0], odd)
    assert read(odd).stdout.startswith(str(odd) + "\t")


def test_a_glob_that_matches_nothing_is_named_and_fails(read, tmp_path):
    result = read(tmp_path / "*.png")
    assert (result.exit_code, result.stdout) == (1, "")
    assert str(tmp_path / "*.png") in result.stderr


def test_a_folder_without_images_is_said_to_be_one_and_the_rest_is_read(read, some, tmp_path):
    (tmp_path / "empty").mkdir()
    result = read(tmp_path / "empty", some[0])
    assert result.exit_code == 1
    assert result.stdout.startswith(f"{some[0]}\t")
    (line,) = after_device(result.stderr)
    assert line.startswith(f"{tmp_path / 'empty'}: ")


def test_damaged_files_are_named_and_the_rest_is_read(read, images, tmp_path):
    folder = shutil.copytree(images, tmp_path / "images")
    damaged = sorted(folder.glob("*.png"))[10:15]
    for path in damaged:
        path.write_bytes(path.read_bytes()[:60])
    result = read(folder)
    assert result.exit_code == 1
    assert len(result.stdout.splitlines()) == 55
    assert [line.split(": ")[0] for line in after_device(result.stderr)] == list(map(str, damaged))


def test_json_has_an_object_a_line_with_code_or_error(read, some):
    some[1].write_bytes(b"no image")
    result = read(*some, "--json")
    rows = [json.loads(line) for line in result.stdout.splitlines()]
    assert [set(row) for row in rows] == [
        {"path", "code", "confidence"}, {"path", "error"}, {"path", "code", "confidence"}
    ]  # fmt: skip
    assert result.exit_code == 1


def test_odd_file_names_cannot_break_the_output(read, some):
    odd = some[0].with_name("a\tb\nc\x1b[31m.png")
    shutil.move(some[0], odd)
    (line,) = read(odd).stdout.splitlines()
    assert line.split("\t")[0].endswith(r"a\tb\nc\x1b[31m.png")


@pytest.mark.parametrize(
    ("path", "shown"),
    [("plain é.png", "plain é.png"), ("a\\b", r"a\\b"), ("\udcff", r"\udcff"), ("\x7f\u202e", r"\x7f\u202e")],
)
@pytest.mark.skipif(os.sep == "\\", reason="backslashes separate folders there")
def test_what_cannot_be_printed_is_escaped(path, shown):
    assert escape(path) == shown


def test_scores_compare_with_a_labels_file(read, images):
    result = read("--labels", images / "labels.csv")
    assert re.search(r"\d%.*\b60\b", result.stdout)
    assert after_device(result.stderr) == []
    assert result.exit_code == 0


def test_scores_of_some_images_count_these_alone(read, images, some):
    result = read("--labels", images / "labels.csv", some[0].parent, "--json")
    rows = [json.loads(line) for line in result.stdout.splitlines()]
    assert [set(row) for row in rows[:-1]] == [{"path", "code", "confidence"}] * 3
    assert rows[-1]["summary"]["images"] == 3


@pytest.mark.parametrize("text", ["123", "1X"])
def test_labels_that_the_model_cannot_read_are_counted_beside_the_score(read, some, text):
    table = some[0].with_name("labels.csv")
    table.write_text("filename,text\n" + "".join(f"{path.name},{text}\n" for path in some[:2]) + f"{some[2].name},12\n")
    result = read("--labels", table)
    (line,) = after_device(result.stderr)
    assert re.search(r"\b2\b.*\b3\b.*\b2\b.*0123456789", line)
    assert result.exit_code == 0


def test_images_without_a_row_are_named_and_not_scored(read, images, some):
    shutil.copy(some[0], some[0].with_name("stranger.png"))
    result = read("--labels", images / "labels.csv", some[0].parent, "--json")
    assert re.search(naming("stranger.png", "labels.csv"), result.stderr)
    assert json.loads(result.stdout.splitlines()[-1])["summary"]["images"] == 3
    assert result.exit_code == 1


def test_an_image_is_never_scored_with_the_label_of_one_elsewhere_in_the_folder(tmp_path):
    (tmp_path / "labels.csv").write_text("filename,text\na/1.png,AB\n")
    look_up = labelled_paths(tmp_path / "labels.csv", read_labels(tmp_path / "labels.csv")[0])
    assert look_up(str(tmp_path / "a" / "1.png")) == "AB"
    assert look_up(str(tmp_path / "b" / "1.png")) is None
    assert look_up(str(tmp_path.parent / "copied" / "1.png")) == "AB"


def test_a_score_of_nothing_is_a_failure(read, tmp_path):
    (tmp_path / "labels.csv").write_text("filename,text\na.png,12\n")
    result = read("--labels", tmp_path / "labels.csv")
    assert result.exit_code == 1
    assert str(tmp_path / "labels.csv") in result.stderr


def test_two_labels_of_one_name_in_two_folders_are_told_apart_by_their_place(tmp_path):
    table = tmp_path / "labels.csv"
    table.write_text("filename,text\na/1.png,A\nb/1.png,B\na/2.png,C\n")
    look_up = labelled_paths(table, read_labels(table)[0])
    assert look_up(str(tmp_path / "b" / "1.png")) == "B"
    assert look_up("elsewhere/1.png") is None
    assert look_up("elsewhere/2.png") == "C"


def test_an_image_where_paths_should_be_is_one_sentence(read, images):
    result = read(input=next(images.glob("*.png")).read_bytes())
    assert (result.exit_code, result.stdout) == (2, "")
    (line,) = after_device(result.stderr)
    assert line.endswith("captcha-ocr eval -")


@pytest.mark.parametrize("least", ["nan", "-0.1", "1.1"])
def test_what_is_no_confidence_is_refused(read, some, least):
    result = read(*some, "--min-confidence", least)
    assert (result.exit_code, result.stdout) == (2, "")
    assert "--min-confidence" in result.stderr


def test_what_is_less_sure_than_asked_for_is_left_unread(read, images, some):
    sure = [json.loads(line)["confidence"] for line in read(*some, "--json").stdout.splitlines()]
    result = read(*some, "--min-confidence", max(sure))
    assert result.exit_code == 0
    assert [code != "" for code in codes(result)] == [each == max(sure) for each in sure]
    assert re.search(naming(2, 3, f"{max(sure):g}"), after_device(result.stderr)[-1])
    unsure = read(*some, "--min-confidence", 1, "--json")
    assert [json.loads(line)["code"] for line in unsure.stdout.splitlines()] == [None] * 3
    table = read(*some, "--min-confidence", 1, "--csv")
    assert [row["text"] for row in csv.DictReader(table.stdout.splitlines())] == [""] * 3


def test_a_score_is_of_what_was_read(read, images):
    everything = [json.loads(line) for line in read("--labels", images / "labels.csv", "--json").stdout.splitlines()]
    sure = sorted(line["confidence"] for line in everything[:-1])
    result = read("--labels", images / "labels.csv", "--json", "--min-confidence", sure[20])
    summary = json.loads(result.stdout.splitlines()[-1])["summary"]
    assert (summary["images"], summary["unread"]) == (40, 20)
    nothing = read("--labels", images / "labels.csv", "--min-confidence", 1)
    assert (nothing.exit_code, nothing.stdout) == (1, "")
    assert re.search(naming(60, 1), nothing.stderr.splitlines()[-1])


def test_the_model_is_the_option_or_the_variable_or_the_run_or_the_packages(run, images, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = next(images.glob("*.png"))
    said = []
    for model in ("option", "variable", "runs/default"):
        shutil.copytree(run / "best", tmp_path / model / "best")
    result = invoke("eval", path, "--model", "option", env={"CAPTCHA_OCR_MODEL": "variable"})
    said.append(result.stderr.splitlines()[0])
    said.append(invoke("eval", path, env={"CAPTCHA_OCR_MODEL": "variable"}).stderr.splitlines()[0])
    said.append(invoke("eval", path).stderr.splitlines()[0])
    shutil.rmtree("runs")
    said.append(invoke("eval", path).stderr.splitlines()[0])
    folders = [Path("option", "best"), Path("variable", "best"), Path("runs", "default", "best")]
    assert all(line.endswith(f" {folder}") for line, folder in zip(said[:3], folders, strict=True))
    assert "package" in said[3]
    missing = invoke("eval", path, env={"CAPTCHA_OCR_MODEL": "nowhere"})
    assert (missing.exit_code, missing.stdout) == (2, "")
    assert re.search(naming("CAPTCHA_OCR_MODEL", "nowhere"), missing.stderr)


def test_export_writes_a_file_that_reads_the_same(run, images, tmp_path):
    model = shutil.copytree(run, tmp_path / "run")
    expected = codes(invoke("eval", images, "--model", model))
    result = invoke("export", images, "--model", model, "--json")
    assert result.exit_code == 0
    found = json.loads(result.stdout)
    assert (found["images"], found["codes_changed"]) == (60, 0)
    assert f"captcha-ocr eval image.png --model {model}" in result.stderr
    by_onnx = invoke("eval", images, "--model", model)
    assert codes(by_onnx) == expected
    assert "onnxruntime" in by_onnx.stderr.splitlines()[1]
    assert codes(invoke("eval", images, "--model", model, "--engine", "torch", "--device", "cpu")) == expected


def test_reading_can_be_narrowed(read, some):
    assert set("".join(codes(read(*some, "--charset", "37")))) <= set("37")
    assert read(*some, "--length", 3).exit_code == 2


@pytest.mark.parametrize("encoding", ["cp1252", "ascii", "utf-8"])
def test_odd_names_pass_through_every_encoding(run, some, tmp_path, encoding):
    shutil.copy(some[0], tmp_path / "中.png")
    environment = {**os.environ, "PYTHONIOENCODING": encoding}
    result = spawn("eval", "--model", run, tmp_path, env=environment)
    assert (result.returncode, after_device(result.stderr.decode(encoding))) == (0, [])
    result = spawn("eval", "--model", run, env=environment, input=b"\xff\xe4.png\n")
    assert (result.returncode, result.stdout) == (1, b"")
    assert b".png: " in result.stderr.splitlines()[-1]


def test_a_prompt_survives_every_error(run, some):
    pty = pytest.importorskip("pty", reason="terminals of this kind are POSIX's")
    parent, child = pty.openpty()
    process = subprocess.Popen(
        [*COMMAND, "eval", "--model", str(run), "--device", "cpu"],
        stdin=child, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    os.close(child)
    os.write(parent, f"nowhere.png\n\n{os.path.dirname(COMMAND[0])}\n{some[0]}\n\x04".encode())
    output, errors = process.communicate(timeout=120)
    os.close(parent)
    assert str(some[0]).encode() + b"\t" in output
    assert b"nowhere.png: " in errors
    assert os.path.dirname(COMMAND[0]).encode() + b": " in errors
    assert process.returncode == 0


# --- exit codes ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        (["generate", "--count", "0"], "--count"),
        (["generate", "--size", "9" * 5000 + "x60"], "--size"),
        (["generate", "--font-sizes", "9" * 5000], "--font-sizes"),
        (["generate", "--charset", "中"], "'中'"),
        (["generate", "--charset", "AA"], "'A'"),
        (["generate", "--length", "8", "--size", "100x60"], "128"),
        (["generate", "--size", "100"], "--size"),
        (["generate", "--size", "0x60"], "--size"),
        (["generate", "--font-sizes", "big"], "--font-sizes"),
        (["generate", "--fonts", "no.ttf"], "no.ttf"),
        (["prepare", "nowhere"], "nowhere"),
        (["prepare", ".", "--split", "80/10"], "--split"),
        (["prepare", "."], "PNG"),
        (["train"], "data/shards"),
        (["eval", "x.png", "--device", "tpu"], "'tpu'"),
        (["train", "--lr", "-1"], "--lr"),
        (["train", "--preset", "best"], "'best'"),
        (["eval", "x.png", "--model", "."], "config.json"),
        (["eval", "--nonsense"], "--nonsense"),
    ],
)
def test_a_users_mistake_is_one_sentence_and_exit_2(tmp_path, monkeypatch, arguments, name):
    monkeypatch.chdir(tmp_path)
    result = invoke(*arguments)
    assert result.exit_code == 2
    assert name in result.stderr
    assert "Traceback" not in result.output
    assert not list(tmp_path.iterdir())


def test_a_fonts_file_that_is_none_is_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("no.ttf").write_bytes(b"no font")
    result = invoke("generate", "--fonts", "no.ttf")
    assert (result.exit_code, Path("data").exists()) == (2, False)
    assert "no.ttf" in result.stderr


def test_a_folder_with_a_damaged_image_is_prepared_and_exits_1(images, tmp_path):
    folder = shutil.copytree(images, tmp_path / "images")
    damaged = sorted(folder.glob("*.png"))[0]
    damaged.write_bytes(b"no image")
    result = invoke("prepare", folder, "--out", tmp_path / "shards", "--size", "48x16", "--workers", 1, "--json")
    assert result.exit_code == 1
    assert f"{damaged.name}: " in result.stderr
    assert json.loads(result.stdout)["left_out"] == 1


@pytest.mark.parametrize("name", ["model.safetensors", "config.json"])
def test_a_damaged_model_exits_3_before_anything_is_read(run, some, tmp_path, name):
    folder = shutil.copytree(run / "best", tmp_path / "model")
    flip_bit(folder / name)
    result = invoke("eval", "--model", folder, *some)
    assert (result.exit_code, result.stdout) == (3, "")
    assert name in result.stderr


@pytest.mark.parametrize("name", ["manifest.json", "test-00000.safetensors.gz"])
def test_damaged_shards_exit_3(shards, tmp_path, name):
    folder = shutil.copytree(shards, tmp_path / "shards")
    flip_bit(folder / name)
    result = invoke("train", "--data", folder, "--out", tmp_path / "run", "--device", "cpu")
    assert result.exit_code == 3
    assert name in result.stderr
    assert not (tmp_path / "run" / "metrics.jsonl").exists()


def test_an_output_folder_that_is_a_file_is_one_sentence(images, tmp_path):
    (tmp_path / "file").touch()
    result = invoke("prepare", images, "--out", tmp_path / "file" / "shards", "--workers", 1)
    assert result.exit_code == 1
    assert str(tmp_path / "file" / "shards") in result.stderr


@pytest.mark.skipif(os.name != "posix", reason="signals are POSIX's")
@pytest.mark.parametrize("send", [os.kill, os.killpg], ids=["process", "group"])
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_signals_have_their_sentences_and_exit_codes(tmp_path, send, number, code):
    process = subprocess.Popen(
        [*COMMAND, "generate", "--count", "100000", "--workers", "2", "--out", str(tmp_path / "images")],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
    )  # fmt: skip
    while process.poll() is None and len(list(tmp_path.glob("images/*.png"))) < 50:
        pass
    send(process.pid, number)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == code
    assert errors.startswith(b"captcha-ocr: ")
    assert errors.count(b"\n") == 1
    assert not (tmp_path / "images" / "labels.csv").exists()


# Sends itself a signal when numpy begins to be imported. Whether it would have been swallowed is a matter of luck;
# that it waits is not.
IMPORTING = """
import os, signal, sys
number, before = int(sys.argv.pop(1)), set()

def watch(event, arguments):
    if event == "import" and arguments[0] == "numpy" and not before:
        before.add("numpy")
        try:
            os.kill(os.getpid(), number)
        except BaseException:
            print("not held back")
            raise

sys.addaudithook(watch)
from captcha_ocr.cli import main
main()
"""


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
@pytest.mark.parametrize("command", ["generate", "prepare", "train", "eval", "bench", "doctor"])
@pytest.mark.skipif(os.name != "posix", reason="no such signals there")
def test_a_signal_in_the_midst_of_an_import_is_heard_after_it(tmp_path, command, number, code):
    arguments = [sys.executable, "-c", IMPORTING, str(int(number)), command]
    result = subprocess.run(arguments, capture_output=True, cwd=tmp_path, check=False)
    assert (result.returncode, result.stdout) == (code, b"")
    assert result.stderr.startswith(b"captcha-ocr: ")
    assert result.stderr.count(b"\n") == 1


def test_what_a_launcher_sets_wrongly_is_one_sentence_and_no_matter_to_the_doctor(tmp_path):
    for variables, names in (
        ({"WORLD_SIZE": "abc"}, ("WORLD_SIZE=abc", "RANK=0")),
        ({"WORLD_SIZE": "2", "RANK": "x"}, ("WORLD_SIZE=2", "RANK=x")),
        ({"WORLD_SIZE": "2", "RANK": "2"}, ("WORLD_SIZE=2", "RANK=2")),
        ({"WORLD_SIZE": "2", "RANK": "0"}, ("WORLD_SIZE", "torchrun")),
    ):
        result = invoke("eval", tmp_path, "--device", "cpu", env=variables)
        assert (result.exit_code, result.stdout) == (2, "")
        assert re.search(naming(*names), result.stderr)
        assert invoke("doctor", env=variables).exit_code == 0


def test_a_system_without_memory_is_one_sentence(monkeypatch):
    def exhausted(*_):
        raise MemoryError

    monkeypatch.setattr("captcha_ocr.doctor.examine", exhausted)
    result = invoke("doctor")
    assert (result.exit_code, result.stderr.count("\n")) == (1, 1)
    assert "Traceback" not in result.stderr


def test_reading_without_memory_is_one_sentence(read, some, monkeypatch):
    def exhausted(*_):
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 4915200 bytes.")

    monkeypatch.setattr("captcha_ocr.model.TorchEngine.logits", exhausted)
    result = read(*some)
    assert result.exit_code == 1
    assert re.search(naming("cpu", " GB", "--device"), result.stderr)


@pytest.mark.skipif(os.name != "posix", reason="shells of other systems close it otherwise")
def test_no_path_and_no_standard_input_is_one_sentence(run):
    command = ["sh", "-c", '"$@" <&-', "sh", *COMMAND, "eval", "--model", str(run)]
    result = subprocess.run(command, capture_output=True)
    assert result.returncode == 2
    assert re.fullmatch(b"captcha-ocr: .*PATH.*\n", result.stderr)
    assert subprocess.run([*command, "-"], capture_output=True).returncode == 1  # as an empty file


@pytest.mark.skipif(os.name != "posix", reason="closed pipes are told otherwise there")
def test_a_reader_that_leaves_early_gets_no_traceback(run, images):
    process = subprocess.Popen(
        [*COMMAND, "eval", "--model", str(run), "--device", "cpu", *[str(images)] * 200],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    process.stdout.readline()
    process.stdout.close()
    assert b"Traceback" not in process.stderr.read()
    process.stderr.close()
    process.wait(timeout=60)


def test_the_version_is_the_packages():
    from captcha_ocr import __version__

    assert spawn("--version").stdout.decode().strip() == f"captcha-ocr {__version__}"


@pytest.mark.parametrize("command", [[], ["generate"], ["prepare"], ["train"], ["eval"]])
def test_every_command_has_help(command):
    result = invoke(*command, "--help")
    assert result.exit_code == 0
    assert "Options:" in result.stdout


@pytest.fixture
def tiny_is_the_default(tiny_preset, monkeypatch):
    """The command line knows the presets by name from its start on; so `default` becomes the tiny one."""
    monkeypatch.setitem(PRESETS, "default", tiny_preset)
    monkeypatch.setattr("captcha_ocr.bench.SECONDS", 0.01)
    monkeypatch.setattr("captcha_ocr.bench.DRAWN", 12)


@pytest.mark.usefixtures("tiny_is_the_default")
def test_bench_prints_a_line_for_each_device_with_its_two_speeds():
    heading, *lines = invoke("bench").stdout.splitlines()
    assert heading.split() == ["images/s", "with", "preset", "default", "training", "reading"]
    assert lines[-1].startswith("cpu (")
    last = json.loads(invoke("bench", "--json").stdout.splitlines()[-1])
    assert list(last) == ["device", "training", "reading"]


# --- looking at images, and correcting their labels -----------------------------------------------


def test_a_table_comes_least_confident_first_and_goes_back_in_as_labels(read, images, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shutil.copytree(images, "mine", ignore=shutil.ignore_patterns("*.csv", "*.json"))
    (tmp_path / "mine" / "bad.png").write_bytes(b"no image")
    result = read("mine", "--csv")
    assert result.exit_code == 1
    assert [line.split(": ")[0] for line in after_device(result.stderr)] == ["mine/bad.png"]
    rows = list(csv.DictReader(result.stdout.splitlines()))
    assert list(rows[0]) == ["filename", "text", "confidence"]
    confidences = [float(row["confidence"]) for row in rows]
    assert confidences == sorted(confidences)
    assert len(rows) == 60
    (tmp_path / "fixed.csv").write_text(result.stdout)
    options = ["--corrections", "fixed.csv", "--size", "48x16", "--workers", 1, "--json"]
    prepared = json.loads(invoke("prepare", "mine", *options).stdout)
    assert [prepared[name] for name in ("train", "val", "test", "left_out")] == [48, 6, 6, 1]


@pytest.mark.parametrize("option", ["--json", "--labels"])
def test_a_table_is_neither_json_nor_a_score(read, images, option):
    result = read(images, "--csv", *([option, images / "labels.csv"] if option == "--labels" else [option]))
    assert (result.exit_code, result.stdout) == (2, "")
    assert re.search(naming("--csv", "--json", "--labels"), result.stderr)


def test_inspect_counts_draws_and_advises(images, run, tmp_path):
    out = tmp_path / "out"
    result = invoke("inspect", images, "--out", out, "--model", run, "--device", "cpu", "--workers", 1, "--quiet")
    assert result.exit_code == 0
    first, *lines = result.stdout.splitlines()
    assert re.search(naming(60, 0), first)
    for picture in ("contact-sheet.png", "read-wrong.png"):
        assert any(line.endswith(f" {out / picture}") for line in lines)
    wrong = [line for line in lines if "\t" in line]
    assert any(re.search(rf"\b{len(wrong)}\b.*\b60\b", line) for line in lines)


def test_inspect_as_json_names_what_was_read_wrong(images, run, tmp_path):
    options = ["--out", tmp_path, "--model", run, "--device", "cpu", "--workers", 1, "--json", "--quiet"]
    facts = json.loads(invoke("inspect", images, *options).stdout)
    assert facts["images"] == 60
    assert set(facts["wrong"][0]) == {"file", "text", "code", "confidence"}
    assert facts["advice"]


def test_pictures_are_not_put_among_the_images(images):
    result = invoke("inspect", images, "--out", images / "out")
    assert result.exit_code == 2
    assert "--out" in result.stderr


def test_folds_are_trained_on_one_by_one_and_their_tests_pooled(images, tmp_path):
    options = ["--folds", 2, "--out", tmp_path / "folds", "--size", "48x16", "--workers", 1, "--json"]
    made = invoke("prepare", images, *options)
    assert [json.loads(made.stdout)[split] for split in ("train", "val", "test")] == [27, 3, 30]
    assert f"captcha-ocr train --cross-validate --data {tmp_path / 'folds'}" in made.stderr
    options = ["--data", tmp_path / "folds", "--out", tmp_path / "run", "--epochs", 1, "--device", "cpu", "--quiet"]
    result = invoke("train", "--cross-validate", *options, "--json")
    assert json.loads(result.stdout)["test"]["images"] == 60


def test_folds_are_of_one_data_folder(shards):
    result = invoke("train", "--cross-validate", "--data", shards, "--data", shards)
    assert result.exit_code == 2
    assert re.search(naming("--cross-validate", "--data"), result.stderr)


def test_curve_says_what_it_would_take(shards, tmp_path):
    options = ["--images", "10,20", "--epochs", 1, "--device", "cpu", "--quiet", "--json"]
    found = json.loads(invoke("curve", shards, "--out", tmp_path / "curve", *options).stdout)
    assert [point["images"] for point in found["points"]] == [10, 20]
    assert [line.split("%")[0] for line in found["outlook"]] == ["95", "99"]
    assert (tmp_path / "curve" / "curve.png").exists()

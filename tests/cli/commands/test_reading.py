import contextlib
import csv
import io
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import onnx
import pytest
from click.testing import Result
from conftest import invoke, naming
from hostile import FORMATS, encoded

from captcha_ocr.cli.app import main

from ..conftest import COMMAND, after_device, rows

# Runs commands one after another.
SEVERAL = """
import json, sys
from captcha_ocr.cli.app import main
for words in json.loads(sys.argv[1]):
    try:
        main(words)
    except SystemExit as leaving:
        print("\\nleft with", leaving.code, flush=True)
"""


def several(*commands: list[str]) -> list[str]:
    """Return a command that runs several of this program."""
    return [sys.executable, "-W", "error", "-c", SEVERAL, json.dumps(commands)]


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
    names = [path.name for path in some]
    assert [line.split("\t")[0] for line in read(".").stdout.splitlines()] == names
    odd = shutil.move(some[0], folder / "[0-9]*.png")  # a path that exists is no glob
    assert read(odd).stdout.startswith(f"{odd}\t")


def test_what_cannot_be_read_is_named_and_the_rest_is_read(read, some, tmp_path):
    (tmp_path / "empty").mkdir()
    some[1].write_bytes(some[1].read_bytes()[:60])
    paths = [tmp_path / "*.png", tmp_path / "empty", *some]
    result = read(*paths)
    assert result.exit_code == 1
    assert [line.split("\t")[0] for line in result.stdout.splitlines()] == [
        str(some[0]),
        str(some[2]),
    ]
    assert [line.split(": ")[0] for line in after_device(result.stderr)] == [
        *map(str, paths[:2]),
        str(some[1]),
    ]
    result = read(*paths, "--json")
    assert result.exit_code == 1
    error, reading = {"path", "error"}, {"path", "text", "confidence", "characters"}
    assert [set(row) for row in rows(result)] == [error, error, reading, error, reading]


def test_scores_are_of_the_images_that_are_named_and_have_a_row(read, images, some):
    whole = read("--labels", images / "labels.csv")
    assert re.search(r"\d%.*\b60\b", whole.stdout)
    (against,) = after_device(whole.stderr)
    assert (whole.exit_code, re.search(naming("against", images), against) is not None) == (0, True)
    shutil.copy(some[0], some[0].with_name("stranger.png"))
    part = read("--labels", images / "labels.csv", some[0].parent, "--json")
    assert part.exit_code == 1
    assert re.search(naming("stranger.png", "labels.csv"), part.stderr)
    *readings, summary = rows(part)
    assert [set(row) for row in readings] == [{"path", "text", "confidence", "characters"}] * 3
    assert summary["summary"]["images"] == 3
    named = read(images, "--labels", images)
    assert (named.exit_code, named.stdout) == (whole.exit_code, whole.stdout)


def test_a_reading_below_the_least_confidence_is_left_unread_and_unscored(read, images, some):
    confidences = [row["confidence"] for row in rows(read(*some, "--json"))]
    least = max(confidences)
    result = read(*some, "--min-confidence", least)
    assert result.exit_code == 0
    sure = [confidence == least for confidence in confidences]
    assert [code != "" for code in codes(result)] == sure
    assert re.search(naming(2, 3, f"{least:g}"), after_device(result.stderr)[-1])
    unread = rows(read(*some, "--min-confidence", 1, "--json"))
    assert [(row["text"], row["characters"]) for row in unread] == [(None, None)] * 3
    table = csv.DictReader(read(*some, "--min-confidence", 1, "--csv").stdout.splitlines())
    assert [row["text"] for row in table] == [""] * 3
    scoring = ["--labels", images / "labels.csv", "--json", "--min-confidence"]
    in_order = sorted(row["confidence"] for row in rows(read(*scoring, 0))[:-1])
    summary = rows(read(*scoring, in_order[20]))[-1]["summary"]
    assert (summary["images"], summary["unread"]) == (40, 20)
    nothing = read("--labels", images / "labels.csv", "--min-confidence", 1)
    assert (nothing.exit_code, nothing.stdout) == (1, "")
    assert re.search(naming(60, 1), nothing.stderr.splitlines()[-1])


def test_json_holds_the_characters_with_their_confidences(read, some):
    for row in rows(read(*some, "--json")):
        assert "".join(each["character"] for each in row["characters"]) == row["text"]
        names = {"character", "confidence", "runner_up", "runner_up_confidence"}
        for each in row["characters"]:
            assert set(each) == names
            assert each["character"] != each["runner_up"]
            assert 0 < each["runner_up_confidence"] <= each["confidence"] <= 1


def test_a_terminal_shows_a_bar_unless_results_come_there_and_quiet_shows_nothing(exported, images):
    pty, termios = (
        pytest.importorskip(name, reason="terminals are POSIX's") for name in ("pty", "termios")
    )
    parent, child = pty.openpty()
    termios.tcsetwinsize(child, (24, 80))
    read = ["eval", "--model", str(exported), str(images)]
    scored = ["--labels", str(images / "labels.csv")]
    loud = [[*read, *options] for options in (["--csv"], scored, ["--json"], [])]
    quiet = [[*words, "--quiet"] for words in loud]
    process = subprocess.Popen(several(*loud, *quiet), stdin=child, stdout=child, stderr=child)
    os.close(child)
    output = b""
    with contextlib.suppress(OSError):  # the other side is closed at the end
        while part := os.read(parent, 10_000):
            output += part
    os.close(parent)
    assert process.wait() == 0
    *outputs, end = output.split(b"left with 0")
    assert (len(outputs), end.strip()) == (8, b"")
    assert [b"read:" in part for part in outputs] == [True, True, *[False] * 6]
    assert [b"device" in part for part in outputs] == [True] * 4 + [False] * 4


@pytest.mark.parametrize("options", [["--csv"], ["--json"], [], ["--labels"]])
def test_without_a_terminal_there_is_no_bar_and_quiet_prints_results_alone(read, images, options):
    named = [images / "labels.csv"] if options == ["--labels"] else []
    loud, quiet = (read(images, *options, *named, *more) for more in ([], ["--quiet"]))
    assert loud.stdout == quiet.stdout != ""
    # How many images the folder holds, and that the model learnt from them
    lines = 2 if options == ["--labels"] else 1
    assert (len(after_device(loud.stderr)), quiet.stderr) == (lines, "")


def test_the_model_is_the_option_or_the_variable_or_the_run_or_the_packages(
    run, images, monkeypatch
):
    path, folders = (
        next(images.glob("*.png")),
        [Path(name, "best") for name in ("option", "variable", "runs/default", "runs/adapted")],
    )
    for age, folder in enumerate(folders):
        shutil.copytree(run / "best", folder)
        os.utime(folder / "config.json", (-age, -age))

    def said(*options) -> str:
        return invoke("eval", path, *options).stderr.splitlines()[0]

    for variable, options, named in (
        ("variable", ["--model", "option"], f" {folders[0]}"),
        ("variable", ["--model", "pretrained"], "package"),
        ("pretrained", [], "package"),
        ("variable", [], f" {folders[1]}"),
        ("nowhere", [], "CAPTCHA_OCR_MODEL is nowhere"),
        ("", [], f" {folders[2]}"),
    ):
        monkeypatch.setenv("CAPTCHA_OCR_MODEL", variable)
        assert named in said(*options)
    os.utime(folders[3] / "config.json")  # the newer
    assert said().endswith(f" {folders[3]}")
    shutil.rmtree("runs")
    assert "package" in said()


def test_a_second_reader_is_asked_beside_the_model(some):
    table = Path("theirs.csv")
    table.write_text(f"filename,text,confidence\n{some[0]},surely,1\n{some[1]},perhaps,0\n")
    done = invoke("eval", some[0].parent, "--second", table)
    texts = codes(done)
    assert (texts[0], "perhaps" in texts) == ("surely", False)
    refused = invoke("eval", "--second=rapidocr", input="")
    assert (refused.exit_code, "--second" in refused.stderr) == (2, True)


def test_export_writes_a_file_that_reads_the_same(run, exported, images, tmp_path, monkeypatch):
    network = onnx.load(exported / "model.onnx")  # the export of the same model, which takes long
    monkeypatch.setattr("captcha_ocr.network.onnx_export.to_onnx", lambda *_: network)
    model = shutil.copytree(run, tmp_path / "run")
    result = invoke("export", images, "--model", model, "--json")
    assert result.exit_code == 0
    assert (json.loads(result.stdout)["images"], json.loads(result.stdout)["texts_changed"]) == (
        60,
        0,
    )
    assert f"captcha-ocr eval {sorted(images.glob('*.png'))[0]} --model {model}" in result.stderr
    by_onnx = invoke("eval", images, "--model", model)
    assert "onnxruntime" in by_onnx.stderr.splitlines()[1]
    assert codes(by_onnx) == codes(
        invoke("eval", images, "--model", model, "--engine", "torch", "--device", "cpu")
    )


@pytest.mark.parametrize("encoding", ["cp1252", "ascii"])
def test_odd_names_pass_through_every_encoding(exported, some, encoding):
    shutil.copy(some[0], some[0].with_name("中.png"))
    how = {"env": {**os.environ, "PYTHONIOENCODING": encoding}, "capture_output": True}
    read = ["eval", "--model", str(exported)]
    command = several([*read, str(some[0].parent)], read)
    result = subprocess.run(command, input=b"\xff\xe4.png\n", **how)
    named, nameless = result.stdout.split(b"left with 0")
    assert "中.png" in named.decode()  # in a file or pipe, whatever the terminal's encoding
    assert nameless.split() == [b"left", b"with", b"1"]
    lines = result.stderr.decode(encoding).splitlines()
    assert (len(lines), ".png: " in lines[-1]) == (6, True)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-32", "latin-1"])
def test_lists_of_paths_from_elsewhere_are_read(exported, some, encoding, monkeypatch, capsys):
    text = '{0}\n{0}\r\n  {0} \n\n\t{0}\r"{0}"\n{0}\0'.format(some[0])
    source = io.TextIOWrapper(io.BufferedReader(io.BytesIO(text.encode(encoding))), "utf-8")
    monkeypatch.setattr(sys, "stdin", source)  # with the bytes, which click's runner would decode
    with pytest.raises(SystemExit) as leaving:
        main(["eval", "--model", str(exported)])
    rows = [row.split("\t")[0] for row in capsys.readouterr().out.splitlines()]
    assert (leaving.value.code, rows) == (0, [str(some[0])] * 6)


@pytest.mark.parametrize("option", ["--quiet", "--json"])
def test_each_path_on_a_pipe_is_answered_as_it_comes(exported, some, option):
    command = [*COMMAND, "eval", "--model", str(exported), option]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True) as process:
        for path, end in ((some[0], "\n"), (some[1], "\r\n"), (some[0], "\n")):
            process.stdin.write(f"{path}{end}")
            process.stdin.flush()
            assert str(path) in process.stdout.readline()
        process.stdin.write(f"{some[0]}\n{some[1]}\nnone.png\n{some[0]}")
        rest, errors = process.communicate()
    assert (process.returncode, rest.count("\n")) == (1, 4 if option == "--json" else 3)
    assert "none.png" in rest + errors


def test_a_table_is_written_to_a_file_that_does_not_exist(read, some):
    assert read(*some, "--out", "codes.csv").stdout == ""
    assert Path("codes.csv").read_text() == read(*some, "--csv").stdout
    for out in ("codes.csv", "none/codes.csv"):
        refused = read(*some, "--out", out)
        assert (refused.exit_code, bool(re.search(naming("--out", out), refused.stderr))) == (
            2,
            True,
        )


@pytest.mark.skipif(os.name != "posix", reason="shells of other systems close it otherwise")
def test_no_standard_input_or_an_image_where_paths_should_be_is_one_sentence(read, images):
    command = ["sh", "-c", '"$@" <&-', "sh", *COMMAND, "eval"]
    result = subprocess.run(command, capture_output=True)
    assert result.returncode == 2
    assert re.fullmatch(b"captcha-ocr: .*PATH.*\n", result.stderr)
    assert subprocess.run([*command, "-"], capture_output=True).returncode == 1  # as an empty file
    kinds = [encoded(name, size=(160, 60)) for name in FORMATS]
    for data in (next(images.glob("*.png")).read_bytes(), *kinds, b"\0\0\0\x18ftypheic\0\0"):
        result = read(input=data)
        assert (result.exit_code, result.stdout) == (2, "")
        (line,) = after_device(result.stderr)
        assert line.endswith("captcha-ocr eval -")


@pytest.mark.parametrize("end", ["\n", "\0", ""])
def test_paths_where_an_image_should_be_are_named(read, some, end):
    result = read("-", input=f"{some[0]}{end}")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "paths" in after_device(result.stderr)[-1]


@pytest.mark.skipif(os.name != "posix", reason="shells of other systems close it otherwise")
def test_readings_are_not_lost_where_standard_output_is_closed(exported, some):
    command = ["sh", "-c", '"$@" >&-', "sh", *COMMAND, "eval", "--model", str(exported)]
    refused = subprocess.run([*command, str(some[0])], capture_output=True, text=True)
    assert (refused.returncode, "--out" in refused.stderr) == (2, True)
    assert subprocess.run([*command, str(some[0]), "--out", "a.csv"]).returncode == 0
    assert str(some[0]) in Path("a.csv").read_text()


def test_a_table_comes_least_confident_first_and_goes_back_in_as_labels(read, images):
    shutil.copytree(images, "mine", ignore=shutil.ignore_patterns("*.csv", "*.json"))
    Path("mine", "bad.png").write_bytes(b"no image")
    result = read("mine", "--csv")
    assert result.exit_code == 1
    assert [line.split(": ")[0] for line in after_device(result.stderr)] == [
        "images     61 in mine",
        "mine/bad.png",
    ]
    table = list(csv.DictReader(result.stdout.splitlines()))
    assert list(table[0]) == ["filename", "text", "confidence"]
    confidences = [float(row["confidence"]) for row in table]
    assert confidences == sorted(confidences)
    assert len(table) == 60
    Path("fixed.csv").write_text(result.stdout)
    options = [
        "--corrections",
        "fixed.csv",
        "--readings",
        "--size",
        "48x16",
        "--out",
        "my shards",
        "--workers",
        1,
        "--json",
    ]
    result = invoke("prepare", "mine", *options)
    assert result.exit_code == 0
    assert "bad.png: " in result.stderr
    prepared = json.loads(result.stdout)
    assert [prepared[name] for name in ("train", "val", "test", "left_out")] == [48, 6, 6, 1]


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("engine", ["onnx", "torch"])
def test_eval_computes_with_the_wanted_threads(some, torch_threads, engine, threads):
    result = invoke("eval", "--engine", engine, "--threads", threads, some[0])
    assert (result.exit_code, result.stdout.count("\n")) == (0, 1)
    assert re.search(rf"\b{threads} thread|threads: {threads}\b", result.stderr)


@pytest.mark.parametrize("wrong", ["0", "-1", "1.5", "all", "1000000"])
@pytest.mark.parametrize("command", ["eval", "export", "train", "curve", "bench"])
def test_a_number_of_threads_that_cannot_be_is_refused_by_the_option(command, wrong):
    result = invoke(command, "--threads", wrong)
    assert result.exit_code == 2
    assert "--threads" in result.stderr

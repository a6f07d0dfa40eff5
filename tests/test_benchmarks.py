import importlib
import json
import shutil
import signal
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from captcha_ocr.cli.app import main

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"
SAMPLES = BENCHMARKS.parent / "data" / "samples"


@pytest.fixture
def benchmark(short_runs, monkeypatch, capsys):
    """Run a benchmark, and the commands that it starts, in this process; return what it prints."""

    def run(script: str, arguments: str) -> str:
        monkeypatch.setattr(sys, "argv", [script, *arguments.split()])
        importlib.import_module(script).main()
        printed = capsys.readouterr()
        sys.stderr.write(printed.err)  # for the test
        return printed.out

    before = [(number, signal.getsignal(number)) for number in (signal.SIGINT, signal.SIGTERM)]
    monkeypatch.syspath_prepend(BENCHMARKS)
    runner = CliRunner(catch_exceptions=False)
    monkeypatch.setattr("bench.output_of", lambda command: runner.invoke(main, command[3:]).stdout)
    yield run
    for number, handler in before:
        signal.signal(number, handler)


def test_drawing_is_compared_with_the_package_in_one_json_object(benchmark):
    options = "--design night --count 200 --runs 1 --against naive --json"
    document = json.loads(benchmark("bench", f"generate {options}"))
    rates = document["images_per_s"]
    assert (document["what"], document["images"], rates["runs"]) == ("generate", 200, 1)
    ratio = rates["median"] / document["naive_images_per_s"]["median"]
    assert document["ratio"]["median"] == pytest.approx(ratio)


@pytest.mark.parametrize("what", ["prepare", "train", "eval"])
def test_what_follows_on_drawing_is_measured(benchmark, what):
    printed = benchmark("bench", f"{what} --preset tiny --count 200 --runs 1 --device cpu")
    line, last = printed.splitlines()
    document = json.loads(last)
    assert (document["what"], document["images"], document["device"]) == (what, 200, "cpu")
    assert f"{document['images_per_s']['median']:,.0f}" in line


def test_training_on_drawings_is_compared_with_training_from_shards(benchmark, monkeypatch):
    monkeypatch.setattr("captcha_ocr.training.samples.dataset.HELD_OUT", 6)
    *_, last = benchmark(
        "drawing", "--preset tiny --count 24 --repeat 1 --runs 1 --device cpu"
    ).splitlines()
    rates, ratios = (json.loads(last)[name] for name in ("images_per_s", "ratio"))
    assert ratios["repeat 1"]["median"] == pytest.approx(
        rates["repeat 1"]["median"] / rates["shards"]["median"]
    )


def test_a_command_is_measured_in_a_process_of_its_own(monkeypatch):
    monkeypatch.syspath_prepend(BENCHMARKS)
    output_of = importlib.import_module("bench").output_of
    assert output_of([sys.executable, "-c", "print(5)"]) == "5\n"
    with pytest.raises(SystemExit, match="failed: the last line"):
        output_of([sys.executable, "-c", "import sys; sys.exit('first\\nthe last line')"])


@pytest.mark.parametrize(
    ("script", "arguments", "named"),
    [
        ("bench", "generate --count -5", "-5"),
        ("bench", "train --device nonsense", "'nonsense'"),
        ("bench", "prepare --count 1500 --against naive", "1500"),
        ("bench", "eval --against streamed", "--against"),
        ("naive", "prepare nowhere out", "*.png"),
        ("naive", "train nowhere 2", "training_set"),
        ("alphabets", "no-font.ttc folder", "no-font.ttc"),
        ("time_to_accuracy", "--epochs 1 --exact 80", "--exact"),
        ("time_to_accuracy", "--epochs 1 --count 1500", "1500"),
    ],
)
def test_options_that_leave_nothing_to_measure_are_refused_by_name(
    benchmark, capsys, script, arguments, named
):
    with pytest.raises(SystemExit, match=r"^2$"):
        benchmark(script, arguments)
    assert named in capsys.readouterr().err.splitlines()[-1]


def test_adapt_sees_images_without_their_names_and_is_tested_on_others(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(BENCHMARKS)
    adapt = importlib.import_module("adapt")
    names = [f"{number}.png" for number in range(700)]
    rows = "".join(f"{name},{number:03}\n" for number, name in enumerate(names))
    (tmp_path / "labels.csv").write_text("filename,text\n" + rows)
    for name in names:
        (tmp_path / name).touch()
    learnt, tested = adapt.draw_rows(tmp_path, count=1500, seed=0)
    assert (len(learnt), len(tested)) == (400, 300)
    assert set(learnt).isdisjoint(tested)
    few, same = adapt.draw_rows(tmp_path, count=200, seed=0)
    assert (few, len(few)) == (same, 700)
    table = adapt.link_images(learnt, tmp_path / "pool", labels=2)
    assert table.read_text().splitlines()[1:] == [
        f"{number:05}.png,{text}" for number, (_, text) in enumerate(learnt[:2])
    ]
    links = sorted((tmp_path / "pool").iterdir())
    assert [link.resolve() for link in links] == [path.resolve() for path, _ in learnt]
    result = {"tested": 300, "right": [150, 180, 240, 260, 270]}
    assert "adapted 90.00%" in adapt.pool([result])


def test_readers_are_scored_by_groups_with_blanks_absent_and_beside_other_programs(
    benchmark, tmp_path, monkeypatch, capsys
):
    for group, text in (("real", "0ZLA"), ("sums", "0_ZL A")):
        folder = tmp_path / group / "set"
        folder.mkdir(parents=True)
        shutil.copy(SAMPLES / "00000-0ZLA.png", folder / "0.png")
        (folder / "labels.csv").write_text(f"filename,text\n0.png,{text}\n")
    monkeypatch.syspath_prepend(BENCHMARKS)
    zero_shot = importlib.import_module("zero_shot")
    monkeypatch.setattr(zero_shot, "RAPIDOCR", "print('[[\"0zla\"], 1.0]')")
    folders = f"{tmp_path}/real/set {tmp_path}/sums/set"
    results = json.loads(benchmark("zero_shot", f"{folders} --rapidocr {sys.executable}"))
    readers = ["ours", "RapidOCR"] * 2
    assert [each["reader"] for each in results] == readers
    assert [(each["free"], each["with_case"]) for each in results] == [(1, 1), (1, 0)] * 2
    table = [
        "| real | 1 | 100.0%; 100.0% | 100.0%; 100.0% | 100.0% | 0 of 1 |",
        "| sums | 1 | 100.0%; 100.0% | 100.0%; 100.0% | 100.0% | 0 of 1 |",
    ]
    assert capsys.readouterr().err.splitlines()[-2:] == table


@pytest.mark.parametrize("script", ["pretrained", "designs", "datasets", "adapt", "peers"])
def test_a_benchmark_says_what_it_does(benchmark, capsys, script):
    with pytest.raises(SystemExit, match=r"^0$"):
        benchmark(script, "--help")
    assert f"python benchmarks/{script}.py" in capsys.readouterr().out

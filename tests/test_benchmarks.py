import json
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"


def run(script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, BENCHMARKS / script, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_drawing_is_measured_against_the_package_in_one_json_object():
    done = run("bench.py", "generate", "--count", "200", "--runs", "1", "--against", "naive", "--json")
    document = json.loads(done.stdout)
    assert (document["what"], document["images"], document["images_per_s"]["runs"]) == ("generate", 200, 1)
    ours, package = (document[name]["median"] for name in ("images_per_s", "naive_images_per_s"))
    assert document["ratio"]["median"] == pytest.approx(ours / package)


@pytest.mark.parametrize("what", ["prepare", "train", "eval"])
def test_every_step_is_measured(what):
    done = run("bench.py", what, "--count", "200", "--runs", "1", "--device", "cpu")
    line, last = done.stdout.splitlines()
    document = json.loads(last)
    assert (document["what"], document["images"], document["device"]) == (what, 200, "cpu")
    assert line.startswith(f"{what}: {document['images_per_s']['median']:,.0f} images/s")


def test_two_kinds_of_images_are_told_apart_or_not_in_a_line_for_each_pair():
    done = run("discriminator.py", "--images", "200", "--unseen", "200", "--epochs", "1")
    pairs = [json.loads(line) for line in done.stdout.splitlines()]
    assert [pair["unseen"] for pair in pairs] == [200, 200]
    assert all(pair["interval"][0] < pair["right"] < pair["interval"][1] for pair in pairs)


@pytest.mark.parametrize(
    ("script", "arguments", "sentence"),
    [
        ("bench.py", "generate --runs 0", "--runs must be at least 1, not 0"),
        ("bench.py", "generate --count -5", "--count must be at least 200, not -5"),
        ("bench.py", "generate --count 0", "--count must be at least 200, not 0"),
        ("bench.py", "train --preset bogus", "invalid choice: 'bogus'"),
        ("bench.py", "train --device nonsense", "there is no device 'nonsense' here"),
        ("bench.py", "prepare --count 1500 --against naive", "whole thousands of images, not 1500"),
        ("bench.py", "eval --against streamed", "--against streamed is for train alone"),
        ("naive.py", "", "the following arguments are required"),
        ("naive.py", "prepare tests out", "tests holds no 1,000 files *.png"),
        ("naive.py", "train tests 2", "tests holds no 1 files training_set"),
        ("time_to_accuracy.py", "--epochs 0", "--epochs and --runs must be at least 1"),
        ("time_to_accuracy.py", "--epochs 1 --exact 80", "--exact above 0 and at most 1"),
        ("time_to_accuracy.py", "--epochs 1 --count 1500", "whole thousands of images, which naive.py takes, not 1500"),
        ("discriminator.py", "--images 1", "--images and --unseen must be at least 200"),
    ],
)
def test_what_cannot_be_measured_is_refused_in_a_sentence(script, arguments, sentence):
    done = run(script, *arguments.split())
    assert done.returncode == 2
    assert sentence in done.stderr
    assert "Traceback" not in done.stderr

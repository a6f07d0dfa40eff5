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
    assert f"{document['images_per_s']['median']:,.0f}" in line


def test_two_kinds_of_images_are_told_apart_or_not_in_a_line_for_each_pair():
    done = run("discriminator.py", "--images", "200", "--unseen", "200", "--epochs", "1")
    pairs = [json.loads(line) for line in done.stdout.splitlines()]
    assert [pair["unseen"] for pair in pairs] == [200, 200]
    assert all(pair["interval"][0] < pair["right"] < pair["interval"][1] for pair in pairs)


@pytest.mark.parametrize(
    ("script", "arguments", "name"),
    [
        ("bench.py", "generate --runs 0", "--runs"),
        ("bench.py", "generate --count -5", "-5"),
        ("bench.py", "generate --count 0", "--count"),
        ("bench.py", "train --preset bogus", "'bogus'"),
        ("bench.py", "train --device nonsense", "'nonsense'"),
        ("bench.py", "prepare --count 1500 --against naive", "1500"),
        ("bench.py", "eval --against streamed", "--against"),
        ("naive.py", "", "command"),
        ("naive.py", "prepare tests out", "*.png"),
        ("naive.py", "train tests 2", "training_set"),
        ("time_to_accuracy.py", "--epochs 0", "--epochs"),
        ("time_to_accuracy.py", "--epochs 1 --exact 80", "--exact"),
        ("time_to_accuracy.py", "--epochs 1 --count 1500", "1500"),
        ("discriminator.py", "--images 1", "--images"),
    ],
)
def test_what_cannot_be_measured_is_refused_by_name(script, arguments, name):
    done = run(script, *arguments.split())
    assert done.returncode == 2
    assert name in done.stderr.splitlines()[-1]

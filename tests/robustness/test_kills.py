"""Commands that are ended in the midst, and given again, end as if nobody had touched them."""

import json
import random
import shutil
import signal
import time
from pathlib import Path

import pytest
from click.testing import CliRunner
from killing import BETWEEN_CHECKPOINTS_S, Command, contents

from captcha_ocr.cli import main
from captcha_ocr.errors import CaptchaOcrError
from captcha_ocr.files import TEMPORARY
from captcha_ocr.model_folder import STATE_FILE
from captcha_ocr.resume import LAST, PREVIOUS, check_whole
from captcha_ocr.shards import check_shards, read_manifest

IMAGES = ["--length", "2", "--charset", "digits", "--size", "48x16", "--font-sizes", "14", "--quiet"]
EPOCHS = 4
RESULTS = ("best/model.safetensors", "last/model.safetensors", "last/optimizer.safetensors")


def draw(folder: Path, count: int) -> Path:
    result = CliRunner().invoke(main, ["generate", "--out", str(folder), "--count", str(count), *IMAGES])
    assert result.exit_code == 0, result.stderr
    return folder


@pytest.fixture(scope="module")
def many_images(tmp_path_factory) -> Path:
    """2,500 images: eight shards."""
    return draw(tmp_path_factory.mktemp("kills") / "images", 2500)


@pytest.fixture(scope="module")
def some_shards(tmp_path_factory) -> Path:
    """Shards of 800 images."""
    folder = tmp_path_factory.mktemp("kills")
    images = draw(folder / "images", 800)
    command = ["prepare", "--size", "48x16", "--quiet", str(images), "--out", str(folder / "shards")]
    assert CliRunner().invoke(main, command).exit_code == 0
    return folder / "shards"


def is_whole_or_unfinished(out: Path) -> bool:
    """Whether shards are as their manifest says, or have none: then they are no shards to anybody."""
    if not (out / "manifest.json").exists():
        return True
    check_shards(out, read_manifest(out).shards)
    return True


@pytest.mark.parametrize("way", ["inside the saving", "at any moment"])
def test_prepare_that_was_killed_and_given_again_gives_the_same_bytes(many_images, tmp_path, soak, figure, way):
    def prepare(out: Path) -> Command:
        workers = "1" if way == "inside the saving" else "2"  # what dies by itself is one process
        words = ["prepare", "--size", "48x16", "--quiet", "--workers", workers, str(many_images), "--out", str(out)]
        return Command(words, (out / ("new" + TEMPORARY)).exists)

    chance, kills, too_late = random.Random(0), 100 if soak else 3, 0
    seconds, operations, _ = prepare(tmp_path / "whole").measure(tmp_path / "whole" / "manifest.json")
    expected = contents(tmp_path / "whole")
    for number in range(kills):
        out = tmp_path / str(number)
        status = None
        while status != -signal.SIGKILL:  # else it came too late: once more
            shutil.rmtree(out, ignore_errors=True)
            if way == "inside the saving":
                status = prepare(out).kill_inside_saving(operations, chance)
            else:
                status, worked_s, _ = prepare(out).end_at_any_moment(signal.SIGKILL, seconds, chance)
                if status == 0:
                    too_late, seconds = too_late + 1, worked_s  # what was measured was another load of the machine
        assert is_whole_or_unfinished(out)
        prepare(out).finish()
        assert contents(out) == expected
        shutil.rmtree(out)
    figure(f"{kills} of {kills} byte-equal ({operations} operations on files, {seconds:.1f} s, {too_late} too late)")


def train(shards: Path, out: Path) -> Command:
    words = ["train", "--data", str(shards), "--out", str(out), "--epochs", str(EPOCHS), "--batch-size", "32"]
    return Command([*words, "--device", "cpu", "--quiet"], (out / "metrics.jsonl").exists)


def results(out: Path) -> list[bytes]:
    return [(out / name).read_bytes() for name in RESULTS]


@pytest.fixture(scope="module")
def undisturbed(some_shards, tmp_path_factory) -> tuple[tuple[float, int, float], list[bytes]]:
    """A training that nobody touches: what is measured of it, seconds between two checkpoints too, and its results."""
    out = tmp_path_factory.mktemp("kills") / "run"
    measured = train(some_shards, out).measure(out / LAST / "config.json")
    return measured, results(out)


def has_finished(out: Path) -> bool:
    file = out / "run.json"
    return file.exists() and json.loads(file.read_bytes())["finished"] is not None


def training_lost_s(out: Path) -> float:
    """The age, in seconds, of the newest checkpoint that passes for whole.

    0 where there is none yet, or where it holds the whole training: what follows is scoring and drawing alone.
    """
    for folder in (out / LAST, out / PREVIOUS):
        if folder.exists():
            try:
                check_whole(folder)
            except CaptchaOcrError:
                continue
            progress = json.loads((folder / STATE_FILE).read_bytes())["progress"]
            age_s = time.time() - (folder / "config.json").stat().st_mtime
            return age_s if progress["epoch"] < EPOCHS else 0.0
    return 0.0


@pytest.mark.parametrize("way", ["inside the saving", "SIGKILL", "SIGINT", "SIGTERM"])
def test_training_that_was_ended_and_given_again_gives_the_same_bits(
    some_shards, undisturbed, tmp_path, soak, figure, way
):
    many = 50 if way in ("inside the saving", "SIGKILL") else 20
    chance, ends = random.Random(0), many if soak else 1
    wanted = {"SIGINT": 130, "SIGTERM": 143}.get(way, -signal.SIGKILL)
    ((seconds, operations, between_s), expected), slowest_s, most_lost_s = undisturbed, 0.0, 0.0
    seconds_now = seconds
    for number in range(ends):
        out, status = tmp_path / str(number), None
        while status is None or has_finished(out):  # it came too late: once more
            shutil.rmtree(out, ignore_errors=True)
            if way == "inside the saving":
                status, took_s = train(some_shards, out).kill_inside_saving(operations, chance), 0.0
            else:
                number_of = signal.SIGKILL if way == "SIGKILL" else getattr(signal, way)
                status, worked_s, took_s = train(some_shards, out).end_at_any_moment(number_of, seconds_now, chance)
                if has_finished(out):
                    seconds_now = worked_s  # what was measured was another load of the machine
        assert status == wanted
        lost_s = training_lost_s(out) - took_s  # after SIGINT and SIGTERM it is saved, too
        slowest_s, most_lost_s = max(slowest_s, took_s), max(most_lost_s, lost_s)
        train(some_shards, out).finish()
        assert results(out) == expected
        shutil.rmtree(out)
    figure(
        f"{ends} of {ends} bit-identical ({operations} operations on files, {seconds:.1f} s); {most_lost_s:.2f} s of "
        f"training lost at most, a checkpoint being due every {BETWEEN_CHECKPOINTS_S} s and undisturbed written "
        f"within {between_s:.2f} s of the one before; {slowest_s:.1f} s to end at most"
    )
    assert not soak or most_lost_s < 2 * BETWEEN_CHECKPOINTS_S  # the interval, and the time that writing takes

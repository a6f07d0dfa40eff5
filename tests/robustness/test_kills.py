"""Commands that a signal ends in the middle, and that a user then repeats, end as if nobody had touched them."""

import json
import random
import shutil
import signal
import time
from pathlib import Path

import pytest
from conftest import DRAWN_ALIKE, invoke
from killing import BETWEEN_CHECKPOINTS_S, Command, contents

from captcha_ocr.data.shards import check_shards, read_manifest
from captcha_ocr.errors import CaptchaOcrError
from captcha_ocr.inference.model_folder import STATE_FILE
from captcha_ocr.system.files import TEMPORARY
from captcha_ocr.training.checkpoint import LAST, PREVIOUS, check_files

RESULTS = ("best/model.safetensors", "last/model.safetensors", "last/optimizer.safetensors")
ENDS = {"inside the saving": 50, "SIGKILL": 50, "SIGINT": 20, "SIGTERM": 20}  # with --soak


def draw(folder: Path, count: int) -> Path:
    assert invoke("generate", "--out", folder, "--count", count, *DRAWN_ALIKE, "--quiet").exit_code == 0
    return folder


@pytest.fixture(scope="module")
def many_images(soak, tmp_path_factory) -> Path:
    """Images for several shards."""
    return draw(tmp_path_factory.mktemp("kills") / "images", 2500 if soak else 1100)


@pytest.fixture(scope="module")
def some_shards(soak, tmp_path_factory) -> Path:
    """Shards of images that are trained on for seconds."""
    folder = tmp_path_factory.mktemp("kills")
    images = draw(folder / "images", 800 if soak else 200)
    assert invoke("prepare", "--size", "48x16", "--quiet", images, "--out", folder / "shards").exit_code == 0
    return folder / "shards"


def is_whole_or_unfinished(out: Path) -> bool:
    """Whether shards are as their manifest says; without a manifest nobody takes them for shards."""
    if not (out / "manifest.json").exists():
        return True
    check_shards(out, read_manifest(out).shards)
    return True


@pytest.mark.parametrize("way", ["inside the saving", "at any moment"])
def test_prepare_that_was_killed_and_repeated_gives_the_same_bytes(many_images, tmp_path, soak, figure, way):
    def prepare(out: Path) -> Command:
        workers = "1" if way == "inside the saving" else "2"  # only one process can end itself
        words = ["prepare", "--size", "48x16", "--quiet", "--workers", workers, str(many_images), "--out", str(out)]
        return Command(words, (out / ("new" + TEMPORARY)).exists)

    generator, kills, too_late = random.Random(0), 100 if soak else 2, 0
    seconds, operations, _ = prepare(tmp_path / "whole").measure(tmp_path / "whole" / "manifest.json")
    expected = contents(tmp_path / "whole")
    for number in range(kills):
        out, status = tmp_path / str(number), None
        while status != -signal.SIGKILL:  # the kill came too late: once more
            shutil.rmtree(out, ignore_errors=True)
            if way == "inside the saving":
                status = prepare(out).kill_inside_saving(operations, generator)
            else:
                status, worked_s, _ = prepare(out).end_at_any_moment(signal.SIGKILL, seconds, generator)
                if status == 0:
                    too_late, seconds = too_late + 1, worked_s  # the machine had another load when it was measured
        assert is_whole_or_unfinished(out)
        prepare(out).finish()
        assert contents(out) == expected
        shutil.rmtree(out)
    figure(f"{kills} of {kills} byte-equal ({operations} operations on files, {seconds:.1f} s, {too_late} too late)")


class Training:
    """A training of some epochs; repeated, it has the same results."""

    def __init__(self, shards: Path, out: Path, epochs: int) -> None:
        words = ["train", "--data", str(shards), "--out", str(out), "--epochs", str(epochs), "--batch-size", "32"]
        self.command = Command([*words, "--device", "cpu", "--quiet"], (out / "metrics.jsonl").exists)
        self.out, self.epochs = out, epochs

    def results(self) -> list[bytes]:
        return [(self.out / name).read_bytes() for name in RESULTS]

    def has_finished(self) -> bool:
        file = self.out / "run.json"
        return file.exists() and json.loads(file.read_bytes())["finished"] is not None

    def lost_s(self) -> float:
        """Return the age of the newest whole checkpoint, in seconds.

        0 where there is none yet, or where it holds the whole training: only scoring and drawing follow.
        """
        for folder in (self.out / LAST, self.out / PREVIOUS):
            if folder.exists():
                try:
                    check_files(folder)
                except CaptchaOcrError:
                    continue
                progress = json.loads((folder / STATE_FILE).read_bytes())["progress"]
                age_s = time.time() - (folder / "config.json").stat().st_mtime
                return age_s if progress["epoch"] < self.epochs else 0.0
        return 0.0


@pytest.fixture(scope="module")
def undisturbed(some_shards, soak, tmp_path_factory) -> tuple[tuple[float, int, float], list[bytes], int]:
    """What is measured of an undisturbed training, its results, and its epochs."""
    training = Training(some_shards, tmp_path_factory.mktemp("kills") / "run", 4 if soak else 2)
    return training.command.measure(training.out / LAST / "config.json"), training.results(), training.epochs


@pytest.mark.parametrize("way", ENDS)
def test_training_that_was_ended_and_repeated_gives_the_same_bits(
    some_shards, undisturbed, tmp_path, soak, figure, way
):
    generator, ends = random.Random(0), ENDS[way] if soak else 1
    wanted = {"SIGINT": 130, "SIGTERM": 143}.get(way, -signal.SIGKILL)
    ((seconds, operations, between_s), expected, epochs), slowest_s, most_lost_s = undisturbed, 0.0, 0.0
    seconds_now = seconds
    for attempt in range(ends):
        training, status = Training(some_shards, tmp_path / str(attempt), epochs), None
        while status is None or training.has_finished():  # it came too late: once more
            shutil.rmtree(training.out, ignore_errors=True)
            if way == "inside the saving":
                status, took_s = training.command.kill_inside_saving(operations, generator), 0.0
            else:
                number = getattr(signal, way)
                status, worked_s, took_s = training.command.end_at_any_moment(number, seconds_now, generator)
                if training.has_finished():
                    seconds_now = worked_s  # the machine had another load when it was measured
        assert status == wanted
        lost_s = training.lost_s() - took_s  # SIGINT and SIGTERM save before they end it
        slowest_s, most_lost_s = max(slowest_s, took_s), max(most_lost_s, lost_s)
        training.command.finish()
        assert training.results() == expected
        shutil.rmtree(training.out)
    figure(
        f"{ends} of {ends} bit-identical ({operations} operations on files, {seconds:.1f} s); {most_lost_s:.2f} s of "
        f"training lost at most, a checkpoint being due every {BETWEEN_CHECKPOINTS_S} s and undisturbed written "
        f"within {between_s:.2f} s of the one before; {slowest_s:.1f} s to end at most"
    )
    assert not soak or most_lost_s < 2 * BETWEEN_CHECKPOINTS_S  # the interval, and the time that writing takes

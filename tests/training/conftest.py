import json
import shutil
from dataclasses import replace

import pytest
import torch
from conftest import CAPTCHAS, ONE_WORKER, QUIET, TINY

from captcha_ocr.data.prepare import prepare
from captcha_ocr.data.shards import read_dataset
from captcha_ocr.generation.drawer import plan_drawing
from captcha_ocr.generation.folder import generate
from captcha_ocr.options.model import Lengths
from captcha_ocr.options.preparation import PrepareConfig
from captcha_ocr.training import train as training
from captcha_ocr.training.distributed import BatchPartition, ProcessGroup
from captcha_ocr.training.run.folder import start_run
from captcha_ocr.training.run.spec import RunSpec
from captcha_ocr.training.samples import batches
from captcha_ocr.training.samples.batches import load_split
from captcha_ocr.training.step.trainer import Trainer
from captcha_ocr.training.train import train

ALONE = ProcessGroup(torch.device("cpu"))
# Of `train`; others are of its configuration.
OPTIONS = ("force", "init", "keep_every", "quiet", "resume", "stream", "tensorboard")


@pytest.fixture(autouse=True)
def short_runs(short_runs):
    """Make every run here short."""


@pytest.fixture
def config(tiny_preset):
    return tiny_preset.training


@pytest.fixture
def learn(shards, config):
    """Train with the tiny recipe, on the shards unless others or `draw` are given."""

    def learn(out, *data, **changes):
        options = {name: changes.pop(name) for name in OPTIONS if name in changes}
        options["resume"] = str(options.get("resume", "auto"))
        return train(
            changes.pop("draw", None) or data or [shards],
            out,
            replace(config, **changes),
            replace(QUIET, **options),
        )

    return learn


@pytest.fixture
def drawings(drawings, monkeypatch):
    """No process is started to draw them, unless a test uses `worker_processes`."""
    monkeypatch.setattr(batches, "_count_processes", lambda *_: 0)
    return drawings


@pytest.fixture
def worker_processes(drawings, monkeypatch):
    """Other processes draw, as many as the options say."""
    monkeypatch.setattr(batches, "_count_processes", lambda data, _: data.options.workers)


@pytest.fixture
def copied(run, tmp_path):
    """A copy of the finished run."""
    return shutil.copytree(run, tmp_path / "run")


def rows_of(run, by="epoch") -> list[dict]:
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [row for row in rows if row["by"] == by]


@pytest.fixture
def trainer_of(shards, tiny_preset):
    """Make a trainer of the tiny preset with other options."""

    def make(training_images=48, finds_end=False, **options) -> Trainer:
        config = replace(tiny_preset.training, **options)
        spec = RunSpec.of(read_dataset([shards]), config)
        partition = BatchPartition(training_images, 10, ALONE)
        return Trainer(spec.model, config, partition, finds_end=finds_end)

    return make


@pytest.fixture
def samples(shards):
    return load_split(read_dataset([shards]), "train", ALONE).first(4)


@pytest.fixture
def spec(shards):
    return RunSpec.of(read_dataset([shards]), TINY.training)


@pytest.fixture
def started(spec, tmp_path):
    """The folder of a run that has started, and no more."""
    start_run(tmp_path, spec, replaces=False, checkpoint=None)
    return tmp_path


@pytest.fixture
def easy_shards(tmp_path):
    """Shards of 250 images of one letter, I or X: 200 to train on, 25 to validate."""
    letters = {"lengths": Lengths(1, 1), "charset": "IX", "width": 24, "font_sizes": ()}
    drawing = replace(CAPTCHAS, count=250, design="gradient", **letters)
    generate(plan_drawing(drawing), tmp_path / "easy", 1)
    prepare(tmp_path / "easy", tmp_path / "easy-shards", PrepareConfig(preset="tiny"), ONE_WORKER)
    return tmp_path / "easy-shards"


@pytest.fixture
def scripted(monkeypatch):
    """Set the validations of a run: (exact, loss) for each epoch.

    What follows is scored as usual.
    """
    outcomes, real = [], training.evaluate

    def evaluate(*arguments):
        scores = real(*arguments)
        exact, loss_mean = outcomes.pop(0) if outcomes else (scores.exact, scores.loss)
        return replace(scores, exact=exact, loss=loss_mean)

    monkeypatch.setattr(training, "evaluate", evaluate)
    return outcomes.extend

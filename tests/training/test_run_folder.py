import json
import shutil
from collections import Counter
from dataclasses import replace

import pytest
from conftest import TINY, amend, naming

from captcha_ocr.config import TrainConfig
from captcha_ocr.data.shards import Dataset, read_dataset, read_manifest
from captcha_ocr.errors import DamagedError, UsageError
from captcha_ocr.metrics import Scores
from captcha_ocr.training.run_folder import (
    Finished,
    describe_run,
    end_run,
    find_run,
    identity,
    is_run,
    start_run,
    write_metrics,
)

SCORE = Scores(2, 1, Counter({("1", "1"): 3, ("1", "7"): 1})).summary()
END = Finished(rule="it is over", epochs=3, best_epoch=2, seconds=1.5, training=SCORE, validation=SCORE, test=None)


@pytest.fixture
def described(shards):
    return describe_run(read_dataset([shards]), TINY.training)


@pytest.fixture
def started(described, tmp_path):
    """The folder of a run that has started, and no more."""
    start_run(tmp_path, described, replace=False, checkpoint=None)
    return tmp_path


def test_where_there_is_no_run_nothing_is_found_and_nothing_made(described, tmp_path):
    assert find_run(tmp_path / "new", described, "auto") is None
    assert not (tmp_path / "new").exists()


def test_a_started_run_goes_on_unless_the_user_refuses_it(described, started):
    assert find_run(started, described, "auto") is None
    with pytest.raises(UsageError, match="--resume"):
        find_run(started, described, "never")


def test_a_finished_run_remembers_how_it_ended_and_needs_its_best_model(described, run, started):
    end_run(started, END, {"device": "cpu"})
    with pytest.raises(DamagedError, match="--resume never"):
        find_run(started, described, "auto")
    shutil.copytree(run / "best", started / "best")
    facts = json.loads((started / "best" / "config.json").read_bytes())["facts"]
    amend(started / "best" / "config.json", facts={**facts, "run": identity(described)})
    assert find_run(started, described, "auto") == END


def test_metrics_are_one_json_object_a_line_with_null_for_what_is_no_number(tmp_path):
    write_metrics(tmp_path, [{"epoch": 1, "training_loss": float("nan"), "peak_memory_mb": None}, {"epoch": 2}])
    assert (tmp_path / "metrics.jsonl").read_text() == (
        '{"epoch": 1, "training_loss": null, "peak_memory_mb": null}\n{"epoch": 2}\n'
    )


def test_the_same_data_prepared_from_another_place_are_the_same_data(described, shards):
    moved = replace(read_manifest(shards), source="elsewhere", labels="labels.csv")
    assert describe_run(Dataset((shards,), (moved,)), TINY.training) == described


def test_starting_weights_tell_runs_apart(described, shards, run, started):
    begun_elsewhere = describe_run(read_dataset([shards]), TINY.training, run)
    assert [name for name in described if described[name] != begun_elsewhere[name]] == ["init"]
    with pytest.raises(UsageError, match="--force"):
        find_run(started, begun_elsewhere, "auto")


def test_another_recipe_is_another_run(shards, started):
    with pytest.raises(UsageError, match=naming("preset", "default")):
        find_run(started, describe_run(read_dataset([shards]), TrainConfig()), "auto")


@pytest.mark.parametrize("name", ["best", "curves.png", "confusion.png", "metrics.jsonl"])
def test_what_no_run_made_is_not_overwritten(described, tmp_path, name):
    (tmp_path / name).touch()
    with pytest.raises(UsageError, match=naming(name, "run.json")):
        find_run(tmp_path, described, "auto")


def test_a_damaged_run_is_refused_and_another_programs_run_json_is_no_run(described, started):
    path = started / "run.json"
    path.write_text(path.read_text().replace("0.004", "0.005"))
    with pytest.raises(DamagedError, match=naming(path, "--force")):
        find_run(started, described, "auto")
    assert is_run(started)
    path.write_text('{"format": "another program"}')
    with pytest.raises(DamagedError, match=naming(path, "--out")):
        find_run(started, described, "auto")
    assert not is_run(started)
    assert not is_run(started / "nowhere")

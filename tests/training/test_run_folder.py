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
from captcha_ocr.training.run import RunSpec
from captcha_ocr.training.run_folder import Finished, end_run, find_run, is_run, start_run, write_metrics

SCORE = Scores(2, 1, Counter({("1", "1"): 3, ("1", "7"): 1})).summary()
END = Finished(rule="it is over", epochs=3, best_epoch=2, seconds=1.5, training=SCORE, validation=SCORE, test=None)


@pytest.fixture
def spec(shards):
    return RunSpec.of(read_dataset([shards]), TINY.training)


@pytest.fixture
def started(spec, tmp_path):
    """The folder of a run that has started, and no more."""
    start_run(tmp_path, spec, replaces=False, checkpoint=None)
    return tmp_path


def test_where_there_is_no_run_nothing_is_found_and_nothing_made(spec, tmp_path):
    assert find_run(tmp_path / "new", spec, "auto") is None
    assert not (tmp_path / "new").exists()


def test_a_started_run_goes_on_unless_the_user_refuses_it(spec, started):
    assert find_run(started, spec, "auto") is None
    with pytest.raises(UsageError, match="--resume"):
        find_run(started, spec, "never")


def test_a_finished_run_remembers_how_it_ended_and_needs_its_best_model(spec, run, started):
    end_run(started, END, {"device": "cpu"})
    with pytest.raises(DamagedError, match="--resume never"):
        find_run(started, spec, "auto")
    shutil.copytree(run / "best", started / "best")
    facts = json.loads((started / "best" / "config.json").read_bytes())["facts"]
    amend(started / "best" / "config.json", facts={**facts, "run": spec.identity})
    assert find_run(started, spec, "auto") == END


def test_metrics_are_one_json_object_a_line_with_null_for_what_is_no_number(tmp_path):
    write_metrics(tmp_path, [{"epoch": 1, "training_loss": float("nan"), "peak_memory_mb": None}, {"epoch": 2}])
    assert (tmp_path / "metrics.jsonl").read_text() == (
        '{"epoch": 1, "training_loss": null, "peak_memory_mb": null}\n{"epoch": 2}\n'
    )


def test_the_same_data_prepared_from_another_place_are_the_same_data(spec, shards):
    moved = replace(read_manifest(shards), source="elsewhere", labels="labels.csv")
    assert RunSpec.of(Dataset((shards,), (moved,)), TINY.training) == spec


def test_starting_weights_tell_runs_apart(spec, shards, run, started):
    begun_elsewhere = RunSpec.of(read_dataset([shards]), TINY.training, run)
    assert spec.init is None
    assert spec == replace(begun_elsewhere, init=None)
    with pytest.raises(UsageError, match="--force"):
        find_run(started, begun_elsewhere, "auto")


def test_another_recipe_is_another_run(shards, started):
    with pytest.raises(UsageError, match=naming("preset", "default")):
        find_run(started, RunSpec.of(read_dataset([shards]), TrainConfig()), "auto")


@pytest.mark.parametrize("name", ["best", "curves.png", "confusion.png", "metrics.jsonl"])
def test_what_no_run_made_is_not_overwritten(spec, tmp_path, name):
    (tmp_path / name).touch()
    with pytest.raises(UsageError, match=naming(name, "run.json")):
        find_run(tmp_path, spec, "auto")


def test_a_damaged_run_is_refused_and_another_programs_run_json_is_no_run(spec, started):
    path = started / "run.json"
    path.write_text(path.read_text().replace("0.004", "0.005"))
    with pytest.raises(DamagedError, match=naming(path, "--force")):
        find_run(started, spec, "auto")
    assert is_run(started)
    path.write_text('{"format": "another program"}')
    with pytest.raises(DamagedError, match=naming(path, "--out")):
        find_run(started, spec, "auto")
    assert not is_run(started)
    assert not is_run(started / "nowhere")

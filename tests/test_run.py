import json
import shutil
from collections import Counter
from dataclasses import replace

import pytest
from conftest import TINY, naming

from captcha_ocr.config import TrainConfig
from captcha_ocr.errors import DamagedError, UsageError
from captcha_ocr.files import sealed
from captcha_ocr.metrics import Scores
from captcha_ocr.run import Finished, describe_run, end_run, find_run, identity, is_run, start_run, write_metrics
from captcha_ocr.shards import Dataset, read_dataset, read_manifest

SCORE = Scores(2, 1, Counter({("1", "1"): 3, ("1", "7"): 1})).summary()
END = Finished(rule="all epochs done", epochs=3, best_epoch=2, seconds=1.5, training=SCORE, validation=SCORE, test=None)


@pytest.fixture
def described(shards):
    return describe_run(read_dataset([shards]), TrainConfig())


def test_where_there_is_no_run_nothing_is_found_and_nothing_made(described, tmp_path):
    assert find_run(tmp_path / "new", described, "auto") is None
    assert not (tmp_path / "new").exists()


def test_a_started_run_has_not_finished(described, tmp_path):
    start_run(tmp_path, described, replace=False, checkpoint=None)
    assert find_run(tmp_path, described, "auto") is None


def test_a_finished_run_remembers_how_it_ended(described, run, tmp_path):
    shutil.copytree(run / "best", tmp_path / "best")
    document = json.loads((tmp_path / "best" / "config.json").read_bytes())
    document["facts"]["run"] = identity(described)
    (tmp_path / "best" / "config.json").write_bytes(sealed(document))
    start_run(tmp_path, described, replace=False, checkpoint=None)
    end_run(tmp_path, END, {"device": "cpu"})
    assert find_run(tmp_path, described, "auto") == END


def test_a_run_without_its_best_model_is_not_finished(described, tmp_path):
    start_run(tmp_path, described, replace=False, checkpoint=None)
    end_run(tmp_path, END, {})
    with pytest.raises(DamagedError, match="--resume never"):
        find_run(tmp_path, described, "auto")


def test_what_is_no_number_is_null_in_the_metrics(tmp_path):
    write_metrics(tmp_path, [{"epoch": 1, "training_loss": float("nan"), "peak_memory_mb": None}])
    row = json.loads((tmp_path / "metrics.jsonl").read_text())
    assert row == {"epoch": 1, "training_loss": None, "peak_memory_mb": None}


def test_the_same_data_prepared_from_another_place_are_the_same_data(described, shards):
    moved = replace(read_manifest(shards), source="elsewhere", labels="labels.csv")
    assert describe_run(Dataset((shards,), (moved,)), TrainConfig()) == described


def test_starting_weights_tell_runs_apart(shards, run, tmp_path):
    described = describe_run(read_dataset([shards]), TINY.training)
    begun_elsewhere = describe_run(read_dataset([shards]), TINY.training, run)
    assert [name for name in described if described[name] != begun_elsewhere[name]] == ["init"]
    start_run(tmp_path, described, replace=False, checkpoint=None)
    with pytest.raises(UsageError, match="--force"):
        find_run(tmp_path, begun_elsewhere, "auto")


def test_only_a_run_is_taken_for_a_run(described, tmp_path):
    assert not is_run(tmp_path)
    (tmp_path / "run.json").write_text('{"format": "another program"}')
    assert not is_run(tmp_path)
    start_run(tmp_path, described, replace=False, checkpoint=None)
    assert is_run(tmp_path)


def test_an_unfinished_run_is_not_resumed_against_the_users_wish(described, tmp_path):
    start_run(tmp_path, described, replace=False, checkpoint=None)
    with pytest.raises(UsageError, match="--resume"):
        find_run(tmp_path, described, "never")


def test_a_model_that_no_run_made_is_not_overwritten(described, tmp_path):
    (tmp_path / "best").mkdir()
    with pytest.raises(UsageError, match=naming("best", "run.json")):
        find_run(tmp_path, described, "auto")


@pytest.mark.parametrize("name", ["curves.png", "confusion.png", "metrics.jsonl"])
def test_a_file_that_no_run_made_is_not_overwritten(described, tmp_path, name):
    (tmp_path / name).touch()
    with pytest.raises(UsageError, match=naming(name, "run.json")):
        find_run(tmp_path, described, "auto")


def test_a_changed_run_json_is_refused(described, tmp_path):
    start_run(tmp_path, described, replace=False, checkpoint=None)
    path = tmp_path / "run.json"
    path.write_text(path.read_text().replace("0.004", "0.005"))
    with pytest.raises(DamagedError, match=naming("run.json", "--force")):
        find_run(tmp_path, described, "auto")
    path.write_text("garbage")  # nothing says any more that train wrote it
    with pytest.raises(DamagedError, match=naming("run.json", "--out")):
        find_run(tmp_path, described, "auto")


def test_metrics_are_one_json_object_a_line(tmp_path):
    write_metrics(tmp_path, [{"epoch": 1}, {"epoch": 2}])
    assert (tmp_path / "metrics.jsonl").read_text() == '{"epoch": 1}\n{"epoch": 2}\n'

from dataclasses import replace

import pytest
from conftest import TINY, naming

from captcha_ocr.data.shards import Dataset, read_dataset, read_manifest
from captcha_ocr.errors import DamagedError, UsageError
from captcha_ocr.training.run import RunSpec
from captcha_ocr.training.run_folder import find_run, is_run, start_run, write_metrics


@pytest.fixture
def spec(shards):
    return RunSpec.of(read_dataset([shards]), TINY.training)


@pytest.fixture
def started(spec, tmp_path):
    """The folder of a run that has started, and no more."""
    start_run(tmp_path, spec, replaces=False, checkpoint=None)
    return tmp_path


def test_a_started_run_goes_on_unless_the_user_refuses_it(spec, started):
    assert find_run(started, spec, "auto") is None
    with pytest.raises(UsageError, match="--resume"):
        find_run(started, spec, "never")
    assert find_run(started / "new", spec, "auto") is None
    assert not (started / "new").exists()


def test_metrics_are_one_json_object_a_line_with_null_for_what_is_no_number(tmp_path):
    write_metrics(tmp_path, [{"epoch": 1, "training_loss": float("nan"), "peak_memory_mb": None}, {"epoch": 2}])
    assert (tmp_path / "metrics.jsonl").read_text() == (
        '{"epoch": 1, "training_loss": null, "peak_memory_mb": null}\n{"epoch": 2}\n'
    )


def test_starting_weights_tell_runs_apart_and_the_place_of_the_images_does_not(spec, shards, run, started):
    moved = replace(read_manifest(shards), source="elsewhere", labels="labels.csv")
    assert RunSpec.of(Dataset((shards,), (moved,)), TINY.training) == spec
    begun_elsewhere = RunSpec.of(read_dataset([shards]), TINY.training, run)
    assert spec.init is None
    assert spec == replace(begun_elsewhere, init=None)
    with pytest.raises(UsageError, match="--force"):
        find_run(started, begun_elsewhere, "auto")


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

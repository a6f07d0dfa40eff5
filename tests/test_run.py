import pytest

from captcha_ocr.config import TrainConfig
from captcha_ocr.errors import DamagedError, UsageError
from captcha_ocr.run import Finished, end_run, open_run, write_metrics
from captcha_ocr.shards import read_manifest

CONFIG = TrainConfig()
END = Finished(rule="all 3 epochs done", epochs=3, best_epoch=2, seconds=1.5, test=None)


@pytest.fixture
def manifest(shards):
    return read_manifest(shards)


def test_a_new_run_has_not_finished(manifest, tmp_path):
    assert open_run(tmp_path / "new", manifest, CONFIG, "auto", force=False) is None
    assert open_run(tmp_path / "new", manifest, CONFIG, "auto", force=False) is None


def test_a_finished_run_remembers_how_it_ended(manifest, tmp_path):
    open_run(tmp_path, manifest, CONFIG, "auto", force=False)
    end_run(tmp_path, END, {"device": "cpu"})
    assert open_run(tmp_path, manifest, CONFIG, "auto", force=False) == END


def test_an_unfinished_run_is_not_resumed_against_the_users_wish(manifest, tmp_path):
    open_run(tmp_path, manifest, CONFIG, "auto", force=False)
    with pytest.raises(UsageError, match="unfinished"):
        open_run(tmp_path, manifest, CONFIG, "never", force=False)


def test_a_flipped_bit_in_run_json_is_refused(manifest, tmp_path):
    open_run(tmp_path, manifest, CONFIG, "auto", force=False)
    path = tmp_path / "run.json"
    path.write_text(path.read_text().replace("0.004", "0.005"))
    with pytest.raises(DamagedError, match=r"run\.json"):
        open_run(tmp_path, manifest, CONFIG, "auto", force=False)


def test_metrics_are_one_json_object_a_line(tmp_path):
    write_metrics(tmp_path, [{"epoch": 1}, {"epoch": 2}])
    assert (tmp_path / "metrics.jsonl").read_text() == '{"epoch": 1}\n{"epoch": 2}\n'

import pytest
from conftest import naming

from captcha_ocr.errors import DamagedError, UsageError
from captcha_ocr.training.run.folder import find_run, is_run, write_metrics


def test_a_started_run_goes_on_unless_the_user_refuses_it(spec, started):
    assert find_run(started, spec, "auto") is None
    with pytest.raises(UsageError, match="`resume`"):
        find_run(started, spec, "never")
    assert find_run(started / "new", spec, "auto") is None
    assert not (started / "new").exists()


def test_metrics_are_one_json_object_a_line_with_null_for_what_is_no_number(tmp_path):
    write_metrics(
        tmp_path,
        [{"epoch": 1, "training_loss": float("nan"), "peak_memory_mb": None}, {"epoch": 2}],
    )
    assert (tmp_path / "metrics.jsonl").read_text() == (
        '{"epoch": 1, "training_loss": null, "peak_memory_mb": null}\n{"epoch": 2}\n'
    )


@pytest.mark.parametrize("name", ["best", "curves.png", "confusion.png", "metrics.jsonl"])
def test_what_no_run_made_is_not_overwritten(spec, tmp_path, name):
    (tmp_path / name).touch()
    with pytest.raises(UsageError, match=naming(name, "run.json")):
        find_run(tmp_path, spec, "auto")


def test_a_damaged_run_is_refused_and_another_programs_run_json_is_no_run(spec, started):
    path = started / "run.json"
    path.write_text(path.read_text().replace("0.004", "0.005"))
    with pytest.raises(DamagedError, match=naming(path, "`force`")):
        find_run(started, spec, "auto")
    assert is_run(started)
    path.write_text('{"format": "another program"}')
    with pytest.raises(DamagedError, match=naming(path, "`out`")):
        find_run(started, spec, "auto")
    assert not is_run(started)
    assert not is_run(started / "nowhere")

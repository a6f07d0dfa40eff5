import json

from conftest import invoke


def test_folds_are_trained_on_one_by_one_and_their_tests_pooled(images, tmp_path):
    options = ["--folds", 2, "--out", tmp_path / "folds", "--size", "48x16", "--workers", 1, "--json"]
    made = invoke("prepare", images, *options)
    assert [json.loads(made.stdout)[split] for split in ("train", "val", "test")] == [27, 3, 30]
    assert f"captcha-ocr train --cross-validate --data {tmp_path / 'folds'}" in made.stderr
    options = ["--data", tmp_path / "folds", "--preset", "tiny", "--epochs", 1, "--device", "cpu", "--quiet", "--json"]
    result = invoke("train", "--cross-validate", *options)
    assert json.loads(result.stdout)["test"]["images"] == 60


def test_curve_says_what_it_would_take(shards, tmp_path):
    options = ["--images", "10,20", "--epochs", 1, "--device", "cpu", "--quiet", "--json"]
    found = json.loads(invoke("curve", shards, "--out", tmp_path / "curve", *options).stdout)
    assert [point["images"] for point in found["points"]] == [10, 20]
    assert [line.split("%")[0] for line in found["outlook"]] == ["exact match 95", "exact match 99"]
    assert (tmp_path / "curve" / "curve.png").exists()


def test_train_computes_with_the_wanted_threads(shards, tmp_path, torch_threads):
    options = ["--data", shards, "--out", tmp_path / "run", "--preset", "tiny", "--epochs", 1, "--device", "cpu"]
    result = invoke("train", *options, "--threads", 2)
    assert (result.exit_code, "2 threads" in result.stderr) == (0, True)

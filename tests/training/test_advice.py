import pytest

from captcha_ocr.config import TrainConfig
from captcha_ocr.data.shards import read_dataset
from captcha_ocr.metrics import score_texts
from captcha_ocr.training.advice import advice, advice_on_run
from captcha_ocr.training.run import RunSpec
from captcha_ocr.training.run_folder import Finished, end_run, start_run


def finished(trained: int, validated: int, images: int = 200, wrong: str = "AX") -> Finished:
    """Return the end of a run that reads some images exactly, and `wrong` instead of AB from the others."""

    def score(exact):
        return score_texts(["AB"] * images, ["AB"] * exact + [wrong] * (images - exact)).summary()

    return Finished("all epochs done", 7, 7, 1.0, score(trained), score(validated), None)


@pytest.mark.parametrize(
    ("end", "augmented", "named"),
    [
        (finished(0, 0, wrong="XX"), False, ["0.0%", "captcha-ocr inspect", "--epochs"]),
        (finished(200, 150), False, ["100.0%", "75.0%", "--preset few", "--init"]),
        (finished(200, 150), True, ["100.0%", "75.0%", "--init"]),
        (finished(100, 98), False, ["50.0%", "--epochs", "7"]),
    ],
    ids=["guessing", "overfitting", "overfitting with augmentation", "still learning"],
)
def test_a_bad_run_gets_one_sentence_of_advice(end, augmented, named):
    (sentence,) = advice(end, 36, augmented)
    assert all(name in sentence for name in named)
    assert ("--preset few" in sentence) == ("--preset few" in named)


@pytest.mark.parametrize(
    "end", [finished(200, 199), finished(200, 192), finished(196, 198), finished(10, 9, images=10)]
)
def test_a_good_run_gets_no_advice(end):
    assert advice(end, 36, False) == []


def test_only_a_finished_run_gets_advice(shards, tmp_path):
    start_run(tmp_path, RunSpec.of(read_dataset([shards]), TrainConfig()), replaces=False, checkpoint=None)
    assert advice_on_run(tmp_path) == advice_on_run(tmp_path / "best") == []
    end_run(tmp_path, finished(100, 98), {})
    assert advice_on_run(tmp_path) == advice(finished(100, 98), 10, False)

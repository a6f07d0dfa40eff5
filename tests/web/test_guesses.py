import pytest

from captcha_ocr.web.guesses import Guesses

from .conftest import SAMPLES


@pytest.fixture
def guesses(recognizer):
    made = Guesses(sorted(SAMPLES.glob("*.png")), recognizer)
    yield made
    made.stop()


def test_an_image_is_read_when_it_is_asked_for_and_the_others_in_the_background(guesses):
    assert (guesses.of(3).text, set(guesses.found)) == ("XLTZ", {3})
    guesses.start([0, 1])
    guesses.worker.join()
    assert [guesses.found[number].text for number in (0, 1)] == ["0ZLA", "YTX5"]
    assert [character for character, _ in guesses.of(0).characters] == list("0ZLA")


def test_a_better_model_reads_again_what_is_open(guesses, recognizer):
    guesses.of(0)
    digits = recognizer.limited_to("digits", None, False)
    guesses.replace_model(digits, [0])
    guesses.worker.join()
    assert guesses.of(0).text.isdigit()


def test_what_cannot_be_read_has_a_problem(recognizer, tmp_path):
    (tmp_path / "bad.png").write_bytes(b"no image")
    guess = Guesses([tmp_path / "bad.png"], recognizer).of(0)
    assert (guess.text, guess.confidence) == ("", 0.0)
    assert "bad.png" in guess.problem

import pytest

from captcha_ocr.web.label.guesses import Guesser

from ..conftest import SAMPLES


@pytest.fixture
def guesser(recognizer):
    made = Guesser(sorted(SAMPLES.glob("*.png")), recognizer)
    yield made
    made.stop()


def test_an_image_is_read_when_it_is_asked_for_and_the_others_in_the_background(guesser):
    assert (guesser.guess(3).text, set(guesser.guesses)) == ("XLTZ", {3})
    guesser.start([0, 1])
    guesser.worker.join()
    assert [guesser.guesses[number].text for number in (0, 1)] == ["0ZLA", "YTX5"]
    assert [part.character for part in guesser.guess(0).characters] == list("0ZLA")


def test_a_better_model_reads_again_what_is_open(guesser, recognizer):
    guesser.guess(0)
    digits = recognizer.limited_to("digits", None, False)
    guesser.start([0], digits)
    guesser.worker.join()
    assert guesser.guess(0).text.isdigit()


def test_what_cannot_be_read_has_a_problem(recognizer, tmp_path):
    (tmp_path / "bad.png").write_bytes(b"no image")
    guesser = Guesser([tmp_path / "bad.png"], recognizer)
    assert (guesser.guess(0).text, guesser.guess(0).confidence) == ("", 0.0)
    assert "bad.png" in guesser.problems[0]

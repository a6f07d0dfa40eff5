from pathlib import Path

from captcha_ocr import Recognizer
from captcha_ocr.audit.solvers.judge import judge
from captcha_ocr.data.labels import Label

SAMPLES = Path(__file__).parents[3] / "data" / "samples"


def test_answers_are_judged_and_what_cannot_be_read_is_wrong(tmp_path):
    (tmp_path / "bad.png").write_bytes(b"no image")
    (tmp_path / "good.png").write_bytes((SAMPLES / "00000-0ZLA.png").read_bytes())
    labels = [Label("good.png", "0zla"), Label("good.png", "XXXX"), Label("bad.png", "0ZLA")]
    found = judge(Recognizer("pretrained", threads=1), tmp_path, labels)
    assert [is_right for _, is_right in found] == [True, False, False]
    assert found[2][0] == 0

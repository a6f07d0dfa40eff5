import shutil
from pathlib import Path

from captcha_ocr.data.labels import Label
from captcha_ocr.experiments.judge import judge
from captcha_ocr.recognizer import Recognizer


def test_readings_come_in_order_with_whether_they_are_the_labels(images, run, tmp_path):
    recognizer = Recognizer(run)
    names = [path.name for path in sorted(images.glob("*.png"))[:2]]
    texts = [recognizer.predict(images / name).text for name in names]
    for name in names:
        shutil.copy(images / name, tmp_path)
    (tmp_path / "bad.png").write_bytes(b"no image")
    labels = [Label(names[0], texts[0]), Label("bad.png", "1"), Label(names[1], "?")]
    right, bad, wrong = judge(recognizer, tmp_path, labels)
    assert [(right.is_exact, right.reading.text), bad.reading.text] == [(True, texts[0]), ""]
    assert (wrong.is_exact, wrong.reading.text, wrong.label) == (False, texts[1], labels[2])
    assert [judged.answer[1] for judged in (right, bad, wrong)] == [True, False, False]
    assert (right.answer[0], bad.answer[0]) == (right.reading.confidence, 0)


def test_an_answer_is_right_whatever_its_case():
    samples = Path(__file__).parents[2] / "data" / "samples"
    label = Label("00000-0ZLA.png", "0zla")
    (judged,) = judge(Recognizer("pretrained", threads=1), samples, [label])
    assert judged.answer[1]

from captcha_ocr.diagnostics import bench
from captcha_ocr.diagnostics.bench import measure_speed


def test_a_device_trains_and_reads(monkeypatch):
    monkeypatch.setattr(bench, "DRAWN", 12)
    monkeypatch.setattr(bench, "SECONDS", 0.01)
    speed = measure_speed("cpu", "tiny")
    assert speed.device.startswith("cpu (")
    assert min(speed.training, speed.reading) > 0

from conftest import invoke

from captcha_ocr.options.training import PRESETS

from ..conftest import rows


def test_bench_prints_a_line_for_each_device_with_its_two_speeds(tiny_preset, monkeypatch):
    monkeypatch.setitem(PRESETS, "default", tiny_preset)
    monkeypatch.setattr("captcha_ocr.diagnostics.bench.SECONDS", 0.01)
    monkeypatch.setattr("captcha_ocr.diagnostics.bench.DRAWN", 12)
    heading, *lines = invoke("bench").stdout.splitlines()
    assert "default" in heading
    assert lines[-1].startswith("cpu (")
    assert list(rows(invoke("bench", "--json"))[-1]) == ["device", "training", "reading"]

import json

from click.testing import Result
from conftest import invoke

from captcha_ocr.options.training import PRESETS


def rows(result: Result) -> list[dict]:
    """The JSON objects on standard output."""
    return [json.loads(line) for line in result.stdout.splitlines()]


def test_bench_prints_a_line_for_each_device_with_its_two_speeds(tiny_preset, monkeypatch):
    monkeypatch.setitem(PRESETS, "default", tiny_preset)
    monkeypatch.setattr("captcha_ocr.diagnostics.bench.SECONDS", 0.01)
    monkeypatch.setattr("captcha_ocr.diagnostics.bench.DRAWN", 12)
    heading, *lines = invoke("bench").stdout.splitlines()
    assert "default" in heading
    assert lines[-1].startswith("cpu (")
    assert list(rows(invoke("bench", "--json"))[-1]) == ["device", "training", "reading"]

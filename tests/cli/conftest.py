import json
import re
import shutil
import sys
from pathlib import Path

import pytest
from click.testing import Result
from conftest import invoke, naming

COMMAND = [sys.executable, "-W", "error", "-m", "captcha_ocr"]


@pytest.fixture
def read(run):
    """Run eval with the tiny model."""
    return lambda *arguments, **settings: invoke(
        "eval", "--model", run, "--device", "cpu", *arguments, **settings
    )


@pytest.fixture
def some(images, tmp_path) -> list[Path]:
    """Three images in a folder of their own."""
    (tmp_path / "some").mkdir()
    return [Path(shutil.copy(path, tmp_path / "some")) for path in sorted(images.glob("*.png"))[:3]]


def after_device(stderr: str) -> list[str]:
    """The lines of eval's stderr after those that name the model and the device."""
    _, second, *others = stderr.splitlines()
    assert re.search(naming("cpu", "fp32"), second)
    return others


def rows(result: Result) -> list[dict]:
    """The JSON objects on standard output."""
    return [json.loads(line) for line in result.stdout.splitlines()]

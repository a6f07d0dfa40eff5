import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from captcha_ocr.cli.wording import word_command
from captcha_ocr.inference.model_folder import PRETRAINED
from captcha_ocr.options.serving import LabelOptions
from captcha_ocr.recognizer import Recognizer
from captcha_ocr.web.http import Address
from captcha_ocr.web.label.service import guard_labelling
from captcha_ocr.web.label.session import LabelSession
from captcha_ocr.web.reading_service import ReadingService, guard_reading

SAMPLES = Path(__file__).parents[2] / "data" / "samples"
SAMPLE = SAMPLES / "00000-0ZLA.png"
HOST, TOKEN = "127.0.0.1:8001", "secret"


@pytest.fixture(scope="session")
def recognizer() -> Recognizer:
    return Recognizer(threads=1)


@pytest.fixture
def served(recognizer):
    """Return a function that serves reading, with options of the gate, and its client."""

    def serve(host="testserver", port=80, token=None, log=None) -> TestClient:
        service = ReadingService(PRETRAINED, recognizer, 1)
        client = TestClient(guard_reading(service, Address(host, port, token), log))
        client.service = service
        return client

    return serve


@pytest.fixture
def service(tmp_path):
    """The process `captcha-ocr serve`, whose lines go into the file `log`, and its address."""
    command = [sys.executable, "-m", "captcha_ocr", "serve", "--port", "0", "--model", "pretrained"]
    with open(tmp_path / "log", "w") as log:
        process = subprocess.Popen(
            command, cwd=tmp_path, stdout=log, stderr=subprocess.PIPE, text=True
        )
    yield process, next(line.split()[1] for line in process.stderr if line.startswith("page"))
    process.kill()
    process.communicate()


@pytest.fixture
def folder(tmp_path) -> Path:
    """A folder with the six samples, without labels."""
    for number, path in enumerate(sorted(SAMPLES.glob("*.png"))):
        (tmp_path / "images").mkdir(exist_ok=True)
        shutil.copy(path, tmp_path / "images" / f"{number}.png")
    return tmp_path / "images"


@pytest.fixture
def session(folder, tmp_path):
    made = LabelSession(folder, PRETRAINED, LabelOptions(out=tmp_path / "run"))
    yield made
    made.stop()


@pytest.fixture
def labelling(session) -> TestClient:
    """The client of a page that labels."""
    headers = {"Authorization": f"Bearer {TOKEN}", "Origin": f"http://{HOST}"}
    app = guard_labelling(session, Address("127.0.0.1", 8001, TOKEN), word_command)
    return TestClient(app, base_url=f"http://{HOST}", headers=headers)

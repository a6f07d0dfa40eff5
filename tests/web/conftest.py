import shutil
import threading
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import matplotlib
import pytest
from PIL import Image, ImageDraw, ImageFont
from starlette.testclient import TestClient

from captcha_ocr.inference.model_folder import PRETRAINED
from captcha_ocr.options.serving import LabelOptions
from captcha_ocr.recognizer import Recognizer
from captcha_ocr.web import server
from captcha_ocr.web.http import Address
from captcha_ocr.web.label.session import LabelSession
from captcha_ocr.web.reading_service import ReadingService

SAMPLES = Path(__file__).parents[2] / "data" / "samples"
SAMPLE = SAMPLES / "00000-0ZLA.png"


@contextmanager
def running(make_app, token=None):
    """Run a server in a thread; yields its address, its page, and a function that stops it."""
    listener, address = server.listen("127.0.0.1", 0, token)
    made = server.make_server(make_app(address))
    thread = threading.Thread(target=made.run, args=([listener],))

    def stop():
        made.should_exit = True
        thread.join()

    thread.start()
    try:
        page = replace(address, shows_token=token is not None).page
        yield SimpleNamespace(address=(address.host, address.port), page=page, stop=stop)
    finally:
        stop()


@pytest.fixture(scope="session")
def recognizer() -> Recognizer:
    return Recognizer(threads=1)


@pytest.fixture
def served(recognizer):
    """Return a function that serves reading, with options of the gate, and its client."""

    def serve(host="testserver", port=80, token=None, **how) -> TestClient:
        service = ReadingService(PRETRAINED, recognizer, 1)
        client = TestClient(service.guard(Address(host, port, token), **how))
        client.service = service
        return client

    return serve


@pytest.fixture
def draw_text():
    """Return a function that draws a text, its first half green, the second in another colour."""
    font = ImageFont.truetype(Path(matplotlib.get_data_path(), "fonts/ttf/DejaVuSans.ttf"), 24)

    def draw(text, colour="green") -> Image.Image:
        image = Image.new("RGB", (150, 44), "white")
        for start, end, ink in ((0, 46, "green"), (46, 150, colour)):
            whole = Image.new("RGB", image.size, "white")
            ImageDraw.Draw(whole).text((10, 8), text, ink, font)
            image.paste(whole.crop((start, 0, end, 44)), (start, 0))
        return image

    return draw


@pytest.fixture
def reading(recognizer):
    """A real server that reads: its address and its page."""
    service = ReadingService(PRETRAINED, recognizer, 1)
    with running(lambda address: service.guard(address)) as serving:
        yield serving


@pytest.fixture
def folder(tmp_path) -> Path:
    """A folder with the six samples, without labels."""
    images = shutil.copytree(SAMPLES, tmp_path / "images")
    for number, path in enumerate(sorted(images.iterdir())):
        path.rename(images / f"{number}.png")
    return images


@pytest.fixture
def session(folder, tmp_path):
    made = LabelSession(folder, PRETRAINED, LabelOptions(out=tmp_path / "run"))
    yield made
    made.stop()

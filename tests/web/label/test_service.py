import io
from unittest.mock import Mock

import pytest
from PIL import Image
from starlette.testclient import TestClient

from captcha_ocr.cli.wording import word_command
from captcha_ocr.web.http import Address
from captcha_ocr.web.label.service import LabelService

HOST, TOKEN = "127.0.0.1:8001", "secret"


def open_page(session, host, asked) -> TestClient:
    """Return the client of a page that labels, of a service at `host` that is asked as `asked`."""
    headers = {"Authorization": f"Bearer {TOKEN}", "Origin": f"http://{asked}"}
    app = LabelService(session, word_command).guard(Address(host, 8001, TOKEN))
    return TestClient(app, base_url=f"http://{asked}", headers=headers)


@pytest.fixture
def labelling(session) -> TestClient:
    return open_page(session, "127.0.0.1", HOST)


def send(client, number=0, text="A", version=0, **headers):
    return client.post(
        "/v1/label", json={"number": number, "text": text, "version": version}, headers=headers
    )


def test_a_label_is_acknowledged_with_the_next_image(labelling, session):
    image = labelling.get("/v1/next").json()["image"]
    answer = send(labelling, image["number"], "AB", image["version"]).json()
    assert (answer["saved"]["text"], answer["progress"]["labelled"]) == ("AB", 1)
    assert answer["image"]["number"] != image["number"]
    assert "AB" in session.store.table.read_text()
    behind = send(labelling, image["number"], "B", image["version"])
    assert (behind.status_code, ".png" in behind.json()["error"]) == (409, True)
    taken_back = labelling.post("/v1/undo", json={}).json()["image"]
    assert (taken_back["number"], taken_back["text"]) == (image["number"], None)


def test_at_the_end_there_is_no_image(labelling):
    *_, last = [send(labelling, number).json() for number in range(6)]
    assert last["image"] is None
    assert last["progress"]["commands"][0].startswith("captcha-ocr train")
    assert (last["progress"]["needed"], last["progress"]["next_training"]) == (0, 0)


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "http://127.0.0.1:9999"}, 403),
        ({"Origin": "null"}, 403),
        ({"Sec-Fetch-Site": "same-site"}, 403),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Authorization": "Bearer wrong"}, 401),
    ],
)
@pytest.mark.parametrize(
    ("host", "asked"),
    [
        ("127.0.0.1", HOST),
        ("127.0.0.1", "localhost:9001"),
        ("0.0.0.0", "images.example"),
        ("192.168.0.7", "192.168.0.7:8001"),
    ],
)
def test_only_the_page_writes_by_whatever_name_it_was_asked_for(
    session, host, asked, headers, status
):
    client = open_page(session, host, asked)
    assert send(client, **headers).status_code == status
    assert not session.store.table.exists()
    assert send(client).status_code == 200
    del client.headers["Origin"]
    assert send(client, 1).status_code == 403


@pytest.mark.parametrize(
    "document",
    [
        {},
        {"number": "0", "text": "A", "version": 0},
        {"number": True, "text": "A", "version": 0},
        {"number": 0, "text": 5, "version": 0},
        {"number": 99, "text": "A", "version": 0},
    ],
)
def test_a_bad_label_gets_one_sentence(labelling, document):
    answer = labelling.post("/v1/label", json=document)
    assert (answer.status_code, [*answer.json()]) == (422, ["error"])


def test_images_come_by_number_alone_as_png_and_need_the_token(labelling, folder):
    image = Image.open(folder / "3.png").convert("RGB")
    image.save(folder / "3.png", "TIFF")
    answer = labelling.get("/v1/images/3")
    shown = Image.open(io.BytesIO(answer.content), formats=["PNG"])
    assert (shown.tobytes(), answer.headers["content-type"]) == (image.tobytes(), "image/png")
    for number in ("99", "..", "3.png", "%2e%2e%2fetc%2fpasswd", "-1"):
        assert labelling.get(f"/v1/images/{number}").status_code in (404, 422)
    for number in ("9" * 5000, "9" * 4301, "0x1", "1e3", "+1", "٣"):
        for path in (f"/v1/images/{number}", f"/v1/images/{number}/view"):
            assert labelling.get(path).status_code == 422
    del labelling.headers["Authorization"]
    statuses = {"/v1/images/3": 401, "/": 200}
    assert {path: labelling.get(path).status_code for path in statuses} == statuses


@pytest.mark.parametrize("mode", ["CMYK", "YCbCr", "F", "I", "I;16", "1", "P", "LA", "RGBX"])
def test_what_the_model_reads_is_also_shown(labelling, folder, mode):
    grey = Image.open(folder / "3.png").convert("L")
    image = grey.convert("RGB") if mode in ("CMYK", "YCbCr", "RGBX") else grey
    image.convert(mode).save(folder / "3.png", "TIFF")
    answer = labelling.get("/v1/images/3")
    assert answer.status_code == 200
    shown = Image.open(io.BytesIO(answer.content), formats=["PNG"])
    assert (shown.mode, shown.size) == ("RGB", grey.size)


def test_an_image_that_is_damaged_or_gone_gets_one_sentence(folder, labelling):
    (folder / "3.png").write_bytes(b"no image")
    (folder / "4.png").unlink()
    statuses = {"/v1/images/3": 422, "/v1/images/3/view": 200, "/v1/images/4": 422}
    assert {path: labelling.get(path).status_code for path in statuses} == statuses


@pytest.mark.parametrize(
    ("error", "named"),
    [
        (OSError(28, "No space left on device"), "disk is full"),
        (PermissionError(13, "Permission denied"), "labels.csv: Permission denied"),
    ],
)
def test_a_label_that_cannot_be_written_says_why(labelling, monkeypatch, error, named):
    monkeypatch.setattr("os.fsync", Mock(side_effect=error))
    answer = send(labelling)
    assert (answer.status_code, named in answer.json()["error"]) == (507, True)

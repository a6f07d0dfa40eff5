import io

import pytest
from PIL import Image
from starlette.testclient import TestClient

from captcha_ocr.cli.wording import word_command
from captcha_ocr.web.http import Address
from captcha_ocr.web.label.service import guard_labelling

HOST, TOKEN = "127.0.0.1:8001", "secret"


@pytest.fixture
def labelling(session) -> TestClient:
    """The client of a page that labels."""
    headers = {"Authorization": f"Bearer {TOKEN}", "Origin": f"http://{HOST}"}
    app = guard_labelling(session, Address("127.0.0.1", 8001, TOKEN), word_command)
    return TestClient(app, base_url=f"http://{HOST}", headers=headers)


def send(client, number=0, text="A", version=0, **headers):
    return client.post(
        "/v1/label", json={"number": number, "text": text, "version": version}, headers=headers
    )


def test_a_label_is_acknowledged_with_the_next_image(labelling, session):
    first = labelling.get("/v1/next").json()
    answer = send(labelling, first["image"]["number"], "AB", first["image"]["version"]).json()
    assert (answer["saved"]["text"], answer["progress"]["labelled"]) == ("AB", 1)
    assert answer["image"]["number"] != first["image"]["number"]
    assert "AB" in session.store.table.read_text()
    behind = send(labelling, first["image"]["number"], "B", first["image"]["version"])
    assert (behind.status_code, ".png" in behind.json()["error"]) == (409, True)
    taken_back = labelling.post("/v1/undo", json={}).json()
    assert (taken_back["image"]["number"], taken_back["image"]["text"]) == (
        first["image"]["number"],
        None,
    )


def test_at_the_end_there_is_no_image(labelling):
    for number in range(6):
        answer = send(labelling, number)
    assert answer.json()["image"] is None
    assert answer.json()["progress"]["commands"][0].startswith("captcha-ocr prepare")


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "http://127.0.0.1:9999"}, 403),
        ({"Origin": "null"}, 403),
        ({"Sec-Fetch-Site": "same-site"}, 403),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Content-Type": "text/plain"}, 415),
        ({"Authorization": "Bearer wrong"}, 401),
        ({"Host": "evil.example:8001"}, 421),
    ],
)
def test_only_the_page_of_this_server_may_write(labelling, session, headers, status):
    assert send(labelling, **headers).status_code == status
    del labelling.headers["Origin"]
    assert send(labelling).status_code == 403
    assert not session.store.table.exists()


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
    assert answer.status_code == 422
    assert answer.json()["error"]


def test_images_come_by_number_alone(labelling, folder):
    answer = labelling.get("/v1/images/3")
    shown = Image.open(io.BytesIO(answer.content)).tobytes()
    there = Image.open(folder / "3.png").convert("RGB").tobytes()
    assert (shown, answer.headers["content-type"]) == (there, "image/png")
    for number in ("99", "..", "3.png", "%2e%2e%2fetc%2fpasswd", "-1"):
        assert labelling.get(f"/v1/images/{number}").status_code in (404, 422)
    del labelling.headers["Authorization"]
    assert labelling.get("/v1/images/3").status_code == 401
    assert labelling.get("/").status_code == 200


def test_markup_in_names_and_labels_stays_text(labelling, session):
    text = "<img src=x onerror=alert(1)>"
    assert send(labelling, text=text).json()["saved"]["text"] == text
    assert "innerHTML" not in labelling.get("/label.js").text


def test_an_image_comes_as_png_and_one_that_is_damaged_or_gone_gets_one_sentence(folder, labelling):
    Image.open(folder / "3.png").save(folder / "3.png", "TIFF")
    assert labelling.get("/v1/images/3").content.startswith(b"\x89PNG")
    (folder / "3.png").write_bytes(b"no image")
    assert labelling.get("/v1/images/3").status_code == 422
    assert labelling.get("/v1/images/3/view").status_code == 200
    (folder / "3.png").unlink()
    assert labelling.get("/v1/images/3").status_code == 422


@pytest.mark.parametrize(
    ("error", "named"),
    [
        (OSError(28, "No space left on device"), "disk is full"),
        (PermissionError(13, "Permission denied"), "labels.csv: Permission denied"),
    ],
)
def test_a_label_that_cannot_be_written_says_why(labelling, monkeypatch, error, named):
    def fail(_):
        raise error

    monkeypatch.setattr("os.fsync", fail)
    answer = send(labelling)
    assert (answer.status_code, named in answer.json()["error"]) == (507, True)

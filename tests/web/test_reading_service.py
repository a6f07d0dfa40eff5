import base64
import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from unittest.mock import Mock

import pytest
from starlette.testclient import TestClient

from captcha_ocr.data.images import encode_png
from captcha_ocr.errors import DamagedError
from captcha_ocr.recognizer import Recognizer
from captcha_ocr.web.bodies import MAX_BODY
from captcha_ocr.web.reading_service import MAX_BATCH_IMAGES

from .conftest import SAMPLE, SAMPLES

DATA = SAMPLE.read_bytes()
IN_BASE64 = base64.b64encode(DATA).decode()
PNG, JSON = {"Content-Type": "image/png"}, {"Content-Type": "application/json"}


def test_a_reading_has_these_facts(served, recognizer):
    document = served().post("/v1/read", content=DATA).json()
    assert document.pop("elapsed_ms") > 0
    assert document.pop("confidence") == pytest.approx(recognizer.predict(DATA).confidence)
    assert [each["character"] for each in document.pop("characters")] == list("0ZLA")
    assert document == {"text": "0ZLA"}


SUM_CHARACTERS = "charset=0123456789%2B-*/%3D?"


@pytest.mark.parametrize(
    ("query", "drawn", "expected"),
    [
        ("charset=0ZLA&length=4", None, {"text": "0ZLA"}),
        ("charset=ZLAO", None, {"text": "OZLA"}),
        ("charset=ZLA&length=3", None, {"text": "ZLA"}),
        ("min_confidence=1", None, {"text": None, "characters": None}),
        ("min_confidence=.5", None, {"text": "0ZLA"}),
        *((f"fold_case={yes}", None, {"text": "0zla"}) for yes in ("true", "True", "on", "1")),
        ("solve_sums=true", None, {"result": None}),
        (SUM_CHARACTERS, ["12+9=?"], {"text": "12+9=?", "result": "absent"}),
        (f"{SUM_CHARACTERS}&solve_sums=true", ["12+9=?"], {"text": "12+9=?", "result": 21}),
        ("ink=red", ["AB12", "red"], {"text": "12"}),
        ("ink=green", ["AB12", "red"], {"text": "AB"}),
    ],
)
def test_options_hold_for_one_request(served, draw_text, query, drawn, expected):
    client = served()
    content = DATA if drawn is None else encode_png(draw_text(*drawn))
    document = client.post(f"/v1/read?{query}", content=content).json()
    assert {name: document.get(name, "absent") for name in expected} == expected
    assert client.post("/v1/read", content=DATA).json()["text"] == "0ZLA"


@pytest.mark.parametrize(
    ("query", "content", "headers", "status", "named"),
    [
        ("", b"no image", PNG, 422, "not a PNG"),
        ("", b"", PNG, 422, "empty"),
        ("", DATA[:300], PNG, 422, "damaged"),
        ("", DATA + bytes(2_000_000), PNG, 413, "2,000,000"),
        ("", bytes(MAX_BODY + 1), PNG, 413, "3,000,000"),
        (
            "",
            b"",
            {"Content-Length": "10000000000"},
            413,
            "3,000,000",
        ),  # that many bytes are announced
        ("", b"{", JSON, 422, "JSON"),
        ("", b"[]", JSON, 422, "object"),
        ("", b'{"image": 5}', JSON, 422, "image"),
        ("", b'{"image": "/etc/passwd"}', JSON, 422, "base64"),
        # Texts that seem to be images are refused at once
        ("", b'{"image": "iVBORw0KGgo&#%b;"}' % (b"1" * 5000), JSON, 422, "image"),
        ("", b'{"image": "data:image/svg+xml;utf8,%b"}' % (b"<svg " * 200_000), JSON, 422, "image"),
        ("?lenght=4", DATA, PNG, 422, "lenght"),
        ("?length=x", DATA, PNG, 422, "'x'"),
        ("?length=13", DATA, PNG, 422, "13"),
        ("?charset=%C3%9F", DATA, PNG, 422, "ß"),
        ("?min_confidence=2", DATA, PNG, 422, "min_confidence"),
        *(
            (f"?min_confidence={number}", DATA, PNG, 422, "min_confidence")
            for number in ("nan", "inf", "-1", "x", "true")
        ),
        ("?fold_case=2", DATA, PNG, 422, "fold_case"),
        ("?solve_sums=yes", DATA, PNG, 422, "solve_sums"),
        ("?ink=rot", DATA, PNG, 422, "rot"),
        # Parameters beside the image are checked likewise
        *(
            ("", json.dumps({"image": IN_BASE64} | more), JSON, 422, named)
            for more, named in (
                ({"lenght": 4}, "lenght"),
                ({"length": 13}, "13"),
                ({"charset": ["a", "b"]}, "charset"),
                ({"fold_case": {}}, "fold_case"),
                ({"fold_case": None, "solve_sums": "[" * 1_000}, "solve_sums"),
                ({"charset": "ab" * 50_000}, "charset"),
                ({"min_confidence": 2}, "min_confidence"),
                ({"file": IN_BASE64}, "image or file"),
                ({"images": [IN_BASE64]}, "images"),
            )
        ),
        ("?length=4", json.dumps({"image": IN_BASE64, "length": 4}), JSON, 422, "twice"),
        ("?length=4&length=4", DATA, PNG, 422, "twice"),
    ],
)
def test_a_bad_request_gets_one_sentence(served, query, content, headers, status, named):
    answer = served().post(f"/v1/read{query}", content=content, headers=headers)
    assert answer.status_code == status
    assert named in answer.text


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"charset": "0ZLA", "length": "4", "ink": None}, "0ZLA"),
        ({"length": 3, "min_confidence": 0.1, "charset": "ZLA"}, "ZLA"),
        ({"fold_case": True, "solve_sums": False}, "0zla"),
        ({"min_confidence": 1}, None),
    ],
)
def test_parameters_may_stand_beside_the_image_in_json_and_forms(served, given, text):
    in_form = {name: json.dumps(value).strip('"') for name, value in given.items() if value}
    for body in (
        {"json": given | {"image": IN_BASE64}},
        {"data": in_form | {"image": IN_BASE64}},
        {"data": dict.fromkeys(given, "") | in_form, "files": {"image": ("a.png", DATA)}},
    ):
        assert served().post("/v1/read", **body).json()["text"] == text
    answer = served().post("/v1/read/batch", json=given | {"images": [IN_BASE64]})
    assert answer.json()["results"][0]["text"] == text


@pytest.mark.parametrize(
    ("document", "named"),
    [
        *(
            ({"images": images}, str(MAX_BATCH_IMAGES))
            for images in ([], "x", [IN_BASE64] * (MAX_BATCH_IMAGES + 1))
        ),
        ({"images": [IN_BASE64], "lenght": 4}, "lenght"),
        ({"images": [IN_BASE64], "image": IN_BASE64}, "image"),
    ],
)
def test_a_batch_has_so_many_images_and_known_parameters(served, document, named):
    answer = served().post("/v1/read/batch", json=document)
    assert (answer.status_code, named in answer.text) == (422, True)


def test_every_endpoint_of_the_document_answers(served):
    client = served()
    document = client.get("/openapi.json").json()
    assert document["info"]["version"]
    for path, methods in document["paths"].items():
        for method in methods:
            assert client.request(method, path).status_code not in (404, 405)
    texts = {"/healthz": "alive\n", "/readyz": "ready\n"}
    assert {path: client.get(path).text for path in texts} == texts
    facts = client.get("/v1/model").json()
    lengths = {"shortest": 1, "longest": 12}
    assert (facts["model"], facts["length"]) == ("the one in the package", lengths)
    assert {"0", "Z"} < set(facts["alphabet"])
    assert "<title>captcha-ocr</title>" in client.get("/").text
    statuses = {"/nothing": 404, "/v1/read": 405}
    assert {path: client.get(path).status_code for path in statuses} == statuses
    client.post("/v1/read", content=DATA, headers=PNG)
    figures = client.get("/metrics").text
    assert 'captcha_ocr_requests_total{endpoint="/v1/read",code="200"} 1' in figures
    assert 'captcha_ocr_requests_total{endpoint="other",code="404"} 1' in figures


def test_a_log_line_has_neither_image_nor_text(served):
    lines = []
    answer = served(log=lines.append).post("/v1/read", content=DATA, headers=PNG)
    line = json.loads(*lines)
    assert set(line) == {"id", "method", "path", "status", "ms"}
    assert (line["id"], line["status"]) == (answer.headers["x-request-id"], 200)


def test_images_beyond_the_limit_are_told_to_try_again(served, recognizer, monkeypatch):
    client, begun, go_on = served(), threading.Event(), threading.Event()
    reading = recognizer.predict(DATA)

    def slow(_, images):
        begun.set()
        assert go_on.wait(30)
        return [reading for _ in images]

    monkeypatch.setattr(Recognizer, "read_all", slow)
    batch = {"images": [IN_BASE64] * 40}
    with ThreadPoolExecutor() as pool:
        pool.submit(client.post, "/v1/read", content=DATA)
        assert begun.wait(30)
        pool.submit(client.post, "/v1/read/batch", json=batch)
        while client.service.threads.waiting.qsize() < 40:
            time.sleep(0.01)
        refused = client.post("/v1/read", content=DATA)
        assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")
        assert client.post("/v1/read/batch", json=batch).status_code == 503
        assert client.get("/healthz").status_code == 200
        go_on.set()
    assert "captcha_ocr_refused_total 2" in client.get("/metrics").text


def test_images_that_wait_are_read_together_and_each_answer_is_its_own(
    served, recognizer, monkeypatch
):
    sizes, read_all = [], Recognizer.read_all

    def counted(self, images):
        sizes.append(len(images))
        time.sleep(0.05)
        return read_all(self, images)

    monkeypatch.setattr(Recognizer, "read_all", counted)
    paths = sorted(SAMPLES.glob("*.png")) * 4
    images = [base64.b64encode(path.read_bytes()).decode() for path in paths]
    answer = served().post("/v1/read/batch", json={"images": ["no image", *images, 5]})
    first, *readings, last = answer.json()["results"]
    texts = [path.stem.split("-")[1] for path in paths]
    assert [reading["text"] for reading in readings] == texts
    assert ("base64" in first["error"], "base64" in last["error"]) == (True, True)
    assert (sum(sizes), len(sizes) < len(images)) == (len(images), True)


def test_an_image_that_fails_is_alone_in_it(served, monkeypatch):
    read_all, poison = Recognizer.read_all, b"poison" * 20

    def fail(self, images):
        images = list(images)
        if poison in images:
            raise OSError("it fails")
        return read_all(self, images)

    monkeypatch.setattr(Recognizer, "read_all", fail)
    client = TestClient(served().app, raise_server_exceptions=False)
    images = [IN_BASE64, poison.decode(), IN_BASE64]
    with ThreadPoolExecutor() as pool:
        bodies = [json.dumps({"image": image}) for image in images]
        answers = list(pool.map(lambda body: client.post("/v1/read", content=body), bodies))
    assert [answer.status_code for answer in answers] == [200, 500, 200]


def test_an_error_of_the_model_is_no_answer_to_others(served, monkeypatch):
    client, broken = served(), Mock(side_effect=DamagedError("the model is damaged"))
    with monkeypatch.context() as patch:
        patch.setattr(Recognizer, "read_all", broken)
        answer = client.post("/v1/read", content=DATA, headers=PNG)
        assert (answer.status_code, "damaged" in answer.text) == (500, True)
    assert client.post("/v1/read", content=DATA, headers=PNG).status_code == 200


def test_another_model_reads_from_the_next_request_on(served, exported):
    client, other = served(), Recognizer(exported, threads=1)
    before = client.get("/v1/model").json()
    client.service.use(exported, other)
    after = client.get("/v1/model").json()
    assert before["sha256"] != after["sha256"]
    text = client.post("/v1/read", content=DATA, headers=PNG).json()["text"]
    assert text == other.predict(DATA).text

"""Requests as clients of ddddocr's three services send them, and the answers that these give."""

import base64
import json

import pytest

from captcha_ocr.data.images import encode_png

from .conftest import SAMPLE

DATA = SAMPLE.read_bytes()
ENCODED = base64.b64encode(DATA).decode()
FILE = {"file": ("a.png", DATA, "image/png")}
NO_IMAGE = {"image": base64.b64encode(bytes(100)).decode()}


def package(text=None, message="Success"):
    data = None if text is None else {"text": text, "probability": None}
    return {"success": text is not None, "message": message, "data": data}


@pytest.mark.parametrize(
    ("path", "request_", "answer"),
    [
        # python -m ddddocr api
        ("/ocr", {"json": {"image": ENCODED}}, package("0ZLA")),
        ("/ocr", {"json": {"image": ENCODED, "png_fix": True}}, package("0ZLA")),
        ("/ocr", {"json": {"image": ENCODED, "charset_range": 6}}, package("0ZLA")),
        ("/ocr", {"json": {"image": ENCODED, "charset_range": "0ZLAB"}}, package("0ZLA")),
        ("/ocr", {"json": {"image": ENCODED, "charset_range": [*"0Z-LAB"]}}, package("0ZLA")),
        # ddddocr-fastapi
        ("/ocr", {"files": FILE}, {"code": 200, "message": "Success", "data": "0ZLA"}),
        (
            "/ocr",
            {"data": {"image": ENCODED, "probability": "false", "png_fix": "false"}},
            {"code": 200, "message": "Success", "data": "0ZLA"},
        ),
        # ocr_api_server
        ("/ocr/file/json", {"files": FILE}, {"status": 200, "result": "0ZLA", "msg": ""}),
        ("/ocr/b64/json", {"content": ENCODED}, {"status": 200, "result": "0ZLA", "msg": ""}),
        ("/ocr/file/text", {"files": {"image": FILE["file"]}}, "0ZLA"),
        ("/ocr/b64/text", {"content": ENCODED}, "0ZLA"),
        ("/ocr/b64/text", {"json": {"image": ENCODED}}, "0ZLA"),
        ("/ocr/b64", {"content": ENCODED, "headers": {"Content-Type": "text/html"}}, "0ZLA"),
    ],
)
def test_a_client_of_ddddocr_gets_the_answer_that_it_knows(served, path, request_, answer):
    given = served().post(path, **request_)
    expected = answer if isinstance(answer, str) else json.dumps(answer, separators=(",", ":"))
    assert (given.status_code, given.text) == (200, expected)


@pytest.mark.parametrize(
    ("path", "request_", "problem"),
    [
        ("/ocr", {"json": NO_IMAGE}, {"success": False, "data": None}),
        ("/ocr", {"json": {"image": ENCODED, "charset_range": 7}}, {"success": False}),
        ("/ocr", {"json": {"image": ENCODED, "charset_range": "ab" * 50_000}}, {"success": False}),
        ("/ocr", {"json": {"image": ENCODED, "probability": True}}, {"success": False}),
        ("/ocr", {"json": {"image": ENCODED, "color_filter_colors": "red"}}, {"data": None}),
        ("/ocr", {"json": {"image": ENCODED, "color_filter_colors": ["rot"]}}, {"success": False}),
        ("/ocr", {"json": {"image": ENCODED, "color_filter_custom_ranges": [1]}}, {"data": None}),
        ("/ocr", {"data": NO_IMAGE}, {"code": 500, "data": None}),
        ("/ocr/b64/json", {"content": "AAAA"}, {"status": 200, "result": ""}),
    ],
)
def test_a_problem_is_said_as_these_services_do(served, path, request_, problem):
    given = served().post(path, **request_)
    document = given.json()
    assert problem.items() <= document.items()
    assert document.get("message", document.get("msg"))


def test_only_the_colours_are_read_that_are_asked_for(served, draw_text):
    encoded = base64.b64encode(encode_png(draw_text("AB12", "red"))).decode()
    for colours, text in ((["red"], "12"), (["red", "green"], "AB12"), ([], "AB12")):
        answer = served().post("/ocr", json={"image": encoded, "color_filter_colors": colours})
        assert answer.json() == package(text)


def test_digits_alone_are_read_if_only_these_are_asked_for(served):
    answer = served().post("/ocr", json={"image": ENCODED, "charset_range": 0}).json()
    assert answer["data"]["text"].isdigit()


def test_what_a_client_asks_beside_an_image_is_answered(served):
    client = served()
    assert client.get("/ping").text == "pong"
    assert client.get("/health").json()["status"] == "healthy"
    assert client.get("/status").json()["loaded_models"] == ["ocr"]
    assert client.post("/ocr/b64/text", content="AAAA").text == ""


@pytest.mark.parametrize(
    ("path", "wish", "is_met"),
    [
        ("/initialize", {}, True),
        ("/initialize", {"ocr": True, "det": False, "use_gpu": True}, True),
        ("/initialize", {"import_onnx_path": "", "charsets_path": None}, True),
        ("/initialize", {"ocr": False, "det": True}, False),
        ("/initialize", {"det": True}, False),
        ("/initialize", {"import_onnx_path": "mine.onnx"}, False),
        ("/switch-model", {"model_type": "ocr"}, True),
        ("/switch-model", {"model_type": "det"}, False),
        ("/toggle-feature", {"feature": "ocr", "enabled": True}, True),
        ("/toggle-feature", {"feature": "slide", "enabled": True}, False),
        ("/toggle-feature", {"feature": "ocr", "enabled": False}, False),
    ],
)
def test_a_wish_for_another_reader_fails(served, path, wish, is_met):
    document = served().post(path, json=wish).json()
    assert document["success"] is is_met
    assert (document["message"] == "Success") is is_met

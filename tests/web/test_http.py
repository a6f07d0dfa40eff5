import pytest
from starlette.exceptions import HTTPException
from starlette.routing import Route
from starlette.testclient import TestClient

from captcha_ocr.errors import ImageError, UsageError
from captcha_ocr.web.http import make_application, parse_object


@pytest.mark.parametrize(
    ("error", "status", "sentence"),
    [
        (ImageError("it is damaged"), 422, "it is damaged"),
        (FileNotFoundError(2, "No such file", "a.png"), 507, "a.png: No such file"),
        (HTTPException(415, "send JSON"), 415, "send JSON"),
    ],
)
def test_an_error_has_the_status_of_its_nearest_type(error, status, sentence):
    async def fail(_):
        raise error

    app = make_application([Route("/", fail)], {ImageError: 422, OSError: 507})
    answer = TestClient(app).get("/")
    assert (answer.status_code, answer.json()) == (status, {"error": sentence})


@pytest.mark.parametrize("body", [b"", b"[]", b"5", b"{", b"[" * 100_000])
def test_only_a_json_object_is_taken(body):
    assert parse_object(b'{"a": 1}') == {"a": 1}
    with pytest.raises(UsageError, match="JSON"):
        parse_object(body)

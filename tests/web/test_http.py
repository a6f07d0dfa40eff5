import pytest
from starlette.exceptions import HTTPException
from starlette.testclient import TestClient

from captcha_ocr.errors import ImageError, UsageError
from captcha_ocr.web.http import Address, Endpoint, Gate, parse_object

from .conftest import SAMPLE

DATA = SAMPLE.read_bytes()
SECURITY = {
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cache-control": "no-store",
}


@pytest.mark.parametrize(
    ("host", "port", "hosts", "page"),
    [
        (
            "127.0.0.1",
            8000,
            {"127.0.0.1:8000", "localhost:8000", "[::1]:8000"},
            "http://127.0.0.1:8000/#token=a%23b",
        ),
        (
            "::2",
            8000,
            {"::2:8000", "[::2]:8000"},
            "http://[::2]:8000/#token=a%23b",
        ),
        (
            "Box.example",
            80,
            {"box.example:80", "[box.example]:80", "box.example", "[box.example]"},
            "http://Box.example:80/#token=a%23b",
        ),
    ],
)
def test_a_server_is_called_by_these_names_and_has_this_page(host, port, hosts, page):
    address = Address(host, port, "a#b")
    assert (address.hosts, address.page) == (hosts, page)


def test_another_host_is_not_answered_unless_none_is_known(served):
    client = served("127.0.0.1", 8000)
    for path in ("/v1/read", "/", "/healthz", "/nothing"):
        for host in ("evil.example:8000", "127.0.0.1:8001", ""):
            assert client.get(path, headers={"Host": host}).status_code == 421
        assert client.get(path, headers={"Host": "LOCALHOST:8000"}).status_code != 421
    assert served("0.0.0.0").get("/healthz", headers={"Host": "box.example"}).status_code == 200


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 401),
        ({"Authorization": b"Bearer wrong"}, 401),
        ({"Authorization": b"Bearer"}, 401),
        ({"Authorization": b"Basic secret"}, 401),
        ({"Authorization": "Bearer sécret".encode()}, 401),
        ({"Authorization": b"Bearer secret"}, 200),
    ],
)
def test_the_api_needs_the_token_where_there_is_one(served, headers, status):
    client = served(token="secret")
    assert client.post("/v1/read", content=DATA, headers=headers).status_code == status
    assert client.get("/metrics", headers=headers).status_code == status
    for path in ("/", "/healthz"):
        assert client.get(path, headers=headers).status_code == 200


def test_every_answer_has_the_security_headers(served):
    client = served(token="secret")
    for path in ("/", "/serve.js", "/nothing", "/v1/model"):
        headers = client.get(path).headers
        policy = set(headers["content-security-policy"].split("; "))
        assert {"default-src 'none'", "frame-ancestors 'none'"} < policy
        assert SECURITY.items() < dict(headers).items()
        assert "access-control-allow-origin" not in headers


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

    statuses = {ImageError: 422, OSError: 507}
    gate = Gate([Endpoint("/", fail)], statuses, Address("testserver", 80))
    answer = TestClient(gate).get("/")
    assert (answer.status_code, answer.json()) == (status, {"error": sentence})


@pytest.mark.parametrize("body", [b"", b"[]", b"5", b"{", b"[" * 100_000])
def test_only_a_json_object_is_taken(body):
    assert parse_object(b'{"a": 1}') == {"a": 1}
    with pytest.raises(UsageError, match="JSON"):
        parse_object(body)

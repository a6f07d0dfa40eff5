import json
from dataclasses import replace

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
    ("host", "hosts", "page"),
    [
        (
            "127.0.0.1",
            {"127.0.0.1", "localhost", "[::1]"},
            "http://127.0.0.1:8000/",
        ),
        ("::2", {"::2", "[::2]"}, "http://[::2]:8000/"),
        ("Box.example", {"box.example", "[box.example]"}, "http://Box.example:8000/"),
    ],
)
def test_a_server_is_called_by_these_names_and_has_this_page(host, hosts, page):
    address = Address(host, 8000, "a#b")
    assert (address.hosts, address.page) == (hosts, page)
    assert replace(address, shows_token=True).page == f"{page}#token=a%23b"


def test_another_host_is_not_answered_unless_none_is_known(served):
    client = served("127.0.0.1", 8000)
    for path in ("/v1/read", "/", "/healthz", "/nothing"):
        for host in ("evil.example:8000", "127.0.0.1.evil.example", ""):
            assert client.get(path, headers={"Host": host}).status_code == 421
        for host in ("LOCALHOST:8000", "localhost:9001", "[::1]", "127.0.0.1:"):
            assert client.get(path, headers={"Host": host}).status_code != 421
    assert served("0.0.0.0").get("/healthz", headers={"Host": "box.example"}).status_code == 200


OWN, OTHER = "http://testserver", "https://portal.example"


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"Origin": OWN}, 200),
        ({"Origin": OWN, "Sec-Fetch-Site": "same-origin"}, 200),
        ({"Origin": "https://tls.example", "Sec-Fetch-Site": "same-origin"}, 200),  # behind a proxy
        ({"Sec-Fetch-Site": "none"}, 200),
        ({"Origin": OTHER}, 200),
        ({"Origin": OTHER, "Sec-Fetch-Site": "cross-site"}, 200),
        ({"Origin": "https://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": "http://["}, 403),
        ({"Origin": "http://testserver:81"}, 403),
        ({"Origin": "http://testserver:81", "Sec-Fetch-Site": "same-site"}, 403),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Origin": "http://portal.example"}, 403),
    ],
)
def test_pages_ask_if_they_are_ours_or_of_an_origin_that_is_allowed(served, headers, status):
    client = served(origins=[OTHER])
    assert client.post("/v1/read", content=DATA, headers=headers).status_code == status
    assert client.get("/", headers=headers).status_code == 200


def test_an_allowed_origin_gets_what_a_browser_asks_for_first_and_another_does_not(served):
    asked = {
        "Access-Control-Request-Method": "POST",
        "Access-Control-Request-Headers": "authorization,content-type",
        "Access-Control-Request-Private-Network": "true",
    }
    client = served(token="secret", origins=[OTHER])
    for origin, allowed in ((OTHER, OTHER), ("https://evil.example", None)):
        headers = client.options("/v1/read", headers={"Origin": origin, **asked}).headers
        assert headers.get("access-control-allow-origin") == allowed
    answer = client.post("/v1/read", content=DATA, headers={"Origin": OTHER})
    assert (answer.status_code, answer.headers["access-control-allow-origin"]) == (401, OTHER)


def test_a_path_may_have_the_prefix_of_a_proxy(served):
    client = served(root_path="/captcha")
    for path in ("/captcha/healthz", "/healthz", "/captcha/", "/captcha/serve.js"):
        assert client.get(path).status_code == 200
    assert client.get("/captcha", follow_redirects=False).headers["location"] == "/captcha/"
    for path in ("/captchahealthz", "/other/healthz", "/v1/model/"):
        assert client.get(path, follow_redirects=False).status_code == 404


@pytest.mark.parametrize("headers", [{"X": 20_000 * "x"}, {f"X{n}": "x" for n in range(2000)}])
def test_headers_that_are_too_long_are_refused(served, headers):
    assert served().get("/healthz", headers=headers).status_code == 431


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 401),
        ({"Authorization": b"Bearer wrong"}, 401),
        ({"Authorization": b"Bearer"}, 401),
        ({"Authorization": b"Basic secret"}, 401),
        ({"Authorization": "Bearer sécret".encode()}, 401),
        ({"Authorization": b"Bearer secret"}, 200),
        ({"Authorization": b"bearer  secret"}, 200),
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
        (KeyError("a secret"), 500, "the service failed; what it prints says why"),
    ],
)
def test_an_error_has_the_status_of_its_nearest_type(error, status, sentence):
    async def fail(_):
        raise error

    statuses = {ImageError: 422, OSError: 507}
    gate = Gate([Endpoint("/", fail)], statuses, Address("testserver", 80))
    answer = TestClient(gate, raise_server_exceptions=False).get("/")
    assert (answer.status_code, answer.json()) == (status, {"error": sentence})


@pytest.mark.parametrize(
    ("body", "named"),
    [
        *((body, "not JSON") for body in (b"", b"{", b"x" * 100, b"[" * 5_000)),
        *((body, "JSON object") for body in (b"[]", b"[5]", b"5")),
        (b"[" * 100_000, "values"),
        (b'{"images": [' + b'{"":0},' * 100_000 + b"0]}", "values"),
        (b'{"images": [' + b"[[]]," * 100_000 + b"0]}", "values"),
        (b'{"image": ' + b"9" * 100_000 + b"}", "values"),
        (b'{"image": %a}' % ([137] * 3_000), "values"),
        (b'{"image": "' + b"\\n" * 600_000 + b'"}', "escapes"),
        (b"{" + b'"a":0,' * 100_000 + b'"a":0}', "values"),
        # It would take minutes by a careless search
        (b'{"' + b'\\"' * 4_900 + 3_000_000 * b"x", "not JSON"),
    ],
    ids=range(15),
)
def test_only_a_json_object_of_few_values_and_escapes_is_taken(body, named):
    with pytest.raises(UsageError, match=named):
        parse_object(body)


def test_long_texts_with_escapes_are_taken():
    lines = ["/+" * 38] * 100_000
    image, quoted = "\n".join(lines), '"' * 100
    body = json.dumps({"image": image, "other": quoted}).encode()
    assert parse_object(body) == {"image": image, "other": quoted}

import pytest

from .conftest import SAMPLE

DATA = SAMPLE.read_bytes()


@pytest.mark.parametrize("path", ["/v1/read", "/", "/healthz", "/nothing"])
def test_another_host_is_not_answered(served, path):
    client = served(hosts=frozenset({"127.0.0.1:8000", "localhost:8000"}))
    for host, status in (
        ("evil.example:8000", 421),
        ("127.0.0.1:8001", 421),
        ("", 421),
        ("LOCALHOST:8000", 0),
    ):
        answer = client.get(path, headers={"Host": host})
        assert (answer.status_code == 421) == (status == 421)


def test_any_host_is_answered_where_none_is_known(served):
    assert served(hosts=None).get("/healthz", headers={"Host": "box.example"}).status_code == 200


@pytest.mark.parametrize(
    ("header", "status"),
    [
        (None, 401),
        ("Bearer wrong", 401),
        ("Bearer", 401),
        ("Basic secret", 401),
        ("Bearer sécret", 401),
        ("Bearer secret", 200),
    ],
)
def test_the_api_needs_the_token_where_there_is_one(served, header, status):
    client = served(token="secret")
    headers = {"Content-Type": "image/png"} | (
        {} if header is None else {"Authorization": header.encode()}
    )
    assert client.post("/v1/read", content=DATA, headers=headers).status_code == status
    assert client.get("/metrics", headers=headers).status_code == status
    assert (
        client.get("/", headers=headers).status_code
        == client.get("/healthz", headers=headers).status_code
        == 200
    )


def test_every_answer_has_the_security_headers(served):
    client = served(token="secret")
    for path in ("/", "/serve.js", "/nothing", "/v1/model"):
        headers = client.get(path).headers
        assert "default-src 'none'" in headers["content-security-policy"]
        assert "frame-ancestors 'none'" in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"
        assert headers["cache-control"] == "no-store"
        assert "access-control-allow-origin" not in headers

"""The real server, with real connections; the limits of time are shortened."""

import asyncio
import http.client
import json
import resource
import signal
import socket
import subprocess
import sys
import time
from inspect import signature

import h11
import pytest
import uvicorn
from hostile import BOMBS
from starlette.responses import PlainTextResponse
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from captcha_ocr.web import server

from .conftest import SAMPLE, running

WAIT_S = 30


async def echo(scope, receive, send):
    """An application that answers with the number of bytes it was sent."""
    length, more = 0, True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            return
        length, more = length + len(message.get("body", b"")), message.get("more_body", False)
    await PlainTextResponse(str(length))(scope, receive, send)


def send_slowly(connection, count):
    """Send so many bytes, fifty a second."""
    for _ in range(count):
        connection.sendall(b"x")
        time.sleep(0.02)


def until_closed(connection):
    """Return what a server sends until it closes the connection."""
    connection.settimeout(WAIT_S)
    received = b""
    try:
        while part := connection.recv(65536):
            received += part
    except ConnectionResetError:
        pass
    return received


def test_uvicorn_has_the_inner_parts_that_the_server_overrides():
    async def make_protocol():
        config = uvicorn.Config(echo, lifespan="off")
        return H11Protocol(config, ServerState(), {})

    protocol = asyncio.run(make_protocol())
    # Methods that are overridden
    assert list(signature(H11Protocol.connection_made).parameters) == ["self", "transport"]
    assert list(signature(H11Protocol.data_received).parameters) == ["self", "data"]
    assert list(signature(H11Protocol.connection_lost).parameters) == ["self", "exc"]
    # Attributes that are read
    assert isinstance(protocol.conn, h11.Connection)
    assert isinstance(protocol.connections, set)
    assert isinstance(protocol.loop, asyncio.AbstractEventLoop)
    assert hasattr(protocol, "transport")
    assert not hasattr(H11Protocol, "deadline")


@pytest.mark.parametrize(
    "sent",
    [b"", b"GET / HT", b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\nhalf"],
    ids=["silent", "half a header", "half a body"],
)
def test_a_client_that_does_not_go_on_is_disconnected(monkeypatch, sent):
    monkeypatch.setattr(server, "REQUEST_S", 0.2)
    with (
        running(lambda _: echo) as service,
        socket.create_connection(service.address) as connection,
    ):
        connection.sendall(sent)
        assert until_closed(connection) == b""


def test_a_client_that_sends_a_byte_at_a_time_is_disconnected(monkeypatch):
    monkeypatch.setattr(server, "REQUEST_S", 0.3)
    with (
        running(lambda _: echo) as service,
        socket.create_connection(service.address) as connection,
    ):
        connection.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n")
        with pytest.raises((ConnectionResetError, BrokenPipeError)):
            send_slowly(connection, 1000)


def test_a_connection_is_kept_for_the_next_request_and_closed_when_it_stays_idle(monkeypatch):
    monkeypatch.setattr(server, "REQUEST_S", 5)
    monkeypatch.setattr(server, "KEPT_S", 1)
    with running(lambda _: echo) as service:
        connection = http.client.HTTPConnection(*service.address)
        for size in (0, 5, 100_000):
            connection.request("POST", "/", bytes(size))
            assert connection.getresponse().read() == str(size).encode()
        assert connection.sock is not None
        assert until_closed(connection.sock) == b""
        connection.close()


def test_of_too_many_connections_the_one_that_lets_us_wait_longest_is_closed(monkeypatch):
    monkeypatch.setattr(server, "MAX_CONNECTIONS", 3)
    with running(lambda _: echo) as service:
        silent = [socket.create_connection(service.address) for _ in range(3)]
        with socket.create_connection(service.address) as connection:
            assert until_closed(silent[0]) == b""
            connection.sendall(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            assert until_closed(connection).endswith(b"0")
        for connection in silent:
            connection.close()


def test_thousands_of_silent_connections_do_not_keep_others_out(reading, soak):
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    count = min(most - 1000, 10_000 if soak else 1_000)
    silent = [socket.create_connection(reading.address) for _ in range(count)]
    connection = http.client.HTTPConnection(*reading.address, timeout=WAIT_S)
    connection.request("POST", "/v1/read", SAMPLE.read_bytes(), {"Content-Type": "image/png"})
    assert json.loads(connection.getresponse().read())["text"] == "0ZLA"
    connection.close()
    for each in silent:
        each.close()


@pytest.mark.parametrize("name", BOMBS)
def test_a_hostile_image_is_refused_or_read_and_the_next_one_is_read(served, name):
    client = served()
    assert client.post("/v1/read", content=BOMBS[name]).status_code in (200, 413, 422)
    assert client.post("/v1/read", content=SAMPLE.read_bytes()).json()["text"] == "0ZLA"


def test_headers_have_a_limit():
    with (
        running(lambda _: echo) as service,
        socket.create_connection(service.address) as connection,
    ):
        connection.sendall(
            b"GET / HTTP/1.1\r\nHost: x\r\nX: " + bytes(100_000).replace(b"\0", b"x")
        )
        assert b" 400 " in until_closed(connection)[:20]


@pytest.fixture
def command(tmp_path):
    """The process `captcha-ocr serve`, whose lines go into the file `log`, and where it listens."""
    arguments = ["serve", "--port", "0", "--model", "pretrained"]
    with open(tmp_path / "log", "w") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "captcha_ocr", *arguments],
            stdout=log,
            stderr=subprocess.PIPE,
            text=True,
        )
    page = next(line.split()[1] for line in process.stderr if line.startswith("page"))
    yield process, ("127.0.0.1", int(page.rstrip("/").rpartition(":")[2]))
    process.kill()
    process.communicate()


def test_the_command_serves_and_ends_with_sigterm_after_the_requests_in_work(command, tmp_path):
    process, address = command
    body, connection = SAMPLE.read_bytes(), http.client.HTTPConnection(*address, timeout=WAIT_S)
    connection.request("POST", "/v1/read", body, {"Content-Type": "image/png"})
    assert json.loads(connection.getresponse().read())["text"] == "0ZLA"
    head = f"POST /v1/read HTTP/1.1\r\nHost: {address[0]}:{address[1]}\r\n"
    with connection.sock as late:
        late.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode())
        time.sleep(0.3)
        process.send_signal(signal.SIGTERM)
        time.sleep(0.3)
        late.sendall(body)
        assert b'"0ZLA"' in until_closed(late)
    assert process.wait(WAIT_S) == 0
    lines = [json.loads(line) for line in (tmp_path / "log").read_text().splitlines()]
    assert [line["status"] for line in lines] == [200, 200]

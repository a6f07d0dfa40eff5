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
from contextlib import ExitStack, closing, suppress
from inspect import signature

import h11
import pytest
import uvicorn
from hostile import BOMBS
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from captcha_ocr.web import server

from .conftest import SAMPLE, running

WAIT_S = 30


async def echo(scope, receive, send):
    """An application that answers with the number of bytes it was sent."""
    with suppress(ClientDisconnect):
        body = await Request(scope, receive).body()
        await PlainTextResponse(str(len(body)))(scope, receive, send)


def until_closed(connection):
    """Return what a server sends until it closes the connection."""
    connection.settimeout(WAIT_S)
    received = b""
    with suppress(ConnectionResetError):
        while part := connection.recv(65536):
            received += part
    return received


def test_uvicorn_has_the_inner_parts_that_the_server_overrides():
    async def make_protocol():
        return H11Protocol(uvicorn.Config(echo, lifespan="off"), ServerState(), {})

    overridden = (
        H11Protocol.connection_made,
        H11Protocol.data_received,
        H11Protocol.connection_lost,
    )
    parameters = [list(signature(method).parameters) for method in overridden]
    assert parameters == [["self", "transport"], ["self", "data"], ["self", "exc"]]
    protocol = asyncio.run(make_protocol())
    # Attributes that are read
    assert isinstance(protocol.conn, h11.Connection)
    assert isinstance(protocol.connections, set)
    assert isinstance(protocol.loop, asyncio.AbstractEventLoop)
    assert (hasattr(protocol, "transport"), hasattr(protocol, "deadline")) == (True, False)


def test_clients_that_do_not_go_on_or_send_a_byte_at_a_time_are_disconnected(monkeypatch):
    monkeypatch.setattr(server, "REQUEST_S", 0.3)
    beginnings = [b"", b"GET / HT", b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nhalf"]
    with running(lambda _: echo) as service, ExitStack() as stack:
        slow, *silent = [
            stack.enter_context(socket.create_connection(service.address)) for _ in range(4)
        ]
        for connection, sent in zip(silent, beginnings, strict=True):
            connection.sendall(sent)
        slow.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n")
        with suppress(ConnectionResetError, BrokenPipeError):
            for _ in range(1000):
                slow.sendall(b"x")
                time.sleep(0.02)
            pytest.fail("a client may send for as long as it likes")
        assert [until_closed(connection) for connection in silent] == [b"", b"", b""]


def test_a_connection_is_kept_for_the_next_request_and_closed_when_it_stays_idle(monkeypatch):
    monkeypatch.setattr(server, "REQUEST_S", 2 * WAIT_S)
    monkeypatch.setattr(server, "KEPT_S", 0.5)
    with (
        running(lambda _: echo) as service,
        closing(http.client.HTTPConnection(*service.address)) as connection,
    ):
        for size in (0, 5, 100_000):
            connection.request("POST", "/", bytes(size))
            assert connection.getresponse().read() == str(size).encode()
        assert until_closed(connection.sock) == b""


def test_of_too_many_connections_the_one_that_lets_us_wait_longest_is_closed(monkeypatch):
    monkeypatch.setattr(server, "MAX_CONNECTIONS", 3)
    with running(lambda _: echo) as service, ExitStack() as stack:
        first, *_, last = [
            stack.enter_context(socket.create_connection(service.address)) for _ in range(4)
        ]
        assert until_closed(first) == b""
        last.sendall(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        assert until_closed(last).endswith(b"0")


def test_headers_have_a_limit():
    with running(lambda _: echo) as service, socket.create_connection(service.address) as client:
        client.sendall(b"GET / HTTP/1.1\r\nHost: x\r\nX: " + 100_000 * b"x")
        assert b" 400 " in until_closed(client)[:20]


def test_thousands_of_silent_connections_do_not_keep_others_out(reading, soak):
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    count = min(most - 1000, 10_000 if soak else 1_000)
    with ExitStack() as stack:
        for _ in range(count):
            stack.enter_context(socket.create_connection(reading.address))
        connection = http.client.HTTPConnection(*reading.address, timeout=WAIT_S)
        stack.enter_context(closing(connection))
        connection.request("POST", "/v1/read", SAMPLE.read_bytes(), {"Content-Type": "image/png"})
        assert json.loads(connection.getresponse().read())["text"] == "0ZLA"


def test_hostile_images_are_refused_and_the_next_one_is_read(served):
    client = served()
    statuses = {name: client.post("/v1/read", content=BOMBS[name]).status_code for name in BOMBS}
    assert {name: status for name, status in statuses.items() if status not in (413, 422)} == {}
    assert client.post("/v1/read", content=SAMPLE.read_bytes()).json()["text"] == "0ZLA"


def test_the_command_serves_and_ends_with_sigterm_after_the_requests_in_work():
    words = ["-m", "captcha_ocr", "serve", "--port", "0", "--model", "pretrained"]
    body = SAMPLE.read_bytes()
    with (
        subprocess.Popen(
            [sys.executable, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as process,
        ExitStack() as stack,
    ):
        stack.callback(process.kill)
        page = next(line.split()[1] for line in process.stderr if line.startswith("page"))
        host = page.removeprefix("http://").rstrip("/")
        connection = http.client.HTTPConnection(host, timeout=WAIT_S)
        connection.request("POST", "/v1/read", body, {"Content-Type": "image/png"})
        assert json.loads(connection.getresponse().read())["text"] == "0ZLA"
        head = f"POST /v1/read HTTP/1.1\r\nHost: {host}\r\nContent-Length: {len(body)}\r\n\r\n"
        with connection.sock as late:
            late.sendall(head.encode())
            time.sleep(0.3)
            process.send_signal(signal.SIGTERM)
            time.sleep(0.3)
            late.sendall(body)
            assert b'"0ZLA"' in until_closed(late)
        assert process.wait(WAIT_S) == 0
        lines = list(map(json.loads, process.stdout))
    assert [line["status"] for line in lines] == [200, 200]

"""The real server, with real connections; the limits of time are shortened."""

import asyncio
import http.client
import json
import resource
import signal
import socket
import subprocess
import sys
import threading
import time
from asyncio.selector_events import _SelectorTransport
from contextlib import ExitStack, closing, suppress
from inspect import signature

import pytest
import uvicorn
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle
from uvicorn.server import ServerState

from captcha_ocr.web import server

from .conftest import SAMPLE, running

WAIT_S = 30


async def echo(scope, receive, send):
    """An application that answers with the number of bytes it was sent."""
    with suppress(ClientDisconnect):
        body = await Request(scope, receive).body()
        await PlainTextResponse(str(len(body)))(scope, receive, send)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.1", "localhost"])
def test_any_address_of_the_loopback_needs_no_token(host):
    listener, _ = server.listen(host, 0, None)
    with listener:
        assert listener.getsockname()[0] == "127.0.0.1"


def until_closed(connection):
    """Return what a server sends until it closes the connection."""
    connection.settimeout(WAIT_S)
    received = b""
    with suppress(ConnectionResetError):
        while part := connection.recv(65536):
            received += part
    return received


def hold(stack, service, sent=b""):
    """Return a connection that has sent something."""
    connection = stack.enter_context(socket.create_connection(service.address))
    connection.sendall(sent)
    return connection


GET = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
LAST = b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
HALF = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 300000\r\n\r\n" + bytes(150_000)


def test_uvicorn_has_the_inner_parts_that_the_server_overrides():
    async def make_protocol():
        return H11Protocol(uvicorn.Config(echo, lifespan="off"), ServerState(), {})

    overridden = {
        H11Protocol.connection_made: ["self", "transport"],
        H11Protocol.data_received: ["self", "data"],
        H11Protocol.connection_lost: ["self", "exc"],
        H11Protocol.eof_received: ["self"],
        H11Protocol.send_400_response: ["self", "msg"],
        H11Protocol.on_response_complete: ["self"],
        H11Protocol.shutdown: ["self"],
    }
    assert {method: list(signature(method).parameters) for method in overridden} == overridden
    protocol = asyncio.run(make_protocol())
    # Attributes that are read
    assert isinstance(protocol.connections, set)
    assert isinstance(protocol.loop, asyncio.AbstractEventLoop)
    assert (protocol.cycle, protocol.flow, hasattr(protocol, "waits_since")) == (None, None, False)
    assert FlowControl(None).write_paused is False
    assert _SelectorTransport.max_size > server._PART
    assert {"more_body", "response_complete"} <= set(
        RequestResponseCycle.__init__.__code__.co_names
    )


def test_clients_that_do_not_go_on_or_send_a_byte_at_a_time_are_disconnected(monkeypatch):
    monkeypatch.setattr(server, "REQUEST_S", 0.3)
    monkeypatch.setattr(server, "KEPT_S", WAIT_S)
    with running(lambda _: echo) as service, ExitStack() as stack:
        slow = hold(stack, service, GET[:-2])
        silent = [hold(stack, service, sent) for sent in (b"", GET[:9], HALF, GET + HALF)]
        with suppress(ConnectionResetError, BrokenPipeError):
            for _ in range(1000):
                slow.sendall(b"x")
                time.sleep(0.02)
            pytest.fail("a client may send for as long as it likes")
        answers = [until_closed(connection).count(b"200 OK") for connection in silent]
        assert answers == [0, 0, 0, 1]


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


def test_a_client_that_sends_on_before_its_answer_gets_this_one_alone():
    with running(lambda _: echo) as service, ExitStack() as stack:
        assert until_closed(hold(stack, service, 50 * GET)).count(b"200 OK") == 1


def test_a_client_that_does_not_read_its_answers_is_disconnected(monkeypatch):
    async def send_much(scope, receive, send):
        await PlainTextResponse(bytes(20_000_000))(scope, receive, send)

    monkeypatch.setattr(server, "REQUEST_S", 0.3)
    with running(lambda _: send_much) as service, ExitStack() as stack:
        connection = hold(stack, service, GET)
        time.sleep(1)
        assert len(until_closed(connection)) < 20_000_000


@pytest.mark.parametrize(("held", "first"), [(b"", b""), (GET, b"200 OK"), (GET[:9], b"")])
def test_of_too_many_connections_the_one_that_lets_us_wait_longest_is_closed(
    monkeypatch, held, first
):
    monkeypatch.setattr(server, "MAX_CONNECTIONS", 3)
    with running(lambda _: echo) as service, ExitStack() as stack:
        connections = []
        for _ in range(3):
            connections.append(hold(stack, service, held))
            time.sleep(0.1)
        last = hold(stack, service, LAST)
        assert until_closed(last).endswith(b"0")
        assert first in until_closed(connections[0])
        connections[2].setblocking(False)
        with suppress(BlockingIOError):
            while received := connections[2].recv(65536):
                pass
            assert received, "the newest of those that wait is closed, too"


def post(size):
    """Return a request with a body of so many bytes, after which the connection is closed."""
    head = f"POST / HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {size}\r\n\r\n"
    return head.encode() + bytes(size)


def test_unfinished_bodies_have_a_limit_and_those_in_work_or_without_more_to_send_are_kept(
    monkeypatch,
):
    begun, go_on = threading.Semaphore(0), threading.Event()

    async def wait(scope, receive, send):
        body = await Request(scope, receive).body()
        begun.release()
        await asyncio.to_thread(go_on.wait, WAIT_S)
        await PlainTextResponse(str(len(body)))(scope, receive, send)

    monkeypatch.setattr(server, "MAX_HELD", 500_000)
    with running(lambda _: wait) as service, ExitStack() as stack:
        in_work, ended = (hold(stack, service, post(size)) for size in (300_000, 50_000))
        ended.shutdown(socket.SHUT_WR)
        assert all(begun.acquire(timeout=WAIT_S) for _ in range(2))
        unfinished = [hold(stack, service, HALF) for _ in range(3)]
        assert until_closed(unfinished[0])[:12] in (b"", b"HTTP/1.1 503")
        small = hold(stack, service, LAST)
        go_on.set()
        answers = map(until_closed, (in_work, ended, small))
        sizes = [answer.rpartition(b"\n")[2] for answer in answers]
        assert sizes == [b"300000", b"50000", b"0"]


def test_a_body_of_tiny_chunks_is_cut_off_and_one_of_some_is_read():
    head = b"POST / HTTP/1.1\r\nHost: x\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n"
    with running(lambda _: echo) as service, ExitStack() as stack:
        some = hold(stack, service, head + b"1\r\nx\r\n" * 4_000 + b"0\r\n\r\n")
        assert until_closed(some).endswith(b"4000")
        many = stack.enter_context(socket.create_connection(service.address))
        with suppress(ConnectionResetError, BrokenPipeError):
            many.sendall(head + b"1\r\nx\r\n" * 400_000)
        assert b"200 OK" not in until_closed(many)


def test_a_server_that_ends_does_not_wait_long_for_the_rest_of_a_request(monkeypatch):
    monkeypatch.setattr(server, "_LAST_S", 0.3)
    with running(lambda _: echo) as service, ExitStack() as stack:
        half = hold(stack, service, HALF)
        time.sleep(0.3)
        service.stop()
        assert until_closed(half) == b""


@pytest.mark.parametrize(
    ("nonsense", "status"),
    [
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b" 200 "),
        (GET[:-2] + b"X: " + 100_000 * b"x", b" 400 "),
        (b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nZZ\r\n", b""),
        (GET + b"\0\r\n\r\n", b" 200 "),
    ],
)
def test_nonsense_ends_its_connection_and_nothing_is_logged(nonsense, status, caplog):
    with running(lambda _: echo) as service, ExitStack() as stack:
        assert status in until_closed(hold(stack, service, nonsense))[:20]
        assert until_closed(hold(stack, service, LAST)).endswith(b"0")
    assert [record for record in caplog.records if record.name.startswith("uvicorn")] == []


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

"""Run an ASGI application with uvicorn; clients that are slow or silent are disconnected."""

import asyncio
import contextlib
import logging
import secrets
import socket
import sys
from typing import Any

import h11
import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from captcha_ocr.errors import UsageError
from captcha_ocr.web.http import Address
from captcha_ocr.web.log import LineLog

REQUEST_S = 15  # by then a request has to be here as a whole, or an answer has to be read
KEPT_S = 5  # how long a connection may be idle between two requests
_LAST_S = 5  # how long the rest of a request may take when the server ends
MAX_HELD = 64_000_000  # bytes that clients may hold, all together
_CONNECTION_COST = 128_000  # bytes of a connection: its buffers, and an answer that nobody reads
_QUEUE = 1024  # connections that wait to be accepted
# Connections accepted at once. Some such lots are open beside those that MAX_HELD allows, and a
# process may usually open 1,024 files.
_AT_ONCE = 64


class _TimedProtocol(H11Protocol):
    """HTTP/1.1 with a deadline whenever we wait for the client, and a bound on what clients hold.

    We wait for a client unless its request is here as a whole and its answer is not complete, or
    stays unread. It holds its connection and the bytes of the request that is not answered yet.
    """

    deadline: asyncio.TimerHandle | None = None
    received, is_unread = 0, False

    @property
    def held(self) -> int:
        """The bytes that this client holds."""
        return _CONNECTION_COST + self.received

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._watch()

    def data_received(self, data: bytes) -> None:
        self.received += len(data)
        super().data_received(data)
        self._watch()

    def send_400_response(self, msg: str) -> None:
        if self.cycle is not None:
            self.cycle.disconnected = True  # nobody gets another answer
        try:
            super().send_400_response(msg)
        except h11.LocalProtocolError:  # nonsense behind a request that is answered already
            self.transport.abort()

    def on_response_complete(self) -> None:
        self.received = 0
        self._set_deadline(None)
        super().on_response_complete()  # which may begin with the next request
        self._watch()

    def pause_writing(self) -> None:
        self.is_unread = True
        super().pause_writing()
        self._watch()

    def resume_writing(self) -> None:
        self.is_unread = False
        super().resume_writing()
        self._watch()

    def shutdown(self) -> None:
        super().shutdown()
        if self.deadline is not None:
            self._set_deadline(_LAST_S)

    def connection_lost(self, exc: Exception | None) -> None:
        self._set_deadline(None)
        super().connection_lost(exc)

    def _watch(self) -> None:
        """Give the client its time if we begin to wait for it, and make room for what it holds."""
        cycle = self.cycle
        is_in_work = cycle is not None and not (cycle.more_body or cycle.response_complete)
        if is_in_work and not self.is_unread:
            self._set_deadline(None)
        elif self.deadline is None:
            self._set_deadline(REQUEST_S)
        clients: set[Any] = self.connections
        excess = sum(client.held for client in clients) - MAX_HELD
        while excess > 0 and (waiting := [client for client in clients if client.deadline]):
            longest = min(waiting, key=lambda client: client.deadline.when())
            excess -= longest.held
            clients.discard(longest)  # it is lost a little later
            longest.transport.abort()

    def _set_deadline(self, seconds: float | None) -> None:
        if self.deadline is not None:
            self.deadline.cancel()
        self.deadline = None
        if seconds is not None:
            self.deadline = self.loop.call_later(seconds, self.transport.abort)


class _Server(uvicorn.Server):
    """Accepts few connections at once, while many may wait; asyncio has one number for both."""

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        for listener in sockets or ():
            listener.listen(_QUEUE)


def listen(host: str, port: int, token: str | None) -> tuple[socket.socket, Address]:
    """Return a socket that listens, and its address; port: 0 takes a free one.

    token: "new" makes one. UsageError if the address is in use or not of this machine.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio switches off Nagle's algorithm, which would delay every answer by 40 ms, only if the
    # protocol is named.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen(_QUEUE)
    except OSError as error:
        listener.close()
        raise UsageError(f"`host` {host} `port` {port}: {error.strerror}") from None
    if token == "new":
        token = secrets.token_urlsafe(24)
    return listener, Address(host, listener.getsockname()[1], token)


def make_server(app: ASGIApp) -> uvicorn.Server:
    """Return the server of an application."""
    return _Server(
        uvicorn.Config(
            app,
            http=_TimedProtocol,
            ws="none",
            loop="asyncio",
            lifespan="off",
            log_config=None,
            log_level="error",  # else a client that offers HTTP/2 gets a warning printed
            access_log=False,
            server_header=False,
            date_header=False,
            backlog=_AT_ONCE,
            timeout_keep_alive=KEPT_S,
            timeout_graceful_shutdown=30,  # seconds for requests in work
            h11_max_incomplete_event_size=16_384,  # bytes of headers
        )
    )


def run(app: ASGIApp, listener: socket.socket) -> None:
    """Serve until SIGINT or SIGTERM; the requests in work are finished first."""
    sys.setswitchinterval(0.001)  # threads that read give Python's lock to this one sooner
    server = make_server(app)
    # uvicorn raises the signal again at its end
    with LineLog(sys.stderr) as lines, contextlib.suppress(KeyboardInterrupt, SystemExit):
        logging.getLogger("uvicorn.error").addHandler(logging.StreamHandler(lines))
        server.run([listener])

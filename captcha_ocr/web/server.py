"""Run an ASGI application with uvicorn; clients that are slow or silent are disconnected."""

import asyncio
import contextlib
import logging
import re
import secrets
import socket
import sys
from typing import Any

import h11
import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from captcha_ocr.errors import UsageError, check
from captcha_ocr.web.http import Address
from captcha_ocr.web.log import LineLog

REQUEST_S = 15  # by then a request has to be here as a whole, or an answer has to be read
KEPT_S = 5  # how long a connection may be idle between two requests
_LAST_S = 5  # how long the rest of a request may take when the server ends
MAX_CONNECTIONS, MAX_HELD = 500, 64_000_000  # the second: bytes of bodies, all together
_SMALL = 100_000  # bytes of a body that is let in even where large ones leave no room
_PART = 16_384  # bytes of a client that are parsed before others have their turn
# A chunk of a body with fewer than 256 bytes; thousands of them take long to parse
_CRUMB, _MAX_CRUMBS = re.compile(rb"\r\n0*[0-9a-fA-F]{1,2}[;\r]"), 5_000
_TRY_AGAIN = (
    b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\n"
    b"Connection: close\r\nContent-Length: 0\r\n\r\n"
)
_QUEUE = 1024  # connections that wait to be accepted
# Connections accepted at once. Some such lots are open beside MAX_CONNECTIONS, and a process may
# usually open 1,024 files.
_AT_ONCE = 64
_WANTED_FILES = 4096


class _TimedProtocol(H11Protocol):
    """HTTP/1.1 with a deadline whenever we wait for the client, and a bound on what clients hold.

    We wait for a client unless its request is here as a whole and its answer is not complete, or
    stays unread. It holds its connection and the bytes of the request that is not answered yet.
    """

    deadline: asyncio.TimerHandle | None = None
    received = crumbs = 0  # bytes and small chunks of the request that is not answered yet
    is_unread, inbox = False, b""

    @property
    def is_in_work(self) -> bool:
        """Whether a request is here as a whole, and its answer is not complete."""
        cycle = self.cycle
        return cycle is not None and not (cycle.more_body or cycle.response_complete)

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._watch()
        self._make_room()

    def data_received(self, data: bytes) -> None:
        is_first = not self.inbox
        self.received += len(data)
        self.inbox += data
        if is_first:
            self._parse()
        self._make_room()

    def _parse(self) -> None:
        """Parse a part of what was received, and the rest after others had their turn."""
        part, self.inbox = self.inbox[:_PART], self.inbox[_PART:]
        if not part or self.transport.is_closing():
            self.inbox = b""
            return
        self.crumbs += len(_CRUMB.findall(part))
        if self.crumbs > _MAX_CRUMBS:
            self.transport.abort()
            return
        super().data_received(part)
        self._watch()
        if self.inbox:
            self.loop.call_soon(self._parse)

    def eof_received(self) -> bool:  # type: ignore[override]
        """Keep the connection of a client that only ended what it sends until it has its answer."""
        return bool(self.inbox) or self.is_in_work

    def send_400_response(self, msg: str) -> None:
        if self.cycle is not None:
            self.cycle.disconnected = True  # nobody gets another answer
        try:
            super().send_400_response(msg)
        except h11.LocalProtocolError:  # nonsense behind a request that is answered already
            self.transport.abort()

    def on_response_complete(self) -> None:
        self.received = self.crumbs = 0
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
        """Give the client its time if we begin to wait for it."""
        if self.is_in_work and not self.is_unread:
            self._set_deadline(None)
        elif self.deadline is None:
            self._set_deadline(REQUEST_S)

    def _set_deadline(self, seconds: float | None) -> None:
        if self.deadline is not None:
            self.deadline.cancel()
        self.deadline = None
        if seconds is not None:
            self.deadline = self.loop.call_later(seconds, self.transport.abort)

    def _make_room(self) -> None:
        """Close the connection that lets us wait longest if there are too many; if bodies are too
        large together, the one with such a body that does.
        """
        clients: set[Any] = self.connections
        while True:
            is_full = len(clients) > MAX_CONNECTIONS
            if not is_full and sum(client.received for client in clients) <= MAX_HELD:
                return
            least = 0 if is_full else _SMALL
            waiting = [each for each in clients if each.deadline and each.received >= least]
            if not waiting:
                return
            longest = min(waiting, key=lambda each: each.deadline.when())
            clients.discard(longest)  # it is lost a little later
            if longest is self and not is_full:
                self.transport.write(_TRY_AGAIN)
                self.transport.close()
            else:
                longest.transport.abort()


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
    check(bool(host), "`host` is empty; 0.0.0.0 means every address of this machine")
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
    port = listener.getsockname()[1]
    if token == "new":
        return listener, Address(host, port, secrets.token_urlsafe(24), shows_token=True)
    return listener, Address(host, port, token)


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
    _raise_limit_of_files()
    server = make_server(app)
    # uvicorn raises the signal again at its end
    with LineLog(sys.stderr) as lines, contextlib.suppress(KeyboardInterrupt, SystemExit):
        logging.getLogger("uvicorn.error").addHandler(logging.StreamHandler(lines))
        server.run([listener])


def _raise_limit_of_files() -> None:
    """Let this process open enough files for all connections, where it usually may open few."""
    with contextlib.suppress(ImportError, ValueError, OSError):  # Windows has no such limit
        import resource

        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        most = _WANTED_FILES if hard == resource.RLIM_INFINITY else min(hard, _WANTED_FILES)
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, most), hard))

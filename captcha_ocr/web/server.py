"""Run an ASGI application with uvicorn; clients that are slow or silent are disconnected."""

import contextlib
import logging
import re
import secrets
import socket
import sys
from ipaddress import ip_address
from typing import Any

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


class _TimedProtocol(H11Protocol):
    """HTTP/1.1 with a limit of time whenever we wait for the client, and a bound on what all
    clients hold.

    We wait for a client unless its request is here as a whole and its answer is not complete, or
    stays unread. It holds its connection and the bytes of the request that is not answered yet.
    """

    waits_since = 0.0  # by the clock of the event loop
    received = crumbs = 0  # bytes and small chunks of the request that is not answered yet

    @property
    def is_awaited(self) -> bool:
        """Whether we wait for the client."""
        cycle = self.cycle
        is_in_work = cycle is not None and not (cycle.more_body or cycle.response_complete)
        return not is_in_work or self.flow.write_paused

    def connection_made(self, transport: Any) -> None:
        transport.max_size = _PART  # of what asyncio receives at once
        super().connection_made(transport)
        self.waits_since = self.loop.time()
        self._watch()
        self._make_room()

    def data_received(self, data: bytes) -> None:
        self.received += len(data)
        self.crumbs += len(_CRUMB.findall(data))
        if self.crumbs > _MAX_CRUMBS:
            self.transport.abort()
            return
        super().data_received(data)
        if not self.is_awaited:
            self.waits_since = self.loop.time()
        self._make_room()

    def eof_received(self) -> bool:  # type: ignore[override]
        """Keep the connection of a client that only ended what it sends until it has its answer."""
        return not self.is_awaited

    def send_400_response(self, msg: str) -> None:
        if self.cycle is None:
            super().send_400_response(msg)
        else:  # it may be answered already
            self.transport.abort()

    def on_response_complete(self) -> None:
        self.received = self.crumbs = 0
        self.waits_since = self.loop.time()
        if self.conn.trailing_data[0]:  # one that sends on before its answer is never out of work
            self.transport.close()
        super().on_response_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        self.watching.cancel()
        super().connection_lost(exc)

    def shutdown(self) -> None:
        super().shutdown()
        self.waits_since -= REQUEST_S - _LAST_S

    def _watch(self) -> None:
        """Close the connection if the client lets us wait too long; look again and again."""
        now = self.loop.time()
        if not self.is_awaited:
            self.waits_since = now
        if now - self.waits_since > REQUEST_S:
            self.transport.abort()
        self.watching = self.loop.call_later(REQUEST_S / 15, self._watch)

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
            waiting = [each for each in clients if each.is_awaited and each.received >= least]
            if not waiting:
                return
            longest = min(waiting, key=lambda each: each.waits_since)
            clients.discard(longest)  # it is lost a little later
            longest.transport.write(_TRY_AGAIN)
            longest.transport.abort()


class _Listener(socket.socket):
    """Lets many connections wait; asyncio has one number for these and for those accepted at once.

    asyncio switches off Nagle's algorithm, which would delay every answer by 40 ms, only if the
    protocol is named.
    """

    def listen(self, _: int = _QUEUE, /) -> None:
        super().listen(_QUEUE)


def listen(host: str, port: int, token: str | None) -> tuple[socket.socket, Address]:
    """Return a socket that listens, and its address; port: 0 takes a free one.

    token: "new" makes one. UsageError if the address is in use or not of this machine, and if other
    machines may ask without a token.
    """
    check(bool(host), "`host` is empty; 0.0.0.0 means every address of this machine")
    try:
        family, *_, address = min(socket.getaddrinfo(host, port))  # IPv4 if there are both
    except (OSError, UnicodeError):
        raise UsageError(
            f"`host` {host} is no name or address, such as 127.0.0.1; its `port` is another option"
        ) from None
    check(
        token is not None or ip_address(address[0]).is_loopback,
        f"`host` {host} lets other machines ask; set a `token` or CAPTCHA_OCR_TOKEN",
    )
    listener = _Listener(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind(address)
        listener.listen()
    except OSError as error:
        listener.close()
        raise UsageError(f"`host` {host} `port` {port}: {error.strerror}") from None
    is_new = token == "new"
    token = secrets.token_urlsafe(24) if is_new else token
    return listener, Address(host, listener.getsockname()[1], token, shows_token=is_new)


def make_server(app: ASGIApp) -> uvicorn.Server:
    """Return the server of an application."""
    return uvicorn.Server(
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
    logging.getLogger("uvicorn.error").addHandler(logging.StreamHandler(LineLog(sys.stderr)))
    # uvicorn raises the signal again at its end
    with contextlib.suppress(KeyboardInterrupt, SystemExit):
        make_server(app).run([listener])

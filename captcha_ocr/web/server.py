"""Run an ASGI application with uvicorn; clients that are slow or silent are disconnected."""

import asyncio
import contextlib
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

REQUEST_S = 15  # by then a request has to be here as a whole
KEPT_S = 5  # how long a connection may be idle between two requests
MAX_CONNECTIONS = 500  # below the 1,024 files that a process may usually open
_BACKLOG = 1024  # connections that wait to be accepted


class _TimedProtocol(H11Protocol):
    """HTTP/1.1 with a deadline for each request, and with a limit of connections."""

    deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Accept a connection; if there are too many, close the one whose request is due first."""
        super().connection_made(transport)
        self._set_deadline(True)
        if len(self.connections) > MAX_CONNECTIONS:
            waiting: list[Any] = [
                other for other in self.connections if getattr(other, "deadline", None)
            ]
            min(waiting, key=lambda other: other.deadline.when()).transport.abort()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._set_deadline(self.conn.their_state in (h11.IDLE, h11.SEND_BODY))

    def connection_lost(self, exc: Exception | None) -> None:
        self._set_deadline(False)
        super().connection_lost(exc)

    def _set_deadline(self, is_awaited: bool) -> None:
        """Give the rest of a request its time, unless it has it, or none is awaited."""
        if is_awaited and self.deadline is None:
            self.deadline = self.loop.call_later(REQUEST_S, self.transport.abort)
        elif self.deadline is not None and not is_awaited:
            self.deadline.cancel()
            self.deadline = None


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
        listener.listen(_BACKLOG)
    except OSError as error:
        listener.close()
        raise UsageError(f"`host` {host} `port` {port}: {error.strerror}") from None
    if token == "new":
        token = secrets.token_urlsafe(24)
    return listener, Address(host, listener.getsockname()[1], token)


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
            access_log=False,
            server_header=False,
            date_header=False,
            backlog=_BACKLOG,
            timeout_keep_alive=KEPT_S,
            timeout_graceful_shutdown=30,  # seconds for requests in work
            h11_max_incomplete_event_size=16_384,  # bytes of headers
        )
    )


def run(app: ASGIApp, listener: socket.socket) -> None:
    """Serve until SIGINT or SIGTERM; the requests in work are finished first."""
    sys.setswitchinterval(0.001)  # threads that read give Python's lock to this one sooner
    # uvicorn raises the signal again at its end
    with contextlib.suppress(KeyboardInterrupt, SystemExit):
        make_server(app).run([listener])

"""Run an ASGI application with uvicorn; clients that are slow or silent are disconnected."""

import asyncio
import contextlib
import math
import socket
import sys
from typing import Any

import h11
import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from captcha_ocr.errors import UsageError

REQUEST_S = 15  # by then a request has to be here as a whole
KEPT_S = 5  # how long a connection may be idle between two requests
SHUTDOWN_S = 30  # how long requests may still take after SIGTERM
MAX_CONNECTIONS = 500  # below the 1,024 files that a process may usually open
SWITCH_S = 0.001
BACKLOG = 1024  # connections that wait to be accepted
MAX_HEADERS = 16_384  # bytes


class TimedProtocol(H11Protocol):
    """HTTP/1.1 with a time by which a request must have arrived, and with a limit of connections."""

    deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Accept a connection; if there are too many, close the one that has let us wait longest."""
        super().connection_made(transport)
        self.expect_request()
        if len(self.connections) > MAX_CONNECTIONS:
            waiting = (
                each
                for each in self.connections
                if isinstance(each, TimedProtocol) and each.deadline
            )
            min(waiting, key=TimedProtocol.due).transport.abort()

    def data_received(self, data: bytes) -> None:
        """Take a part of a request; the time runs until it is complete."""
        super().data_received(data)
        if self.conn.their_state in (h11.IDLE, h11.SEND_BODY):
            self.expect_request()
        else:
            self.forget_deadline()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        self.forget_deadline()
        super().connection_lost(exc)

    def due(self) -> float:
        """Return when the request must have arrived, on the clock of the event loop."""
        return math.inf if self.deadline is None else self.deadline.when()

    def expect_request(self) -> None:
        """Disconnect the client unless the request is here in time."""
        if self.deadline is None:
            self.deadline = self.loop.call_later(REQUEST_S, self.transport.abort)

    def forget_deadline(self) -> None:
        """Stop the time."""
        if self.deadline is not None:
            self.deadline.cancel()
            self.deadline = None


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that listens; UsageError if the address is in use or not of this machine."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio switches off Nagle's algorithm, which would delay every answer by 40 ms, only if the protocol is named.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        raise UsageError(f"--host {host} --port {port}: {error.strerror}") from None
    return listener


def server_of(app: ASGIApp) -> uvicorn.Server:
    """Return the server of an application."""
    settings: dict[str, Any] = {
        "http": TimedProtocol,
        "ws": "none",
        "loop": "asyncio",
        "lifespan": "on",
    }
    settings |= {
        "log_config": None,
        "access_log": False,
        "server_header": False,
        "date_header": False,
    }
    settings |= {"timeout_keep_alive": KEPT_S, "timeout_graceful_shutdown": SHUTDOWN_S}
    return uvicorn.Server(
        uvicorn.Config(app, h11_max_incomplete_event_size=MAX_HEADERS, backlog=BACKLOG, **settings)
    )


def run(app: ASGIApp, listener: socket.socket) -> None:
    """Serve until SIGINT or SIGTERM; the requests in work are finished first."""
    sys.setswitchinterval(SWITCH_S)  # threads that read give Python's lock to this one sooner
    with contextlib.suppress(
        KeyboardInterrupt, SystemExit
    ):  # uvicorn raises the signal again at its end
        server_of(app).run([listener])

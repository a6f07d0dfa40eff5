"""What every request passes: who may ask, how much it may send, headers of every answer, the log and the figures."""

import hmac
import json
import secrets
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TextIO

from starlette.applications import Starlette
from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import Message, Receive, Scope, Send

from captcha_ocr.web.metrics import Metrics

SECURITY_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
NO_BODY, MAX_DIGITS = (
    10_000,
    15,
)  # bytes that a request without a use for its body may have; digits of a length
OTHER = "other"  # the endpoint of a path that is not served: a client must not fill the memory with names


def error(status: int, message: str, **headers: str) -> JSONResponse:
    """Return an error as JSON: one sentence."""
    return JSONResponse({"error": message}, status, headers)


@dataclass
class Gate:
    """An ASGI application around another one.

    hosts: the values of the header Host that are answered; None for any. A page of another site whose name was made to
    mean this machine (DNS rebinding) is found by its Host alone.
    token: needed for the API and the figures, if there is one. open_paths: what needs none.
    limits: bytes that the body of a request to a path may have. log: gets a JSON line a request, never an image or a
    text.
    """

    app: Starlette
    hosts: frozenset[str] | None
    token: str | None
    open_paths: Collection[str]
    limits: Mapping[str, int]
    log: TextIO | None
    metrics: Metrics = field(default_factory=Metrics)

    @cached_property
    def endpoints(self) -> frozenset[str]:
        """The paths that the log and the figures name."""
        return frozenset(route.path for route in self.app.routes if isinstance(route, Route))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request; nothing of its body is read before it is let in."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        started, request_id, status = time.perf_counter(), secrets.token_hex(8), 500

        async def send_with_headers(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = MutableHeaders(scope=message)
                headers["X-Request-Id"] = request_id
                for name, value in SECURITY_HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        refusal = self.refusal(scope)
        self.metrics.in_flight += refusal is None
        try:
            await (refusal or self.app)(scope, receive, send_with_headers)
        finally:
            self.metrics.in_flight -= refusal is None
            self.finish(scope, request_id, status, time.perf_counter() - started)

    def refusal(self, scope: Scope) -> Response | None:
        """Return the answer to a request that is not let in."""
        headers, path = Headers(scope=scope), scope["path"]
        host = headers.get("host", "")
        if self.hosts is not None and host.lower() not in self.hosts:
            return error(421, f"this server does not answer for the host {host[:100]!r}")
        if self.token is not None and path not in self.open_paths and not self.knows_token(headers):
            return error(
                401, "send the token: Authorization: Bearer TOKEN", **{"WWW-Authenticate": "Bearer"}
            )
        length, limit = headers.get("content-length", "0"), self.limits.get(path, NO_BODY)
        if len(length) > MAX_DIGITS or (length.isdecimal() and int(length) > limit):
            return error(413, f"a request to {path[:100]} has at most {limit:,} bytes")
        return None

    def knows_token(self, headers: Headers) -> bool:
        """Tell whether a request carries the token."""
        return hmac.compare_digest(
            headers.get("authorization", "").encode(), f"Bearer {self.token}".encode()
        )

    def finish(self, scope: Scope, request_id: str, status: int, seconds: float) -> None:
        """Count a request, and write its line into the log."""
        endpoint = scope["path"] if scope["path"] in self.endpoints else OTHER
        self.metrics.observe(endpoint, status, seconds)
        if self.log is not None:
            line = {"id": request_id, "method": scope["method"], "path": endpoint, "status": status}
            try:
                self.log.write(json.dumps(line | {"ms": round(1000 * seconds, 1)}) + "\n")
                self.log.flush()
            except OSError:  # nobody reads it any more, or the disk is full: the service goes on
                self.log = None

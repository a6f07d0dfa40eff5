"""What every request passes: host, token, size; then the headers of its answer, log and figures."""

import hmac
import json
import secrets
import socket
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TextIO
from urllib.parse import quote

from starlette.applications import Starlette
from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from captcha_ocr.options.serving import LOOPBACK
from captcha_ocr.web.http import error_response
from captcha_ocr.web.prometheus import Metrics

_SECURITY_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
_MAX_UNUSED_BODY = 10_000  # bytes of a body for which a path has no use
_MAX_DIGITS = 15  # of the length of a body
# Where the path is not served: clients must not fill the memory with names.
_OTHER_ENDPOINT = "other"
_ANY_HOST = ("0.0.0.0", "::")
_HTTP_PORT = 80


@dataclass(frozen=True)
class Address:
    """Where a service is, and the token that it asks for, if it asks for one."""

    host: str
    port: int
    token: str | None = None

    @cached_property
    def hosts(self) -> frozenset[str] | None:
        """The values of the header Host that are answered; None for any.

        If a page of another site lets its name point to this machine (DNS rebinding), only its
        Host gives it away.
        """
        if self.host in _ANY_HOST:
            return None
        names = ["127.0.0.1", "localhost", "[::1]"]
        if self.host not in LOOPBACK:
            names = [self.host.lower(), f"[{self.host.lower()}]"]
        hosts = {f"{name}:{self.port}" for name in names}
        if self.port == _HTTP_PORT:  # which browsers leave out
            hosts.update(names)
        return frozenset(hosts)

    @property
    def page(self) -> str:
        """The address of the page; the token is in the part that no browser sends."""
        shown = self.host
        if self.host in _ANY_HOST:
            shown = socket.gethostname()
        elif ":" in self.host:
            shown = f"[{self.host}]"
        fragment = f"#token={quote(self.token)}" if self.token else ""
        return f"http://{shown}:{self.port}/{fragment}"


@dataclass
class Gate:
    """An ASGI application around another one, which is called by the hosts of an address.

    The API and the figures need the token of the address. open_paths: what needs none. limits:
    bytes that the body of a request to a path may have. log: gets a JSON line for each request,
    never an image or a text.
    """

    app: Starlette
    address: Address
    open_paths: Collection[str]
    limits: Mapping[str, int] = field(default_factory=dict)
    log: TextIO | None = None
    metrics: Metrics = field(default_factory=Metrics)

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
                for name, value in _SECURITY_HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        refusal = self._refuse(scope)
        self.metrics.in_flight += refusal is None
        try:
            await (refusal or self.app)(scope, receive, send_with_headers)
        finally:
            self.metrics.in_flight -= refusal is None
            self._record(scope, request_id, status, time.perf_counter() - started)

    def _refuse(self, scope: Scope) -> Response | None:
        """Return the answer to a request that is not let in; None for one that is."""
        headers, path = Headers(scope=scope), scope["path"]
        host, hosts, token = headers.get("host", ""), self.address.hosts, self.address.token
        if hosts is not None and host.lower() not in hosts:
            return error_response(421, f"this server does not answer for the host {host[:100]!r}")
        if token is not None and path not in self.open_paths:
            sent = headers.get("authorization", "").encode()
            if not hmac.compare_digest(sent, f"Bearer {token}".encode()):
                challenge = {"WWW-Authenticate": "Bearer"}
                return error_response(
                    401, "send the token: Authorization: Bearer TOKEN", **challenge
                )
        length, limit = headers.get("content-length", "0"), self.limits.get(path, _MAX_UNUSED_BODY)
        if len(length) > _MAX_DIGITS or (length.isdecimal() and int(length) > limit):
            return error_response(413, f"a request to {path[:100]} has at most {limit:,} bytes")
        return None

    def _record(self, scope: Scope, request_id: str, status: int, seconds: float) -> None:
        is_served = any(getattr(route, "path", None) == scope["path"] for route in self.app.routes)
        endpoint = scope["path"] if is_served else _OTHER_ENDPOINT
        self.metrics.observe(endpoint, status, seconds)
        if self.log is None:
            return
        line = {"id": request_id, "method": scope["method"], "path": endpoint, "status": status}
        try:
            self.log.write(json.dumps(line | {"ms": round(1000 * seconds, 1)}) + "\n")
            self.log.flush()
        except OSError:  # nobody reads it any more, or the disk is full: the service goes on
            self.log = None

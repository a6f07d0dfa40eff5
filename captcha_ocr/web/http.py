"""What the services of serve and label share: endpoints, pages, errors as JSON, and a gate.

Every request passes the gate: host, token, size; then the headers of its answer, log and figures.
"""

import hmac
import json
import re
import secrets
import socket
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

from starlette.applications import Starlette
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import FileResponse, JSONResponse, RedirectResponse, Response
from starlette.routing import Route
from starlette.types import Message, Receive, Scope, Send

from captcha_ocr.errors import UsageError, check
from captcha_ocr.web.prometheus import Metrics

JSON_TYPE = "application/json"
WriteLine = Callable[[str], object]
_PAGES = Path(__file__).parent / "pages"
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
_MAX_HEADERS = 16_384  # bytes
_MAX_ESCAPES = 500_000  # of JSON; as many as 15 MB of base64 may need
_MAX_QUOTES = 10_000
_MAX_BESIDE_TEXTS = 10_000  # bytes of JSON outside of its texts
# Without its end a text is all that follows, so that each byte is looked at once
_TEXT = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?', re.DOTALL)
_ANY_HOST = ("0.0.0.0", "::")
_LOOPBACK = ("127.0.0.1", "localhost", "::1")
_PORT = re.compile(r":\d*\Z")


@dataclass(frozen=True)
class Address:
    """Where a service is, and the token that it asks for, if it asks for one.

    shows_token: whether the address of the page has it, for people who do not know it yet.
    """

    host: str
    port: int
    token: str | None = None
    shows_token: bool = False

    @property
    def hosts(self) -> frozenset[str] | None:
        """The names in the header Host that are answered, at any port; None for any name.

        If a page of another site lets its name point to this machine (DNS rebinding), only its
        Host gives it away. The port may be one that is forwarded to ours.
        """
        if self.host in _ANY_HOST:
            return None
        if self.host in _LOOPBACK:
            return frozenset(("127.0.0.1", "localhost", "[::1]"))
        return frozenset((self.host.lower(), f"[{self.host.lower()}]"))

    @property
    def page(self) -> str:
        """The address of the page; the token is in the part that no browser sends."""
        shown = self.host
        if self.host in _ANY_HOST:
            shown = socket.gethostname()
        elif ":" in self.host:
            shown = f"[{self.host}]"
        fragment = f"#token={quote(str(self.token))}" if self.shows_token else ""
        return f"http://{shown}:{self.port}/{fragment}"


class Endpoint(Route):
    """A path, and the function that answers its requests.

    max_body: bytes that the body of a request may have. is_open: whether it needs no token.
    """

    def __init__(
        self,
        path: str,
        function: Callable[..., Any],
        method: str = "GET",
        max_body: int = _MAX_UNUSED_BODY,
        is_open: bool = False,
    ) -> None:
        super().__init__(path, function, methods=[method], max_body_size=max_body)
        self.max_body, self.is_open = max_body, is_open


def make_page(name: str) -> list[Endpoint]:
    """Return the endpoints of the files of a page, which need no token."""
    paths = {f"{name}.html": "/"}
    return [
        Endpoint(paths.get(file, f"/{file}"), FileResponse(_PAGES / file), is_open=True)
        for file in (f"{name}.html", f"{name}.js", "style.css", "icon.svg")
    ]


def parse_object(body: bytes) -> dict[str, Any]:
    """Return the JSON object in the body of a request; UsageError for anything else.

    It is refused first if it has so many values or escapes that to parse it would take seconds, or
    many times its size of memory.
    """
    check(body.count(b"\\") <= _MAX_ESCAPES, "the JSON has too many escapes")
    check(
        body.count(b'"') <= _MAX_QUOTES and len(_TEXT.sub(b"", body)) <= _MAX_BESIDE_TEXTS,
        "the JSON has too many values; an image is one text, base64",
    )
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        raise UsageError("the body is not JSON") from None
    check(isinstance(document, dict), "the body must be a JSON object")
    return dict(document)


class Gate:
    """The application of a service: its endpoints behind a gate, for those who know its address.

    statuses: for each type of error its own; the type that is nearest to an error decides. log:
    gets a JSON line for each request, never an image or a text. origins: of pages, beside its own,
    whose scripts may ask. root_path: what a proxy may leave before each path. is_for_page: whether
    only pages may POST, and no programs.
    """

    def __init__(
        self,
        endpoints: Sequence[Endpoint],
        statuses: Mapping[type[Exception], int],
        address: Address,
        log: WriteLine | None = None,
        metrics: Metrics | None = None,
        origins: Collection[str] = (),
        root_path: str = "",
        is_for_page: bool = False,
    ) -> None:
        self.endpoints = {endpoint.path: endpoint for endpoint in endpoints}
        self.hosts, self.token = address.hosts, address.token
        self.log, self.metrics = log, metrics or Metrics()
        self.origins, self.root_path, self.is_for_page = origins, root_path, is_for_page
        # Nobody gets the answer to a client that went away: the log and the figures count it.
        handlers: dict[Any, Any] = {
            kind: partial(_answer_error, status)
            for kind, status in {HTTPException: 500, ClientDisconnect: 400, **statuses}.items()
        }
        handlers[Exception] = _answer_fault
        self.app = Starlette(routes=endpoints, exception_handlers=handlers)
        self.app.router.redirect_slashes = False  # it would name the host behind a proxy

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request; nothing of its body is read before it is let in."""
        started, request_id, status = time.perf_counter(), secrets.token_hex(8), 500
        if scope["path"].startswith(f"{self.root_path}/"):
            scope = {**scope, "path": scope["path"].removeprefix(self.root_path)}

        async def send_with_headers(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                MutableHeaders(scope=message).update(
                    {"X-Request-Id": request_id, **_SECURITY_HEADERS}
                )
            await send(message)

        refusal = self._refuse(scope)
        if scope["path"] == self.root_path:
            refusal = RedirectResponse(f"{self.root_path}/")
        self.metrics.in_flight += refusal is None
        try:
            await (refusal or self.app)(scope, receive, send_with_headers)
        finally:
            self.metrics.in_flight -= refusal is None
            self._record(scope, request_id, status, time.perf_counter() - started)

    def _refuse(self, scope: Scope) -> Response | None:
        """Return the answer to a request that is not let in; None for one that is."""
        headers, path = Headers(scope=scope), scope["path"]
        if sum(len(name) + len(value) + 4 for name, value in scope["headers"]) > _MAX_HEADERS:
            return _describe_error(431, f"the headers have at most {_MAX_HEADERS:,} bytes")
        host = headers.get("host", "")
        if self.hosts is not None and _PORT.sub("", host.lower()) not in self.hosts:
            return _describe_error(421, f"this server does not answer for the host {host[:100]!r}")
        if scope["method"] == "POST" and self._is_foreign(headers):
            origin = headers.get("origin", "another site")[:100]
            return _describe_error(403, f"this server was not started to answer pages of {origin}")
        endpoint = self.endpoints.get(path)
        if self.token is not None and (endpoint is None or not endpoint.is_open):
            scheme, _, sent = headers.get("authorization", "").partition(" ")
            is_right = hmac.compare_digest(sent.strip(" ").encode(), self.token.encode())
            if scheme.lower() != "bearer" or not is_right:
                return _describe_error(
                    401,
                    "send the token: Authorization: Bearer TOKEN",
                    {"WWW-Authenticate": "Bearer"},
                )
        limit = _MAX_UNUSED_BODY if endpoint is None else endpoint.max_body
        if int(headers.get("content-length", "0")) > limit:  # h11 admits digits alone
            return _describe_error(413, f"a request to {path[:100]} has at most {limit:,} bytes")
        return None

    def _is_foreign(self, headers: Headers) -> bool:
        """Tell whether a page sends the request that is neither ours nor of an origin admitted.

        Programs send none of these headers, and a script cannot change them. Behind a proxy the
        browser alone knows whether both have one origin.
        """
        site, origin = headers.get("sec-fetch-site", "none"), headers.get("origin")
        if origin is None and site == "none":
            return self.is_for_page
        if origin in self.origins or site == "same-origin":
            return False
        return site != "none" or str(origin).partition("://")[2] != headers.get("host")

    def _record(self, scope: Scope, request_id: str, status: int, seconds: float) -> None:
        # Clients must not fill the memory with names.
        path = scope["path"] if scope["path"] in self.endpoints else "other"
        self.metrics.observe(path, status, seconds)
        if self.log is None:
            return
        line = {"id": request_id, "method": scope["method"], "path": path, "status": status}
        self.log(json.dumps(line | {"ms": round(1000 * seconds, 1)}) + "\n")


def _describe_error(
    status: int, message: str, headers: Mapping[str, str] | None = None
) -> JSONResponse:
    return JSONResponse({"error": message}, status, headers)


async def _answer_fault(_: Request, __: Exception) -> Response:
    return _describe_error(500, "the service failed; what it prints says why")


async def _answer_error(status: int, _: Request, error: Exception) -> Response:
    if isinstance(error, HTTPException):
        return _describe_error(error.status_code, error.detail, error.headers)
    if isinstance(error, OSError):
        return _describe_error(status, f"{error.filename}: {error.strerror}")
    return _describe_error(status, str(error))

"""What the services of serve and label share: pages, JSON in requests, errors as JSON."""

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import FileResponse, JSONResponse, Response
from starlette.routing import Route

from captcha_ocr.errors import UsageError, check

JSON_TYPE = "application/json"
_PAGES = Path(__file__).parent / "pages"

ErrorHandler = Callable[[Request, Any], Awaitable[Response]]


def error_response(status: int, message: str, **headers: str) -> JSONResponse:
    """Return an error as JSON: one sentence."""
    return JSONResponse({"error": message}, status, headers)


def make_application(routes: Sequence[Route], statuses: Mapping[type[Exception], int]) -> Starlette:
    """Return an application that answers errors as JSON; statuses: for each type of error its own.

    The type that is nearest to an error decides.
    """
    handlers: dict[Any, ErrorHandler] = {
        kind: _answer_with(status) for kind, status in statuses.items()
    }
    handlers[HTTPException] = _answer_http_error
    # Nobody gets this answer: the log and the figures count the request.
    handlers[ClientDisconnect] = _answer_with(400)
    return Starlette(routes=routes, exception_handlers=handlers)


def _answer_with(status: int) -> ErrorHandler:
    async def answer(_: Request, error: Exception) -> Response:
        if isinstance(error, OSError):
            return error_response(status, f"{error.filename}: {error.strerror}")
        return error_response(status, str(error))

    return answer


async def _answer_http_error(_: Request, error: HTTPException) -> Response:
    return error_response(error.status_code, error.detail, **(error.headers or {}))


def make_page_routes(name: str) -> list[Route]:
    """Return the routes of the files of a page."""
    files = (f"{name}.js", "style.css", "icon.svg")
    return [
        _make_file_route("/", f"{name}.html"),
        *(_make_file_route(f"/{file}", file) for file in files),
    ]


def _make_file_route(path: str, file: str) -> Route:
    async def send_file(_: Request) -> Response:
        return FileResponse(_PAGES / file)

    return Route(path, send_file)


def content_type(request: Request) -> str:
    """Return the content type of a request, without parameters; empty if it has none."""
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


def parse_object(body: bytes) -> dict[str, Any]:
    """Return the JSON object in the body of a request; UsageError for anything else."""
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        raise UsageError("the body is not JSON") from None
    check(isinstance(document, dict), "the body must be a JSON object")
    return dict(document)

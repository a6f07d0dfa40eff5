"""What the services of serve and label share: pages, JSON in requests, errors as JSON."""

import json
from collections.abc import Mapping, Sequence
from functools import partial
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


def error_response(status: int, message: str, **headers: str) -> JSONResponse:
    """Return an error as JSON: one sentence."""
    return JSONResponse({"error": message}, status, headers)


def make_application(routes: Sequence[Route], statuses: Mapping[type[Exception], int]) -> Starlette:
    """Return an application that answers errors as JSON; statuses: for each type of error its own.

    The type that is nearest to an error decides.
    """
    # Nobody gets the answer to a client that went away: the log and the figures count the request.
    kinds = {HTTPException: 500, ClientDisconnect: 400, **statuses}
    handlers: dict[Any, Any] = {
        kind: partial(_answer_error, status) for kind, status in kinds.items()
    }
    return Starlette(routes=routes, exception_handlers=handlers)


async def _answer_error(status: int, _: Request, error: Exception) -> Response:
    if isinstance(error, HTTPException):
        return error_response(error.status_code, error.detail, **(error.headers or {}))
    if isinstance(error, OSError):
        return error_response(status, f"{error.filename}: {error.strerror}")
    return error_response(status, str(error))


def make_page_routes(name: str) -> list[Route]:
    """Return the routes of the files of a page."""
    paths = {"/": f"{name}.html"}
    paths |= {f"/{file}": file for file in (f"{name}.js", "style.css", "icon.svg")}
    return [Route(path, partial(_send_file, _PAGES / file)) for path, file in paths.items()]


async def _send_file(path: Path, _: Request) -> Response:
    return FileResponse(path)


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

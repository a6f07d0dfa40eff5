"""The service behind the page of `captcha-ocr label`."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from captcha_ocr.data.images import encode_png, open_image
from captcha_ocr.errors import CaptchaOcrError, Command, ImageError, UsageError
from captcha_ocr.web.gate import Address, Gate
from captcha_ocr.web.http import (
    JSON_TYPE,
    content_type,
    make_application,
    make_page_routes,
    parse_object,
)
from captcha_ocr.web.label.session import LabelSession
from captcha_ocr.web.label.store import Conflict

_MAX_BODY = 10_000  # bytes
_STATUSES: dict[type[Exception], int] = {
    Conflict: 409,  # the page shows the image again
    UsageError: 422,
    ImageError: 422,
    CaptchaOcrError: 507,  # the disk is full: the page keeps the text
    OSError: 507,
}


@dataclass(frozen=True)
class _LabelService:
    """The endpoints; origins: from which pages labels are accepted."""

    session: LabelSession
    origins: frozenset[str]
    word_command: Callable[[Command], str]

    def make_app(self, page: list[Route]) -> Starlette:
        """Return the application, with the routes of its page."""
        routes = [
            self._make_post_route("/v1/label", self._label),
            self._make_post_route("/v1/undo", self._undo),
            Route("/v1/next", self._show_next),
            Route("/v1/images/{number:int}", self._send_image),
            Route("/v1/images/{number:int}/view", self._show_image),
            Route("/v1/progress", self._show_progress),
            *page,
        ]
        return make_application(routes, _STATUSES)

    def _make_post_route(
        self, path: str, function: Callable[[dict[str, Any]], dict[str, Any]]
    ) -> Route:
        async def endpoint(request: Request) -> Response:
            self._check_origin(request)
            document = parse_object(await request.body())
            return JSONResponse(await run_in_threadpool(function, document))

        return Route(path, endpoint, methods=["POST"], max_body_size=_MAX_BODY)

    def _check_origin(self, request: Request) -> None:
        """Refuse what another page sends: HTTPException 403."""
        site = request.headers.get("sec-fetch-site", "same-origin")
        if request.headers.get("origin") not in self.origins or site != "same-origin":
            raise HTTPException(403, "labels are accepted from this server's own page alone")
        if content_type(request) != JSON_TYPE:
            raise HTTPException(415, "send JSON")

    def _label(self, document: dict[str, Any]) -> dict[str, Any]:
        """Write a label, or skip an image with an empty one; return the next image."""
        number, text, version = map(document.get, ("number", "text", "version"))
        if type(number) is not int or not isinstance(text, str) or type(version) is not int:
            raise UsageError("a label needs number, text and version")
        entry = self.session.save(number, text, version)
        saved = {"file": entry.file, "text": entry.text, "version": entry.version}
        return {"saved": saved, **self._view_next()}

    def _undo(self, _: dict[str, Any]) -> dict[str, Any]:
        number = self.session.store.undo().number
        return {"image": self.session.view(number), "progress": self._progress()}

    def _view_next(self) -> dict[str, Any]:
        number = self.session.next_number()
        image = None if number is None else self.session.view(number)
        return {"image": image, "progress": self._progress()}

    def _progress(self) -> dict[str, Any]:
        commands = list(map(self.word_command, self.session.next_commands()))
        return self.session.progress() | {"commands": commands}

    async def _show_next(self, _: Request) -> Response:
        return JSONResponse(await run_in_threadpool(self._view_next))

    async def _show_image(self, request: Request) -> Response:
        number = request.path_params["number"]
        return JSONResponse(await run_in_threadpool(self.session.view, number))

    async def _send_image(self, request: Request) -> Response:
        """Send the file of an image: by its number, never by a path."""
        entry = self.session.store.entry(request.path_params["number"])
        data = await run_in_threadpool(_read_as_png, self.session.store.folder / entry.file)
        return Response(data, media_type="image/png")

    async def _show_progress(self, _: Request) -> Response:
        return JSONResponse(await run_in_threadpool(self._progress))


def _read_as_png(path: Path) -> bytes:
    # An image as the model gets it: a browser shows no TIFF, and moves an animation.
    return encode_png(open_image(path))


def guard_labelling(
    session: LabelSession, address: Address, word_command: Callable[[Command], str]
) -> Gate:
    """Return the application with the gate around it.

    Its pages come without the token, which is in their address. word_command: returns a command as
    the page shows it.
    """
    origins = frozenset(f"http://{host}" for host in address.hosts or ())
    page = make_page_routes("label")
    app = _LabelService(session, origins, word_command).make_app(page)
    return Gate(app, address, [route.path for route in page])

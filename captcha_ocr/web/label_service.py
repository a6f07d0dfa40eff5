"""The service behind the page of `captcha-ocr label`."""

import io
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TextIO

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from captcha_ocr.data.images import open_image
from captcha_ocr.errors import CaptchaOcrError, ImageError, UsageError, check
from captcha_ocr.web.gate import Gate, error
from captcha_ocr.web.label_session import LabelSession
from captcha_ocr.web.label_store import Conflict, Entry
from captcha_ocr.web.reading_service import (
    object_in,
    on_disconnect,
    on_http_error,
    on_our_error,
    page_routes,
)

MAX_BODY = 10_000  # bytes


@dataclass(frozen=True)
class LabelService:
    """The endpoints; origins: from which pages labels are accepted."""

    session: LabelSession
    origins: frozenset[str]
    page: list[Route] = field(default_factory=partial(page_routes, "label"))

    def app(self) -> Starlette:
        """Return the application."""

        def post(path: str, function: Callable[[dict[str, Any]], dict[str, Any]]) -> Route:
            async def endpoint(request: Request) -> Response:
                self.check_origin(request)
                return JSONResponse(
                    await run_in_threadpool(function, object_in(await request.body()))
                )

            return Route(path, endpoint, methods=["POST"], max_body_size=MAX_BODY)

        routes = [
            post("/v1/label", self.label),
            post("/v1/undo", self.undo),
            Route("/v1/next", self.next),
            Route("/v1/images/{number:int}", self.image),
            Route("/v1/images/{number:int}/view", self.view),
            Route("/v1/progress", self.progress),
            *self.page,
        ]
        handlers: dict[Any, Any] = {
            HTTPException: on_http_error,
            Conflict: on_conflict,
            UsageError: on_our_error,
            ImageError: on_our_error,
            CaptchaOcrError: on_failure,
            OSError: on_failure,
            ClientDisconnect: on_disconnect,
        }
        return Starlette(routes=routes, exception_handlers=handlers)

    def check_origin(self, request: Request) -> None:
        """Refuse what another page sends: HTTPException 403."""
        site = request.headers.get("sec-fetch-site", "same-origin")
        if request.headers.get("origin") not in self.origins or site != "same-origin":
            raise HTTPException(403, "labels are accepted from this server's own page alone")
        if request.headers.get("content-type", "").partition(";")[0] != "application/json":
            raise HTTPException(415, "send JSON")

    def label(self, document: dict[str, Any]) -> dict[str, Any]:
        """Write a label, or skip an image with an empty one; return the next image."""
        number, text, version = (document.get(name) for name in ("number", "text", "version"))
        fits = type(number) is int and isinstance(text, str) and type(version) is int
        check(fits, "a label needs number, text and version")
        saved = self.session.save(number, text, version)  # type: ignore[arg-type]
        return {"saved": described(saved), **self.following()}

    def undo(self, _: dict[str, Any]) -> dict[str, Any]:
        """Take the last label back, and return its image."""
        entry = self.session.store.undo()
        number = self.session.store.number_of[entry.file]
        return {"image": self.session.view(number), "progress": self.session.progress()}

    def following(self) -> dict[str, Any]:
        """Return the next image, None at the end, and the progress."""
        number = self.session.next_number()
        image = None if number is None else self.session.view(number)
        return {"image": image, "progress": self.session.progress()}

    async def next(self, _: Request) -> Response:
        """Return the image to label now."""
        return JSONResponse(await run_in_threadpool(self.following))

    async def view(self, request: Request) -> Response:
        """Return an image that was labelled before, or is to be labelled later."""
        return JSONResponse(
            await run_in_threadpool(self.session.view, request.path_params["number"])
        )

    async def image(self, request: Request) -> Response:
        """Return the file of an image: by its number, never by a path."""
        entry = self.session.store.entry(request.path_params["number"])
        return Response(
            await run_in_threadpool(as_png, self.session.store.folder / entry.file),
            media_type="image/png",
        )

    async def progress(self, _: Request) -> Response:
        """Return how far it is."""
        return JSONResponse(await run_in_threadpool(self.session.progress))


def as_png(path: Path) -> bytes:
    """Return an image as the model gets it, as PNG: a browser shows no TIFF, and another frame of an animation."""
    stream = io.BytesIO()
    open_image(path).save(stream, "PNG")
    return stream.getvalue()


def described(entry: Entry) -> dict[str, Any]:
    """Return an entry as JSON types."""
    return {"file": entry.file, "text": entry.text, "version": entry.version}


async def on_conflict(_: Request, reason: Conflict) -> Response:
    """Answer 409: the page shows the image again."""
    return error(409, str(reason))


async def on_failure(_: Request, reason: CaptchaOcrError | OSError) -> Response:
    """Answer 507 where the disk is full, or a file cannot be read or written: the page keeps the text."""
    return error(
        507, f"{reason.filename}: {reason.strerror}" if isinstance(reason, OSError) else str(reason)
    )


def gated(session: LabelSession, hosts: frozenset[str], token: str, log: TextIO | None) -> Gate:
    """Return the application with the gate around it; its pages come without the token, which is in their address."""
    service = LabelService(session, frozenset(f"http://{host}" for host in hosts))
    return Gate(service.app(), hosts, token, [route.path for route in service.page], {}, log)

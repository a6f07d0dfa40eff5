"""The service behind the page of `captcha-ocr label`."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from captcha_ocr.data.images import encode_png, flatten, open_image
from captcha_ocr.errors import CaptchaOcrError, Command, ImageError, UsageError, check
from captcha_ocr.web.http import Address, Endpoint, Gate, make_page, parse_object
from captcha_ocr.web.label.session import LabelSession
from captcha_ocr.web.label.store import Conflict

_STATUSES: dict[type[Exception], int] = {
    Conflict: 409,  # the page shows the image again
    UsageError: 422,
    ImageError: 422,
    CaptchaOcrError: 507,  # the disk is full: the page keeps the text
    OSError: 507,
}


@dataclass(frozen=True)
class LabelService:
    """Answers the page of a session. word_command: returns a command as the page shows it."""

    session: LabelSession
    word_command: Callable[[Command], str]

    def guard(self, address: Address) -> Gate:
        """Return the application with the gate around it.

        Its pages come without the token, which is in their address.
        """
        # Starlette calls what is no coroutine in a thread.
        session = self.session
        endpoints = [
            self._make_post_endpoint("/v1/label", self._label),
            self._make_post_endpoint("/v1/undo", lambda _: self._view(session.store.undo().number)),
            Endpoint("/v1/next", lambda _: JSONResponse(self._view(session.next_number()))),
            Endpoint("/v1/images/{number}", self._send_image),
            Endpoint(
                "/v1/images/{number}/view",
                lambda request: JSONResponse(session.view(_number_in(request))),
            ),
            Endpoint("/v1/progress", lambda _: JSONResponse(self._progress())),
            *make_page("label"),
        ]
        return Gate(endpoints, _STATUSES, address, is_for_page=True)

    def _make_post_endpoint(
        self, path: str, function: Callable[[dict[str, Any]], dict[str, Any]]
    ) -> Endpoint:
        async def answer(request: Request) -> Response:
            document = parse_object(await request.body())
            return JSONResponse(await run_in_threadpool(function, document))

        return Endpoint(path, answer, "POST")

    def _label(self, document: dict[str, Any]) -> dict[str, Any]:
        number, text, version = map(document.get, ("number", "text", "version"))
        if type(number) is not int or not isinstance(text, str) or type(version) is not int:
            raise UsageError("a label needs number, text and version")
        entry = self.session.save(number, text, version)
        saved = {"file": entry.file, "text": entry.text, "version": entry.version}
        return {"saved": saved, **self._view(self.session.next_number())}

    def _view(self, number: int | None) -> dict[str, Any]:
        image = None if number is None else self.session.view(number)
        return {"image": image, "progress": self._progress()}

    def _progress(self) -> dict[str, Any]:
        progress = self.session.progress()
        return {**progress, "commands": list(map(self.word_command, progress["commands"]))}

    def _send_image(self, request: Request) -> Response:
        """Send an image as the model gets it: by its number, never by a path.

        A browser shows no TIFF, and moves an animation; a PNG holds no CMYK.
        """
        store = self.session.store
        image = open_image(store.folder / store.entry(_number_in(request)).file)
        return Response(encode_png(flatten(image, "RGB")), media_type="image/png")


def _number_in(request: Request) -> int:
    """Return the number of an image in a path; UsageError for other words."""
    number = request.path_params["number"]
    check(re.fullmatch("[0-9]{1,9}", number) is not None, "an image has a number")
    return int(number)

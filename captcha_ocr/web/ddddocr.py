"""The endpoints and answers of services of ddddocr, so that their clients change an address alone.

There are three: of the package itself (`python -m ddddocr api`), of ddddocr-fastapi, and of
ocr_api_server. There, an image that cannot be read gets status 200 and a sentence.
"""

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from itertools import product
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response

from captcha_ocr.errors import CaptchaOcrError, check
from captcha_ocr.version import __version__
from captcha_ocr.web.bodies import MAX_BODY, read_fields, take_image
from captcha_ocr.web.http import JSON_TYPE, Endpoint

# What the numbers 0 to 6 mean where characters are asked for
_RANGES = ("0-9", "a-z", "A-Z", "a-zA-Z", "a-z0-9", "A-Z0-9", "a-zA-Z0-9")
_STATUS = {"service_status": "running", "loaded_models": ["ocr"], "enabled_features": ["ocr"]}
# What may be asked of /initialize, /switch-model and /toggle-feature: that there is one reader
_MET: Mapping[str, tuple[object, ...]] = {
    "ocr": (True,),
    "det": (False,),
    "import_onnx_path": ("", None),
    "charsets_path": ("", None),
    "model_type": ("ocr",),
    "feature": ("ocr",),
    "enabled": (True,),
}
# Of an image, among these characters, in this ink
Reader = Callable[[bytes, str | None, str | None], Awaitable[str]]
_Wording = Callable[[str, str], Response]  # of a text, and of what is wrong if anything is


def make_ddddocr_endpoints(read: Reader) -> list[Endpoint]:
    """Return the endpoints; their images are read with `read`."""
    wordings = {"": _word_text, "/text": _word_text, "/json": _word_result}
    return [
        Endpoint("/ocr", partial(_answer, read, None), "POST", MAX_BODY),
        *(
            Endpoint(f"/ocr/{sent}{path}", partial(_answer, read, wordings[path]), "POST", MAX_BODY)
            for sent, path in product(("file", "b64"), wordings)
        ),
        *(
            Endpoint(path, _prepare, "POST")
            for path in ("/initialize", "/switch-model", "/toggle-feature")
        ),
        Endpoint("/status", JSONResponse({**_STATUS, "version": __version__})),
        Endpoint("/health", JSONResponse({"status": "healthy"}), is_open=True),
        Endpoint("/ping", PlainTextResponse("pong"), is_open=True),
    ]


async def _prepare(request: Request) -> Response:
    """Answer that the reader is ready; a wish for another one fails."""
    fields = await read_fields(request)
    unmet = [name for name, met in _MET.items() if fields.get(name, met[0]) not in met]
    if unmet:
        return _word_success("", f"{unmet[0]} cannot be as asked: this service reads texts alone")
    return JSONResponse({"success": True, "message": "Success", "data": _STATUS})


async def _answer(read: Reader, wording: _Wording | None, request: Request) -> Response:
    """Answer as `wording` says; without it, as the package does to JSON, ddddocr-fastapi to a
    form.
    """
    if wording is None:
        kind = request.headers.get("content-type", "").lower()
        wording = _word_success if kind.startswith(JSON_TYPE) else _word_code
    try:
        fields = await read_fields(request)
        wants_all = str(fields.get("probability", "")).lower() in ("true", "1")
        check(not wants_all, "probabilities are not given here, but by /v1/read")
        text = await read(take_image(fields), _find_charset(fields), _find_ink(fields))
    except CaptchaOcrError as error:
        return wording("", str(error))
    return wording(text, "")


def _find_charset(fields: Mapping[str, object]) -> str | None:
    """Return the characters that the fields ask for: as a text, a list, or a number from 0 to 6."""
    wanted = fields.get("charset_range", fields.get("charsets"))
    if isinstance(wanted, list):
        wanted = "".join(sorted(map(str, wanted), key="-".__ne__))  # a minus first is no range
    if not isinstance(wanted, int):
        return str(wanted) if wanted else None
    check(0 <= wanted < len(_RANGES), f"charset_range must be 0 to {len(_RANGES) - 1}, or a text")
    return _RANGES[wanted]


def _find_ink(fields: Mapping[str, object]) -> str | None:
    """Return the colours that the fields ask for."""
    check(not fields.get("color_filter_custom_ranges"), "ranges of colours are not taken here")
    colours: Any = fields.get("color_filter_colors") or []
    is_list = isinstance(colours, list) and all(isinstance(colour, str) for colour in colours)
    check(is_list, "color_filter_colors must be a list of names")
    return ",".join(colours) or None


def _word_success(text: str, problem: str) -> Response:
    data = None if problem else {"text": text, "probability": None}
    return JSONResponse({"success": not problem, "message": problem or "Success", "data": data})


def _word_code(text: str, problem: str) -> Response:
    code, data = (500, None) if problem else (200, text)
    return JSONResponse({"code": code, "message": problem or "Success", "data": data})


def _word_result(text: str, problem: str) -> Response:
    return JSONResponse({"status": 200, "result": text, "msg": problem})


def _word_text(text: str, _: str) -> Response:
    return PlainTextResponse(text)

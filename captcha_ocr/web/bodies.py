"""What the body of a request for a reading may be: an image, its base64, JSON, or a form."""

import re
import threading
from collections.abc import Mapping
from urllib.parse import parse_qsl

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request

from captcha_ocr.data.sanitize import START, is_image
from captcha_ocr.errors import UsageError, check
from captcha_ocr.web.http import JSON_TYPE, content_type, parse_object

MAX_BODY = 3_000_000  # bytes of a request for one image
_FORM_TYPE = "application/x-www-form-urlencoded"
_MAX_FIELDS = 100
_IMAGE_FIELDS = ("image", "file")
_SHORTEST = 60  # characters of base64; no image file is shorter
_BOUNDARY = re.compile(r'; *boundary="?([^";]+)', re.IGNORECASE)
_NAME = re.compile(rb'\r\ncontent-disposition:[^\r\n]*?; *name="?([^";\r\n]*)', re.IGNORECASE)
_PARSING = threading.Semaphore(2)  # bodies at once: a large one takes a while, and memory


async def read_fields(request: Request) -> Mapping[str, object]:
    """Return the fields of JSON or of a form; the image in any other body is the field image.

    UsageError if the body is malformed.
    A body that begins like an image is one, whatever its type says: curl calls each a form.
    """
    body = await request.body()
    if is_image(body[:START]):
        return {"image": body}
    kind = request.headers.get("content-type", "")
    return await run_in_threadpool(parse_fields, body, kind)


def parse_fields(body: bytes, kind: str) -> Mapping[str, object]:
    """Return the fields of a body of a content type that does not begin like an image; errors as
    `read_fields`.
    """
    with _PARSING:
        bare = content_type(kind)
        if bare.startswith("multipart/"):
            return _parse_parts(body, kind)
        if bare == JSON_TYPE or body[:1] == b"{":
            return parse_object(body)
        if bare == _FORM_TYPE:
            check(body.count(b"&") < _MAX_FIELDS, f"a form has at most {_MAX_FIELDS} fields")
            check(8 * body.count(b"%") <= len(body), "the form escapes more than base64 needs")
            fields = dict(parse_qsl(body.decode("latin-1")))
            if any(name in fields for name in _IMAGE_FIELDS):
                return fields
        return {"image": body}


def image_among(fields: Mapping[str, object]) -> bytes:
    """Return the image file, or its base64, among the fields of a body; UsageError without."""
    given = [fields[name] for name in _IMAGE_FIELDS if name in fields]
    check(bool(given), "the image must be in a field image or file")
    return as_bytes(next(filter(None, given), given[0]))


def as_bytes(image: object) -> bytes:
    """Return an image, or its base64, as bytes: a text is never a path of this machine."""
    if isinstance(image, bytes):
        return image
    is_text = isinstance(image, str) and len(image) >= _SHORTEST
    check(is_text, "image must be base64 of an image, or a data: URI")
    return str(image).encode("ascii", "replace")


def _parse_parts(body: bytes, kind: str) -> dict[str, object]:
    """Return the parts of a form in multipart (RFC 7578), of which the last with a name counts."""
    boundary = _BOUNDARY.search(kind)
    if boundary is None:
        raise UsageError("the form is malformed: its content type has no boundary")
    line = f"\r\n--{boundary[1].strip()}".encode("latin-1")
    _, *parts = (b"\r\n" + body).split(line, _MAX_FIELDS + 2)
    check(len(parts) <= _MAX_FIELDS + 1, f"a form has at most {_MAX_FIELDS} fields")
    is_whole = bool(parts) and parts[-1].startswith(b"--")
    check(is_whole, "the form is malformed: its last line is missing")
    fields: dict[str, object] = {}
    for part in parts[:-1]:
        head, _, content = part.partition(b"\r\n\r\n")
        name, is_file = _NAME.search(head), b"filename" in head
        if name is not None:
            text = content.decode("utf-8", "replace")
            fields[name[1].decode("latin-1")] = content if is_file else text
    return fields

"""What the body of a request for a reading may be: an image, its base64, JSON, or a form."""

import binascii
import re
import threading
from collections.abc import Callable, Iterator, Sequence
from email import message_from_bytes
from email.utils import collapse_rfc2231_value
from urllib.parse import parse_qsl

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request

from captcha_ocr.data.sanitize import START, is_image
from captcha_ocr.errors import UsageError, check
from captcha_ocr.web.http import JSON_TYPE, parse_object

MAX_BODY = 3_000_000  # bytes of a request for one image
_FORM_TYPE = "application/x-www-form-urlencoded"
_MAX_FIELDS = 100
_IMAGE_FIELDS = ("image", "file")
_SHORTEST = 60  # characters of base64; no image file is shorter
_DECODERS: dict[str, Callable[[bytes], bytes]] = {  # of the content of a part
    "base64": binascii.a2b_base64,
    "quoted-printable": binascii.a2b_qp,
}
_MAX_HEAD = 1_500  # bytes of the headers of a part; to parse more takes long
_FIRST_NAME = re.compile(rb"[\w.%\[\]-]{1,40}=")  # of a form; base64 or markup begins otherwise
_PARSING = threading.Semaphore(2)  # bodies at once: a large one takes a while, and memory


async def read_fields(request: Request) -> dict[str, object]:
    """Return the fields of JSON or of a form; the image in any other body is the field image.

    UsageError if the body is malformed.
    A body that begins like an image is one, whatever its type says: curl calls each a form.
    """
    body = await request.body()
    if is_image(body[:START]):
        return {"image": body}
    kind = request.headers.get("content-type", "")
    return await run_in_threadpool(parse_fields, body, kind)


def parse_fields(body: bytes, kind: str) -> dict[str, object]:
    """Return the fields of a body of a content type that does not begin like an image; errors as
    `read_fields`.
    """
    with _PARSING:
        bare = kind.lower()
        if bare.startswith("multipart/"):
            try:
                return unite([*_parse_parts(body, kind)])
            except (TypeError, ValueError):  # of oddly encoded names and contents
                raise UsageError("the form is malformed: a field cannot be decoded") from None
        if bare.startswith(JSON_TYPE) or body[:1] == b"{":
            return parse_object(body)
        if bare.startswith(_FORM_TYPE) and _FIRST_NAME.match(body):
            check(body.count(b"&") < _MAX_FIELDS, f"a form has at most {_MAX_FIELDS} fields")
            check(8 * body.count(b"%") <= len(body), "the form escapes more than base64 needs")
            return unite(parse_qsl(body.decode("utf-8", "replace")))
        return {"image": body}


def unite(pairs: Sequence[tuple[str, object]]) -> dict[str, object]:
    """Return names and values as a dictionary; UsageError if a name is there twice."""
    fields = dict(pairs)
    check(len(fields) == len(pairs), "a field or a parameter is given twice")
    return fields


def take_image(fields: dict[str, object]) -> bytes:
    """Take the image file, or its base64, out of the fields of a body; UsageError without."""
    given = [fields.pop(name) for name in _IMAGE_FIELDS if name in fields]
    check(len(given) == 1, "the image must be in one field, image or file")
    return as_bytes(given[0])


def as_bytes(image: object) -> bytes:
    """Return an image, or its base64, as bytes: a text is never a path of this machine."""
    if isinstance(image, bytes):
        return image
    is_text = isinstance(image, str) and len(image) >= _SHORTEST
    check(is_text, "image must be base64 of an image, or a data: URI")
    return str(image).encode("ascii", "replace")


def _parse_parts(body: bytes, kind: str) -> Iterator[tuple[str, object]]:
    """Yield the names and the contents of the parts of a form in multipart (RFC 7578)."""
    form = message_from_bytes(f"Content-Type: {kind}\r\n\r\n".encode("latin-1"))
    boundary = form.get_boundary("")
    check(bool(boundary), "the form is malformed: its content type has no boundary")
    # Python's email package writes \n alone
    newline = b"\r\n" if body.partition(b"\n")[0].endswith(b"\r") else b"\n"
    line = newline + f"--{boundary}".encode("latin-1", "replace")
    _, *parts = (newline + body).split(line, _MAX_FIELDS + 2)
    check(len(parts) <= _MAX_FIELDS + 1, f"a form has at most {_MAX_FIELDS} fields")
    check(
        bool(parts) and parts[-1].startswith(b"--"),
        "the form is malformed: its last line is missing",
    )
    for part in parts[:-1]:
        head, _, content = part.partition(2 * newline)
        check(len(head) <= _MAX_HEAD, f"the headers of a field have at most {_MAX_HEAD:,} bytes")
        message = message_from_bytes(head.strip())
        options = dict(message.get_params([], "content-disposition"))
        name = collapse_rfc2231_value(options.get("name", ""))
        encoding = str(message["content-transfer-encoding"]).strip().lower()
        content = _DECODERS.get(encoding, bytes)(content)
        is_file = "filename" in options or is_image(content[:START])
        if name and content:  # a form of a page has empty fields, too
            yield name, content if is_file else content.decode("utf-8", "replace")

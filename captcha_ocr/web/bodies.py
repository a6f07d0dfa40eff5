"""What the body of a request for a reading may be: an image, its base64, JSON, or a form."""

import logging
import threading
from collections.abc import Mapping
from urllib.parse import parse_qsl

from python_multipart import create_form_parser
from python_multipart.exceptions import FormParserError
from python_multipart.multipart import Field, File
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request

from captcha_ocr.data.sanitize import START, is_image
from captcha_ocr.errors import UsageError, check
from captcha_ocr.web.http import JSON_TYPE, parse_object, without_parameters

MAX_BODY = 3_000_000  # bytes of a request for one image
_FORM_TYPE = "application/x-www-form-urlencoded"
_MAX_FIELDS = 100
_IMAGE_FIELDS = ("image", "file")
# The client is told what is wrong with its form; without a handler, stderr would be, too
logging.getLogger("python_multipart").addHandler(logging.NullHandler())
_PARSING = threading.Semaphore(2)  # bodies at once: a large one takes a while, and memory
_SHORTEST = 60  # characters of base64; no image file is shorter


async def read_fields(request: Request) -> Mapping[str, object]:
    """Return the fields of JSON or of a form; the image in any other body is the field image.

    UsageError if the body is malformed.
    A body that begins like an image is one, whatever its type says: curl calls each a form.
    """
    body = await request.body()
    if is_image(body[:START]):
        return {"image": body}
    return await run_in_threadpool(_parse_in_turn, body, request.headers.get("content-type", ""))


def _parse_in_turn(body: bytes, content_type: str) -> Mapping[str, object]:
    with _PARSING:
        return parse_fields(body, content_type)


def parse_fields(body: bytes, content_type: str) -> Mapping[str, object]:
    """Return the fields of a body that does not begin like an image; errors as `read_fields`."""
    kind = without_parameters(content_type)
    if kind.startswith("multipart/"):
        return _parse_parts(body, content_type)
    if kind == JSON_TYPE or body[:1] == b"{":
        return parse_object(body)
    if kind == _FORM_TYPE:
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


def _parse_parts(body: bytes, content_type: str) -> dict[str, object]:
    """Return the parts of a form in multipart, of which the last with a name counts."""
    parts: list[tuple[str, object]] = []

    def take(name: bytes | None, value: object) -> None:
        check(len(parts) < _MAX_FIELDS, f"a form has at most {_MAX_FIELDS} fields")
        parts.append(((name or b"").decode("latin-1"), value))

    def take_field(field: Field) -> None:
        take(field.field_name, (field.value or b"").decode("latin-1"))

    def take_file(file: File) -> None:
        file.file_object.seek(0)
        take(file.field_name, file.file_object.read())

    headers = {"Content-Type": content_type.encode("latin-1")}
    config = {"MAX_MEMORY_FILE_SIZE": len(body) + 1}
    try:
        parser = create_form_parser(headers, take_field, take_file, config)
        parser.write(body)
        parser.finalize()
    except (FormParserError, ValueError) as error:
        raise UsageError(f"the form is malformed: {error}") from None
    return dict(parts)

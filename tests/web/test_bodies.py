"""However people send an image, its text is the same."""

import base64
from email.mime.image import MIMEImage
from email.mime.multipart import MIMEMultipart
from urllib.parse import quote, urlencode

import pytest

from captcha_ocr.errors import UsageError
from captcha_ocr.web.bodies import parse_fields, take_image

from .conftest import SAMPLE

DATA = SAMPLE.read_bytes()
ENCODED = base64.b64encode(DATA).decode()
URI = f"data:image/png;base64,{ENCODED}"
FORM = "application/x-www-form-urlencoded"


MULTIPART = "multipart/form-data; boundary=x1"
LINES = base64.encodebytes(DATA)  # of 76 characters


def make_parts(*parts):
    """Return a form in multipart: of names, file names and contents."""
    body = b""
    for name, file, content in parts:
        given = f'; filename="{file}"' if file else ""
        body += f'--x1\r\nContent-Disposition: form-data; name="{name}"{given}\r\n\r\n'.encode()
        body += content + b"\r\n"
    return body + b"--x1--\r\n"


def make_part(head, content):
    """Return a form of one part, whose headers follow `Content-Disposition: form-data; `."""
    start = f"--x1\r\nContent-Disposition: form-data; {head}\r\n\r\n".encode()
    return start + content + b"\r\n--x1--\r\n"


def write_with_email_package():
    """Return the same as Python's email package writes it: base64 in lines that end in \\n."""
    image = MIMEImage(DATA, "png")
    image.add_header("Content-Disposition", "form-data", name="image")
    form = MIMEMultipart("form-data", "x1", [image])
    form.preamble = "This is a form."
    return form.as_bytes().partition(b"\n\n")[2]


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (DATA, "image/png"),
        (DATA, ""),
        (DATA, FORM),  # as curl --data-binary labels it
        (DATA, "application/json"),
        (ENCODED.encode(), "text/plain"),
        (ENCODED.encode(), "text/html; charset=utf-8"),
        (ENCODED.encode(), FORM),
        (URI.encode(), "text/plain"),
        (f'{{"image": "{ENCODED}"}}'.encode(), "application/json; charset=utf-8"),
        (f'{{"image": "{URI}"}}'.encode(), "text/plain"),
        (urlencode({"image": ENCODED}).encode(), FORM),
        (urlencode({"fold_case": "false", "file": URI}).encode(), FORM),
        (f"image={ENCODED}".encode(), FORM),  # its + are not escaped
        (f"image={quote(quote(ENCODED))}".encode(), FORM),
        (make_parts(("image", "a.png", DATA)), MULTIPART),
        (make_parts(("file", "a.png", DATA)), MULTIPART),
        (make_parts(("image", "", ENCODED.encode())), MULTIPART),
        (make_parts(("image", "", b""), ("file", "a.png", DATA)), MULTIPART),
        (make_parts(("length", "", b"4"), ("file", "", URI.encode())), MULTIPART),
        (make_parts(("image", "a.png", DATA)), "Multipart/Form-Data; boundary=x1"),
        (make_parts(("image", "a.png", DATA)), 'multipart/form-data; charset=x; boundary="x1"'),
        (make_parts(("image", "", ENCODED.encode())).replace(b'"', b""), MULTIPART),
        (make_parts(("", "image.png", b"x"), ("image", "é; name=x", DATA)), MULTIPART),
        (b"Preamble\r\n" + make_parts(("image", "a.png", DATA)) + b"Epilogue", MULTIPART),
        (make_part("name=image", DATA), MULTIPART),  # a file without a name
        (make_part("name*=utf-8''im%61ge", DATA), MULTIPART),
        (make_part('filename="\\"; name=x"; name="image"', DATA), MULTIPART),
        (make_part("\r\n name=image\r\nContent-Transfer-Encoding: Base64", LINES), MULTIPART),
        (make_part("name=image\r\ncontent-transfer-encoding: binary", DATA), MULTIPART),
        (write_with_email_package(), MULTIPART),
        (LINES, FORM),
    ],
    ids=range(31),
)
def test_an_image_is_found_in_each_kind_of_body(served, body, kind):
    answer = served().post("/v1/read", content=body, headers={"Content-Type": kind})
    assert (answer.status_code, answer.json().get("text")) == (200, "0ZLA")


@pytest.mark.parametrize(
    ("body", "kind", "named"),
    [
        (b"x", MULTIPART, "form"),
        (make_parts(("image", "a.png", DATA)), "multipart/form-data", "boundary"),
        (make_parts(("picture", "a.png", DATA)), MULTIPART, "image or file"),
        (make_parts(("image", "a.png", DATA))[:-8], MULTIPART, "last line"),
        (b"--x1\r\n\r\nx\r\n--x1--", MULTIPART, "image or file"),
        (make_parts(*[("image", "a.png", DATA)] * 2), MULTIPART, "twice"),
        (b"image=x&image=y", FORM, "twice"),
        (make_part("name=image" + ";" * 5000, DATA), MULTIPART, "headers"),
        (make_part("name*=idna''image", DATA), MULTIPART, "decoded"),
        (make_part("name=a\r\nContent-Transfer-Encoding: base64", b"a"), MULTIPART, "decoded"),
        (make_part("name=a\r\nContent-Type: multipart/mixed; boundary=x2", b""), MULTIPART, "file"),
        (f"img={ENCODED}".encode(), FORM, "image or file"),
        (make_parts(*[(f"f{n}", "", b"x") for n in range(200)]), MULTIPART, "form"),
        (b"&".join([b"a=b"] * 200), FORM, "form"),
        (b"image=" + b"%41" * 100_000, FORM, "escapes"),
        (b"{}", "", "image or file"),
        (b'{"image": "a.png"}', "application/json", "base64"),
        (b'{"image": [5]}', "application/json", "base64"),
    ],
)
def test_a_body_without_an_image_is_refused(body, kind, named):
    with pytest.raises(UsageError, match=named):
        take_image(parse_fields(body, kind))

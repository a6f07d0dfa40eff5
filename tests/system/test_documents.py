import json
import re

import pytest

from captcha_ocr.errors import DamagedError
from captcha_ocr.system.documents import MAX_NESTING, read_json, read_sealed, sealed, to_json

DOCUMENT = {"format": "captcha-ocr test", "version": 1, "text": "é", "numbers": [1, 2.5, None]}
SEALED = sealed(DOCUMENT)


def nested(levels: int) -> bytes:
    """Return a JSON document of nested objects."""
    return b'{"a":' * levels + b"0" + b"}" * levels


def test_a_document_is_readable_text_that_comes_back(tmp_path):
    assert to_json({"text": "é"}).decode() == '{\n  "text": "é"\n}\n'
    for data in (to_json(DOCUMENT), nested(MAX_NESTING)):
        (tmp_path / "a.json").write_bytes(data)
        assert read_json(tmp_path / "a.json") == json.loads(data)


BROKEN = [b"", b'{"a": 1', b"[1, 2]", b"null", b'{"a": "\xff"}', b'{"a": ' + b"9" * 5000 + b"}"]


@pytest.mark.parametrize("data", [*BROKEN, b"[" * 100_000, nested(MAX_NESTING + 1)])
def test_a_file_that_is_no_json_object_is_damage(tmp_path, data):
    (tmp_path / "a.json").write_bytes(data)
    with pytest.raises(DamagedError, match=r"a\.json"):
        read_json(tmp_path / "a.json")


def test_a_folder_a_missing_and_a_too_large_file_are_damage(tmp_path, monkeypatch):
    monkeypatch.setattr("captcha_ocr.system.documents._MAX_DOCUMENT_BYTES", 2)
    (tmp_path / "large").write_bytes(b"{} ")
    for path in (tmp_path, tmp_path / "gone", tmp_path / "large"):
        with pytest.raises(DamagedError, match=re.escape(str(path))):
            read_json(path)


def test_the_seal_covers_every_key_in_any_order():
    def seal(document):
        return json.loads(sealed(document))["sha256"]

    assert seal(dict(reversed(DOCUMENT.items()))) == seal(DOCUMENT)
    assert sealed(json.loads(SEALED)) == SEALED
    assert seal(DOCUMENT) not in [seal({**DOCUMENT, key: "changed"}) for key in DOCUMENT]


@pytest.mark.parametrize(
    ("data", "file_format", "version", "named"),
    [
        (SEALED, "captcha-ocr other", 1, "captcha-ocr other"),
        (SEALED, "captcha-ocr test", 77, "77"),
        (SEALED.replace(b"2.5", b"2.6"), "captcha-ocr test", 1, r"a\.json"),
        (SEALED.replace(b"  ", b"   "), "captcha-ocr test", 1, r"a\.json"),
        (to_json(DOCUMENT), "captcha-ocr test", 1, r"a\.json"),
    ],
)
def test_a_sealed_document_comes_back_and_no_other(tmp_path, data, file_format, version, named):
    path = tmp_path / "a.json"
    path.write_bytes(SEALED)
    assert read_sealed(path, "captcha-ocr test", 1) == json.loads(SEALED)
    path.write_bytes(data)
    with pytest.raises(DamagedError, match=named):
        read_sealed(path, file_format, version)

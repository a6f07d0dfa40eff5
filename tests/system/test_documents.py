import json
import re

import pytest

from captcha_ocr.errors import DamagedError
from captcha_ocr.system.documents import MAX_NESTING, read_json, read_sealed, sealed, to_json

DOCUMENT = {"format": "captcha-ocr test", "version": 1, "text": "é", "numbers": [1, 2.5, None]}


def nested(levels: int) -> bytes:
    """Return a JSON document of nested objects."""
    return b'{"a":' * levels + b"0" + b"}" * levels


def test_a_document_is_readable_text_that_comes_back(tmp_path):
    assert to_json({"text": "é"}).decode() == '{\n  "text": "é"\n}\n'
    for data, document in (
        (to_json(DOCUMENT), DOCUMENT),
        (nested(MAX_NESTING), json.loads(nested(MAX_NESTING))),
    ):
        (tmp_path / "a.json").write_bytes(data)
        assert read_json(tmp_path / "a.json") == document


def test_a_file_that_is_no_json_object_is_damage(tmp_path):
    path = tmp_path / "a.json"
    broken = [b"", b'{"a": 1', b"[1, 2]", b"null", b'{"a": "\xff"}', b'{"a": ' + b"9" * 5000 + b"}"]
    for content in [*broken, b"[" * 100_000, nested(MAX_NESTING + 1)]:
        path.write_bytes(content)
        with pytest.raises(DamagedError, match=r"a\.json"):
            read_json(path)


def test_a_folder_a_missing_and_a_too_large_file_are_damage(tmp_path, monkeypatch):
    monkeypatch.setattr("captcha_ocr.system.documents._MAX_DOCUMENT_BYTES", 2)
    (tmp_path / "folder").mkdir()
    (tmp_path / "large").write_bytes(b"{} ")
    for name in ("folder", "gone", "large"):
        with pytest.raises(DamagedError, match=re.escape(str(tmp_path / name))):
            read_json(tmp_path / name)


def test_the_seal_covers_every_key_in_any_order():
    def seal(document):
        return json.loads(sealed(document))["sha256"]

    assert seal(dict(reversed(DOCUMENT.items()))) == seal(DOCUMENT)
    assert sealed(json.loads(sealed(DOCUMENT))) == sealed(DOCUMENT)
    for key in DOCUMENT:
        assert seal({**DOCUMENT, key: "changed"}) != seal(DOCUMENT)


def test_a_sealed_document_comes_back(tmp_path):
    (tmp_path / "a.json").write_bytes(sealed(DOCUMENT))
    assert read_sealed(tmp_path / "a.json", "captcha-ocr test", 1) == json.loads(sealed(DOCUMENT))
    for file_format, version, named in (
        ("captcha-ocr other", 1, "captcha-ocr other"),
        ("captcha-ocr test", 77, "77"),
    ):
        with pytest.raises(DamagedError, match=named):
            read_sealed(tmp_path / "a.json", file_format, version)


def test_any_other_bytes_break_the_seal(tmp_path):
    whole = sealed(DOCUMENT)
    for data in (whole.replace(b"2.5", b"2.6"), whole.replace(b"  ", b"   "), to_json(DOCUMENT)):
        (tmp_path / "a.json").write_bytes(data)
        with pytest.raises(DamagedError, match=r"a\.json"):
            read_sealed(tmp_path / "a.json", "captcha-ocr test", 1)

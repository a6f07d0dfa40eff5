"""JSON documents that carry the hash of their own content, so that a flipped bit is found."""

import json
import math
from pathlib import Path
from typing import Any

from captcha_ocr.errors import DamagedError
from captcha_ocr.system.files import read_whole, sha256
from captcha_ocr.version import __version__

MOST_DOCUMENT_BYTES = 2**27  # of a JSON document: a manifest of 100 million images has a fifth of it


MOST_NESTED = 20  # levels of lists and objects in one; ours have six


SEAL = "sha256"  # the key under which a sealed document carries the hash of its other content


def to_json(document: dict[str, Any]) -> bytes:
    """`document` as UTF-8 JSON: indented, newline at the end, equal documents giving equal bytes."""
    return (json.dumps(document, indent=2, ensure_ascii=False) + "\n").encode()


def finite(value: float | None) -> float | None:
    """`value`, or None where JSON has no number for it."""
    return None if value is None or not math.isfinite(value) else value


def seal(document: dict[str, Any]) -> dict[str, Any]:
    """`document` with the hash of its own content under the key `sha256`."""
    content = {key: value for key, value in document.items() if key != SEAL}
    canonical = json.dumps(content, sort_keys=True, ensure_ascii=True, separators=(",", ":"))
    return {**content, SEAL: sha256(canonical.encode())}


def sealed(document: dict[str, Any]) -> bytes:
    """The file of a document that carries the hash of its own content."""
    return to_json(seal(document))


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object, raising DamagedError for a file that is missing, cut or malformed."""
    return parse_json(path, read_whole(path, MOST_DOCUMENT_BYTES))


def parse_json(path: Path, data: bytes) -> dict[str, Any]:
    """The JSON object that `path` holds, by its bytes; errors as `read_json`."""
    try:
        document = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise DamagedError(f"{path} cannot be read as JSON: {error}") from None
    if not isinstance(document, dict):
        raise DamagedError(f"{path} does not hold a JSON object")
    if nests_deeper(document, MOST_NESTED):
        raise DamagedError(f"{path} nests deeper than the {MOST_NESTED} levels that a document of ours can have")
    return document


def nests_deeper(value: Any, levels: int) -> bool:
    """Whether there are more than so many levels of lists and objects in a JSON value."""
    if not isinstance(value, (dict, list)):
        return False
    return levels == 0 or any(
        nests_deeper(part, levels - 1) for part in (value.values() if isinstance(value, dict) else value)
    )


def read_sealed(path: Path, file_format: str, version: int) -> dict[str, Any]:
    """Read a sealed JSON object, which has to be byte for byte as it was written, of that format and version."""
    data = read_whole(path, MOST_DOCUMENT_BYTES)
    document = parse_json(path, data)
    if document.get("format") != file_format:
        raise DamagedError(f"{path} is not a {file_format}")
    if not is_sealed(document, data):
        raise DamagedError(f"{path} was changed or damaged after it was written (its sha256 differs)")
    written = document.get("version")
    if written != version:
        whose, shown = "a newer" if isinstance(written, int) and written > version else "another", str(written)[:20]
        raise DamagedError(
            f"{path} was written by {whose} captcha-ocr: it has version {shown}, and this one, {__version__}, "
            f"reads version {version}"
        )
    return document


def is_sealed(document: dict[str, Any], data: bytes) -> bool:
    """Whether these are the bytes that a sealed document has: no bit of them can be another, spaces included."""
    try:
        return sealed(document) == data
    except (ValueError, RecursionError):  # half a surrogate pair, or more brackets than were ever written
        return False


def is_ours(path: Path, file_format: str) -> bool:
    """Whether `path` was written as a document of that format, though it may be damaged since."""
    return path.is_file() and json.dumps(file_format).encode() in path.read_bytes()

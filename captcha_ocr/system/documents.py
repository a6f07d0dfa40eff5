"""JSON documents that carry the hash of their content, so that every changed bit is found."""

import json
import math
from pathlib import Path
from typing import Any

from captcha_ocr.errors import DamagedError, check
from captcha_ocr.system.files import read_whole, sha256
from captcha_ocr.version import __version__

_MAX_DOCUMENT_BYTES = 2**27  # the manifest of 100 million images takes a fifth of it
MAX_NESTING = 20  # levels of lists and objects; our documents have six
_SEAL = "sha256"  # the key of the hash in a sealed document


def to_json(document: dict[str, Any]) -> bytes:
    """Return `document` as indented UTF-8 JSON with a newline at the end.

    Equal documents give equal bytes.
    """
    return (json.dumps(document, indent=2, ensure_ascii=False) + "\n").encode()


def finite(value: Any) -> Any:
    """Return JSON types with None for nan and infinity, which JSON does not have."""
    if isinstance(value, dict):
        return {key: finite(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [finite(entry) for entry in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def sealed(document: dict[str, Any]) -> bytes:
    """Return the bytes of `document` with the hash of its content under the key `sha256`."""
    content = {key: value for key, value in document.items() if key != _SEAL}
    canonical = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return to_json({**content, _SEAL: sha256(canonical.encode())})


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object; DamagedError if the file is missing, cut short or malformed."""
    return parse_json(path, read_whole(path, _MAX_DOCUMENT_BYTES))


def parse_json(path: Path, data: bytes) -> dict[str, Any]:
    """Parse the bytes of the file `path` as a JSON object; errors as `read_json`."""
    try:
        document = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise DamagedError(f"{path} cannot be read as JSON: {error}") from None
    if not isinstance(document, dict):
        raise DamagedError(f"{path} does not hold a JSON object")
    check(  # for the recursive functions that read documents
        not _nests_deeper(document, MAX_NESTING),
        f"{path} nests deeper than {MAX_NESTING} levels, so captcha-ocr did not write it",
        DamagedError,
    )
    return document


def _nests_deeper(value: Any, levels: int) -> bool:
    """Tell whether a JSON value has more than `levels` levels of lists and objects."""
    if not isinstance(value, (dict, list)):
        return False
    parts = value.values() if isinstance(value, dict) else value
    return levels == 0 or any(_nests_deeper(part, levels - 1) for part in parts)


def read_sealed(
    path: Path, file_format: str, version: int, max_bytes: int = _MAX_DOCUMENT_BYTES
) -> dict[str, Any]:
    """Read a sealed JSON object.

    DamagedError unless it has this format and version and no byte has changed.
    """
    data = read_whole(path, max_bytes)
    document = parse_json(path, data)
    check(document.get("format") == file_format, f"{path} is not a {file_format}", DamagedError)
    try:
        intact = sealed(document) == data  # every byte, spaces included
    except ValueError:  # half a surrogate pair
        intact = False
    check(
        intact,
        f"{path} was changed or damaged after it was written (its sha256 differs)",
        DamagedError,
    )
    written = document.get("version")
    other = "a newer" if isinstance(written, int) and written > version else "another"
    check(
        written == version,
        f"{path} was written by {other} captcha-ocr: it has version {str(written)[:20]}, "
        f"and captcha-ocr {__version__} reads version {version}",
        DamagedError,
    )
    return document


def is_ours(path: Path, file_format: str) -> bool:
    """Tell whether captcha-ocr wrote `path` in this format, even if the file is damaged now."""
    return path.is_file() and json.dumps(file_format).encode() in path.read_bytes()

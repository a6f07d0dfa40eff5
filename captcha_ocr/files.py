"""Writing that never leaves half a file, and JSON documents that notice a flipped bit."""

import hashlib
import json
import math
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from captcha_ocr.errors import DamagedError

SEAL = "sha256"  # the key under which a sealed document carries the hash of its other content


def sha256(data: bytes) -> str:
    """The SHA-256 of `data`, as 64 hexadecimal digits."""
    return hashlib.sha256(data).hexdigest()


def write_atomic(path: Path, data: bytes) -> None:
    """Write `data` to `path` so that a reader, or a crash, sees the old file or the new one whole."""
    temporary = path.with_name(path.name + ".tmp")
    with open(temporary, "wb") as stream:
        stream.write(data)
        stream.flush()
        os.fsync(stream.fileno())
    os.replace(temporary, path)
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Make renames inside `folder` durable, where the system lets a folder be opened at all."""
    if os.name == "posix":
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


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


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object, raising DamagedError for a file that is missing, cut or malformed."""
    try:
        document = json.loads(path.read_bytes())
    except FileNotFoundError:
        raise DamagedError(f"{path} is missing") from None
    except (OSError, ValueError, RecursionError) as error:
        raise DamagedError(f"{path} cannot be read as JSON: {error}") from None
    if not isinstance(document, dict):
        raise DamagedError(f"{path} does not hold a JSON object")
    return document


def read_sealed(path: Path, file_format: str, version: int) -> dict[str, Any]:
    """Read a sealed JSON object, checking its hash, its `format` and its `version`."""
    document = read_json(path)
    if document.get(SEAL) != seal(document)[SEAL]:
        raise DamagedError(f"{path} was changed or damaged after it was written (its sha256 differs)")
    if document.get("format") != file_format:
        raise DamagedError(f"{path} is not a {file_format}")
    if document.get("version") != version:
        raise DamagedError(
            f"{path} has version {document.get('version')}, and this captcha-ocr reads version {version}"
        )
    return document


def is_ours(path: Path, file_format: str) -> bool:
    """Whether `path` was written as a document of that format, though it may be damaged since."""
    return path.is_file() and json.dumps(file_format).encode() in path.read_bytes()


def read_checked(path: Path, expected_sha256: str) -> bytes:
    """The bytes of `path`, after checking that they have the expected SHA-256."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise DamagedError(f"{path} cannot be read: {error.strerror}") from None
    if sha256(data) != expected_sha256:
        raise DamagedError(f"{path} was changed or damaged after it was written (its sha256 differs)")
    return data


def remove_files(paths: Iterable[Path]) -> None:
    """Remove those of `paths` that exist."""
    for path in paths:
        path.unlink(missing_ok=True)

"""Writing that never leaves half a file, by one at a time, and JSON documents that notice a flipped bit."""

import contextlib
import errno
import hashlib
import json
import math
import os
import shutil
import stat
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO

from captcha_ocr.errors import CaptchaOcrError, DamagedError, UsageError
from captcha_ocr.version import __version__

TEMPORARY, LOCK_FILE = ".captcha-ocr.tmp", ".captcha-ocr.lock"
MOST_BYTES = 2**32  # of a file of ours, where nothing else says how large it can be
MOST_DOCUMENT_BYTES = 2**27  # of a JSON document: a manifest of 100 million images has a fifth of it
MOST_NESTED = 20  # levels of lists and objects in one; ours have six
SEAL = "sha256"  # the key under which a sealed document carries the hash of its other content


def sha256(data: bytes) -> str:
    """The SHA-256 of `data`, as 64 hexadecimal digits."""
    return hashlib.sha256(data).hexdigest()


def write_atomic(path: Path, data: bytes, durable: bool = True) -> None:
    """Write `data` to `path` so that a reader, or a crash, sees the old file or the new one whole.

    durable: whether the disk has it when this returns. CaptchaOcrError where the disk is full; the old file stays.
    """
    write_in_turn([(path, data)], durable)


def write_in_turn(files: Sequence[tuple[Path, bytes]], durable: bool = True) -> None:
    """As `write_atomic` for several files of one folder, of which one may come twice.

    All that a full disk could prevent comes before the first of them is replaced; then one is after the other.
    """
    folder, size = files[0][0].parent, sum(len(data) for _, data in files)
    staged = [path.with_name(f"{path.name}.{number}{TEMPORARY}") for number, (path, _) in enumerate(files)]
    try:
        with room_for(files[0][0], size):
            for temporary, (_, data) in zip(staged, files, strict=True):
                write_new(temporary, data, durable)
            for temporary, (path, _) in zip(staged, files, strict=True):
                os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            remove_files(staged)
        raise
    if durable:
        sync_folder(folder)


def write_new(path: Path, data: bytes, durable: bool) -> None:
    """Write a file of which nobody knows yet, and wait until the disk has it, if it is to be durable."""
    with open(path, "wb") as stream:
        stream.write(data)
        stream.flush()
        if durable:
            os.fsync(stream.fileno())


@contextlib.contextmanager
def room_for(path: Path, size: int) -> Iterator[None]:
    """Within it a full disk is said in a sentence: that `path` needs `size` bytes, and how many there are."""
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            error.filename = error.filename or str(path)  # which writing, unlike opening, does not say
            raise
        free = shutil.disk_usage(path.parent).free
        although = " (so there are too many files, or there is a quota)" if free >= size else ""
        raise CaptchaOcrError(
            f"the disk is full: {path} needs {size:,} bytes, and {free:,} are free{although}; "
            "what was there before is whole, so make room and give the same command again"
        ) from None


@contextlib.contextmanager
def writing_to(folder: Path) -> Iterator[None]:
    """Within it no other captcha-ocr writes to `folder`, which is made, and removed again if it stays empty.

    What a writer that was killed left half written is removed. CaptchaOcrError where somebody is writing now.
    """
    from filelock import FileLock, Timeout  # a tenth of a second, which reading does without

    try:
        folder.mkdir(parents=True, exist_ok=True)
    except FileExistsError:
        raise UsageError(f"{folder} is no folder; choose another --out") from None
    lock = FileLock(folder / LOCK_FILE, timeout=0)
    try:
        lock.acquire()
    except Timeout:
        raise CaptchaOcrError(
            f"another captcha-ocr is writing to {folder}; wait until it has ended, or choose another folder"
        ) from None
    except OSError as error:
        if error.errno not in (errno.EACCES, errno.EPERM, errno.EROFS):
            raise
        yield  # where nobody can write there is nothing to keep others from: what tries says so
        return
    try:
        remove_stale(folder)
        yield
    finally:
        with contextlib.suppress(OSError):  # Windows removes no file that is open; it may stay
            (folder / LOCK_FILE).unlink()
        lock.release()
        with contextlib.suppress(OSError):  # as nearly every folder is not empty
            folder.rmdir()


def remove_stale(folder: Path) -> None:
    """Remove what a writer that was killed left half written in `folder`."""
    for path in [Path(entry.path) for entry in os.scandir(folder) if entry.name.endswith(TEMPORARY)]:
        shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()


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


def sealed(document: dict[str, Any]) -> bytes:
    """The file of a document that carries the hash of its own content."""
    return to_json(seal(document))


def read_whole(path: Path, most_bytes: int = MOST_BYTES) -> bytes:
    """The bytes of one of our files; DamagedError where there is none, or one that is larger than it can be."""
    try:
        with open_regular(path) as stream:
            if os.fstat(stream.fileno()).st_size > most_bytes:
                raise DamagedError(f"{path} is larger than the {most_bytes:,} bytes that it can have")
            return stream.read() or b""
    except FileNotFoundError:
        raise DamagedError(f"{path} is missing") from None
    except OSError as error:
        raise DamagedError(f"{path} cannot be read: {error.strerror}") from None


@contextlib.contextmanager
def open_regular(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """Open a file to read; OSError where it is none: reading from a pipe or a device could go on for ever."""
    with open(path, "rb", opener=open_at_once) as stream:
        if not stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
            raise OSError(errno.EINVAL, "not a regular file")
        yield stream


def open_at_once(path: str, flags: int) -> int:
    """Open a file without waiting, as one would for a pipe that nobody writes to."""
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


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


def alike(example: Any, value: Any) -> bool:
    """Whether a JSON value has the form of an example: the same keys, and in them, and in lists, the same types.

    An empty list or object stands for any, a float for any number, and None for None, a number or a text. Whole numbers
    have 64 bits.
    """
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        return False
    if isinstance(example, dict) and isinstance(value, dict):
        return not example or (example.keys() == value.keys() and all(alike(example[k], value[k]) for k in example))
    if isinstance(example, (list, tuple)) and isinstance(value, list):
        return not example or (len(example) == len(value) and all(map(alike, example, value)))
    if example is None:
        return value is None or isinstance(value, (int, float, str))
    if isinstance(example, float):
        return isinstance(value, (int, float)) and not isinstance(value, bool)
    return type(example) is type(value) and isinstance(value, (int, str, bool))


def is_ours(path: Path, file_format: str) -> bool:
    """Whether `path` was written as a document of that format, though it may be damaged since."""
    return path.is_file() and json.dumps(file_format).encode() in path.read_bytes()


def read_checked(path: Path, expected_sha256: str, most_bytes: int = MOST_BYTES) -> bytes:
    """The bytes of `path`, after checking that they have the expected SHA-256."""
    data = read_whole(path, most_bytes)
    if sha256(data) != expected_sha256:
        raise DamagedError(f"{path} was changed or damaged after it was written (its sha256 differs)")
    return data


def remove_files(paths: Iterable[Path]) -> None:
    """Remove those of `paths` that exist."""
    for path in paths:
        path.unlink(missing_ok=True)

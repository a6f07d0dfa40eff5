"""Writing that never leaves half a file, by one at a time, and JSON documents that notice a flipped bit."""

import contextlib
import errno
import hashlib
import os
import shutil
import stat
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

from captcha_ocr.errors import CaptchaOcrError, DamagedError, UsageError

TEMPORARY, LOCK_FILE = ".captcha-ocr.tmp", ".captcha-ocr.lock"
MOST_BYTES = 2**32  # of a file of ours, where nothing else says how large it can be


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

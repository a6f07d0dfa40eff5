"""Write files atomically, lock folders, and read files with limits and hashes."""

import codecs
import contextlib
import errno
import itertools
import os
import shutil
import stat
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

from captcha_ocr.errors import CaptchaOcrError, DamagedError, UsageError, check

TEMPORARY, LOCK_FILE = ".captcha-ocr.tmp", ".captcha-ocr.lock"
GIT_LFS = b"version https://git-lfs."  # how a pointer begins that stands for a file
NO_LFS_FILE = "a pointer of Git LFS, not the file itself; run: git lfs pull"
_MAX_FILE_BYTES = 2**32  # of a file that captcha-ocr wrote, if no closer limit is known
MAX_TEXT_BYTES = 2**30  # of a text file that people hand in
MAX_TOML_BYTES = 2**16  # whose parser takes 3 s for the worst; people write some kB
# Nobody can write here, so no lock is needed, and an attempt to write raises its own error; or the
# file system has no locks, as NFS without its lock service.
_WITHOUT_LOCK = {errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOLCK, errno.EOPNOTSUPP}
_ENCODINGS = {  # byte-order mark -> encoding; the mark of UTF-32 begins as that of UTF-16
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF8: "utf-8-sig",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}


def sha256(data: bytes) -> str:
    """Return the SHA-256 of `data` as 64 hexadecimal digits."""
    import hashlib  # OpenSSL takes 3 ms, a tenth of what captcha-ocr --help computes

    return hashlib.sha256(data).hexdigest()


def write_atomic(
    path: Path, data: bytes, durable: bool = True, confirm: Callable[[], None] = lambda: None
) -> None:
    """Write `data` to `path`.

    A reader, also one after a crash, sees either the old file or the new one, which has its mode.

    durable: wait until the data is on the disk. confirm: called just before the old file is
    replaced; its error leaves that. CaptchaOcrError if the disk is full; the old file stays.
    """
    write_in_turn([(path, data)], durable, confirm)


def write_in_turn(
    files: Sequence[tuple[Path, bytes]],
    durable: bool = True,
    confirm: Callable[[], None] = lambda: None,
) -> None:
    """Write several files of one folder atomically, one after the other; a file may come twice.

    A full disk is noticed before the first file is replaced; otherwise as `write_atomic`.
    """
    first, size = files[0][0], sum(len(data) for _, data in files)
    staged = [
        path.with_name(f"{path.name}.{number}{TEMPORARY}") for number, (path, _) in enumerate(files)
    ]
    try:
        with room_for(first, size):
            for temporary, (_, data) in zip(staged, files, strict=True):
                temporary.unlink(missing_ok=True)
                with open(temporary, "xb") as stream:  # never through a link
                    stream.write(data)
                    stream.flush()
                    if durable:
                        os.fsync(stream.fileno())
            confirm()
            for temporary, (path, _) in zip(staged, files, strict=True):
                with contextlib.suppress(FileNotFoundError):
                    shutil.copymode(path, temporary)
                os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            remove_files(staged)
        raise
    if durable:
        sync_folder(first.parent)


def find_unused(path: Path) -> Path:
    """Return `path`, or the first of path-2, path-3, … that does not exist.

    A file keeps its extension.
    """
    names = itertools.chain(
        [path.name], (f"{path.stem}-{number}{path.suffix}" for number in itertools.count(2))
    )
    return next(free for name in names if not (free := path.with_name(name)).exists())


@contextlib.contextmanager
def room_for(path: Path, size: int) -> Iterator[None]:
    """Turn the error of a full disk into a CaptchaOcrError that names the `size` of `path` and the
    free space.
    """
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            # Errors of opening name the file, those of writing do not
            error.filename = error.filename or str(path)
            raise
        free = shutil.disk_usage(path.parent).free
        other_limit = " (there are too many files, or there is a quota)" if free >= size else ""
        raise CaptchaOcrError(
            f"the disk is full: {path} needs {size:,} bytes, and {free:,} are free{other_limit}; "
            "the older files are complete, so free some space and run the same command again"
        ) from None


@contextlib.contextmanager
def writing_to(folder: Path) -> Iterator[None]:
    """Create `folder` and lock it against other captcha-ocr processes.

    CaptchaOcrError if one is writing to it. A file system without locks is written to without one.

    First remove what a killed process left half written; at the end remove the folder if it is
    empty.
    """
    # Takes 0.1 s to import, which commands that only read save
    from filelock import FileLock, Timeout

    try:
        folder.mkdir(parents=True, exist_ok=True)
    except FileExistsError:
        raise UsageError(f"{folder} is not a folder; choose another `out`") from None
    lock = FileLock(folder / LOCK_FILE, timeout=0)
    try:
        with warnings.catch_warnings(action="ignore"):  # that another kind of lock is taken
            lock.acquire()
    except Timeout:
        raise CaptchaOcrError(
            f"another captcha-ocr is writing to {folder}; "
            "wait until it ends, or choose another folder"
        ) from None
    except OSError as error:
        if error.errno not in _WITHOUT_LOCK:
            raise
        yield
        return
    try:
        remove_stale(folder)
        yield
    finally:
        with contextlib.suppress(OSError):  # Windows does not remove an open file
            (folder / LOCK_FILE).unlink()
        lock.release()
        with contextlib.suppress(OSError):  # the folder is not empty
            folder.rmdir()


def remove_stale(folder: Path) -> None:
    """Remove what a killed process left half written in `folder`."""
    for path in list(folder.glob(f"*{TEMPORARY}")):
        shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()


def sync_folder(folder: Path) -> None:
    """Wait until renames inside `folder` are on the disk; Windows cannot do that."""
    if os.name == "posix":
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def read_whole(
    path: str | os.PathLike[str],
    max_bytes: int = _MAX_FILE_BYTES,
    error: type[CaptchaOcrError] = DamagedError,
) -> bytes:
    """Read a file; `error` if it is missing, unreadable or larger than `max_bytes`."""
    try:
        with open_regular(path) as stream:
            size = os.fstat(stream.fileno()).st_size
            check(size <= max_bytes, f"{path} has more than {max_bytes:,} bytes", error)
            data = stream.read() or b""
    except FileNotFoundError:
        what = "leads to a file that is missing" if os.path.islink(path) else "is missing"
        raise error(f"{path} {what}") from None
    except OSError as failure:
        raise error(f"{path} cannot be read: {failure.strerror or failure}") from None
    check(not data.startswith(GIT_LFS), f"{path} is {NO_LFS_FILE}", error)
    return data


@contextlib.contextmanager
def open_regular(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """Open a file for reading; OSError for a pipe or a device, which might never end."""
    # Without waiting for a process that writes to the pipe
    without_waiting = getattr(os, "O_NONBLOCK", 0)
    with open(
        path, "rb", opener=lambda file, flags: os.open(file, flags | without_waiting)
    ) as stream:
        if not stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
            reason = "not a regular file; captcha-ocr eval - reads an image from standard input"
            raise OSError(errno.EINVAL, reason)
        yield stream


def read_checked(path: Path, expected_sha256: str, max_bytes: int = _MAX_FILE_BYTES) -> bytes:
    """Read a file that captcha-ocr wrote.

    DamagedError also if it does not have the expected SHA-256.
    """
    data = read_whole(path, max_bytes)
    check(
        sha256(data) == expected_sha256,
        f"{path} was changed or damaged after it was written (its sha256 differs)",
        DamagedError,
    )
    return data


def printable(path: Path) -> str:
    """Return a path as text that every file and terminal can hold."""
    return os.fsencode(path.as_posix()).decode("utf-8", "backslashreplace")


def walk_files(folder: Path) -> Iterator[str]:
    """Yield the files below a folder, also through links, as POSIX paths relative to it.

    Hidden files and folders are passed over. No folder is searched twice.
    """
    seen: set[str] = set()
    for parent, folders, names in os.walk(folder, followlinks=True):
        real = os.path.realpath(parent)
        if real in seen:  # a link to a folder that was searched, or to one around it
            folders.clear()
            continue
        seen.add(real)
        folders[:] = [name for name in folders if not name.startswith(".")]
        # Links come last: what lies behind them may be found without them.
        folders.sort(key=lambda name: (os.path.islink(os.path.join(parent, name)), name))
        below = Path(parent).relative_to(folder).as_posix()
        start = "" if below == "." else f"{below}/"
        yield from (start + name for name in names if not name.startswith("."))


def remove_files(paths: Iterable[Path]) -> None:
    """Remove those of `paths` that exist."""
    for path in paths:
        path.unlink(missing_ok=True)


def detect_encoding(start: bytes, default: str = "utf-8") -> str:
    """Return the encoding that the byte-order mark at the start of a file names.

    The default without a mark.
    """
    encodings = (name for mark, name in _ENCODINGS.items() if start.startswith(mark))
    return next(encodings, default)


def read_text(path: str | os.PathLike[str], max_bytes: int = MAX_TEXT_BYTES) -> str:
    """Read a text file in UTF-8, or in the encoding of its byte-order mark.

    UsageError for any other file, and for a larger one.
    """
    data = read_whole(path, max_bytes, UsageError)
    try:
        text = data.decode(detect_encoding(data))
    except UnicodeDecodeError as error:
        what = f"is not text in UTF-8: byte {error.start} is {data[error.start]:#x}"
        if data.startswith(b"PK"):
            what = "is a spreadsheet: save it as CSV"
        raise UsageError(f"{path} {what}; save it as text in UTF-8") from None
    check(
        "\0" not in text,
        f"{path} is no text, or UTF-16 without its mark; save it as text in UTF-8",
    )
    return text

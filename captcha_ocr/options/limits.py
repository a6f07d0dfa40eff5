"""Limits of what people hand in, which several options share."""

from captcha_ocr.errors import check, is_int

MAX_AREA = 4_000_000  # pixels of an image, generated or read
MAX_BYTES = 2_000_000  # of an image file that is read, unless --max-bytes says otherwise
MAX_THREADS = 1024
MAX_WORKERS = 256  # processes
MAX_SEED = 2**32 - 1  # that every random generator we use accepts


def check_max_bytes(max_bytes: object) -> None:
    """Raise UsageError unless the limit on image files is from 1 byte to 1 GB."""
    check(
        is_int(max_bytes, 1, 10**9),
        f"`max_bytes` must be 1 to 1,000,000,000, not {max_bytes!r}",
    )

"""What PyInstaller has to bundle with captcha_ocr; it finds this folder by its entry point."""

from pathlib import Path


def get_hook_dirs() -> list[str]:
    """Return the folder of the hooks."""
    return [str(Path(__file__).parent)]

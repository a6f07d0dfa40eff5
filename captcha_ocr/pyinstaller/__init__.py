"""What PyInstaller has to know to bundle a program that uses captcha_ocr; it finds this folder by its entry point."""

from pathlib import Path


def get_hook_dirs() -> list[str]:
    """Return the folder of the hooks."""
    return [str(Path(__file__).parent)]

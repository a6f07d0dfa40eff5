"""Run the command line: `python -m captcha_ocr` does the same as `captcha-ocr`."""

import gc

# Imports leave no garbage, and the search for some takes a twentieth of reading an image.
gc.set_threshold(50_000)

from captcha_ocr.cli.app import main  # noqa: E402


def run() -> None:
    """Run the command line, and end without a last search for garbage, which takes as long."""
    try:
        main()
    finally:
        gc.freeze()


if __name__ == "__main__":
    run()

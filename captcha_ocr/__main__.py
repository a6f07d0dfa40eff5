"""Run the command line: `python -m captcha_ocr` does the same as `captcha-ocr`."""

import gc
import os
import sys

# OpenBLAS, which numpy brings, starts threads that wait busily: 0.1 s of processor time in this
# process and each worker. Elsewhere torch may compute with OpenBLAS, or numpy does without it.
if sys.platform == "linux" and os.uname().machine == "x86_64":
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
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

"""Draw captchas with a function, in a process of its own.

python -m captcha_ocr.audit.images.call_function MODULE:FUNCTION LIST FOLDER KNOBS

LIST is a CSV file with the columns file, text and seed. KNOBS are named arguments as JSON. The
function returns the bytes of an image file, or an image of Pillow or numpy. An image that fails is
not written.
"""

import csv
import io
import json
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from captcha_ocr.data.images import encode_png


def main() -> None:
    """Call the function for each row of the list."""
    place, table, folder, levels = sys.argv[1:]
    module, _, name = place.partition(":")
    sys.path.insert(0, "")
    function = getattr(import_module(module), name)
    knobs = json.loads(levels)
    has_failed = False
    with open(table, encoding="utf-8", newline="") as stream:
        rows = list(csv.DictReader(stream))
    for row in rows:
        try:
            image = function(row["text"], int(row["seed"]), **knobs)
            Path(folder, row["file"]).write_bytes(to_file(image))
        except Exception as error:  # whatever the function does
            sys.stderr.write(f"{type(error).__name__}: {' '.join(str(error).split())}\n")
            has_failed = True
    sys.exit(has_failed)


def to_file(image: Any) -> bytes:
    """Return an image as the bytes of a file."""
    if isinstance(image, (bytes, bytearray)):
        return bytes(image)
    if isinstance(image, io.BytesIO):
        return image.getvalue()
    if isinstance(image, np.ndarray):
        image = Image.fromarray(image)
    if not isinstance(image, Image.Image):
        kind = type(image).__name__
        raise TypeError(f"the function returned {kind}, not bytes or an image of Pillow or numpy")
    return encode_png(image)


if __name__ == "__main__":
    main()

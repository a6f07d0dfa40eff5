"""Draw docs/captchas.png: the sample images with what the built-in model reads.

python docs/make_picture.py
"""

from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from PIL import Image

from captcha_ocr import Recognizer

ROOT = Path(__file__).parent.parent


def main() -> None:
    """Read data/samples and write the picture."""
    paths = sorted((ROOT / "data" / "samples").glob("*.png"))
    readings = Recognizer().predict(paths)
    figure = Figure(figsize=(7.2, 3.1), layout="constrained")
    for axes, path, reading in zip(figure.subplots(2, 3).flat, paths, readings, strict=True):
        with Image.open(path) as image:
            axes.imshow(np.asarray(image))
        axes.set_title(f"{reading.text}   {reading.confidence:.1%}", family="monospace", fontsize=12, y=-0.32)
        axes.axis("off")
    figure.savefig(ROOT / "docs" / "captchas.png", dpi=100)


if __name__ == "__main__":
    main()

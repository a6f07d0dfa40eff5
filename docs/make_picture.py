"""Draw docs/captchas.png: one image of each named design and four random ones, with what the
built-in model reads.

python docs/make_picture.py
"""

from pathlib import Path

from matplotlib.figure import Figure

from captcha_ocr import Recognizer
from captcha_ocr.generation.designs.design import design_names
from captcha_ocr.generation.drawer import drawer_of, plan_drawing
from captcha_ocr.options.drawing import RANDOM, DrawingOptions

PICTURE = Path(__file__).parent / "captchas.png"
RANDOM_ONES = 4


def main() -> None:
    """Draw, read and write the picture."""
    designs = [*design_names(), *[RANDOM] * RANDOM_ONES]
    drawn = [
        drawer_of(plan_drawing(DrawingOptions(design=name))).draw(number)
        for number, name in enumerate(designs)
    ]
    readings = Recognizer().predict([each.image for each in drawn])
    figure = Figure(figsize=(8, 4), layout="constrained")
    for axes, each, reading in zip(figure.subplots(3, 4).flat, drawn, readings, strict=True):
        axes.imshow(each.image)
        is_right = reading.text.casefold() == each.text.casefold()
        said = f"{reading.text}  {reading.confidence:.0%}"
        axes.set_title(
            said, family="monospace", fontsize=11, color="black" if is_right else "firebrick"
        )
        axes.axis("off")
    figure.savefig(PICTURE, dpi=100)


if __name__ == "__main__":
    main()

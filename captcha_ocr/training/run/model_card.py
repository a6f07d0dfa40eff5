"""The model card: README.md in a model folder, for people."""

from captcha_ocr.charset import shorten
from captcha_ocr.options.training import TrainConfig
from captcha_ocr.scores import Scores
from captcha_ocr.training.samples.dataset import DrawnData, TrainingData
from captcha_ocr.version import __version__


def model_card(
    config: TrainConfig,
    dataset: TrainingData,
    best_epoch: int,
    validation: Scores,
    test: Scores | None = None,
) -> str:
    """Return the model card as Markdown."""
    charset = dataset.charset
    case = "kept" if charset.case is None else f"read as {charset.case} case"
    kind = "images"
    if isinstance(dataset, DrawnData):
        options = dataset.options
        designs = ", ".join(dict.fromkeys(f"`{design}`" for design in options.designs))
        kind = (
            f"images an epoch,\ndrawn while it trained (design {designs}), "
            f"new ones every {options.rhythm}"
        )
    charset_line = f"the {len(charset)} characters `{shorten(charset.characters)}`"
    images = f"{config.images or dataset.count('train'):,} {kind}"
    lines = [
        "# A captcha-ocr model",
        "",
        f"Reads texts of {dataset.lengths} of {charset_line}",
        f"(case {case}) from images resized to {dataset.size}.",
        f"Trained by captcha-ocr {__version__}, preset `{config.preset}`,",
        f"seed {config.seed}, on {images}; best epoch {best_epoch}.",
        "",
        "For captchas that you generate, own or may test.",
        "",
        "Validation, which chose this epoch:",
        "",
        *(f"    {line}" for line in str(validation).splitlines()),
    ]
    if test is not None:
        lines += ["", "Test, scored once:", "", *(f"    {line}" for line in str(test).splitlines())]
    return "\n".join([*lines, ""])

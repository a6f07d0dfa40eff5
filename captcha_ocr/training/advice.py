"""Plain advice once a run has ended: is it guessing, still learning, or learning by heart?"""

from pathlib import Path
from typing import Any

from captcha_ocr.training.run_folder import RUN_FILE, Finished, read_run

LEARNT = 0.95  # exact match on images that were trained on, below which a network has more to learn
APART = 0.05  # of exact match: as much more on images that were trained on is learning by heart


def advice_on_run(folder: Path) -> list[str]:
    """What the end of the run in `folder` tells, a sentence each; nothing where it is no finished run."""
    if not (folder / RUN_FILE).exists():
        return []
    spec, finished = read_run(folder)
    return [] if finished is None else advice(finished, len(spec.model.charset), spec.training.augment)


def advice(finished: Finished, characters: int, augmented: bool) -> list[str]:
    """What the scores of a run tell that reads an alphabet of so many characters, its images augmented or not."""
    trained, validated = finished.training, finished.validation
    gap = trained["exact_match"] - validated["exact_match"]
    if validated["character_accuracy"] < 2 / characters:
        return [
            f"{validated['character_accuracy']:.1%} of the characters in the images to validate are right, which is "
            "guessing: look with captcha-ocr inspect whether the labels go with the images, then try more images or "
            "--epochs"
        ]
    if gap > APART and trained["interval"][0] > validated["interval"][1]:
        return [
            f"{in_percent(trained)} of images that were trained on are right and {in_percent(validated)} of others, "
            f"which is overfitting: more images{'' if augmented else ', --preset few'}, or --init with a model of "
            "generated ones; captcha-ocr curve says how many"
        ]
    if trained["exact_match"] < LEARNT:
        return [
            f"{in_percent(trained)} of the images that were trained on are right, so it is still learning: "
            f"a larger --epochs trains this run on (it had {finished.epochs})"
        ]
    return []


def in_percent(score: dict[str, Any]) -> str:
    """The exact match of a score, in words."""
    return f"{score['exact_match']:.1%}"

"""Advice after a run: is the network guessing, still learning, or overfitting?"""

from pathlib import Path

from captcha_ocr.training.run_folder import RUN_FILE, Finished, read_run

MIN_TRAINING_MATCH = 0.95  # exact match on training images; below it the network has more to learn
MAX_GAP = 0.05  # of exact match between training and validation images; beyond it the network overfits


def advice_on_run(folder: Path) -> list[str]:
    """Return the advice on the run in `folder`, one sentence each; nothing if there is no finished run."""
    if not (folder / RUN_FILE).exists():
        return []
    spec, finished = read_run(folder)
    return [] if finished is None else advice(finished, len(spec.model.charset), spec.training.augment)


def advice(finished: Finished, characters: int, augmented: bool) -> list[str]:
    """Return the advice on a run that reads an alphabet of so many characters, with augmented images or not."""
    trained, validated = finished.training, finished.validation
    training_match, validation_match = trained["exact_match"], validated["exact_match"]
    if validated["character_accuracy"] < 2 / characters:
        return [
            f"{validated['character_accuracy']:.1%} of the characters of validation images are correct, which is "
            "guessing: check the labels with captcha-ocr inspect, then try more images or --epochs"
        ]
    if training_match - validation_match > MAX_GAP and trained["interval"][0] > validated["interval"][1]:
        return [
            f"{training_match:.1%} of training images and {validation_match:.1%} of validation images are correct, "
            f"which is overfitting: use more images{'' if augmented else ', --preset few'}, or --init with a model "
            "trained on generated images; captcha-ocr curve estimates how many images it takes"
        ]
    if training_match < MIN_TRAINING_MATCH:
        return [
            f"{training_match:.1%} of training images are correct, so the network is still learning: "
            f"continue this run with more --epochs (it had {finished.epochs})"
        ]
    return []

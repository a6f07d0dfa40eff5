"""The labels that eval scores its readings against."""

import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from captcha_ocr.charset import split_characters
from captcha_ocr.errors import Advice, Command, UsageError
from captcha_ocr.options.model import ModelConfig

if TYPE_CHECKING:
    from captcha_ocr.data.labels import Label, Problems


def warn_of_unreadable(config: ModelConfig, truths: list[str]) -> None:
    """Print how many labels the model can never read, for their length or their characters."""
    impossible = 0
    for text in truths:
        has_length = len(split_characters(text)) in config.lengths
        if not has_length or config.charset.unknown_characters(text):
            impossible += 1
    if impossible:
        counts = f"{impossible:,} of {len(truths):,} labels are always counted as wrong"
        known = f"texts of {config.lengths} of the characters {config.charset}"
        click.echo(f"{counts}: this model reads {known}", err=True)


def labels_to_score(
    labels_file: Path, folders: Iterable[Path]
) -> "tuple[Path, list[Label], Problems]":
    """Read a labels file whose names are relative to one of these folders.

    It is the first in which all of the images are, else the one that has most of them. Return it,
    the labels, and why rows are left out. UsageError if no folder has any of the images.
    """
    from captcha_ocr.data.images import find_images
    from captcha_ocr.data.labels import read_labels

    tried: list[tuple[int, Path, list[Label], Problems]] = []
    for folder in dict.fromkeys(folders):
        rows, problems = read_labels(labels_file, folder)
        here = sum((folder / row.file).exists() for row in rows)
        if here < len(rows):  # names in another Unicode form, or without an extension
            rows, problems = read_labels(labels_file, folder, find_images(folder).images)
            here = sum((folder / row.file).exists() for row in rows)
        tried.append((here, folder, rows, problems))
        if here == len(rows):
            break
    here, folder, rows, problems = max(tried, key=lambda each: each[0])
    if rows and here == 0:
        command = Command("eval", ("FOLDER",), {"labels": labels_file})
        advice = Advice("name the folder of images", command)
        raise UsageError(f"{labels_file} names no image in {folder}", advice)
    return folder, rows, problems


def labelled_paths(folder: str | Path, rows: "list[Label]") -> Callable[[str], str | None]:
    """Return a function from a path to its label.

    It looks for the path in the folder of the images, elsewhere for a name that is unique there.
    """
    folder = os.path.abspath(folder)
    by_path = {os.path.join(folder, os.path.normpath(row.file)): row.text for row in rows}
    by_name: dict[str, set[str]] = {}
    for row in rows:
        by_name.setdefault(os.path.basename(row.file), set()).add(row.text)

    def look_up(path: str) -> str | None:
        path, texts = os.path.abspath(path), by_name.get(os.path.basename(path), set())
        if Path(path).is_relative_to(folder):
            return by_path.get(path)
        return next(iter(texts)) if len(texts) == 1 else None

    return look_up

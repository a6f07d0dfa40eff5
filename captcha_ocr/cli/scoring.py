"""The labels that eval scores its readings against."""

import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from captcha_ocr.charset import split_characters
from captcha_ocr.errors import check
from captcha_ocr.options.model import ModelConfig
from captcha_ocr.system.console import command_line

if TYPE_CHECKING:
    from captcha_ocr.data.labels import Label, Problems


def warn_of_unreadable(config: ModelConfig, truths: list[str]) -> None:
    """Print how many labels the model can never read, for their length or their characters."""
    impossible = sum(
        len(split_characters(text)) not in config.lengths
        or bool(config.charset.unknown_characters(text))
        for text in truths
    )
    if impossible:
        click.echo(
            f"{impossible:,} of {len(truths):,} labels are always counted as wrong: this model reads texts of "
            f"{config.lengths} of the characters {config.charset}",
            err=True,
        )


def labels_to_score(
    labels_file: Path, folders: Iterable[Path]
) -> "tuple[Path, list[Label], Problems]":
    """Read a labels file whose names are relative to one of these folders, the first in which all of its images are.

    Return that folder, the labels and why rows are left out. UsageError if no folder has any of the images.
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
    command = command_line("eval", "FOLDER", "--labels", str(labels_file))
    check(
        not rows or here > 0,
        f"{labels_file} names no image in {folder}; name the folder of images: {command}",
    )
    return folder, rows, problems


def labelled_paths(folder: str | Path, rows: "list[Label]") -> Callable[[str], str | None]:
    """Return a function from a path to its label: by the path in the folder of the images, else by a unique name."""
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

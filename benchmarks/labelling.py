"""Label images in the page of `captcha-ocr label` as a person would, and count keystrokes and
seconds.

    python benchmarks/labelling.py SETS/keras_v2 [--labels 300] [--blind]

The answers are those of the set's labels.csv. The times of a person are those of the
keystroke-level model (Card, Moran and Newell 1980): 1.35 s to look and decide, 0.2 s for a key (an
average typist). They really pass, in a real browser, while the page trains its models. A right
guess takes one key, Enter; over a wrong one the person writes the whole text. Needs the extra
browser and chromium-headless-shell.
"""

import argparse
import csv
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

DECIDE_S, KEY_S = 1.35, 0.2
PART = 50  # labels in a row of the table
OPTIONS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-dev-shm-usage",
)


def read_texts(folder: Path) -> dict[str, str]:
    """Return the text of each image of a set."""
    with open(folder / "labels.csv", encoding="utf-8", newline="") as stream:
        return {row["filename"]: row["text"] for row in csv.DictReader(stream)}


def label_one(page: Page, texts: dict[str, str]) -> tuple[str, int]:
    """Label the image on the screen; returns whether the guess was right, wrong or none, and the
    keystrokes.
    """
    text = texts[str(page.get_attribute("#image", "data-file"))]
    guess = page.input_value("#text")
    time.sleep(DECIDE_S)
    typed = "" if guess == text else text
    for key in [*typed, "Enter"]:
        time.sleep(KEY_S)
        page.keyboard.press(key)
    page.wait_for_function(
        "text => document.getElementById('status').textContent === `Saved ${text}`", arg=text
    )
    kind = "right" if guess == text else "wrong"
    return kind if guess else "none", len(typed) + 1


def label(page: Page, texts: dict[str, str], count: int) -> None:
    """Label so many images, and print a row for each part."""
    kinds, keys, rows = Counter[str](), 0, []
    started = before = time.perf_counter()
    for number in range(1, count + 1):
        kind, pressed = label_one(page, texts)
        kinds[kind] += 1
        keys += pressed
        rows.append((kind, pressed))
        if number % PART == 0 or number == count:
            part, now = rows[-PART:], time.perf_counter()
            right = sum(kind == "right" for kind, _ in part)
            print(
                f"labels to {number}: {right} of {len(part)} guesses right, "
                f"{sum(pressed for _, pressed in part) / len(part):.2f} keystrokes and "
                f"{(now - before) / len(part):.2f} s a label; {page.inner_text('#accuracy')}",
                flush=True,
            )
            before = now
    print(
        f"all: {keys / count:.2f} keystrokes and {(before - started) / count:.2f} s a label; "
        f"{dict(kinds)}"
    )


def main() -> None:
    """Start the page and a browser, and label."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--labels", type=int, default=300)
    parser.add_argument("--blind", action="store_true")
    arguments = parser.parse_args()
    texts = read_texts(arguments.folder)
    with tempfile.TemporaryDirectory() as work:
        images = Path(work, "images")
        shutil.copytree(arguments.folder, images, ignore=shutil.ignore_patterns("*.csv", "*.txt"))
        command = [
            sys.executable,
            "-m",
            "captcha_ocr",
            "label",
            str(images),
            "--port",
            "0",
            "--model",
            "pretrained",
        ]
        command += ["--out", str(Path(work, "run")), *["--blind"] * arguments.blind]
        process = subprocess.Popen(
            command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True
        )
        assert process.stderr is not None, "it is a pipe"
        address = next(line.split()[1] for line in process.stderr if line.startswith("page"))
        try:
            with sync_playwright() as playwright:
                browser = playwright.chromium.launch(
                    executable_path=shutil.which("chromium-headless-shell"), args=list(OPTIONS)
                )
                page = browser.new_page()
                page.goto(address)
                page.wait_for_selector("#image[data-file]")
                label(page, texts, arguments.labels)
        finally:
            process.terminate()
            process.communicate()


if __name__ == "__main__":
    main()

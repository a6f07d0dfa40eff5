"""The files in which `label` keeps the answers of a person, and how long each took."""

import json
from pathlib import Path
from typing import Any

ANSWERS_FILE, ANSWERS_JOURNAL = "answers.csv", "answers.jsonl"  # of `label --blind`


def read_journal(path: Path) -> list[dict[str, Any]]:
    """Return the lines of a journal: file, seconds (None if unknown), and more; none without it."""
    lines = path.read_text("utf-8").splitlines() if path.exists() else []
    return list(map(json.loads, lines))

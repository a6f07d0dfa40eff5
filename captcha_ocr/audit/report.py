"""The page of an audit: one HTML file with its figures inside, for who decides and for who repeats it."""

import base64
import io
import json
import tempfile
from html import escape
from pathlib import Path
from typing import Any

from PIL import Image

from captcha_ocr.audit.markup import (
    finite,
    labels_needed,
    listed,
    number,
    paragraph,
    percent,
    with_interval,
)
from captcha_ocr.audit.sections import (
    costs,
    coverage,
    curves,
    knobs,
    money_of,
    people,
    tricks,
    tries,
    zero_shot,
)
from captcha_ocr.audit.statistics import attempts
from captcha_ocr.audit.trainings import NAMES
from captcha_ocr.audit.verdict import (
    BROKEN,
    KINDS,
    LEAST_TESTED,
    MOSTLY,
    PRICE_OF_PEOPLE,
    SOLVED,
    Attack,
    money,
    sentence,
)
from captcha_ocr.pictures.contact_sheet import Tile, draw_sheet
from captcha_ocr.system.console import duration

STYLE = Path(__file__).parent / "page.css"
VERDICTS = (
    "The verdicts: it falls to a trick, if section 3 finds one; it is broken cheaply, if the lower end of the interval "
    f"is {100 * MOSTLY:g} % or more, and it costs less than people; it is broken, if that end is {100 * BROKEN:g} % or "
    "more (Bursztein et al. 2011); not broken by this solver, if the upper end is below; else undecided."
)
SHEET_ROWS, COLOURS = 4, 64  # of the contact sheet


def page_of(results: dict[str, Any], command: str, knobs_text: str = "") -> str:
    """Return the page. results: of `audit`. command: what repeats it. knobs_text: the file of the knobs."""
    sections = [
        ("What was tested", tested(results)),
        ("Attacks that read no image", tricks(results)),
        ("Labels and images read", curves(results)),
        ("Without a label of its own", zero_shot(results)),
        ("Time and money", costs(results)),
        ("Attempts", tries(results["best"])),
        ("Answering only when sure", coverage(results["coverage"])),
        ("What makes it hard", knobs(results["knobs"], results["notes"])),
        ("People", people(results["people"])),
        ("What to do", advice(results)),
        ("Known, assumed, not tested", limits(results, command, knobs_text)),
    ]
    body = "".join(
        f"<h2>{number}. {title}</h2>{text}" for number, (title, text) in enumerate(sections, 2)
    )
    data = json.dumps(finite(results), ensure_ascii=False).replace("<", "\\u003c")
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>Audit of {escape(results['source'])}: captcha-ocr</title>"
        f"<style>{STYLE.read_text('utf-8')}</style></head>"
        f'<body><main>{verdict(results)}{body}</main><script type="application/json" id="results">{data}</script>'
        f"</body></html>\n"
    )


def verdict(results: dict[str, Any]) -> str:
    """Section 1: the verdict, what was measured, and three figures."""
    best, found = results["best"], results["verdict"]
    shown = "".join(
        f"<li><span>{name}</span><b>{escape(value)}</b>{escape(meaning)}</li>"
        for name, value, meaning in figures_of(results)
    )
    return (
        f"<p class='faint'>1. Audit of {escape(results['source'])}: the verdict</p>"
        f"<h1>{escape(KINDS[found['kind']])}</h1>"
        f"<p class='verdict'>{escape(found['why'])}</p><ul class='figures'>{shown}</ul>"
        + paragraph(
            f"The best solver that was measured reads {with_interval(best['share'], best['interval'])} of "
            f"{results['tested']:,} images that it never saw. A better attacker may read more, and pay less."
        )
    )


def figures_of(results: dict[str, Any]) -> list[tuple[str, str, str]]:
    """Return the three figures: a name, the value, and what it means."""
    best = results["best"]
    zero = results["attacks"][0]
    if zero["interval"][0] >= MOSTLY:
        needed, meaning = (
            "0",
            f"to read half of the images: {NAMES['general']} reads {percent(zero['share'])} as it is",
        )
    else:
        options = {start: rows[1] for start, rows in results["needed"].items()}
        start = min(options, key=lambda each: (options[each][0], options[each][2]))
        sizes = [score["labels"] for score in results["curves"][start]]
        needed, meaning = (
            labels_needed(options[start], sizes[0], sizes[-1]),
            "to read half of the images",
        )
    low, high = (number(attempts(share)) for share in reversed(best["interval"]))
    people_take = f"for each 1,000 of {SOLVED:,} solved, labels included; people take {money(PRICE_OF_PEOPLE)}"
    return [
        card("Labels", needed, meaning),
        card("Cost", money_of(best["cost"]), people_take),
        card("Attempts", f"{number(attempts(best['share']))} ({low} to {high})", "for one solved"),
    ]


def card(name: str, value: str, meaning: str) -> tuple[str, str, str]:
    """Return one of the three figures; the interval of its value goes behind its meaning."""
    value, _, interval = value.partition(" (")
    return name, value, f"{meaning} ({interval}" if interval else meaning


def tested(results: dict[str, Any]) -> str:
    """Section 2: the images, the seed, the machine."""
    with tempfile.TemporaryDirectory() as work:
        path = Path(work, "sheet.png")
        draw_sheet(
            [Tile(Path(file), "", text) for file, text in results["samples"]], path, rows=SHEET_ROWS
        )
        stream = io.BytesIO()
        with Image.open(path) as image:
            image.quantize(COLOURS).save(stream, "PNG")  # a fifth of the bytes
        sheet = base64.b64encode(stream.getvalue()).decode()
    texts = ", ".join(text for _, text in results["samples"])
    lengths = " to ".join(
        dict.fromkeys(str(length) for length in (results["lengths"][0], results["lengths"][-1]))
    )
    environment = "; ".join(f"{name} {value}" for name, value in results["environment"].items())
    failed = (
        f" {results['failures']:,} images failed or could not be read, and were drawn again."
        if results["failures"]
        else ""
    )
    return (
        f'<figure><img alt="Images with the texts {escape(texts)}" src="data:image/png;base64,{sheet}">'
        f"<figcaption>Some of the images that were tested, with their texts.</figcaption></figure>"
        + paragraph(
            f"{results['images']:,} images. A text has {lengths} of these {len(results['alphabet'])} characters: "
            f"{results['alphabet']}. {results['tested']:,} images test; labels to learn from came from the others."
            f"{failed} An image counts as read if its whole text is right."
            + (" Upper and lower case count as the same." if results["case_ignored"] else "")
        )
        + f'<p class="faint">Seed {results["seed"]}. {escape(environment)}. It took {duration(results["spent_s"])} of '
        f"{duration(results['budget_s'])}.</p>"
    )


def advice(results: dict[str, Any]) -> str:
    """Section 11: what helps whatever the images look like."""
    lines = [
        "Limit failures for an account and an address: OWASP's ASVS 2.2.1 allows 100 an hour, "
        "NIST SP 800-63B 100 in a row.",
        "Take each challenge once, and for minutes only. Draw a new image each time.",
        "Offer another way than reading: WCAG 2.2 asks for it (1.1.1 and 3.3.8). "
        "No text captcha can be read by everyone who must pass it.",
    ]
    if results["verdict"]["kind"] in ("cheaply", "broken"):
        lines.insert(
            0,
            "Let this captcha guard nothing alone. Limits slow a solver down: section 7 says how far.",
        )
    if results["tricks"]["findings"]:
        lines.insert(0, "First mend what section 3 found: it makes reading unnecessary.")
    hard = [e for e in (results["knobs"] or {"effects": []})["effects"] if e["factor"][1] > 1]
    if hard:
        most = max(hard, key=lambda effect: effect["factor"][1])
        lines.append(
            f"Of the knobs, {most['knob']} ({most['change']}) costs an attacker most: see section 9. "
            "It costs people, too."
        )
    return listed(lines)


def limits(results: dict[str, Any], command: str, knobs_text: str) -> str:
    """Section 12: what is known, assumed and not tested; how to repeat it."""
    lines = [
        f"Measured: {sentence_of(results['best'])}.",
        "Assumed: the attacker can get images of this design with their texts; prices as in section 6; "
        "attempts that do not depend on each other.",
        f"The best solver is the best of {len(results['attacks'])} on the same test images: it may read others a bit "
        "worse.",
        "Labels needed are read off a line through the logarithm of the labels and the log odds of the share, taken "
        "never to fall. Beyond what was measured, it is said only that more or fewer are needed.",
        "Not tested: other solvers, larger ones, and people for hire; what surrounds the image, such as "
        "sessions and sound.",
        *results["notes"],
    ]
    if results["tested"] < LEAST_TESTED:
        lines.append(
            f"{results['tested']:,} test images cannot tell {100 * BROKEN:g} % from nothing: that takes {LEAST_TESTED}."
        )
    lines.append(VERDICTS)
    definition = results["definition"]
    return (
        listed(lines)
        + f"<p>To repeat it (the captcha-ocr on PyPI is another program):</p><pre>{escape(command)}</pre>"
        + (
            f"<p>With {escape(definition['file'])}:</p><pre>{escape(definition['text'])}</pre>"
            if definition
            else ""
        )
        + (f"<p>With the knobs:</p><pre>{escape(knobs_text)}</pre>" if knobs_text else "")
    )


def sentence_of(best: dict[str, Any]) -> str:
    """Return what the best solver does."""
    return sentence(
        Attack(
            best["start"],
            best["labels"],
            best["share"],
            tuple(best["interval"]),
            best["training_s"],
        )
    )

"""Sections 3 to 10 of the page of an audit: what was measured, each as HTML."""

import math
from typing import Any

from captcha_ocr.audit.figures import as_svg, draw_coverage, draw_curves, draw_effects
from captcha_ocr.audit.knobs import KNOBS_LEFT_OUT
from captcha_ocr.audit.markup import (
    figure,
    labels_needed,
    listed,
    number,
    paragraph,
    percent,
    table,
    with_interval,
)
from captcha_ocr.audit.statistics import attempts, solved_before_lock, solved_in_hour, solved_within
from captcha_ocr.audit.trainings import NAMES
from captcha_ocr.audit.verdict import (
    BROKEN,
    MILLISECONDS,
    PRICE_OF_CORE_HOUR,
    PRICE_OF_LABEL,
    PRICE_OF_PEOPLE,
    SOLVED,
    TARGETS,
    money,
)
from captcha_ocr.system.console import counted, duration

FAILURES = (3, 10, 100)  # in a row, that lock a solver out
AN_HOUR = 100  # failures in an hour that OWASP's ASVS 2.2.1 allows


def tricks(results: dict[str, Any]) -> str:
    """Section 3: what makes reading unnecessary."""
    found = results["tricks"]
    even = "" if found["texts_are_given"] else " No text is much more frequent than others."
    lines = found["findings"] or [f"No image repeats, and no file holds its text.{even}"]
    if found["in_names"]:
        lines = [
            *lines,
            f"{found['in_names']:,} file names hold the text. If visitors see these names, nobody needs to read.",
        ]
    for place, character, share in found["skewed"]:
        even = percent(1 / len(results["alphabet"]))
        lines = [
            *lines,
            f"Character {place} is too often {character!r}: {percent(share)}, where {even} were even.",
        ]
    if found["texts_are_given"]:
        lines = [
            *lines,
            "The audit chose the texts: whether the generator's own are uneven was not tested.",
        ]
    guess = f"A blind guess solves one in {number(1 / found['even_guess'])} if the texts are even"
    uneven = found["best_guess"] > found["even_guess"]
    guess += (
        f", and one in {number(1 / found['best_guess'])} by what is most frequent here."
        if uneven
        else "."
    )
    return listed([*lines, guess])


def curves(results: dict[str, Any]) -> str:
    """Section 4: how exact match grows with labels."""
    interval = {(each["start"], each["labels"]): each["interval"] for each in results["attacks"]}
    shares = {(each["start"], each["labels"]): each["share"] for each in results["attacks"]}
    rows, needs = [], []
    for start, scores in results["curves"].items():
        for score in scores:
            draws = ", ".join(percent(right / score["tested"]) for right in score["right"])
            key = start, score["labels"]
            rows.append(
                (
                    NAMES[start],
                    f"{score['labels']:,}",
                    with_interval(shares[key], interval[key]),
                    draws,
                )
            )
        sizes = [score["labels"] for score in scores]
        zero = shares["general", 0] if start == "general" else -1.0
        shown = [
            "0" if zero >= target else labels_needed(needed, sizes[0], sizes[-1])
            for target, needed in zip(TARGETS, results["needed"][start], strict=True)
        ]
        needs.append((NAMES[start], *shown))
    plot = draw_curves(results["curves"], interval, shares["general", 0])
    svg = as_svg(plot, "Images read against labels; the table below has the numbers")
    return (
        paragraph(
            "A solver is a ResNet-18 with CTC, trained with captcha-ocr on images of this design and their texts, from "
            "random weights or from the model that comes with captcha-ocr. A label is an image with its text. So many "
            "were drawn at random, three times; the interval is over draws and test images."
        )
        + figure(svg)
        + table(
            "Images read, with the 95 % interval over draws and images",
            ("start", "labels", "mean", "draws"),
            rows,
        )
        + table(
            "Labels needed, with the 95 % interval",
            ("start", "for 1 %", "for 50 %", "for 90 %"),
            needs,
        )
        + "".join(map(paragraph, results["notes"]))
    )


def zero_shot(results: dict[str, Any]) -> str:
    """Section 5: what the model in the package reads, and how many labels that start saves."""
    zero = results["attacks"][0]
    share = with_interval(zero["share"], zero["interval"])
    text = (
        f"The model that comes with captcha-ocr, told the characters and how many there are, reads {share}. It learned "
        "from random designs that captcha-ocr draws, and from images of the captcha package, but not from these."
    )
    trained = [attack["share"] for attack in results["attacks"][1:] if attack["start"] == "general"]
    if zero["share"] > max(trained):
        text += " Trained on labels as above it reads less, so an attacker takes it as it is."
    half = {start: rows[1][0] for start, rows in results["needed"].items()}
    if 0 < half["general"] < half["random"] < math.inf:
        times = number(half["random"] / half["general"])
        text += f" As a start, it divides the labels for half of the images by {times}."
    return paragraph(text)


def costs(results: dict[str, Any]) -> str:
    """Section 6: what an attack costs."""
    rows = []
    for attack in results["attacks"]:
        if attack["share"] < BROKEN:
            continue
        cost = attack["cost"]
        parts = [
            *(f"${cost[name]:,.2f}" for name in ("labels", "training", "reading")),
            money_of(cost),
        ]
        rows.append(
            (
                NAMES[attack["start"]],
                f"{attack['labels']:,}",
                percent(attack["share"]),
                duration(attack["training_s"]),
                *parts,
            )
        )
    header = (
        "start",
        "labels",
        "reads",
        "training on one core",
        *("$ for labels", "$ for training", "$ for reading", "for 1,000 solved"),
    )
    return table(f"Costs of {SOLVED:,} solved captchas", header, rows) + paragraph(
        f"Assumed: people who solve captchas take ${PRICE_OF_PEOPLE:.2f} for 1,000, and two of them read an image for "
        f"a label (${PRICE_OF_LABEL:.3f}); an hour of a core costs ${PRICE_OF_CORE_HOUR}; to read an image takes "
        f"{MILLISECONDS:g} ms of a core. Solvers that read less than {100 * BROKEN:g} % are left out."
    )


def money_of(cost: dict[str, Any]) -> str:
    """Return what 1,000 solved cost, with the interval where it shows."""
    ends = [money(end) for end in cost["interval"]]
    whole = money(cost["for_1000"])
    return whole if ends == [whole, whole] else f"{whole} ({ends[0]} to {ends[1]})"


def tries(best: dict[str, Any]) -> str:
    """Section 7: what a share means against limits."""

    def row(name: str, function: Any, show: Any = number) -> tuple[str, str]:
        value = show(function(best["share"]))
        ends = [show(end) for end in sorted(map(function, best["interval"]))]
        return name, value if ends == [value, value] else f"{value} ({ends[0]} to {ends[1]})"

    rows = [
        row("captchas tried for one solved", attempts),
        row("solves at least one of 3", lambda p: solved_within(p, 3), percent),
    ]
    for failures in FAILURES:
        name = f"solved before {failures} failures in a row lock it out"
        rows.append(row(name, lambda p, n=failures: solved_before_lock(p, n)))
    rows.append(
        row(
            f"solved in an hour that allows {AN_HOUR} failures",
            lambda p: solved_in_hour(p, AN_HOUR),
        )
    )
    text = paragraph(
        "A solver that answers only when it is sure (section 8) fails less often than this."
    )
    return text + table(
        "The best solver against limits, with the 95 % interval", ("what", "value"), rows
    )


def coverage(found: dict[str, Any]) -> str:
    """Section 8: how good the surest answers are."""
    rows = [
        (
            percent(row["coverage"]),
            f"{row['images']:,}",
            with_interval(row["right"] / row["images"], row["interval"]),
        )
        for row in found["rows"]
    ]
    solver = f"Trained on {found['labels']:,} labels from {NAMES[found['start']]}, the best one, in its first draw"
    if not found["labels"]:
        solver = "The best one, captcha-ocr's model as it is"
    title = "Right answers against images answered; the table below has the numbers"
    return (
        paragraph(
            f"A solver tells how sure it is of a text, and may ask for another image when it is unsure. {solver}:"
        )
        + figure(as_svg(draw_coverage(found["rows"]), title))
        + table("Of the surest images", ("answered", "images", "right"), rows)
    )


def knobs(found: dict[str, Any] | None, notes: list[str]) -> str:
    """Section 9: what each knob does, or why that was not measured."""
    if found is None:
        needs = "Not measured: that needs what draws images, and --knobs with what can be changed."
        return paragraph(next((note for note in notes if note.startswith(KNOBS_LEFT_OUT)), needs))
    rows = []
    for effect in found["effects"]:
        value, low, high = map(number, effect["factor"])
        rows.append((effect["knob"], f"×{value} ({low} to {high})", effect["change"]))
    text = paragraph(
        f"For each setting, solvers are trained from {NAMES[found['start']]}, on {counted(found['draws'], 'draw')} of "
        "labels; all settings have the same seeds, and the same texts as far as the levels allow. The factor compares "
        "how many labels a solver needs with how many it needs now: ×3 means three times as many. Until "
        "they are retrained, solvers of the first setting read what the last column says."
    )
    settings = [
        (
            each["label"],
            f"{each['labels']:,}",
            ", ".join(map(percent, each["shares"])),
            percent(each["fixed"]),
        )
        for each in found["settings"]
    ]
    pairs = found["confounded"]
    cannot = (
        "Pairs of knobs whose joint effects these settings cannot tell apart. They count as error:"
    )
    what = "knobs at their last level" if pairs else "setting"
    title = "Factors on the labels needed; the table below has the numbers"
    return (
        text
        + figure(as_svg(draw_effects(found["effects"]), title))
        + table("Effects, with 95 % intervals", ("knob", "labels needed", "change"), rows)
        + table(
            "Settings", (what, "labels", "read, in each draw", "read until retrained"), settings
        )
        + (paragraph(cannot) + listed(pairs) if pairs else "")
    )


def people(found: dict[str, Any] | None) -> str:
    """Section 10: how well people read it."""
    published = (
        "Published for text captchas: three people agree on 71 % of the images (Bursztein et al. 2010); "
        "people solve 50 to 84 % and take up to 15 s (Searles et al. 2023)."
    )
    if found is None:
        return paragraph(
            "Not measured. captcha-ocr label FOLDER --blind measures it on the same images."
        ) + paragraph(published)
    share = with_interval(found["right"] / found["images"], found["interval"])
    seconds = "" if found["seconds"] is None else f", in {found['seconds']:.1f} s (median)"
    return paragraph(f"A person read {share} of {found['images']:,} images{seconds}.") + paragraph(
        published
    )

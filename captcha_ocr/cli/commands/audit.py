"""The command that audits a captcha."""

import json
from pathlib import Path
from typing import Any

import click

from captcha_ocr.cli.app import main
from captcha_ocr.cli.options import (
    FILE,
    FOLDER,
    NEW_FILE,
    add_options,
    charset_option,
    given,
    json_option,
    length_option,
    option,
    quiet_option,
    seed_option,
)
from captcha_ocr.options.auditing import AuditOptions
from captcha_ocr.system.console import command_line
from captcha_ocr.system.signals import deferred

_PAGE = Path("audit.html")
_MIN_BUDGET = 5  # minutes
_REPEATED = ("design", "command", "call", "charset", "lengths", "knobs", "budget", "people", "out")


@main.command()
@click.argument("folder", type=FOLDER, required=False)
@option("--design", help="Audit a design: a named one or a TOML file (docs/designs.md).")
@option(
    "--command",
    metavar="'…'",
    help="Audit a command that draws: with {text} and {out}, or {list} and {folder}.",
)
@option(
    "--call",
    metavar="MODULE:FUNCTION",
    help="Audit a Python function of a text and a seed that draws.",
)
@charset_option("Characters of the texts. Needed with --command and --call.")
@length_option("Characters per text. Needed with --command and --call.")
@option(
    "--knobs",
    type=FILE,
    help="Levels of what can be changed, in [knobs] of a TOML file, the present one first.",
)
@option(
    "--budget",
    type=click.IntRange(_MIN_BUDGET),
    default=60,
    metavar="MINUTES",
    help="Minutes it may take in all.",
)
@option("--people", type=FOLDER, help="Answers to the same images: the --out of label --blind.")
@option(
    "--out",
    type=NEW_FILE,
    default=_PAGE,
    help="The page. The work is in a folder of that name without .html.",
)
@add_options(seed_option, quiet_option, json_option)
def audit(folder: Path | None, quiet: bool, as_json: bool, **options: Any) -> None:
    """Measure how long a captcha would hold: labels, cost and attempts of a solver that is trained
    for it.

    Give a FOLDER of labelled images, or one of --design, --command, --call, which draw new ones.
    If it is interrupted, the same command goes on.

    Example: captcha-ocr audit my-captchas --budget 60
    """
    with deferred():
        # torch and matplotlib take seconds to import
        from captcha_ocr.audit.audit import audit as run_audit
        from captcha_ocr.audit.page.report import key_figures, render_page
        from captcha_ocr.audit.verdict import KINDS
        from captcha_ocr.system.files import write_atomic

    request = AuditOptions(**options)
    results = run_audit(folder, request, quiet)
    words = given(*_REPEATED, "seed")
    if folder is not None:
        words.insert(0, str(folder))
    page = render_page(results, command_line("audit", *words))
    write_atomic(request.out, page.encode())
    if as_json:
        click.echo(json.dumps({"out": str(request.out), **results.to_dict()}, ensure_ascii=False))
        return
    click.echo(f"verdict    {KINDS[results.verdict.kind]}. {results.verdict.why}")
    for figure in key_figures(results):
        click.echo(f"{figure.name.lower():10} {figure.value} {figure.meaning}")
    click.echo(f"page       {request.out}")

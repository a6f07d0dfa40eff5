"""The command that audits a captcha."""

import json
from pathlib import Path

import click

from captcha_ocr.charset import resolve_alphabet
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
from captcha_ocr.config import Lengths
from captcha_ocr.errors import UsageError, check
from captcha_ocr.system.console import command_line
from captcha_ocr.system.signals import deferred

PAGE = Path("audit.html")
MIN_BUDGET = 5  # minutes


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
    type=click.IntRange(MIN_BUDGET),
    default=60,
    metavar="MINUTES",
    help="Minutes it may take in all.",
)
@option("--people", type=FOLDER, help="Answers to the same images: the --out of label --blind.")
@option(
    "--out",
    type=NEW_FILE,
    default=PAGE,
    help="The page. The work is in a folder of that name without .html.",
)
@add_options(seed_option, quiet_option, json_option)
def audit(
    folder: Path | None,
    design: str | None,
    command: str | None,
    call: str | None,
    charset: str | None,
    lengths: Lengths | None,
    knobs: Path | None,
    budget: int,
    people: Path | None,
    out: Path,
    seed: int,
    quiet: bool,
    as_json: bool,
) -> None:
    """Measure how long a captcha would hold: labels, cost and attempts of a solver that is trained for it.

    Give a FOLDER of labelled images, or one of --design, --command, --call, which draw new ones. If it is
    interrupted, the same command goes on.

    Example: captcha-ocr audit my-captchas --budget 60
    """
    sources = [each for each in (folder, design, command, call) if each is not None]
    check(len(sources) == 1, "an audit takes one of: a FOLDER, --design, --command, --call")
    check(out.suffix == ".html", f"--out {out} must end with .html")
    with deferred():
        from captcha_ocr.audit import audit as audits
        from captcha_ocr.audit.knobs import read_knobs
        from captcha_ocr.audit.markup import finite
        from captcha_ocr.audit.report import figures_of, page_of
        from captcha_ocr.audit.sources import CommandSource, DesignSource, Source
        from captcha_ocr.audit.verdict import KINDS
        from captcha_ocr.system.files import write_atomic

    source: Source | Path
    if folder is not None:
        check(knobs is None, "--knobs needs a source that draws: --design, --command or --call")
        check(
            charset is None and lengths is None,
            f"--charset and --length are for what draws; {folder} has its texts",
        )
        work, images = out.with_suffix("").resolve(), folder.resolve()
        apart = not work.is_relative_to(images) and not images.is_relative_to(work)
        check(
            apart,
            f"--out {out} would put the work among the images of {folder}; choose another name or place",
        )
        source = folder
    elif design is not None:
        source = DesignSource(design, charset, lengths)
    else:
        if charset is None or lengths is None:
            raise UsageError(
                "--command and --call need --charset and --length: the audit chooses the texts"
            )
        make = CommandSource.from_template if command is not None else CommandSource.from_function
        source = make(command or call or "", resolve_alphabet(charset), lengths)
    options = audits.AuditOptions(
        60 * budget, seed, read_knobs(knobs) if knobs else {}, people, quiet
    )
    knobs_text = knobs.read_text("utf-8") if knobs else ""
    results = audits.audit(source, out.with_suffix(""), options)
    words = [
        *given(
            "design",
            "command",
            "call",
            "charset",
            "lengths",
            "knobs",
            "budget",
            "people",
            "out",
            "seed",
        )
    ]
    repeat = command_line("audit", *([str(folder)] if folder else []), *words)
    write_atomic(out, page_of(results, repeat, knobs_text).encode())
    if as_json:
        click.echo(json.dumps({"out": str(out), **finite(results)}, ensure_ascii=False))
        return
    click.echo(f"verdict    {KINDS[results['verdict']['kind']]}. {results['verdict']['why']}")
    for name, value, meaning in figures_of(results):
        click.echo(f"{name.lower():10} {value} {meaning}")
    click.echo(f"page       {out}")

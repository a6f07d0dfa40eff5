"""The command that audits a captcha."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

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
from captcha_ocr.errors import UsageError, check
from captcha_ocr.options.model import Lengths
from captcha_ocr.system.console import command_line
from captcha_ocr.system.signals import deferred

if TYPE_CHECKING:
    from captcha_ocr.audit.images.generators import ImageGenerator

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
    """Measure how long a captcha would hold: labels, cost and attempts of a solver that is trained
    for it.

    Give a FOLDER of labelled images, or one of --design, --command, --call, which draw new ones.
    If it is interrupted, the same command goes on.

    Example: captcha-ocr audit my-captchas --budget 60
    """
    sources = [source for source in (folder, design, command, call) if source is not None]
    check(len(sources) == 1, "an audit takes one of: a FOLDER, `design`, `command`, `call`")
    check(out.suffix == ".html", f"`out` {out} must end with .html")
    with deferred():
        # torch and matplotlib take seconds to import
        from captcha_ocr.audit.audit import AuditOptions
        from captcha_ocr.audit.audit import audit as run_audit
        from captcha_ocr.audit.page.report import key_figures, render_page
        from captcha_ocr.audit.solvers.knobs import read_knobs
        from captcha_ocr.audit.verdict import KINDS
        from captcha_ocr.system.files import write_atomic

    source: ImageGenerator | Path
    if folder is None:
        source = _make_generator(design, command, call, charset, lengths)
    else:
        check(knobs is None, "`knobs` needs a source that draws: `design`, `command` or `call`")
        texts = f"`charset` and `lengths` are for what draws; {folder} has its texts"
        check(charset is None and lengths is None, texts)
        _check_apart(out, folder)
        source = folder
    levels: dict[str, list[Any]] = {}
    knobs_text = ""
    if knobs is not None:
        levels, knobs_text = read_knobs(knobs), knobs.read_text("utf-8")
    options = AuditOptions(60 * budget, seed, levels, people, quiet)
    results = run_audit(source, out.with_suffix(""), options)
    words = given(*_REPEATED, "seed")
    if folder is not None:
        words.insert(0, str(folder))
    page = render_page(results, command_line("audit", *words), knobs_text)
    write_atomic(out, page.encode())
    if as_json:
        click.echo(json.dumps({"out": str(out), **results.to_dict()}, ensure_ascii=False))
        return
    click.echo(f"verdict    {KINDS[results.verdict.kind]}. {results.verdict.why}")
    for figure in key_figures(results):
        click.echo(f"{figure.name.lower():10} {figure.value} {figure.meaning}")
    click.echo(f"page       {out}")


def _check_apart(out: Path, folder: Path) -> None:
    """Refuse a page whose work would lie among the images, or the images among the work."""
    work, images = out.with_suffix("").resolve(), folder.resolve()
    is_apart = not work.is_relative_to(images) and not images.is_relative_to(work)
    place = f"`out` {out} would put the work among the images of {folder}"
    check(is_apart, f"{place}; choose another name or place")


def _make_generator(
    design: str | None,
    command: str | None,
    call: str | None,
    charset: str | None,
    lengths: Lengths | None,
) -> "ImageGenerator":
    with deferred():
        # numpy and Pillow take a while to import
        from captcha_ocr.audit.images.generators import CommandGenerator, DesignGenerator

    if design is not None:
        return DesignGenerator(design, charset, lengths)
    if charset is None or lengths is None:
        raise UsageError(
            "`command` and `call` need `charset` and `lengths`: the audit chooses the texts"
        )
    characters = resolve_alphabet(charset)
    if command is not None:
        return CommandGenerator.from_template(command, characters, lengths)
    return CommandGenerator.from_function(call or "", characters, lengths)

"""The command that audits a captcha."""

from pathlib import Path

import click

from captcha_ocr.cli.app import main
from captcha_ocr.cli.options import FOLDER, Given, takes
from captcha_ocr.cli.wording import given_words, report
from captcha_ocr.options.auditing import AuditOptions
from captcha_ocr.options.declaration import declarations
from captcha_ocr.options.shared import ReportOptions
from captcha_ocr.system.console import command_line
from captcha_ocr.system.files import write_atomic
from captcha_ocr.system.signals import deferred


@main.command()
@click.argument("folder", type=FOLDER, required=False)
@takes(AuditOptions)
@takes(ReportOptions)
def audit(folder: Path | None, given: Given) -> None:
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

    options = given[AuditOptions]
    results = run_audit(folder, options, given[ReportOptions].quiet)
    words = given_words(*declarations(AuditOptions))
    if folder is not None:
        words.insert(0, str(folder))
    write_atomic(options.out, render_page(results, command_line("audit", *words)).encode())
    lines = [f"verdict    {KINDS[results.verdict.kind]}. {results.verdict.why}"]
    lines += [
        f"{name.lower():10} {value} {meaning}" for name, value, meaning in key_figures(results)
    ]
    work = options.out.with_suffix("")
    megabytes = sum(file.lstat().st_size for file in work.rglob("*")) / 1e6
    lines.append(f"page       {options.out}")
    lines.append(f"work       {work}: {megabytes:,.0f} MB; delete it when you need it no more")
    report({"out": str(options.out), **results.to_dict()}, "\n".join(lines))

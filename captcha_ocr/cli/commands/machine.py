"""The commands about this machine: bench, doctor."""

import json
from pathlib import Path

import click

from captcha_ocr.cli.app import main
from captcha_ocr.cli.options import MODEL, RUN, json_option, option, threads_option
from captcha_ocr.cli.wording import word_command
from captcha_ocr.errors import Command
from captcha_ocr.inference.model_folder import default_model
from captcha_ocr.options.training import PRESETS
from captcha_ocr.system.signals import deferred


@main.command()
@option(
    "--preset",
    type=click.Choice(list(PRESETS)),
    default="default",
    help="Its network and batch size are used.",
)
@threads_option
@json_option
def bench(preset: str, threads: int | None, as_json: bool) -> None:
    """Measure how many images per second each device trains on and reads.

    Takes less than a minute.

    Example: captcha-ocr bench --preset seed
    """
    from dataclasses import asdict

    with deferred():
        from captcha_ocr.diagnostics.bench import measure_speed
        from captcha_ocr.network.device import available_devices
        from captcha_ocr.system.console import Table

    speeds = Table({f"{'device':44}": 44, "training": 12, "reading": 12})
    if not as_json:
        click.echo(f"images/s with preset {preset}\n{speeds.header}")
    for name in available_devices():
        speed = measure_speed(name, preset, threads)
        if as_json:
            click.echo(json.dumps(asdict(speed)))
        else:
            click.echo(
                speeds.row(f"{speed.device:44}", f"{speed.training:,.0f}", f"{speed.reading:,.0f}")
            )


@main.command()
@option(
    "--model",
    "model_folder",
    type=MODEL,
    help="A model or run folder, or pretrained.  [default: as for eval]",
)
@json_option
def doctor(model_folder: Path | None, as_json: bool) -> None:
    """Print the devices and versions of this machine, and the model that eval uses.

    Example: captcha-ocr doctor --json
    """
    with deferred():
        from captcha_ocr.diagnostics.doctor import examine_machine, format_facts

    facts = examine_machine(model_folder or default_model(RUN))
    if as_json:
        click.echo(json.dumps(facts, ensure_ascii=False))
        return
    click.echo(format_facts(facts))
    if facts["model"] is None:
        click.echo(f"model      none; make one with: {word_command(Command('train'))}")

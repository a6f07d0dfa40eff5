"""The commands about this machine: bench, doctor."""

import json
from dataclasses import asdict

import click

from captcha_ocr.cli.app import main
from captcha_ocr.cli.options import Given, takes
from captcha_ocr.cli.wording import report
from captcha_ocr.inference.model_folder import default_model
from captcha_ocr.options.shared import ReadingOptions, ReportOptions
from captcha_ocr.options.training import PRESETS, TrainConfig
from captcha_ocr.system.console import Table
from captcha_ocr.system.signals import deferred


@main.command()
@takes(TrainConfig, "preset", shown="default", type=click.Choice(list(PRESETS)))
@takes(ReadingOptions, "threads")
@takes(ReportOptions, "as_json")
def bench(given: Given) -> None:
    """Measure how many images per second each device trains on and reads.

    Takes less than a minute.

    Example: captcha-ocr bench --preset seed
    """
    with deferred():
        from captcha_ocr.diagnostics.bench import measure_speed
        from captcha_ocr.network.device import available_devices

    preset, threads = given[TrainConfig].preset, given[ReadingOptions].threads
    as_json = given[ReportOptions].as_json
    speeds = Table({f"{'device':44}": 44, "training": 12, "reading": 12})
    if not as_json:
        click.echo(f"images/s with preset {preset}\n{speeds.header}")
    for name in available_devices():
        speed = measure_speed(name, preset, threads)
        if as_json:
            click.echo(json.dumps(asdict(speed)))
        else:
            numbers = f"{speed.training:,.0f}", f"{speed.reading:,.0f}"
            click.echo(speeds.row(f"{speed.device:44}", *numbers))


@main.command()
@takes(ReadingOptions, "model_folder", shown="as for eval")
@takes(ReportOptions, "as_json")
def doctor(given: Given) -> None:
    """Print the devices and versions of this machine, and the model that eval uses.

    Example: captcha-ocr doctor --json
    """
    with deferred():
        from captcha_ocr.diagnostics.doctor import examine_machine, format_facts

    facts = examine_machine(given[ReadingOptions].model_folder or default_model())
    report(facts, format_facts(facts))

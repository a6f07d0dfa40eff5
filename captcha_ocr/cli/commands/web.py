"""The commands with a page in the browser: serve, label."""

import sys
from importlib.util import find_spec
from pathlib import Path

import click

from captcha_ocr.cli.app import main
from captcha_ocr.cli.options import FOLDER, Given, takes
from captcha_ocr.cli.wording import note, word_command
from captcha_ocr.errors import check
from captcha_ocr.inference.model_folder import default_model, find_model_folder
from captcha_ocr.options.serving import LabelOptions, ServeOptions
from captcha_ocr.options.shared import ReadingOptions
from captcha_ocr.system.console import counted
from captcha_ocr.system.files import writing_to
from captcha_ocr.system.signals import deferred


@main.command()
@takes(ReadingOptions, "model_folder")
@takes(ServeOptions)
def serve(given: Given) -> None:
    """Read images that are sent by HTTP, and offer a page for it.

    Prints a JSON line for each request. SIGTERM or Ctrl-C ends it; requests in work are finished
    first.

    Example: captcha-ocr serve --port 8000
    """
    how = given[ServeOptions]
    folder = find_model_folder(given[ReadingOptions].model_folder or default_model())
    with deferred():
        _need_web("serve")
        from captcha_ocr.web.reading_service import open_service
        from captcha_ocr.web.server import listen, run

    service = open_service(folder, how)
    listener, address = listen(how.host, how.port, how.token)
    note(f"model      {service.facts['model']}\ndevice     {service.facts['engine']}")
    click.echo(f"page       {address.page}", err=True)
    run(service.guard(address, sys.stdout), listener)


@main.command()
@click.argument("folder", type=FOLDER)
@takes(ReadingOptions, "model_folder", shown="as for eval")
@takes(LabelOptions)
def label(folder: Path, given: Given) -> None:
    """Label the images of a FOLDER in the browser, with the guesses of a model that learns
    meanwhile.

    Every label is in FOLDER/labels.csv before the next image comes. Ctrl-C ends it; the same
    command goes on. With --blind the answers are scored against the labels that the folder has, at
    the end.

    Example: captcha-ocr label my-captchas
    """
    how = given[LabelOptions]
    with deferred():
        _need_web("label")
        from captcha_ocr.web.label.service import guard_labelling
        from captcha_ocr.web.label.session import LabelSession
        from captcha_ocr.web.server import listen, run

    model_folder = find_model_folder(given[ReadingOptions].model_folder or default_model())
    with writing_to(folder):
        session = LabelSession(folder, model_folder, how)
        listener, address = listen("127.0.0.1", how.port, "new")
        store = session.store
        counts = f"{len(store.entries):,} in {store.folder}, {session.labelled:,} of them labelled"
        note(f"images     {counts}\nmodel      {session.model}")
        if store.left_out:
            images = counted(len(store.left_out), "image")
            example = repr(store.left_out[0])
            note(f"left out   {images} whose name no table can hold, such as {example}")
        click.echo(f"page       {address.page}", err=True)
        session.start()
        try:
            run(guard_labelling(session, address, word_command), listener)
        finally:
            session.stop()
        progress = session.progress()
        commands = list(map(word_command, progress["commands"]))
        people = session.score_answers() if how.blind else ""
    note(f"labelled   {progress['labelled']:,} of {progress['images']:,} images")
    if commands:
        note("next       " + "\n           ".join(commands))
    if people:
        click.echo(people)


def _need_web(command: str) -> None:
    """Raise UsageError if the packages of the extra `web` are missing."""
    missing = next((name for name in ("starlette", "uvicorn") if find_spec(name) is None), None)
    check(missing is None, f"{command} needs {missing}; install it with: pip install '.[web]'")

"""The commands with a page in the browser: serve, label."""

import re
import signal
import sys
import threading
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import click

from captcha_ocr.cli.app import main
from captcha_ocr.cli.options import FOLDER, Given, takes
from captcha_ocr.cli.wording import escape, note, read_command, word_command
from captcha_ocr.errors import CaptchaOcrError, check, in_one_line
from captcha_ocr.inference.model_folder import default_model, find_model_folder, name_model
from captcha_ocr.options.serving import LabelOptions, ServeOptions
from captcha_ocr.options.shared import LABELLED, ReadingOptions
from captcha_ocr.system.console import counted, say
from captcha_ocr.system.files import read_text, writing_to
from captcha_ocr.system.processors import available_workers
from captcha_ocr.system.signals import deferred

if TYPE_CHECKING:
    from captcha_ocr.recognizer import Recognizer
    from captcha_ocr.web.label.session import LabelSession
    from captcha_ocr.web.reading_service import ReadingService

_TOKEN = re.compile(r"[\w.~+/-]{6,}=*", re.ASCII)  # a bearer token (RFC 6750) of 6 or more


@main.command()
@takes(ReadingOptions, "model_folder")
@takes(ServeOptions)
def serve(given: Given) -> None:
    """Read images that are sent by HTTP, and offer a page for it.

    Prints a JSON line for each request. SIGTERM or Ctrl-C ends it; requests in work are finished
    first. SIGHUP loads the model again.

    Example: captcha-ocr serve --port 8000
    """
    how, hangup = given[ServeOptions], threading.Event()
    # A terminal sends it when it is closed
    if hasattr(signal, "SIGHUP") and not (sys.stderr and sys.stderr.isatty()):
        signal.signal(signal.SIGHUP, lambda *_: hangup.set())
    with deferred():
        _need_web("serve")
        from captcha_ocr.recognizer import Recognizer
        from captcha_ocr.web.log import LineLog
        from captcha_ocr.web.reading_service import ReadingService
        from captcha_ocr.web.server import listen, run

    threads = how.concurrency or available_workers()

    def load() -> tuple[Path, "Recognizer"]:
        folder = find_model_folder(given[ReadingOptions].model_folder or default_model())
        return folder, Recognizer(folder, how.device, how.engine, threads=threads)

    service = ReadingService(*load(), threads)
    listener, address = listen(how.host, how.port, _find_token(how))
    note(f"model      {service.facts['model']}\ndevice     {service.facts['engine']}")
    click.echo(f"page       {address.page}", err=True)
    reload = partial(_reload_when_told, hangup, service, load, how.quiet)
    threading.Thread(target=reload, daemon=True).start()
    log = None if how.quiet else LineLog(sys.stdout).write
    run(service.guard(address, log, how.allow_origin, how.root_path), listener)


def _find_token(how: ServeOptions) -> str | None:
    """Return the token in the file if there is one, else the one that is given.

    UsageError if it fits no header, or is found by trying.
    """
    token, name = how.token, "`token`, or CAPTCHA_OCR_TOKEN,"
    if how.token_file is not None:
        token, name = read_text(how.token_file).strip(), f"the token in {how.token_file}"
    check(
        token in (None, "new") or _TOKEN.fullmatch(str(token)) is not None,
        f"{name} must be 6 or more letters, digits and -._~+/, without a name or quotes",
    )
    return token


def _reload_when_told(
    hangup: threading.Event,
    service: "ReadingService",
    load: Callable[[], tuple[Path, "Recognizer"]],
    quiet: bool,
) -> None:
    """Load the model again, once for all signals that came meanwhile."""
    while hangup.wait():
        hangup.clear()
        try:
            service.use(*load())
            say(f"model      loaded again: {service.facts['model']}", quiet)
        except CaptchaOcrError as error:
            say(f"model      as before: {in_one_line(str(error))}")


@main.command()
@click.argument("folder", type=FOLDER)
@takes(ReadingOptions, "model_folder", shown="as for eval")
@takes(LabelOptions)
def label(folder: Path, given: Given) -> None:
    """Label the images of a FOLDER in the browser, with the guesses of a model that learns
    meanwhile.

    Every label is in FOLDER/labels.csv before the next image comes. Ctrl-C ends it; the same
    command goes on. eval reads with the model that it made. With --blind the answers are scored
    against the labels that the folder has, at the end.

    Example: captcha-ocr label my-captchas
    """
    how = given[LabelOptions]
    with deferred():
        _need_web("label")
        from captcha_ocr.data.labels import find_labels
        from captcha_ocr.web.label.service import LabelService
        from captcha_ocr.web.label.session import LabelSession
        from captcha_ocr.web.server import listen, run

    model_folder = find_model_folder(given[ReadingOptions].model_folder or default_model())
    with writing_to(folder):
        words = given.values(LabelOptions)
        if "model_folder" in given.values(ReadingOptions):
            words["model_folder"] = name_model(model_folder)
        session = LabelSession(folder, model_folder, how, words)
        listener, address = listen(how.host, how.port, "new")
        store = session.store
        note(
            f"images     {len(store.entries):,} in {escape(str(store.folder))}, "
            f"{session.labelled:,} of them labelled\nmodel      {session.model}"
        )
        named = 0 if store.table.exists() or how.blind else len(find_labels(folder).labels)
        if named:
            note(f"names      {named:,} hold texts, which no longer count beside a labels.csv")
        if store.left_out:
            images = f"{counted(len(store.left_out), 'image')} whose name no table can hold"
            note(f"left out   {images}, such as {store.left_out[0]!r}")
        click.echo(f"page       {address.page}", err=True)
        session.start()
        try:
            run(LabelService(session, word_command).guard(address), listener)
        finally:
            session.stop()
        people = session.score_answers() if how.blind else ""
    _tell_what_follows(session)
    if people:
        click.echo(people)


def _tell_what_follows(session: "LabelSession") -> None:
    """Print how far a session came, which model reads now, and the commands that work next."""
    progress = session.progress()
    note(f"labelled   {progress['labelled']:,} of {progress['images']:,} images")
    if "accuracy" in progress:
        score = progress["accuracy"]
        low, high = score["interval"]
        note(
            f"model      {session.model} reads {score['right']:,} of {score['images']:,} labels "
            f"that it did not learn (95 % interval {low:.0%} to {high:.0%})"
        )
    elif progress["unscored"]:
        more = counted(progress["unscored"], "more label")
        note(f"model      {session.model}, whose score needs {more}")
    for command in progress["commands"]:
        needed = f"  (a model needs {counted(progress['needed'], 'more label')})"
        note(f"next       {word_command(command)}{needed if progress['needed'] else ''}")
    if session.has_default:
        note(f"or         {read_command(LABELLED, session.store.folder)}")


def _need_web(command: str) -> None:
    """Raise UsageError if the packages of the extra `web` are missing."""
    needed = ("starlette", "uvicorn")
    missing = next((name for name in needed if find_spec(name) is None), None)
    check(missing is None, f"{command} needs {missing}: pip install {' '.join(needed)}")

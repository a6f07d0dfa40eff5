"""The commands with a page in the browser: serve, label."""

import re
import secrets
import socket
import sys
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import quote

import click

from captcha_ocr.cli.app import main
from captcha_ocr.cli.options import (
    FOLDER,
    MODEL,
    RUN,
    add_options,
    device_option,
    engine_option,
    option,
    quiet_option,
    reading_model_option,
)
from captcha_ocr.cli.wording import word_command
from captcha_ocr.errors import check
from captcha_ocr.inference.model_folder import (
    default_model,
    describe_model,
    find_model_folder,
    read_config,
)
from captcha_ocr.options.limits import MAX_BYTES, MAX_THREADS
from captcha_ocr.options.model import EngineName
from captcha_ocr.system.console import counted
from captcha_ocr.system.signals import deferred

LABEL_RUN = Path("runs/label")
LOOPBACK = ("127.0.0.1", "localhost", "::1")
ANY_ADDRESS = ("0.0.0.0", "::")
HTTP_PORT = 80


@main.command()
@reading_model_option
@option(
    "--host",
    default="127.0.0.1",
    help="The address to listen on. Any but the loopback needs --token.",
)
@option("--port", type=click.IntRange(0, 65535), default=8000, help="0 takes a free one.")
@option("--token", help="Requests must send it: Authorization: Bearer TOKEN. `new` makes one.")
@option(
    "--concurrency",
    type=click.IntRange(1, MAX_THREADS),
    help="Images read at once.  [default: processors]",
)
@engine_option
@add_options(device_option, quiet_option)
def serve(
    model_folder: Path | None,
    host: str,
    port: int,
    token: str | None,
    concurrency: int | None,
    engine: EngineName,
    device: str,
    quiet: bool,
) -> None:
    """Read images that are sent by HTTP, and offer a page for it.

    Prints a JSON line for each request. SIGTERM or Ctrl-C ends it; requests in work are finished first.

    Example: captcha-ocr serve --port 8000
    """
    check(host in LOOPBACK or bool(token), f"--host {host} lets other machines ask; set a --token")
    token = secrets.token_urlsafe(24) if token == "new" else token
    check(
        token is None or re.fullmatch("[!-~]+", token) is not None,
        "--token must be ASCII without blanks",
    )
    folder = find_model_folder(model_folder or default_model(RUN))
    with deferred():
        needs_web("serve")
        from captcha_ocr.recognizer import Recognizer
        from captcha_ocr.system.parallel import available_workers
        from captcha_ocr.web.reading_service import ReadingService, guard_reading
        from captcha_ocr.web.server import listen, run

    concurrency = concurrency or available_workers()
    recognizer = Recognizer(folder, device, engine, max_bytes=MAX_BYTES, threads=concurrency)
    listener = listen(host, port)
    port = listener.getsockname()[1]
    facts = {
        "model": describe_model(folder),
        "sha256": read_config(folder)["sha256"],
        "alphabet": recognizer.config.charset.characters,
        "length": {
            "shortest": recognizer.config.lengths.shortest,
            "longest": recognizer.config.lengths.longest,
        },
        "engine": str(recognizer.engine),
    }
    hosts = None if host in ANY_ADDRESS else hosts_of(host, port)
    app = guard_reading(ReadingService(recognizer, concurrency, facts), hosts, token, sys.stdout)
    if not quiet:
        click.echo(f"model      {facts['model']}\ndevice     {recognizer.engine}", err=True)
    shown = socket.gethostname() if host in ANY_ADDRESS else f"[{host}]" if ":" in host else host
    click.echo(
        f"page       http://{shown}:{port}/{f'#token={quote(token)}' if token else ''}", err=True
    )
    run(app, listener)


@main.command()
@click.argument("folder", type=FOLDER)
@option(
    "--model",
    "model_folder",
    type=MODEL,
    default=None,
    help="The model that guesses.  [default: as for eval]",
)
@option(
    "--blind",
    is_flag=True,
    help="Show no guesses: measure how well people read. Writes OUT/answers.csv.",
)
@option("--port", type=click.IntRange(0, 65535), default=8001, help="0 takes a free one.")
@option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    help=f"For models and a journal.  [default: {LABEL_RUN}/NAME]",
)
@add_options(device_option, quiet_option)
def label(
    folder: Path,
    model_folder: Path | None,
    blind: bool,
    port: int,
    out: Path | None,
    device: str,
    quiet: bool,
) -> None:
    """Label the images of a FOLDER in the browser, with the guesses of a model that learns meanwhile.

    Every label is in FOLDER/labels.csv before the next image comes. Ctrl-C ends it; the same command goes on. With
    --blind the answers are scored against the labels that the folder has, at the end.

    Example: captcha-ocr label my-captchas
    """
    with deferred():
        needs_web("label")
        from captcha_ocr.data.answers import ANSWERS_FILE
        from captcha_ocr.system.files import writing_to
        from captcha_ocr.web.label.service import guard_labelling
        from captcha_ocr.web.label.session import LabelSession
        from captcha_ocr.web.label.store import LabelStore
        from captcha_ocr.web.server import listen, run

    model_folder = find_model_folder(model_folder or default_model(RUN))
    out = out or LABEL_RUN / place_of(folder)
    with writing_to(folder):
        store = LabelStore(folder, out / ANSWERS_FILE if blind else None)
        out.mkdir(parents=True, exist_ok=True)
        session = LabelSession(store, model_folder, out, device)
        listener = listen("127.0.0.1", port)
        port, token = listener.getsockname()[1], secrets.token_urlsafe(24)
        hosts = hosts_of("127.0.0.1", port)
        if not quiet:
            click.echo(
                f"images     {len(store.entries):,} in {folder}, {session.labelled:,} of them labelled",
                err=True,
            )
            click.echo(f"model      {session.model}", err=True)
            if store.left_out:
                what = (
                    f"{counted(len(store.left_out), 'image')} whose name no table can hold, such as"
                )
                click.echo(f"left out   {what} {store.left_out[0]!r}", err=True)
        click.echo(f"page       http://127.0.0.1:{port}/#token={token}", err=True)
        session.start()
        try:
            run(guard_labelling(session, hosts, token, word_command), listener)
        finally:
            session.stop()
        progress = session.progress()
        commands = list(map(word_command, session.next_commands()))
        people = session.score_answers() if blind else ""
    if not quiet:
        click.echo(
            f"labelled   {progress['labelled']:,} of {progress['images']:,} images", err=True
        )
        if commands:
            click.echo("next       " + "\n           ".join(commands), err=True)
    if people:
        click.echo(people)


def place_of(folder: Path) -> Path:
    """Return the path of a folder below the current one, or below the root if it lies elsewhere."""
    whole = folder.resolve()
    return whole.relative_to(Path.cwd() if whole.is_relative_to(Path.cwd()) else whole.anchor)


def needs_web(command: str) -> None:
    """Raise UsageError if the packages of the extra `web` are missing."""
    missing = next((name for name in ("starlette", "uvicorn") if find_spec(name) is None), None)
    check(missing is None, f"{command} needs {missing}; install it with: pip install '.[web]'")


def hosts_of(host: str, port: int) -> frozenset[str]:
    """Return the values of the header Host by which this server is called; port 80 is left out of them."""
    names = (
        ("127.0.0.1", "localhost", "[::1]")
        if host in LOOPBACK
        else (host.lower(), f"[{host.lower()}]")
    )
    return frozenset(
        name for each in names for name in (f"{each}:{port}", *[each] * (port == HTTP_PORT))
    )

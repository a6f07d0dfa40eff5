"""The service of `captcha-ocr serve`: read images sent by HTTP."""

import asyncio
import json
import re
import threading
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from queue import SimpleQueue
from typing import Any, TextIO

import numpy as np
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import FileResponse, JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from captcha_ocr.config import Lengths
from captcha_ocr.data.images import ImageSource, from_base64
from captcha_ocr.errors import CaptchaOcrError, ImageError, UsageError, check
from captcha_ocr.inference.decoding import Reading
from captcha_ocr.recognizer import Recognizer
from captcha_ocr.version import __version__
from captcha_ocr.web.gate import Gate, error
from captcha_ocr.web.metrics import CONTENT_TYPE, Metrics

FOLDER = Path(__file__).parent
MAX_JSON, MAX_BATCH, MAX_IMAGES = 3_000_000, 16_000_000, 64  # bytes, bytes, images
LIMITS = {"/v1/read": MAX_JSON, "/v1/read/batch": MAX_BATCH}
JSON_TYPE, RAW_TYPES = "application/json", re.compile(r"image/.*|application/octet-stream|")
OPEN_PATHS = ("/healthz", "/readyz", "/openapi.json")  # without the token, beside the page
OPTIONS = ("charset", "length", "fold_case", "min_confidence")
TOGETHER = 16  # images that one thread reads at once
WAITING = 40  # images that wait for each thread; more get 503
RETRY_AFTER_S = 1


@dataclass(frozen=True)
class Job:
    """An image that waits to be read, by a recognizer that may have the options of one request; and its reader."""

    recognizer: Recognizer
    image: ImageSource
    loop: asyncio.AbstractEventLoop
    future: "asyncio.Future[Reading | ImageError]"

    def finish(self, result: Reading | ImageError | BaseException) -> None:
        """Give the result to who waits for it, if it still does; called in the thread of the event loop."""
        if self.future.done():
            return
        if isinstance(result, BaseException) and not isinstance(result, ImageError):
            self.future.set_exception(result)
        else:
            self.future.set_result(result)


class ReadingThreads:
    """Threads that read what waits: a thread takes several images at once, which costs less than one by one."""

    def __init__(self, count: int) -> None:
        self.most = WAITING * count
        self.waiting: SimpleQueue[Job] = SimpleQueue()
        self.lock = threading.Lock()
        for _ in range(count):
            threading.Thread(target=self.work, daemon=True).start()

    def is_full(self, more: int = 1) -> bool:
        """Tell whether so many more images are too many; any number may come where none waits."""
        waiting = self.waiting.qsize()
        return waiting > 0 and waiting + more > self.most

    async def read(self, recognizer: Recognizer, image: ImageSource) -> Reading | ImageError:
        """Return what a recognizer reads, or the ImageError; the event loop answers others meanwhile."""
        loop = asyncio.get_running_loop()
        job = Job(recognizer, image, loop, loop.create_future())
        self.waiting.put(job)
        return await job.future

    def work(self) -> None:
        """Read what waits, for ever."""
        while True:
            jobs = self.take()
            for recognizer in {job.recognizer for job in jobs}:
                self.read_together(
                    recognizer, [job for job in jobs if job.recognizer is recognizer]
                )

    def take(self) -> list[Job]:
        """Wait for a job, and take it with those behind it, TOGETHER at most."""
        with self.lock:
            first = self.waiting.get()
            others = min(TOGETHER - 1, self.waiting.qsize())
            return [first, *(self.waiting.get_nowait() for _ in range(others))]

    def read_together(self, recognizer: Recognizer, jobs: list[Job]) -> None:
        """Read images with one recognizer."""
        results: list[Reading | ImageError | BaseException]
        try:
            results = list(recognizer.read_all([job.image for job in jobs]))
        except BaseException as error:
            results = [error] * len(jobs)
        for job, result in zip(jobs, results, strict=True):
            job.loop.call_soon_threadsafe(job.finish, result)


class ReadingService:
    """Reads images with one recognizer, in `concurrency` threads; facts: what /v1/model tells of the model."""

    def __init__(self, recognizer: Recognizer, concurrency: int, facts: dict[str, Any]) -> None:
        self.recognizer, self.facts, self.metrics = recognizer, facts, Metrics()
        self.threads = ReadingThreads(concurrency)
        self.is_ready = False
        self.page = page_routes("serve")
        self.limited_to = lru_cache(maxsize=64)(recognizer.limited_to)

    def app(self) -> Starlette:
        """Return the application."""
        routes = [
            Route("/v1/read", self.read, methods=["POST"], max_body_size=MAX_JSON),
            Route("/v1/read/batch", self.read_batch, methods=["POST"], max_body_size=MAX_BATCH),
            Route("/v1/model", self.model),
            Route("/healthz", self.healthz),
            Route("/readyz", self.readyz),
            Route("/metrics", self.show_metrics),
            Route("/openapi.json", self.openapi),
            *self.page,
        ]
        handlers: dict[Any, Any] = {
            HTTPException: on_http_error,
            CaptchaOcrError: on_our_error,
            ClientDisconnect: on_disconnect,
        }
        return Starlette(routes=routes, exception_handlers=handlers)

    async def read(self, request: Request) -> Response:
        """Read one image: the body, or `image` in base64 in a JSON object."""
        recognizer, min_confidence = self.options_of(request)
        kind = type_of(request)
        if kind == JSON_TYPE:
            document = object_in(await request.body())
            image = image_in(document.get("image"), self.recognizer.max_bytes)
        elif RAW_TYPES.fullmatch(kind):
            image = await request.body()
        else:
            raise HTTPException(415, f"send an image, or JSON, not {kind[:100]!r}")
        if len(image) > self.recognizer.max_bytes:
            raise HTTPException(413, f"an image has at most {self.recognizer.max_bytes:,} bytes")
        self.check_room(1)
        result = await self.threads.read(recognizer, image)
        if isinstance(result, ImageError):
            raise result
        return JSONResponse(described(result, min_confidence))

    async def read_batch(self, request: Request) -> Response:
        """Read `images` of a JSON object; each result is a reading or an error, in order."""
        recognizer, min_confidence = self.options_of(request)
        kind = type_of(request)
        if kind not in (JSON_TYPE, ""):
            raise HTTPException(415, f"send JSON, not {kind[:100]!r}")
        images = object_in(await request.body()).get("images")
        check(
            isinstance(images, list) and 0 < len(images) <= MAX_IMAGES,
            f"images must be 1 to {MAX_IMAGES} texts",
        )
        self.check_room(len(images or ()))

        async def read(text: object) -> dict[str, Any]:
            try:
                result = await self.threads.read(
                    recognizer, image_in(text, self.recognizer.max_bytes)
                )
            except (ImageError, UsageError) as reason:
                return {"error": str(reason)}
            return (
                {"error": str(result)}
                if isinstance(result, ImageError)
                else described(result, min_confidence)
            )

        return JSONResponse({"results": await asyncio.gather(*map(read, images or ()))})

    def check_room(self, images: int) -> None:
        """Refuse a request whose images would have to wait too long: HTTPException 503."""
        if self.threads.is_full(images):
            self.metrics.refused += 1
            headers = {"Retry-After": str(RETRY_AFTER_S)}
            raise HTTPException(503, "too many images wait to be read; try again", headers)

    def options_of(self, request: Request) -> tuple[Recognizer, float]:
        """Return the recognizer and the least confidence that the query of a request asks for.

        UsageError for a parameter that is unknown or wrong.
        """
        query = dict(request.query_params)
        check(len(query) == len(request.query_params.multi_items()), "a parameter is given twice")
        unknown = next((name for name in query if name not in OPTIONS), None)
        check(unknown is None, f"unknown parameter {unknown!r}; there are {', '.join(OPTIONS)}")
        fold_case, least = query.get("fold_case", "false"), query.get("min_confidence", "0")
        check(
            fold_case in ("true", "false"),
            f"fold_case must be true or false, not {fold_case[:40]!r}",
        )
        is_share = re.fullmatch(r"0|1|0?\.[0-9]{1,9}|[01]\.0{1,9}|0\.[0-9]{1,9}", least) is not None
        check(is_share, f"min_confidence must be a number from 0 to 1, not {least[:40]!r}")
        lengths = Lengths.parse(query["length"]) if "length" in query else None
        return self.limited_to(query.get("charset"), lengths, fold_case == "true"), float(least)

    async def model(self, _: Request) -> Response:
        """Tell which model reads."""
        return JSONResponse(self.facts)

    async def healthz(self, _: Request) -> Response:
        """Answer as long as the process does."""
        return PlainTextResponse("alive\n")

    async def readyz(self, _: Request) -> Response:
        """Answer 200 after one real reading."""
        if not self.is_ready:
            size = self.recognizer.config.size
            await self.threads.read(
                self.recognizer, np.full((size.height, size.width, 3), 255, dtype=np.uint8)
            )
            self.is_ready = True
        return PlainTextResponse("ready\n")

    async def show_metrics(self, _: Request) -> Response:
        """Return what was counted, for Prometheus."""
        return PlainTextResponse(str(self.metrics), media_type=CONTENT_TYPE)

    async def openapi(self, _: Request) -> Response:
        """Return the document that describes the service."""
        document = json.loads((FOLDER / "openapi.json").read_text("utf-8"))
        document["info"]["version"] = __version__
        return JSONResponse(document)


def gated(
    service: ReadingService, hosts: frozenset[str] | None, token: str | None, log: TextIO | None
) -> Gate:
    """Return the application with the gate around it."""
    open_paths = (*OPEN_PATHS, *(route.path for route in service.page))
    return Gate(service.app(), hosts, token, open_paths, LIMITS, log, service.metrics)


def page_routes(name: str) -> list[Route]:
    """Return the routes of the files of a page."""

    def route(path: str, file: str) -> Route:
        async def endpoint(_: Request) -> Response:
            return FileResponse(FOLDER / "pages" / file)

        return Route(path, endpoint)

    return [
        route("/", f"{name}.html"),
        *(route(f"/{file}", file) for file in (f"{name}.js", "style.css", "icon.svg")),
    ]


def type_of(request: Request) -> str:
    """Return the content type of a request, without parameters; empty if it has none."""
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


def object_in(body: bytes) -> dict[str, Any]:
    """Return the JSON object in the body of a request; UsageError for anything else."""
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        raise UsageError("the body is not JSON") from None
    check(isinstance(document, dict), "the body must be a JSON object")
    return dict(document)


def image_in(text: object, max_bytes: int) -> bytes:
    """Return the image file in a text of base64 or a `data:` URI: never a path of this machine."""
    check(isinstance(text, str), "image must be a text: base64, or a data: URI")
    image = from_base64(str(text).encode("ascii", "replace"), max_bytes)
    if image is None:
        raise ImageError("image is neither base64 of an image nor a data: URI")
    return image


def described(reading: Reading, min_confidence: float) -> dict[str, Any]:
    """Return a reading as JSON types; without text and characters if it is not sure enough."""
    accepted = reading.confidence >= min_confidence
    characters = [
        {"character": each.character, "confidence": each.confidence, "runner_up": each.runner_up}
        for each in reading.characters
    ]
    return {
        "text": reading.text if accepted else None,
        "confidence": reading.confidence,
        "characters": characters if accepted else None,
        "model": reading.model or None,
        "elapsed_ms": round(1000 * reading.elapsed_s, 2),
    }


async def on_http_error(_: Request, reason: HTTPException) -> Response:
    """Answer with an error of HTTP, as JSON."""
    return error(reason.status_code, reason.detail, **(reason.headers or {}))


async def on_disconnect(_: Request, __: ClientDisconnect) -> Response:
    """Count a request whose client went away before it was here: nobody gets this answer."""
    return error(400, "the request is not complete")


async def on_our_error(_: Request, reason: CaptchaOcrError) -> Response:
    """Answer with our sentence: 422 to a request that asks for what cannot be, 500 where the model is at fault."""
    return error(422 if isinstance(reason, (ImageError, UsageError)) else 500, str(reason))

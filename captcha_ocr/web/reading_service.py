"""The service of `captcha-ocr serve`: read images sent by HTTP."""

import asyncio
import json
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import asdict
from functools import lru_cache, partial
from pathlib import Path
from queue import SimpleQueue
from typing import Any, NamedTuple

import numpy as np
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.types import ASGIApp

from captcha_ocr.data.images import ImageSource
from captcha_ocr.data.sanitize import START, is_image
from captcha_ocr.errors import CaptchaOcrError, ImageError, UsageError, check
from captcha_ocr.inference.decoding import Reading
from captcha_ocr.inference.model_folder import describe_model, read_config
from captcha_ocr.options.model import Lengths
from captcha_ocr.options.shared import ReadingOptions
from captcha_ocr.recognizer import Recognizer
from captcha_ocr.version import __version__
from captcha_ocr.web.bodies import MAX_BODY, as_bytes, read_fields, take_image, unite
from captcha_ocr.web.ddddocr import make_ddddocr_endpoints
from captcha_ocr.web.http import Address, Endpoint, Gate, WriteLine, make_page
from captcha_ocr.web.prometheus import CONTENT_TYPE, Metrics

MAX_BATCH_IMAGES = 64  # of a request
_MAX_BATCH = 16_000_000  # bytes of a request for several images
_STATUSES: dict[type[Exception], int] = {
    UsageError: 422,
    ImageError: 422,
    CaptchaOcrError: 500,  # the model is at fault
}
# As JSON, Python and the check boxes of pages write them
_TRUTHS = {"true": True, "1": True, "on": True, "false": False, "0": False, "off": False}


def _parse_truth(text: str) -> bool:
    return _TRUTHS[text.lower()]


_PARAMETERS: dict[str, Callable[[str], object]] = {  # what makes their values of texts
    "charset": str,
    "length": Lengths.parse,
    "fold_case": _parse_truth,
    "ink": str,
    "solve_sums": _parse_truth,
    "min_confidence": float,
}
_MAX_PARAMETER = 2_000  # characters; those of past requests are kept
Describe = Callable[[Reading], dict[str, Any]]
_MAX_AT_ONCE = 16  # images that one thread reads at once
_MAX_WAITING = 40  # images that wait for each thread; more get 503


class _Job(NamedTuple):
    """An image that waits to be read by a recognizer, which may have the options of one request."""

    recognizer: Recognizer
    image: ImageSource
    result: "Future[Reading]"


class _ReadingThreads:
    """Threads that read what waits, several images at once: that costs less than one by one."""

    def __init__(self, count: int) -> None:
        self.max_waiting = _MAX_WAITING * count
        self.waiting: SimpleQueue[_Job] = SimpleQueue()
        self.lock = threading.Lock()
        for _ in range(count):
            threading.Thread(target=self._work, daemon=True).start()

    async def read(self, recognizer: Recognizer, image: ImageSource) -> Reading:
        """Return what a recognizer reads, or raise the ImageError; the event loop goes on."""
        job = _Job(recognizer, image, Future())
        self.waiting.put(job)
        return await asyncio.wrap_future(job.result)

    def _work(self) -> None:
        while True:
            with self.lock:
                taken = [self.waiting.get()]
                following = min(_MAX_AT_ONCE - 1, self.waiting.qsize())
                taken += [self.waiting.get_nowait() for _ in range(following)]
            # None whose client went away
            jobs = [job for job in taken if job.result.set_running_or_notify_cancel()]
            for recognizer in {job.recognizer for job in jobs}:
                _read_together([job for job in jobs if job.recognizer is recognizer])


def _read_together(jobs: list[_Job]) -> None:
    results: Sequence[Reading | BaseException]
    try:
        results = list(jobs[0].recognizer.read_all([job.image for job in jobs]))
    except BaseException as error:
        if len(jobs) > 1:  # one of them is at fault, and not its neighbours
            for job in jobs:
                _read_together([job])
            return
        results = [error]
    for job, result in zip(jobs, results, strict=True):
        if isinstance(result, BaseException):
            job.result.set_exception(result)
        else:
            job.result.set_result(result)


class ReadingService:
    """Reads images in `concurrency` threads, with a recognizer of the model in a folder."""

    def __init__(self, folder: Path, recognizer: Recognizer, concurrency: int) -> None:
        self.metrics = Metrics()
        self.threads = _ReadingThreads(concurrency)
        self.is_ready = False
        self.use(folder, recognizer)

    def use(self, folder: Path, recognizer: Recognizer) -> None:
        """Read with this recognizer from the next request on."""
        self.recognizer = recognizer
        self.limited_to = lru_cache(maxsize=64)(recognizer.limited_to)
        # What /v1/model tells
        self.facts = {
            "model": describe_model(folder),
            "sha256": read_config(folder)["sha256"],
            "alphabet": recognizer.config.charset.characters,
            "length": asdict(recognizer.config.lengths),
            "engine": str(recognizer.engine),
        }

    def guard(
        self,
        address: Address,
        log: WriteLine | None = None,
        origins: Collection[str] = (),
        root_path: str = "",
    ) -> ASGIApp:
        """Return the application, with its page, and with the gate around it; see `Gate`."""
        interface = json.loads(Path(__file__).with_name("openapi.json").read_text("utf-8"))
        interface["info"]["version"] = __version__
        endpoints = [
            Endpoint("/v1/read", self._read, "POST", MAX_BODY),
            Endpoint("/v1/read/batch", self._read_batch, "POST", _MAX_BATCH),
            Endpoint("/v1/model", self._show_model),
            Endpoint("/healthz", PlainTextResponse("alive\n"), is_open=True),
            Endpoint("/readyz", self._show_readiness, is_open=True),
            Endpoint("/metrics", self._show_metrics),
            Endpoint("/openapi.json", JSONResponse(interface), is_open=True),
            *make_page("serve"),
            *make_ddddocr_endpoints(self._read_text),
        ]
        gate = Gate(endpoints, _STATUSES, address, log, self.metrics, origins, root_path)
        if not origins:
            return gate
        # The browser gives the answers to pages of these origins
        return CORSMiddleware(
            gate,
            allow_origins=origins,
            allow_methods=["GET", "POST"],
            allow_headers=["Authorization"],
            allow_private_network=True,
        )

    async def _read(self, request: Request) -> Response:
        fields = await read_fields(request)
        image = take_image(fields)
        recognizer, describe = self._parse_parameters(request, fields)
        reading = await self._read_image(recognizer, image)
        return JSONResponse(describe(reading))

    async def _read_text(self, image: bytes, charset: str | None, ink: str | None) -> str:
        check(len(f"{charset}{ink}") <= _MAX_PARAMETER, "the characters or colours are too many")
        recognizer = self.limited_to(charset, None, False, ink)
        return (await self._read_image(recognizer, image)).text

    async def _read_image(self, recognizer: Recognizer, image: bytes) -> Reading:
        if len(image) > recognizer.max_bytes and is_image(image[:START]):  # else it may be base64
            raise HTTPException(413, f"an image has at most {recognizer.max_bytes:,} bytes")
        self._check_room(1)
        return await self.threads.read(recognizer, image)

    async def _read_batch(self, request: Request) -> Response:
        fields = await read_fields(request)
        images = fields.pop("images", None)
        if not isinstance(images, list) or not 0 < len(images) <= MAX_BATCH_IMAGES:
            raise UsageError(f"images must be 1 to {MAX_BATCH_IMAGES} texts")
        recognizer, describe = self._parse_parameters(request, fields)
        self._check_room(len(images))

        async def read(text: object) -> dict[str, Any]:
            try:
                return describe(await self.threads.read(recognizer, as_bytes(text)))
            except (ImageError, UsageError) as error:
                return {"error": str(error)}

        return JSONResponse({"results": await asyncio.gather(*map(read, images))})

    def _parse_parameters(
        self, request: Request, fields: Mapping[str, object]
    ) -> tuple[Recognizer, Describe]:
        """Return the recognizer that a request asks for, and what describes a reading.

        fields: of the body, without the image. Those that are empty or null are not given.
        UsageError for a parameter that is unknown or wrong.
        """
        given = unite(
            [
                *request.query_params.multi_items(),
                *(field for field in fields.items() if field[1] not in ("", None)),
            ]
        )
        values = {name: _parse_value(name, value) for name, value in given.items()}
        options = ReadingOptions(lengths=values.pop("length", None), **values)
        recognizer = self.limited_to(
            options.charset, options.lengths, options.fold_case, options.ink
        )
        return recognizer, partial(_describe, options.min_confidence, options.solve_sums)

    def _check_room(self, images: int) -> None:
        # Any number may wait where none waits
        waiting = self.threads.waiting.qsize()
        if waiting > 0 and waiting + images > self.threads.max_waiting:
            self.metrics.refused += 1
            raise HTTPException(
                503, "too many images wait to be read; try again", {"Retry-After": "1"}
            )

    async def _show_model(self, _: Request) -> Response:
        return JSONResponse(self.facts)

    async def _show_readiness(self, _: Request) -> Response:
        if not self.is_ready:  # before one real reading
            size = self.recognizer.config.size
            white = np.full((size.height, size.width, 3), 255, dtype=np.uint8)
            with suppress(ImageError):  # it has no pixel of the model's ink
                await self.threads.read(self.recognizer, white)
            self.is_ready = True
        return PlainTextResponse("ready\n")

    async def _show_metrics(self, _: Request) -> Response:
        return PlainTextResponse(str(self.metrics), media_type=CONTENT_TYPE)


def _parse_value(name: str, value: object) -> Any:
    """Return the value of a parameter, given as a text or, in JSON, as a number or a truth."""
    check(
        name in _PARAMETERS,
        f"unknown parameter {name[:40]!r}; there are {', '.join(_PARAMETERS)}",
    )
    check(isinstance(value, str | int | float), f"{name} must be a text, a number, true or false")
    text = value if isinstance(value, str) else json.dumps(value)
    check(len(text) <= _MAX_PARAMETER, f"{name} has at most {_MAX_PARAMETER:,} characters")
    with suppress(KeyError, ValueError):
        return _PARAMETERS[name](text)
    return text[:40]  # `ReadingOptions` says what it must be


def _describe(min_confidence: float, solve_sums: bool, reading: Reading) -> dict[str, Any]:
    """Return a reading as JSON types; without text and characters if it is not sure enough."""
    is_sure = reading.confidence >= min_confidence
    characters = [
        {name: getattr(part, name) for name in ("character", "confidence", "runner_up")}
        for part in reading.characters
    ]
    facts: dict[str, Any] = {
        "text": reading.text if is_sure else None,
        "confidence": reading.confidence,
        "characters": characters if is_sure else None,
        "elapsed_ms": round(1000 * reading.elapsed_s, 2),
    }
    if solve_sums:
        facts["result"] = reading.result if is_sure else None
    return facts

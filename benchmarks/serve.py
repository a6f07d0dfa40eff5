"""Load the service of `captcha-ocr serve`, beside the Python class on the same processors.

    python benchmarks/serve.py [--seconds 60] [--connections 8 64] [--requests 100000] [--hostile]

In one run: images/s of one process with threads, then of the service with so many connections that
send one image after the other, and the processor time of an image on both sides. Meanwhile /healthz
is asked ten times a second. At the end the memory of the service after its first 10,000 requests,
and after --requests.

With --hostile there is one run of --requests, of which a third are hostile: half a body, answers
that nobody reads, silence, JSON of millions of values, escaped base64, forms of carriage returns,
long headers. It tells the memory after 10,000 requests and after all, and how long /healthz took.
"""

import argparse
import asyncio
import contextlib
import re
import resource
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from captcha_ocr import Recognizer

IMAGES = 200
HEALTH_S = 0.1
FIRST_REQUESTS = 10_000
FORGOTTEN = 700  # hostile connections that stay open


def draw(folder: Path) -> list[bytes]:
    """Draw images of the captcha package; returns their bytes."""
    command = [
        sys.executable,
        "-m",
        "captcha_ocr",
        "generate",
        "--count",
        str(IMAGES),
        "--quiet",
        "--out",
        str(folder),
    ]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return [path.read_bytes() for path in sorted(folder.glob("*.png"))]


def processor_seconds(pid: int | None = None) -> float:
    """Return the processor time of this process, or of another one (Linux)."""
    if pid is None:
        used = resource.getrusage(resource.RUSAGE_SELF)
        return used.ru_utime + used.ru_stime
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100


def memory_mb(pid: int) -> float:
    """Return the resident memory of a process (Linux)."""
    found = re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())
    assert found is not None, "Linux tells it"
    return int(found[1]) / 1e3


def api_rate(images: list[bytes], seconds: float) -> tuple[float, float]:
    """Return images/s of the class with its threads, and the processor time of an image in ms."""
    recognizer = Recognizer("pretrained")
    list(recognizer.predict(iter(images)))
    read, started, used = 0, time.perf_counter(), processor_seconds()
    while time.perf_counter() - started < seconds:
        read += len(list(recognizer.predict(iter(images))))
    return read / (time.perf_counter() - started), 1000 * (processor_seconds() - used) / read


def hostile_requests(port: int) -> list[bytes]:
    """Return what hostile clients send on a connection of its own; after most, nothing follows."""
    host = f"Host: 127.0.0.1:{port}\r\n"
    marks = b"data:image/png;base64,iVBORw0KGgo"

    def post(body: bytes, kind: str = "application/json", path: str = "/v1/read") -> bytes:
        head = f"POST {path} HTTP/1.1\r\n{host}Content-Type: {kind}\r\n"
        return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body

    get = f"GET /openapi.json HTTP/1.1\r\n{host}\r\n".encode()
    small = [
        b"",
        b"GET / HT",
        get * 50,
        get + post(bytes(100_000))[:50_000],
        post(bytes(2_000_000))[:1_000_000],
        post(b"[" * 100_000),
        post(b'{"image": "' + marks + b"%41" * 30_000 + b'"}'),
        post(b"\r" * 50_000, "multipart/form-data; boundary=x1"),
        post(b"&".join([b"a=b"] * 10_000), "application/x-www-form-urlencoded"),
        post(b"\x89PNG\r\n\x1a\n" + bytes(100_000), "image/png"),
        f"GET /healthz HTTP/1.1\r\n{host}X: {'x' * 50_000}\r\n\r\n".encode(),
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        f"POST /v1/read HTTP/1.1\r\n{host}Transfer-Encoding: chunked\r\n\r\nZZ".encode(),
        f"POST /v1/read HTTP/1.1\r\n{host}Origin: https://evil.example\r\n\r\n".encode(),
        b"GET /v1/model HTTP/1.1\r\nHost: evil.example\r\n\r\n",
    ]
    large = [
        post(b'{"images": [' + b'{"":0},' * 2_250_000 + b"0]}", path="/v1/read/batch"),
        post(b'{"image": "' + marks + b"%41" * 900_000 + b'"}'),
        post(bytes(15_900_000), path="/v1/read/batch")[:-1],
    ]
    return small * 20 + large


class Load:
    """Connections that send one image after the other; what they were answered, and how long
    /healthz took.
    """

    def __init__(self, port: int, images: list[bytes]) -> None:
        self.port, self.images = port, images
        self.statuses: Counter[int] = Counter()
        self.health: list[float] = []
        self.sent = self.attacks = 0

    async def ask(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, request: bytes
    ) -> int:
        """Send a request; returns the status of its answer."""
        writer.write(request)
        head = await reader.readuntil(b"\r\n\r\n")
        length = re.search(rb"content-length: (\d+)", head)
        await reader.readexactly(int(length[1]) if length else 0)
        return int(head[9:12])

    async def read(self, until: float, most: int) -> None:
        """Read images over one connection until a time, or until `most` were sent in all."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        while time.perf_counter() < until and self.sent < most:
            self.sent += 1
            image = self.images[self.sent % len(self.images)]
            head = (
                f"POST /v1/read HTTP/1.1\r\nHost: 127.0.0.1:{self.port}\r\n"
                f"Content-Length: {len(image)}\r\n\r\n"
            )
            self.statuses[await self.ask(reader, writer, head.encode() + image)] += 1
        writer.close()

    async def attack(self, most: int, forgotten: list[asyncio.StreamWriter]) -> None:
        """Send hostile requests until `most` requests were sent in all; leave connections open."""
        requests = hostile_requests(self.port)
        while self.sent < most:
            if self.attacks > self.sent / 3:
                await asyncio.sleep(0.01)
                continue
            self.sent += 1
            self.attacks += 1
            with contextlib.suppress(OSError):
                _, writer = await asyncio.open_connection("127.0.0.1", self.port)
                writer.write(requests[self.attacks % len(requests)])
                forgotten.append(writer)
            if len(forgotten) > FORGOTTEN:
                forgotten.pop(0).transport.abort()

    async def run_hostile(self, connections: int, most: int) -> None:
        """Load the service; every third request is hostile."""
        forgotten: list[asyncio.StreamWriter] = []
        watching = asyncio.create_task(self.watch(sys.float_info.max))
        jobs = [self.read(sys.float_info.max, most) for _ in range(connections)]
        await asyncio.gather(self.attack(most, forgotten), *jobs)
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
        for writer in forgotten:
            writer.transport.abort()

    async def watch(self, until: float) -> None:
        """Ask /healthz again and again."""
        request = f"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1:{self.port}\r\n\r\n".encode()
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        while time.perf_counter() < until:
            started = time.perf_counter()
            await self.ask(reader, writer, request)
            self.health.append(time.perf_counter() - started)
            await asyncio.sleep(HEALTH_S)
        writer.close()

    async def run(self, connections: int, seconds: float, most: int = sys.maxsize) -> None:
        """Load the service with so many connections."""
        until = time.perf_counter() + seconds
        jobs = [asyncio.create_task(self.read(until, most)) for _ in range(connections)]
        watching = asyncio.create_task(self.watch(until))
        await asyncio.gather(*jobs)
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)


def measure(
    arguments: argparse.Namespace, images: list[bytes], process: subprocess.Popen[str], port: int
) -> None:
    """Measure, and print a line for each part."""
    rate, own_ms = api_rate(images, arguments.seconds)
    print(
        f"class, threads: {rate:,.0f} images/s, {own_ms:.2f} ms of processor time an image",
        flush=True,
    )
    first = Load(port, images)
    asyncio.run(first.run(max(arguments.connections), 3600.0, FIRST_REQUESTS))
    before, served = memory_mb(process.pid), first.sent
    for connections in arguments.connections:
        load, used = Load(port, images), processor_seconds(process.pid)
        started = time.perf_counter()
        asyncio.run(load.run(connections, arguments.seconds))
        taken, answered = time.perf_counter() - started, load.statuses[200]
        spent_ms = 1000 * (processor_seconds(process.pid) - used) / max(1, answered)
        worst = 1000 * statistics.quantiles(load.health, n=100)[98]
        print(
            f"service, {connections} connections: {answered / taken:,.0f} images/s "
            f"({answered / taken / rate:.0%}), {spent_ms:.2f} ms of processor time an image; "
            f"statuses {dict(load.statuses)}; /healthz 99th percentile {worst:.1f} ms",
            flush=True,
        )
        served += load.sent
    last = Load(port, images)
    asyncio.run(last.run(8, 3600.0, arguments.requests - served))
    after = memory_mb(process.pid)
    print(
        f"memory: {before:.1f} MB after {first.sent:,} requests, "
        f"{after:.1f} MB after {served + last.sent:,}"
    )


def measure_hostile(
    arguments: argparse.Namespace, images: list[bytes], process: subprocess.Popen[str], port: int
) -> None:
    """Let a third of the requests be hostile, and print what became of memory and /healthz."""
    load, memory = Load(port, images), []
    for most in (FIRST_REQUESTS, arguments.requests):
        asyncio.run(load.run_hostile(min(arguments.connections), most))
        memory.append(memory_mb(process.pid))
    quantiles = [1000 * value for value in statistics.quantiles(load.health, n=100)]
    print(
        f"{load.sent:,} requests, a third of them hostile; statuses {dict(load.statuses)}\n"
        f"memory: {memory[0]:.1f} MB after {FIRST_REQUESTS:,}, {memory[1]:.1f} MB after all\n"
        f"/healthz, {len(load.health):,} times: median {quantiles[49]:.1f} ms, 99th percentile "
        f"{quantiles[98]:.1f} ms, worst {1000 * max(load.health):.1f} ms"
    )


def main() -> None:
    """Start the service, and load it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--connections", type=int, nargs="+", default=[8, 64])
    parser.add_argument("--requests", type=int, default=100_000)
    parser.add_argument("--hostile", action="store_true")
    arguments = parser.parse_args()
    command = [sys.executable, "-m", "captcha_ocr", "serve", "--port", "0", "--model", "pretrained"]
    with tempfile.TemporaryDirectory() as folder:
        images = draw(Path(folder) / "images")
        process = subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        )
        assert process.stderr is not None, "it is a pipe"
        page = next(line for line in process.stderr if line.startswith("page"))
        try:
            measuring = measure_hostile if arguments.hostile else measure
            measuring(arguments, images, process, int(page.rstrip("/\n").rpartition(":")[2]))
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait()


if __name__ == "__main__":
    main()

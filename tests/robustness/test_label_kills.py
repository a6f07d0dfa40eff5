"""`label` is killed between a keystroke and its acknowledgement: no acknowledged label is lost."""

import http.client
import json
import random
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from captcha_ocr.data.label_sources.tables import read_table

pytest.importorskip("starlette", reason="the extra web is not installed")
IMAGES, LONGEST_S = 60, 0.4  # until the process is killed, after its first label


class Page:
    """The process `captcha-ocr label`, and what its page sends."""

    def __init__(self, folder: Path, out: Path) -> None:
        command = [
            sys.executable,
            "-m",
            "captcha_ocr",
            "label",
            str(folder),
            "--port",
            "0",
            "--out",
            str(out),
        ]
        command += ["--model", "pretrained"]
        self.process = subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        )
        address = next(line.split()[1] for line in self.process.stderr if line.startswith("page"))
        self.host, _, token = address.removeprefix("http://").partition("/#token=")
        self.headers = {"Authorization": f"Bearer {token}", "Origin": f"http://{self.host}"}
        self.connection = http.client.HTTPConnection(self.host, timeout=30)

    def ask(self, path: str, document: dict[str, object] | None = None) -> dict[str, object]:
        """Send a request; OSError or HTTPException if the process is gone."""
        headers = self.headers | ({} if document is None else {"Content-Type": "application/json"})
        method, body = ("GET", None) if document is None else ("POST", json.dumps(document))
        self.connection.request(method, path, body, headers)
        answer = self.connection.getresponse()
        document = json.loads(answer.read())
        assert answer.status == 200, document
        return document

    def close(self) -> None:
        """Free what the process held."""
        self.connection.close()
        self.process.kill()
        self.process.communicate()


def test_no_acknowledged_label_is_lost_when_the_process_is_killed(images, soak, figure, tmp_path):
    generator, acknowledged, kills = random.Random(0), dict[str, str](), 200 if soak else 3
    folder = tmp_path / "images"
    folder.mkdir()
    for path in sorted(images.glob("*.png"))[:IMAGES]:
        (folder / path.name).write_bytes(path.read_bytes())
    labels = 0
    for _ in range(kills):
        page = Page(folder, tmp_path / "out")
        killer = threading.Timer(generator.uniform(0, LONGEST_S), page.process.kill)
        killer.start()
        try:
            while True:
                number = generator.randrange(IMAGES)
                shown = page.ask(f"/v1/images/{number}/view")
                text = f"{labels}"
                labels += 1
                page.ask("/v1/label", {"number": number, "text": text, "version": shown["version"]})
                acknowledged[str(shown["file"])] = text
        except (OSError, http.client.HTTPException):
            pass
        killer.join()
        assert page.process.wait() == -signal.SIGKILL
        page.close()
        table = (
            {row.filename: row for row in read_table(folder / "labels.csv")} if acknowledged else {}
        )
        lost = {
            file: text for file, text in acknowledged.items() if int(table[file].text) < int(text)
        }
        assert lost == {}
        assert all(row.problem is None for row in table.values())
        acknowledged |= {file: row.text for file, row in table.items()}
    figure(f"{kills} kills, {labels} labels sent, none lost of those acknowledged")

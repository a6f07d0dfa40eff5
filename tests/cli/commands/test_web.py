import os
import shutil
import signal
import socket
import subprocess
import sys
from contextlib import closing, contextmanager
from http.client import HTTPConnection
from pathlib import Path

import pytest
from conftest import invoke

from captcha_ocr.cli.commands import web
from captcha_ocr.inference.model_folder import PRETRAINED

SAMPLES = Path(__file__).parents[3] / "data" / "samples"


@pytest.mark.parametrize(
    ("words", "names"),
    [
        # Other machines may ask only with a token, which a header can carry
        *((["serve", "--host", host], [host, "--token"]) for host in ("0.0.0.0", "::", "10.0.0.1")),
        *(
            (["serve", "--host", host, "--token", "secret"], ["--host", host])
            for host in ("", "http://127.0.0.1", "127.0.0.1:9000", "[::1]", "a b", 70 * "ä")
        ),
        *(
            (["serve", "--token", token], ["--token", "CAPTCHA_OCR_TOKEN"])
            for token in ("two words", "tökens", " ", "a", "'secret'", "TOKEN=secret")
        ),
        *((["serve", "--token-file", file], [file]) for file in ("short", "variable", "quoted")),
        *(
            (
                ["serve", "--allow-origin", "https://fine.example", "--allow-origin", origin],
                [origin],
            )
            for origin in (
                *("example.org", "https://example.org/", "https://example.org/path", "null", "*"),
                *("https://*.example.org", "https://example.org:443", "http://[::1]:80"),
                *("https://Example.org", "https://me@example.org", "https://bücher.example"),
            )
        ),
        *((["serve", "--root-path", path], ["--root-path"]) for path in ("captcha", "/", "/a/")),
        (["label", "empty", "--model", "pretrained"], ["empty"]),
        (["label", "images", "--model", "pretrained", "--host", ""], ["--host"]),
    ],
)
def test_wrong_options_are_refused_by_name(words, names):
    Path("empty").mkdir()
    shutil.copytree(SAMPLES, "images")
    Path("short").write_text("a\n")
    Path("variable").write_text("CAPTCHA_OCR_TOKEN=secret-1\n")  # as a unit of systemd reads it
    Path("quoted").write_text('"secret-1"\n')
    result = invoke(*words)
    assert result.exit_code == 2
    assert all(name in result.stderr for name in names)
    assert "fine.example" not in result.stderr


def test_an_address_in_use_is_refused_by_name():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        result = invoke("serve", "--port", str(port), "--model", "pretrained")
    assert (result.exit_code, f"--port {port}" in result.stderr) == (2, True)


@pytest.mark.parametrize("words", [["serve"], ["label", "."]])
def test_without_the_extra_the_command_names_it(words, monkeypatch):
    monkeypatch.setattr(web, "find_spec", lambda name: None)
    result = invoke(*words)
    assert (result.exit_code, "pip install starlette" in result.stderr) == (2, True)


@contextmanager
def serving(*options, **variables):
    """Run the command; yields the process, a function that asks it, and the page's address."""
    words = [sys.executable, "-m", "captcha_ocr", "serve", "--port", "0", *options]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(words, env=os.environ | variables, **pipes) as process:
        try:
            page = next(line.split()[1] for line in process.stderr if line.startswith("page"))
            host = page.removeprefix("http://").partition("/")[0]

            def ask(path, **headers):
                with closing(HTTPConnection(host, timeout=30)) as connection:
                    connection.request("GET", path, headers=headers)
                    answer = connection.getresponse()
                    return answer.status, answer.read().decode()

            yield process, ask, page
        finally:
            process.kill()


def test_a_token_comes_from_the_environment_or_a_file_and_stays_out_of_the_command_line():
    Path("token").write_text("secret-1\n")
    for options, variables, token in (
        (["--token-file", "token"], {}, "secret-1"),
        ([], {"CAPTCHA_OCR_TOKEN": "secret-2"}, "secret-2"),
    ):
        with serving(*options, **variables) as (_, ask, page):
            assert token not in page
            assert ask("/v1/model")[0] == 401
            assert ask("/v1/model", Authorization=f"bearer {token}")[0] == 200


def test_quiet_prints_the_address_alone():
    upgrade = {"Connection": "Upgrade, HTTP2-Settings", "Upgrade": "h2c", "HTTP2-Settings": "AAA"}
    with serving("--quiet") as (process, ask, _):
        assert ask("/healthz", **upgrade) == (200, "alive\n")
        process.terminate()
        assert (process.wait(30), process.stdout.read(), process.stderr.read()) == (0, "", "")


@pytest.mark.skipif(os.name != "posix", reason="there is no shell")
def test_a_service_without_a_stream_to_print_to_serves():
    command = f"{sys.executable} -m captcha_ocr serve --port 0 >&- 2>&-"
    with subprocess.Popen(["sh", "-c", f"exec {command}"]) as process:
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(3)
        process.terminate()
        assert process.wait(30) == 0


def test_sighup_loads_the_model_again_and_keeps_the_old_one_if_the_new_one_is_damaged(exported):
    shutil.copytree(exported, "model")
    with serving("--model", "model") as (process, ask, _):
        models = [ask("/v1/model")]
        shutil.rmtree("model")
        shutil.copytree(PRETRAINED, "model")
        process.send_signal(signal.SIGHUP)
        assert "loaded again" in process.stderr.readline()
        models.append(ask("/v1/model"))
        Path("model/model.onnx").write_bytes(b"damaged")
        process.send_signal(signal.SIGHUP)
        assert "as before: model" in process.stderr.readline()
        models.append(ask("/v1/model"))
    assert models[0] != models[1] == models[2]

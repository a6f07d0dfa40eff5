import socket
from pathlib import Path

import pytest
from conftest import invoke

from captcha_ocr.cli.commands import web


@pytest.mark.parametrize(
    ("words", "names"),
    [
        # Other machines may ask only with a token, which a header can carry
        *((["serve", "--host", host], [host, "--token"]) for host in ("0.0.0.0", "::", "10.0.0.1")),
        *((["serve", "--token", token], ["--token"]) for token in ("two words", "tö", " ")),
        (["label", "empty", "--model", "pretrained"], ["empty"]),
    ],
)
def test_wrong_options_are_refused_by_name(words, names):
    Path("empty").mkdir()
    result = invoke(*words)
    assert result.exit_code == 2
    assert all(name in result.stderr for name in names)


def test_an_address_in_use_is_refused_by_name():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        result = invoke("serve", "--port", str(port), "--model", "pretrained")
    assert (result.exit_code, f"--port {port}" in result.stderr) == (2, True)


@pytest.mark.parametrize("words", [["serve"], ["label", "."]])
def test_without_the_extra_the_command_names_it(words, monkeypatch):
    monkeypatch.setattr(web, "find_spec", lambda name: None)
    result = invoke(*words)
    assert (result.exit_code, ".[web]" in result.stderr) == (2, True)

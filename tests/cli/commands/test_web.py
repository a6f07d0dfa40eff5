import socket

import pytest
from conftest import invoke

from captcha_ocr.cli.commands import web


@pytest.mark.parametrize("host", ["0.0.0.0", "192.168.0.1", "::"])
def test_other_machines_may_ask_only_with_a_token(host):
    result = invoke("serve", "--host", host)
    assert (result.exit_code, "--token" in result.stderr, host in result.stderr) == (2, True, True)


def test_an_address_in_use_is_refused_by_name():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        result = invoke("serve", "--port", str(port), "--model", "pretrained")
    assert (result.exit_code, f"--port {port}" in result.stderr) == (2, True)


@pytest.mark.parametrize("command", ["serve", "label"])
def test_without_the_extra_the_command_names_it(command, monkeypatch, tmp_path):
    monkeypatch.setattr(web, "find_spec", lambda name: None)
    result = invoke(command, *([tmp_path] if command == "label" else []))
    assert (result.exit_code, ".[web]" in result.stderr) == (2, True)


def test_a_folder_without_images_is_refused(tmp_path):
    result = invoke("label", tmp_path, "--model", "pretrained")
    assert (result.exit_code, str(tmp_path) in result.stderr) == (2, True)


@pytest.mark.parametrize("token", ["two words", "tö", " "])
def test_a_token_that_no_header_can_carry_is_refused(token):
    result = invoke("serve", "--token", token)
    assert (result.exit_code, "--token" in result.stderr) == (2, True)

"""The service against its own OpenAPI document: schemathesis sends what it allows, and forbids.

Without schemathesis this test skips, unless BROWSER_TESTS=required.
"""

import os
import subprocess
import sys
from importlib.util import find_spec

import pytest

CHECKS = (
    "not_a_server_error,status_code_conformance,"
    "content_type_conformance,response_schema_conformance"
)
IS_REQUIRED = os.environ.get("BROWSER_TESTS") == "required"


@pytest.mark.skipif(
    not (IS_REQUIRED or find_spec("schemathesis")), reason="schemathesis is not installed"
)
def test_no_request_gets_a_server_error_or_an_answer_that_the_document_lacks(
    reading, soak, tmp_path
):
    program = "from schemathesis.cli import schemathesis; schemathesis()"
    words = f"run {reading.page}openapi.json --checks {CHECKS} --seed 0 --no-color --max-examples"
    command = [sys.executable, "-c", program, *words.split(), "500" if soak else "5"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr

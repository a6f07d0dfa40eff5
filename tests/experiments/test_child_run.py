import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from captcha_ocr.data.images import find_images
from captcha_ocr.errors import CaptchaOcrError
from captcha_ocr.experiments.child_run import ChildRuns, Stopped


def test_a_command_gets_its_options_by_the_names_of_their_fields(tmp_path):
    options = {"out": tmp_path, "count": 3, "font_sizes": 14, "force": True}
    ChildRuns(niceness=1).run_command("generate", [], options)
    assert len(find_images(tmp_path).images) == 3


def test_a_command_that_fails_raises_its_last_line(tmp_path):
    with pytest.raises(CaptchaOcrError, match=f"^{tmp_path / 'none'}"):
        ChildRuns().run_command("prepare", [tmp_path / "none"], {"out": tmp_path / "out"})


def test_stop_ends_what_runs_and_begins_no_more(tmp_path):
    children, options = ChildRuns(), {"out": tmp_path, "count": 1_000_000}
    with ThreadPoolExecutor() as pool:
        command = pool.submit(children.run_command, "generate", [], options)
        while not children.processes:
            time.sleep(0.01)
        children.stop()
    assert isinstance(command.exception(), Stopped)
    with pytest.raises(Stopped):
        children.run_command("doctor")

import platform
import subprocess
import sys

import pytest

FAULTS = """
import resource, sys
import numpy as np
from captcha_ocr.system.memory import keep_freed_memory
if sys.argv[1] == "keep":
    keep_freed_memory()
for round in range(2):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(50):
        arrays = [np.ones(300_000, np.uint8) for _ in range(4)]
        del arrays
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def page_faults(word):
    """The page faults of a process that frees arrays and makes others of the same sizes."""
    return int(
        subprocess.run(
            [sys.executable, "-c", FAULTS, word], capture_output=True, text=True, check=True
        ).stdout
    )


@pytest.mark.skipif(
    platform.libc_ver()[0] != "glibc", reason="glibc alone gives memory back so soon"
)
def test_memory_that_is_freed_is_used_again():
    assert page_faults("keep") < 100 < page_faults("leave")

"""A worker keeps the heap that a batch freed, so that the next batch does not fault the same pages in again."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

SCRIPT = """
import resource, sys
import numpy as np
from stoker._runtime.worker.process import process_setup

if sys.argv[1] == "kept":
    process_setup.keep_heap()

def batch():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    held = [np.ones(100_000, np.uint8) for _ in range(60)]
    del held
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

batch()
print(sum(batch() for _ in range(5)))
"""


def faults(how: str, **environment: str) -> int:
    """How many pages five batches of 6 MB fault in, after a first one."""
    command = [sys.executable, "-c", SCRIPT, how]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    return int(done.stdout)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc adapts its thresholds")
def test_the_next_batch_faults_nothing_in_again() -> None:
    pages = 5 * 6_000_000 // 4096
    assert faults("as it is") > pages // 2
    assert faults("kept") < pages // 20
    own = {"MALLOC_TRIM_THRESHOLD_": "131072"}
    assert faults("kept", **own) > pages // 2, "what the user set stays"

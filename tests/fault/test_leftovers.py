"""A training process that is killed leaves nothing: twelve kills. ``python -m tests.soak.leftovers`` makes hundreds."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.soak.leftovers import METHODS, kill_one

KILLS = 4


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
def test_nothing_remains_of_a_killed_trainer(method: str) -> None:
    for seed in range(KILLS):
        remains = kill_one(seed, method)
        assert not remains.found, f"seed {seed}, killed at {remains.line}"


TRAINER = """
import os, sys, stoker
from stoker import DataLoader
os.environ["PYTHONPATH"] = sys.argv[1]
sys.path.insert(0, sys.argv[1])
iter(DataLoader(range(8), num_workers=1, multiprocessing_context=sys.argv[2]))
"""

ENDLESS = """
import os, time
with open(os.environ["IMPORTING"], "w") as file:
    file.write(str(os.getpid()))
while True:
    time.sleep(0.01)
"""


@pytest.mark.parametrize("method", ["forkserver", "spawn"])
def test_a_process_that_still_imports_ends_with_its_parent(method: str, tmp_path: Path) -> None:
    """It went on for as long as torch takes to import, because it looked for its parent only then."""
    importing, temporary = tmp_path / "importing", tmp_path / "tmp"
    temporary.mkdir()
    (tmp_path / "numpy.py").write_text(ENDLESS)
    trainer = subprocess.Popen(
        [sys.executable, "-c", TRAINER, str(tmp_path), method],
        env={**os.environ, "IMPORTING": str(importing), "TMPDIR": str(temporary)},
    )
    try:
        pid = int(_soon(lambda: importing.exists() and importing.read_text()))
    finally:
        trainer.kill()
        trainer.wait()
    _soon(lambda: not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE)
    _soon(lambda: not list(temporary.iterdir()))


def _soon(found: Callable[[], Any]) -> Any:
    deadline_s = time.monotonic() + 60
    while not (answer := found()):
        assert time.monotonic() < deadline_s
        time.sleep(0.02)
    return answer

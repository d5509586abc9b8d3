"""Where a command prints to may be full, closed, or somebody who has read enough: a line at most, and no traceback."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from stoker._record import journal
from tests.unit.records import loader, run
from tests.warm import environment

COMMAND = [sys.executable, "-m", "stoker"]
WORDS = ["--help", "--version", "completion bash", "env", "report run.json", "report run.json --format html"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    journal.write(run(loader({("fetch", 0, "io"): 0.6})), tmp_path / "run.json")
    return tmp_path


@pytest.mark.parametrize("words", WORDS)
def test_a_full_disk_is_told_in_a_line(words: str, folder: Path) -> None:
    with open("/dev/full", "w") as full:
        told = subprocess.run(
            [*COMMAND, *words.split()], stdout=full, stderr=subprocess.PIPE, text=True, cwd=folder, env=environment()
        )  # fmt: skip
    assert told.stderr == "stoker: cannot write the answer: No space left on device\n"
    assert told.returncode == 2


@pytest.mark.parametrize("words", WORDS[3:])
def test_without_a_standard_output_nothing_is_said(words: str, folder: Path) -> None:
    shell = ["sh", "-c", f'exec "$@" {words} >&-', "sh", *COMMAND]
    told = subprocess.run(shell, stderr=subprocess.PIPE, text=True, cwd=folder, env=environment())
    assert (told.returncode, told.stderr) == (0, "")

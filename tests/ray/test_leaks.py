"""The leak guard of this folder: one test that fails shows as one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TESTS = """
import threading

kept = threading.Event()

def start():
    threading.Thread(target=kept.wait, name="stoker-kept", daemon=True).start()

def test_that_fails():
    start()
    assert not "it"

def test_after_it():
    pass

def test_that_leaks(monkeypatch):
    monkeypatch.setattr("tests.ray.leaks.PATIENCE_S", 0.0)
    start()
"""


def test_what_a_failed_test_holds_is_blamed_on_no_other(tmp_path: Path) -> None:
    folder = tmp_path / "inner"
    folder.mkdir()
    (folder / "conftest.py").write_text(
        "from tests.conftest import itself_failed, lasting_children, pytest_runtest_makereport\n"
        "from tests.ray.conftest import _leak_guard\n"
    )
    (folder / "test_inner.py").write_text(TESTS)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(folder), "--import-mode=importlib",
         str(folder)],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])},
        capture_output=True,
        text=True,
        timeout=100,
    )  # fmt: skip
    said = done.stdout.splitlines()
    assert [line.split(" - ")[0] for line in said if line.startswith(("FAILED", "ERROR "))] == [
        "FAILED test_inner.py::test_that_fails",
        "ERROR test_inner.py::test_that_leaks",
    ], done.stdout
    assert "the test leaks: thread stoker-kept" in done.stdout
    assert "1 failed, 2 passed, 1 error" in said[-1]

"""Another user of this machine: runs functions as uid 65534, in a forked child, and tells what came of them. Needs root."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

OTHER = 65534
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")


def as_other(act: Callable[[], Any]) -> Any:
    """Run this as the other user; returns what it returned, as JSON would. Raises AssertionError for what it raised."""
    with acting(act) as answer:
        return answer()


@contextmanager
def acting(act: Callable[[], Any], *, until_told: bool = False) -> Iterator[Callable[[], Any]]:
    """Run this as the other user beside us; the value that is given waits for its answer.

    ``until_told``: it keeps what it returned, with all descriptors, until the block ends.
    """
    reading, writing = os.pipe()
    waiting, telling = os.pipe()
    pid = os.fork()
    if not pid:
        os.close(reading)
        os.close(telling)
        _become(act, writing, waiting if until_told else None)
    os.close(writing)
    os.close(waiting)
    try:
        with open(reading, encoding="utf-8") as lines:

            def answer() -> Any:
                told = json.loads(lines.readline())
                if "error" in told:
                    raise AssertionError(f"the other user's part failed:\n{told['error']}")
                return told["answer"]

            yield answer
    finally:
        os.close(telling)
        os.waitpid(pid, 0)


def _become(act: Callable[[], Any], writing: int, waiting: int | None) -> None:
    """The life of the child. Never returns."""
    try:
        os.setgroups([])
        os.setresgid(OTHER, OTHER, OTHER)
        os.setresuid(OTHER, OTHER, OTHER)
        os.environ["HOME"] = "/nonexistent"
        try:
            kept = act()
            told = {"answer": kept if isinstance(kept, str | int | list | dict | None) else repr(kept)}
        except BaseException:
            told = {"error": traceback.format_exc()}
        os.write(writing, f"{json.dumps(told)}\n".encode())
        if waiting is not None:
            os.read(waiting, 1)
    finally:
        os._exit(0)


@contextmanager
def shared_folder(mode: int = 0o1777) -> Iterator[Path]:
    """A folder like /tmp, which the other user can enter too."""
    folder = Path(tempfile.mkdtemp(prefix="other-users-", dir="/tmp"))
    folder.chmod(mode)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def opened_by_other(*paths: str | Path) -> list[str]:
    """Which of these the other user can read or write."""

    def tries() -> list[str]:
        found = []
        for path in paths:
            for flags in (os.O_RDONLY, os.O_WRONLY):
                with suppress(OSError):
                    os.close(os.open(path, flags | os.O_NONBLOCK))
                    found.append(f"{'reads' if flags == os.O_RDONLY else 'writes'} {path}")
        return found

    answer: list[str] = as_other(tries)
    return answer


def everything_in(folder: Path) -> list[Path]:
    """All files and folders in and below a folder."""
    return sorted(folder.rglob("*"))

"""What the tests of the rows of FAILURES.md share: training scripts run as a user runs them, samples made to order."""

from __future__ import annotations

import functools
import subprocess
import sys
import textwrap
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from torch.utils.data import Dataset

from tests import warm

METHODS = ("fork", "spawn", "forkserver")

PATIENCE_S = 100.0
"""Bound on a script that ends by itself when all is well; what hangs is killed before pytest's own limit."""

_SMALL_SHM = ("unshare", "-Urm", "sh", "-c", 'mount -t tmpfs -o size=16m tmpfs /dev/shm && exec "$@"', "sh")


def run(
    source: str, *args: str, folder: Path | None = None, within: Sequence[str] = ()
) -> subprocess.CompletedProcess[str]:
    """Run a training script to its end: from a file in ``folder``, or from standard input when there is none.

    ``within`` is a command that runs it, such as that of ``small_shm``. Without one, a file runs in a warm interpreter.
    """
    text = textwrap.dedent(source)
    script = "-"
    if folder is not None:
        (folder / "train.py").write_text(text)
        script = "train.py"
        if not within:
            return warm.run([script, *args], cwd=folder, timeout=PATIENCE_S)
    return subprocess.run(
        [*within, sys.executable, script, *args],
        input=text if folder is None else "",
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )


def said(done: subprocess.CompletedProcess[str]) -> list[str]:
    """The lines a script printed; it must have succeeded, in each of its processes.

    A slow machine may have something to say on the other stream: that a worker is still starting, for one.
    """
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr, done.stderr
    assert "Exception ignored" not in done.stderr, done.stderr
    return done.stdout.splitlines()


@functools.cache
def small_shm() -> tuple[Sequence[str], str]:
    """The command that gives a script a /dev/shm of 16 MB of its own; and why that is refused here, if it is."""
    try:
        probe = subprocess.run(
            [*_SMALL_SHM, "true"], capture_output=True, text=True, timeout=PATIENCE_S, check=False
        )
    except OSError as error:
        return (), f"no unshare command: {error}"
    return (
        _SMALL_SHM,
        "" if probe.returncode == 0 else f"a private /dev/shm is refused: {probe.stderr.strip()}",
    )


def told(error: BaseException) -> str:
    """Everything an error says about itself: its text and its notes."""
    return "\n".join([str(error), *getattr(error, "__notes__", [])])


class Made(Dataset[Any]):
    """Twelve samples, each made by a function of its index."""

    def __init__(self, make: Callable[[int], Any]) -> None:
        self.make = make

    def __len__(self) -> int:
        return 12

    def __getitem__(self, index: int) -> Any:
        return self.make(index)


def steps(loader: Any) -> list[Any]:
    """Batches and errors in the order in which ``next`` gives them."""
    found: list[Any] = []
    iterator = iter(loader)
    while True:
        try:
            found.append(next(iterator))
        except StopIteration:
            return found
        except Exception as error:
            found.append(error)

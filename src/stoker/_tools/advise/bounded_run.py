"""Runs a script under the profiler for a bounded time, and collects its record, however the script ends."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from stoker._host.private_files import temporary_folder
from stoker._record.schema import RunRecord
from stoker._tools.profile import supervisor
from stoker._tools.profile.collected_records import gather

_GRACE_S = 5.0
"""For a script to end after each signal: its own handlers, and the last lines of its record."""


@dataclass(frozen=True, slots=True)
class BoundedRun:
    """A script's run. ``stopped``: it was still running when its time was over, which is no failure."""

    record: RunRecord
    exit: str
    """ "0", "1", "SIGKILL"; of one that was stopped, how it ended then."""
    stopped: bool
    ran_s: float
    notes: tuple[str, ...]


def run(argv: Sequence[str], seconds: float) -> BoundedRun:
    """Run ``python argv…``, and stop it after so many seconds. Main thread. Raises OSError when it cannot be started.

    The script's standard output goes to standard error, since the answer has standard output for itself; its standard input
    is empty. All processes of the script's session end with it.
    """
    folder = Path(temporary_folder("stoker-advise-"))
    try:
        began_unix_ns, began_ns = time.time_ns(), time.monotonic_ns()
        process = subprocess.Popen(
            [sys.executable, *argv],
            env=supervisor.environment("profile", folder, os.environ, follow=True),
            stdin=subprocess.DEVNULL,
            stdout=sys.stderr.fileno(),
            start_new_session=True,
        )
        stopped = False
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            stopped = True
        except KeyboardInterrupt:  # with what was seen so far
            stopped = True
        finally:
            _end(process)
        ran_s = (time.monotonic_ns() - began_ns) / 1e9
        outcome = supervisor.ScriptExit(process.pid, process.returncode, began_unix_ns, began_ns)
        gathered = gather(folder, outcome, argv)
        if stopped:
            # It ended because we ended it: how is no news to anybody.
            gathered.record.run.exit, gathered.record.run.ended = None, True
        return BoundedRun(
            gathered.record, outcome.text, stopped, ran_s, (*gathered.unreadable, *gathered.left)
        )
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _end(process: subprocess.Popen[bytes]) -> None:
    """End the whole session: politely, then not."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL):
        if process.poll() is None:
            sys.stderr.write(f"stoker advise: the time is over, {number.name} ends the script\n")
            _signal(process.pid, number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_GRACE_S)
    _signal(process.pid, signal.SIGKILL)  # workers that outlived their parent
    process.wait()


def _signal(group: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)

"""Runs a script under the profiler for a bounded time, and collects its record, however the script ends."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from stoker._host.private_files import temporary_folder
from stoker._record.schema import RunRecord
from stoker._tools.profile import supervisor
from stoker._tools.profile.collected_records import gather
from stoker._tools.sandbox.held import SOCKET, HeldSandbox, HeldSandboxes

_ALONE_S = 3.0
"""For the script's own process to end after SIGINT: its workers live, so none of them is lost before its record is whole."""
_GRACE_S = 6.0
"""For all processes to end after each further signal."""


@dataclass(frozen=True, slots=True)
class BoundedRun:
    """A script's run. ``stopped``: it was still running when its time was over, or at Ctrl-C (``interrupted``): no failure."""

    record: RunRecord
    exit: str
    """ "0", "1", "SIGKILL"; of one that was stopped, how it ended then."""
    stopped: bool
    interrupted: bool
    ran_s: float
    held: tuple[HeldSandbox, ...]
    """Of the first loaders that were iterated, for the doctor. ``running`` closes them."""
    notes: tuple[str, ...]


@contextlib.contextmanager
def running(argv: Sequence[str], seconds: float) -> Iterator[BoundedRun]:
    """Run ``python argv…``, and stop it after so many seconds. Main thread. Raises OSError when it cannot be started.

    The script's standard output goes to standard error, since the answer has standard output for itself; its standard input
    is empty. All processes of the script's session end with it.
    """
    folder = Path(temporary_folder("stoker-advise-"))
    held: tuple[HeldSandbox, ...] = ()
    try:
        with _sandboxes(folder) as (environ, taken):
            ran = _run(argv, seconds, folder, environ)
            held = tuple(taken())
            outcome = supervisor.ScriptExit(ran.pid, ran.code, ran.began_unix_ns, ran.began_ns)
            gathered = gather(folder, outcome, argv)
        if ran.stopped_ns:
            # It ended because we ended it: how is no news to anybody.
            gathered.record.run.exit, gathered.record.run.ended = None, True
            forget_deaths(gathered.record, ran.stopped_ns)
        yield BoundedRun(
            record=gathered.record,
            exit=outcome.text,
            stopped=bool(ran.stopped_ns),
            interrupted=ran.interrupted,
            ran_s=((ran.stopped_ns or ran.ended_ns) - ran.began_ns) / 1e9,
            held=held,
            notes=(*gathered.unreadable, *gathered.left),
        )
    finally:
        for each in held:
            each.close()
        shutil.rmtree(folder, ignore_errors=True)


def forget_deaths(record: RunRecord, since_ns: int) -> None:
    """Take out the workers that died from a moment of the monotonic clock on: they were ended with the script."""
    for loader in record.loaders:
        late = [
            each
            for each in loader.events
            if each.kind == "worker_died" and record.run.began_ns + each.at_ns >= since_ns
        ]
        loader.events = [each for each in loader.events if each not in late]
        loader.totals.worker_deaths = max(0, loader.totals.worker_deaths - len(late))


@dataclass(frozen=True, slots=True)
class _ScriptRun:
    pid: int
    code: int
    began_unix_ns: int
    began_ns: int
    ended_ns: int
    stopped_ns: int
    """When it was told to end; 0: it ended by itself."""
    interrupted: bool


def _run(argv: Sequence[str], seconds: float, folder: Path, environ: dict[str, str]) -> _ScriptRun:
    flags = supervisor.interpreter_flags(sys.orig_argv)
    began_unix_ns, began_ns = time.time_ns(), time.monotonic_ns()
    process = subprocess.Popen(
        [sys.executable, *flags, *argv],
        env={**supervisor.environment("advise", folder, os.environ, follow=True), **environ},
        stdin=subprocess.DEVNULL,
        stdout=sys.stderr.fileno(),
        start_new_session=True,
    )
    stopped_ns, interrupted, why = 0, False, "the advice is given up"
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        stopped_ns, why = time.monotonic_ns(), "the time is over"
    except KeyboardInterrupt:  # with what was seen so far
        stopped_ns, interrupted, why = time.monotonic_ns(), True, "interrupted"
    finally:
        _end(process, why)
    return _ScriptRun(
        process.pid, process.returncode, began_unix_ns, began_ns, time.monotonic_ns(), stopped_ns, interrupted
    )


@contextlib.contextmanager
def _sandboxes(folder: Path) -> Iterator[tuple[dict[str, str], Callable[[], list[HeldSandbox]]]]:
    """What the script's environment needs to hold sandboxes, and what takes them. Nothing where no socket can be made."""
    try:
        sandboxes = HeldSandboxes(folder / "doctor")
    except OSError:
        yield {}, list
        return
    try:
        yield {SOCKET: str(folder / "doctor")}, sandboxes.take
    finally:
        sandboxes.close()


def _end(process: subprocess.Popen[bytes], why: str) -> None:
    """End the whole session: the script's own process first, then the others, politely, then not. Ctrl-C ends it at once."""
    try:
        for number, grace_s, signalled in (
            (signal.SIGINT, _ALONE_S, _leader),
            (signal.SIGINT, _GRACE_S, _others),
            (signal.SIGTERM, _GRACE_S, _group),
        ):
            if process.poll() is None:
                if signalled is not _others:
                    sys.stderr.write(f"stoker advise: {why}, {number.name} ends the script\n")
                signalled(process.pid, number)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(grace_s)
    finally:
        _group(process.pid, signal.SIGKILL)  # workers that outlived their parent, too
        process.wait()


def _leader(leader: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(leader, number)


def _others(leader: int, number: int) -> None:
    """Signal all that the script has started: ranks have loaders of their own, and workers may hold up their end."""
    with contextlib.suppress(psutil.Error):
        for each in psutil.Process(leader).children(recursive=True):
            with contextlib.suppress(psutil.Error):
                each.send_signal(number)


def _group(group: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)

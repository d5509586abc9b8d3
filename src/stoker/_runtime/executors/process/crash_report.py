"""Reports how a worker process died or where it hangs: exit status, likely cause, Python stack."""

from __future__ import annotations

import contextlib
import os
import select
import signal
from time import monotonic
from typing import Any

import psutil

from stoker._host import cgroup_memory
from stoker._runtime.executors.process.worker_handle import WorkerHandle
from stoker._runtime.protocol import stacks, status_page
from stoker._runtime.worker.bad_samples import TOGETHER

_ANSWER_S = 1.0
"""How long a worker may take to write its stack. A signal handler does it at once, unless the worker is stopped or in the kernel.
"""

_SETTLED_S = 0.02

_CAUSES = {
    "SIGSEGV": "native code (a decoder or an extension module) used memory that does not belong to it. It may be built for "
    "another version, or it may not survive fork: try multiprocessing_context='forkserver'",
    "SIGBUS": "a memory-mapped file was shortened while in use, or the file system behind it is full",
    "SIGABRT": "native code aborted (a failed assertion, a damaged heap, an uncaught C++ exception); its own message is on "
    "stderr",
    "SIGFPE": "native code divided by zero",
    "SIGILL": "native code used an instruction that this processor lacks: a library is built for another processor",
    "SIGTERM": "another process asked it to end: a job scheduler, a time limit, or code that cleans up processes",
    "SIGXCPU": "the limit on processor time (RLIMIT_CPU) was reached",
    "SIGSYS": "a sandbox (seccomp) forbids a system call that the dataset makes",
    "SIGXFSZ": "the limit on the size of files (RLIMIT_FSIZE) was reached",
}


class OomDetector:
    """Distinguishes OOM kills from other kills by the kernel's counters. Owner: one executor, on the thread that iterates."""

    def __init__(self) -> None:
        self._before = cgroup_memory.oom_kills()
        self._explained = 0

    def kill_cause(self, last_bytes: int, peak_bytes: int) -> str:
        """Return the likely cause of a SIGKILL. Each counted kill explains one death, because several may come at once.

        The kernel also counts every kill in the victim's cgroup. The machine's counter includes strangers, so it decides only
        where the cgroup's cannot be read.
        """
        now, before = cgroup_memory.oom_kills(), self._before
        size = _sizes(last_bytes, peak_bytes)
        elsewhere = now.machine - before.machine - self._explained
        in_cgroup_known = now.cgroup is not None and before.cgroup is not None
        here = (now.cgroup or 0) - (before.cgroup or 0) - self._explained if in_cgroup_known else elsewhere
        if here > 0:
            self._explained += 1
            return (
                f"out of memory: the kernel's OOM killer struck{_limits(in_cgroup_known)}{size}. Use fewer workers, a smaller "
                "prefetch_factor or memory_budget, or keep the dataset in arrays instead of Python objects"
            )
        strangers = " in this cgroup, though elsewhere on this machine" if elsewhere > 0 else ""
        return (
            f"somebody sent it SIGKILL (a job scheduler, another program, a person): the kernel counts no OOM kill{strangers}"
            f"{size}. If memory was short, a memory supervisor (systemd-oomd, earlyoom, the container's host) may have sent it"
        )


def describe_loss(
    worker: int, handle: WorkerHandle, oom_detector: OomDetector, page: status_page.StatusPage
) -> tuple[str, bool, int, str, bool]:
    """Return what is known of a worker's end: (exit text, whether it had started, its row, details, whether it collated)."""
    process = handle.process
    peak_bytes = reap(process)
    row = page.row(worker)
    at = row[status_page.ROW] if row[status_page.PHASE] == status_page.WORKING else status_page.NO_ROW
    if row[status_page.AT_ONCE] > 1:
        at = TOGETHER  # any of these rows may be the cause
    cause = cause_of(process, oom_detector, row[status_page.RESIDENT_BYTES], peak_bytes)
    stack = stacks.crash_stack(stacks.read(page.fd, worker))
    collating = row[status_page.PHASE] == status_page.COLLATING
    return exit_text(process), handle.started, at, details(cause, stack), collating


def cause_of(process: Any, oom_detector: OomDetector, last_bytes: int, peak_bytes: int) -> str:
    """Return the likely cause of a process's end, in words."""
    code = process.exitcode
    if code is None:
        return "unknown: other code in this program collected its exit status (os.wait, or a SIGCHLD handler)"
    if _status_lost(process):
        return "unknown: its exit status is lost, because the process that started it (fork server or template) ended first"
    if code >= 0:
        return "code of the dataset (or a library it uses) ended the process: sys.exit, os._exit, or an error in C code"
    name = _signal_name(-code)
    if name == "SIGKILL":
        return oom_detector.kill_cause(last_bytes, peak_bytes)
    return _CAUSES.get(name, "")


def exit_text(process: Any) -> str:
    """Describe how a process ended, in torch's words."""
    code = process.exitcode
    if code is not None and code < 0:
        name = _signal_name(-code)
        described = (signal.strsignal(-code) or name).split(":")[0]
        return f"DataLoader worker (pid {process.pid}) is killed by signal: {described} ({name})."
    said = "" if _status_lost(process) else f" with exit code {code}"
    return f"DataLoader worker (pid(s) {process.pid}) exited unexpectedly{said}"


def code_of(text: str) -> str:
    """Return the code of the docs page for a death, from its ``exit_text`` and ``details`` or from a refused start."""
    if "OOM killer struck" in text:
        return "STK603"
    if "could not be started" in text or "the system refused" in text:
        return "STK809"
    return "STK802" if "exited unexpectedly" in text else "STK801"


def _status_lost(process: Any) -> bool:
    """Whether the exit status is lost: multiprocessing returns 255 when the fork server ended first."""
    return process.exitcode == 255 and getattr(process._popen, "method", "") == "forkserver"


def details(cause: str, stack: list[str]) -> str:
    """Return the lines below the exit text."""
    text = f"\n  likely cause: {cause}" if cause else ""
    if stack:
        text += "\n  its Python stack:" + "".join(f"\n    {line}" for line in stack)
    return text


def reap(process: Any) -> int:
    """Collect the exit status of an ended process; return its peak memory, 0 where that is unknown.

    multiprocessing would collect the status without that figure.
    """
    popen = process._popen
    if popen is not None and popen.poll() is not None and hasattr(popen, "peak_bytes"):
        return int(popen.peak_bytes)
    peak_bytes = 0
    if popen is not None and popen.method in ("fork", "spawn") and popen.returncode is None:
        with contextlib.suppress(ChildProcessError):
            pid, status, usage = os.wait4(popen.pid, os.WNOHANG)
            if pid == popen.pid:
                popen.returncode = os.waitstatus_to_exitcode(status)
                peak_bytes = usage.ru_maxrss * 1024
    process.join(1.0)
    return peak_bytes


def stack_of(pidfd: int, status_fd: int, worker: int) -> list[str]:
    """Return the Python stack of a living, armed worker; empty when it does not answer."""
    before = stacks.read(status_fd, worker)
    if not stacks.has_room(before):
        return []
    with contextlib.suppress(ProcessLookupError):
        signal.pidfd_send_signal(pidfd, stacks.SIGNAL)
    deadline = monotonic() + _ANSWER_S
    text = before
    while monotonic() < deadline:
        # The dump has no end mark: it is complete when nothing was added for a while. The wait ends early if the worker dies.
        died, _, _ = select.select([pidfd], [], [], _SETTLED_S)
        longer = stacks.read(status_fd, worker)
        if (longer == text and longer != before) or died:
            break
        text = longer
    return stacks.shortened(text[len(before) :])


def state_of(pid: int) -> str:
    """Describe what the kernel says a process is doing, if that explains why it does not answer."""
    try:
        state = psutil.Process(pid).status()
    except psutil.Error:
        return ""
    if state in (psutil.STATUS_STOPPED, psutil.STATUS_TRACING_STOP):
        return f"it is stopped (kill -CONT {pid} lets it continue)"
    if state == psutil.STATUS_DISK_SLEEP:
        return "it waits in the kernel for a disk or a network file system"
    return ""


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _limits(in_cgroup: bool) -> str:
    if not in_cgroup:
        available = cgroup_memory.available_bytes()
        return "" if available is None else f" (the machine has {_gib(available)} available now)"
    facts = cgroup_memory.cgroup_memory()
    if facts.limit_bytes is None:
        return " in this cgroup"
    used = "" if facts.used_bytes is None else f", {_gib(facts.used_bytes)} in use now"
    return f" in this cgroup (limit {_gib(facts.limit_bytes)}{used})"


def _sizes(last_bytes: int, peak_bytes: int) -> str:
    if peak_bytes:
        return f"; the worker had {_gib(peak_bytes)} at most"
    return f"; the worker last had {_gib(last_bytes)}" if last_bytes else ""


def _gib(nbytes: int) -> str:
    if nbytes >= 1 << 29:
        return f"{nbytes / 2**30:.1f} GiB"
    return f"{nbytes / 2**20:.0f} MiB"

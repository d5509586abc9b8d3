"""Runs a script in an interpreter of its own and stays out of its way.

The script has the supervisor's standard streams, terminal, process group and descriptors. It is started as ``python script.py``
would be, by Python itself; what stoker does in it comes in through ``sitecustomize`` (the folder ``site``). The supervisor only
waits: signals sent to it alone are passed on, those of the terminal and those sent to many processes reach the script by
themselves, and in the end it ends as the script did. When the supervisor is killed the script dies with it.
"""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from stoker._tools.profile import bootstrap, site
from stoker._tools.profile.signal_probe import SignalProbe
from stoker._tools.sandbox.child import forked

_SI_KERNEL = 0x80

_KEPT = frozenset({
    signal.SIGKILL, signal.SIGSTOP,
    signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU,  # the terminal stops the whole group
    signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGSYS, signal.SIGTRAP, signal.SIGPIPE,  # our own
})  # fmt: skip
"""Signals that keep their meaning for the supervisor; all others are waited for."""


@dataclass(frozen=True, slots=True)
class ScriptExit:
    """How a script ended: an exit code, or minus the number of the signal that killed it."""

    pid: int
    code: int
    began_unix_ns: int
    began_ns: int

    @property
    def text(self) -> str:
        """ "0", "1", "SIGKILL": as in a record."""
        if self.code >= 0:
            return str(self.code)
        try:
            return signal.Signals(-self.code).name
        except ValueError:
            return f"signal {-self.code}"


def interpreter_flags(command: Sequence[str]) -> list[str]:
    """The options in a command line of Python (``sys.orig_argv``) that are for the interpreter, to start another one alike.

    Where a file is run, options that isolate (-I, -E, -s, -P) are left out: they stand in the first line of an installed
    command and are about where it finds its own modules.
    """
    found: list[list[str]] = []
    rest = list(command[1:])
    while rest:
        word = rest.pop(0)
        if word in ("-", "--") or not word.startswith("-"):
            found = [[kept, *value] for flag, *value in found if (kept := _unisolated(flag))]
            break
        letters, valued = _letters(word)
        if "c" in letters or "m" in letters:
            cut = min(word.find(letter) for letter in "cm" if letter in letters)
            found += [[word[:cut]]] if cut > 1 else []
            break
        found.append([word, *(rest[:1] if valued else ())])
        del rest[: len(found[-1]) - 1]
    return [word for group in found for word in group]


def _letters(flag: str) -> tuple[str, bool]:
    """The one-letter options in a word, without what is attached to the last one; whether its value is the next word."""
    if flag.startswith("--"):
        return "", flag == "--check-hash-based-pycs"
    for place, letter in enumerate(flag[1:], 1):
        if letter in "cm":
            return flag[1 : place + 1], False
        if letter in "WX":
            return flag[1 : place + 1], place == len(flag) - 1
    return flag[1:], False


def _unisolated(flag: str) -> str:
    letters, _ = _letters(flag)
    kept = "".join(letter for letter in letters if letter not in "IEsP") + flag[len(letters) + 1 :]
    return f"-{kept}" if kept else ""


def shut_off(flags: Sequence[str]) -> str | None:
    """The option among ``flags`` under which Python reads no PYTHONPATH or imports no ``sitecustomize``, if there is one."""
    rest = list(flags)
    while rest:
        letters, valued = _letters(rest.pop(0))
        del rest[: int(valued)]
        for letter in letters:
            if letter in "IES":
                return f"-{letter}"
    return None


def environment(mode: str, folder: Path, base: Mapping[str, str], *, follow: bool = True) -> dict[str, str]:
    """What the script's interpreter starts with: the user's variables and those of ``bootstrap``.

    With ``follow`` they stay, and every Python process that the script starts is entered in the same way.
    """
    made = {**base, bootstrap.MODE: mode, bootstrap.RECORD: str(folder)}
    here = str(Path(site.__file__).parent)
    path = made.get("PYTHONPATH")
    if path is not None and bootstrap.FOLLOW in made:  # a command of ours below another one
        path = os.pathsep.join(each for each in path.split(os.pathsep) if each != here) or None
    made.pop(bootstrap.PYTHONPATH, None)
    made.pop(bootstrap.FOLLOW, None)
    if follow:
        made[bootstrap.FOLLOW] = sys.prefix
    elif path is not None:
        made[bootstrap.PYTHONPATH] = path
    made["PYTHONPATH"] = os.pathsep.join([here, path]) if path else here
    return made


def supervise(command: Sequence[str], environ: Mapping[str, str]) -> ScriptExit:
    """Run a command to its end. Main thread, of a process without other threads: signals are taken from the kernel's queue."""
    caught = signal.valid_signals() - _KEPT
    before = signal.pthread_sigmask(signal.SIG_BLOCK, caught)
    # Ignored, as an ancestor may have left it, it would take the child's status with it.
    children = signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    try:
        began_unix_ns, began_ns = time.time_ns(), time.monotonic_ns()
        pid = forked()
        if pid == 0:
            try:
                if children is not None:
                    signal.signal(signal.SIGCHLD, children)
                signal.pthread_sigmask(signal.SIG_SETMASK, before)
                os.execve(command[0], list(command), environ)
            except OSError as error:
                os.write(2, f"stoker: cannot start {command[0]}: {error.strerror}\n".encode())
            finally:
                os._exit(127)
        probe = SignalProbe()
        try:
            status = _wait(pid, caught, probe)
        finally:
            probe.close()
        while signal.sigtimedwait(caught, 0) is not None:
            pass  # what came for a script that is no more
    finally:
        if children is not None:
            signal.signal(signal.SIGCHLD, children)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return ScriptExit(pid, os.waitstatus_to_exitcode(status), began_unix_ns, began_ns)


def _wait(pid: int, caught: set[signal.Signals], probe: SignalProbe) -> int:
    while True:
        came = signal.sigwaitinfo(caught)
        if came.si_signo == signal.SIGCHLD:
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                return status
        # The kernel's own, from the terminal, go to the whole group.
        elif came.si_code != _SI_KERNEL and not probe.received(came.si_signo):
            os.kill(pid, came.si_signo)


def end_as(outcome: ScriptExit) -> NoReturn:
    """End this process as the script ended: with its exit code, or by the signal that killed it, without a second core dump."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError, OSError, ValueError):
            stream.flush()
    if outcome.code >= 0:
        os._exit(outcome.code)
    number = -outcome.code
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    if number not in (signal.SIGKILL, signal.SIGSTOP):
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {number})
    os.kill(os.getpid(), number)
    os._exit(128 + number)

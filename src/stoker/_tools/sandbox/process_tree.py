"""Tracks the processes of a sandbox: how much memory they take, and how all of them are ended."""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress

import psutil

from stoker._host.process_memory import footprint

_TRACKER_S = 1.0
_LOOK_S = 0.1
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


class ProcessTree:
    """The processes of one sandbox. It remembers every process it saw, so it finds those that leave group and parent."""

    def __init__(self, sandbox: int) -> None:
        self._sandbox = sandbox
        self._seen: dict[int, psutil.Process] = {}
        self._targets: set[int] = set()

    def members(self, pid: int) -> list[psutil.Process]:
        """A process and what came of it, itself first."""
        try:
            root = psutil.Process(pid)
            found = [root, *root.children(recursive=True)]
        except psutil.Error:
            return []
        self._seen.update((each.pid, each) for each in found if each.pid != self._sandbox)
        return found

    def weigh(self, pid: int, limit_bytes: int | None) -> int:
        """Bytes that these processes take for themselves. Resident pages are a quick bound; those that forks share are left out.

        It is called while speeds are measured: only what came of the sandbox is looked at, not all processes there are.
        """
        members = _processes(pid) or [each.pid for each in self.members(pid)]
        for each in members:
            if each not in self._seen and each != self._sandbox:
                with suppress(psutil.Error):
                    self._seen[each] = psutil.Process(each)
        resident = sum(_resident_bytes(each) for each in members)
        if limit_bytes is None or resident <= limit_bytes:
            return resident
        weights = [footprint(each) for each in members]
        return sum(each.private_bytes for each in weights if each is not None)

    def settle(self) -> None:
        """What the sandbox has started until now belongs to the target, and stays as long as the sandbox."""
        self._targets = {each.pid for each in self.members(self._sandbox)}
        self._seen.clear()

    def kill(self, pid: int) -> None:
        """A probe's group and what left it; or the sandbox's, with all there is."""
        self.members(pid)
        self.members(self._sandbox)  # orphans come to it
        spared = set() if pid == self._sandbox else self._targets
        self._end_before_trackers(pid, spared)
        with suppress(OSError):
            os.killpg(pid, signal.SIGKILL)
        if pid == self._sandbox:
            with suppress(OSError):  # it may not have a group of its own yet
                os.kill(pid, signal.SIGKILL)
        for each in self._seen.values():
            with suppress(psutil.Error):
                if each.pid not in spared and each.is_running():
                    each.kill()
        self._seen.clear()

    def _end_before_trackers(self, group: int, spared: set[int]) -> None:
        """multiprocessing's trackers remove what the others leave in /dev/shm, when the others are gone: they go last.

        A sandbox that is ended in the middle of a probe has groups below it: those whom they were seen to have count too.
        """
        deadline = time.monotonic() + _TRACKER_S
        while True:
            members = [each for each in psutil.process_iter() if self._is_of(group, each.pid)]
            members += [
                each for each in self._seen.values() if each.pid not in spared and each not in members
            ]
            trackers = [each for each in members if is_tracker(each)]
            if not trackers:
                return
            others = [each for each in members if each not in trackers]
            # The sandbox last: its end would have the kernel kill a probe's whole group.
            for wave in ([each for each in others if each.pid != self._sandbox], others):
                for each in wave:
                    with suppress(psutil.Error):
                        each.kill()
                psutil.wait_procs(wave, timeout=_LOOK_S)
            _, trackers = psutil.wait_procs(trackers, timeout=_LOOK_S)
            if not trackers or time.monotonic() > deadline:
                return

    def _is_of(self, group: int, pid: int) -> bool:
        """Whether a process is of a probe's group, or of a sandbox's whole session."""
        try:
            return (os.getsid(pid) if group == self._sandbox else os.getpgid(pid)) == group
        except OSError:
            return False


def _processes(pid: int) -> list[int]:
    """A process and what came of it, as the kernel lists children; nothing where it does not."""
    found = [pid]
    for each in found:  # it grows
        try:
            threads = os.listdir(f"/proc/{each}/task")
        except OSError:  # it has ended
            continue
        for thread in threads:
            try:
                with open(f"/proc/{each}/task/{thread}/children", "rb") as children:
                    found += map(int, children.read().split())
            except FileNotFoundError:
                if each == pid and thread == str(pid):
                    return []
            except (OSError, ValueError):
                continue
    return found


def _resident_bytes(pid: int) -> int:
    try:
        with open(f"/proc/{pid}/statm", "rb") as statm:
            return int(statm.read().split()[1]) * _PAGE_BYTES
    except (OSError, IndexError, ValueError):
        return 0


def is_tracker(process: psutil.Process) -> bool:
    """Whether it is multiprocessing's, which removes named things that others leave."""
    try:
        return any("multiprocessing.resource_tracker" in word for word in process.cmdline())
    except psutil.Error:
        return False

"""Reads Python stacks of processes that hang or crashed, cut to the frames of the user's own files."""

from __future__ import annotations

import os
import re
import select
import signal
from collections.abc import Iterable
from contextlib import suppress

from stoker._host.code_location import PACKAGE, is_library, is_stoker
from stoker._runtime.protocol import stacks

_FRAME = re.compile(r'\s+File "(.+)", line (\d+|\?\?\?) in (.+)')
_FRAMES = 8
_PATIENCE_S = 0.5
_STEP_S = 0.01
_TOOLS = tuple(os.path.join(PACKAGE, "_tools", each, "") for each in ("doctor", "sandbox", "tune", "probes"))


def forget(page_fd: int) -> None:
    """Empty the page of stacks, before the next process leaves its own."""
    stacks.forget(page_fd, 0)


def of_group(page_fd: int, root: int, pids: Iterable[int]) -> str:
    """Where these processes are now, innermost frame last: the first of them that is in somebody's own code, else the root.

    A process that has no handler for the signal is not asked: it would die of it.
    """
    first = ""
    for pid in pids:
        if not _listens(pid):
            continue
        before = stacks.read(page_fd, 0)
        with suppress(OSError):
            os.kill(pid, stacks.SIGNAL)
        frames = _frames(_new(page_fd, before))
        if any(_is_users(each) for each in frames):
            return _shown(frames)
        if pid == root:
            first = _shown(frames)
    return first


def of_crash(page_fd: int) -> str:
    """Where a process crashed, if it could still say so; and then as innermost frame last."""
    text = stacks.read(page_fd, 0)
    crash = text.rfind("Fatal Python error")
    return _shown(_frames(text[crash:])) if crash >= 0 else ""


def _new(page_fd: int, before: str) -> str:
    """What was written since; waits until it does not grow any more."""
    told = ""
    for _ in range(int(_PATIENCE_S / _STEP_S)):
        now = stacks.read(page_fd, 0)[len(before) :]
        if now and now == told:
            break
        told = now
        select.select([], [], [], _STEP_S)
    return told


def _frames(dump: str) -> list[tuple[str, str, str]]:
    """(file, line, function) of the thread that the dump is about, innermost last."""
    _, current, concerned = dump.partition("Current thread 0x")
    if not current:
        _, _, concerned = dump.rpartition("Thread 0x")
    found = []
    for line in concerned.splitlines()[1:]:
        match = _FRAME.fullmatch(line)
        if match is None:
            break
        found.append((match[1], match[2], match[3]))
    frames = found[::-1]
    # The script that called the doctor is on the stack too, when the sandbox is a fork of it: outside of the probe.
    ours = [at for at, each in enumerate(frames) if each[0].startswith(_TOOLS)]
    return frames[ours[-1] + 1 :] if ours else frames


def _is_users(frame: tuple[str, str, str]) -> bool:
    return not is_library(frame[0])


def _shown(frames: list[tuple[str, str, str]]) -> str:
    kept = [each for each in frames if not is_stoker(each[0]) and not each[0].startswith("<frozen")]
    while kept and not _is_users(kept[0]) and any(map(_is_users, kept)):
        kept.pop(0)
    return "\n".join(f'  File "{path}", line {line}, in {name}' for path, line, name in kept[-_FRAMES:])


def _listens(pid: int) -> bool:
    """Whether it has a handler for the signal that asks for a stack."""
    try:
        with open(f"/proc/{pid}/status") as status:
            mask = next(int(line.split()[1], 16) for line in status if line.startswith("SigCgt:"))
    except (OSError, StopIteration, ValueError):
        return False
    return bool(mask >> (int(stacks.SIGNAL) - 1) & 1) and int(stacks.SIGNAL) in signal.valid_signals()

"""Lets the parent read Python stacks of workers: after a crash in native code, and on request while a worker hangs.

The stacks lie in the file of the status page, behind its rows. Each worker has a region that grows only when something is written.
``faulthandler`` writes at the offset of the open file, from a signal handler. So each worker opens the file for itself.
"""

from __future__ import annotations

import faulthandler
import os
import signal
import sys
from collections import Counter
from contextlib import suppress
from typing import Any

from stoker._host.code_location import PACKAGE

_WORKER = os.path.join(PACKAGE, "_runtime", "worker", "")
_REGION_BYTES = 1 << 20
_ENOUGH_BYTES = _REGION_BYTES // 2
_FRAMES = 16
_STACKS = 4
_CRASH = "Fatal Python error"
_EXCEPTION = "Uncaught exception"

SIGNAL = getattr(signal, "SIGRTMAX", 64) - 6
"""What asks a worker for its stack. SIGUSR1 and SIGUSR2 belong to users, the first real-time signals to libraries."""


class StackFile:
    """A worker's own region. Made in the worker, before user code runs. ``armed``: whether it answers to ``SIGNAL``."""

    armed = False

    def __init__(self, status_fd: int, worker: int) -> None:
        self._fd = -1
        try:
            self._fd = os.open(f"/proc/self/fd/{status_fd}", os.O_RDWR | os.O_CLOEXEC)
            os.lseek(self._fd, _start(worker), os.SEEK_SET)
        except OSError:  # no /proc: crashes are then told without a stack
            return
        options: dict[str, Any] = {"c_stack": True} if sys.version_info >= (3, 14) else {}
        faulthandler.enable(file=self._fd, all_threads=True, **options)
        faulthandler.register(SIGNAL, file=self._fd, all_threads=True, chain=False)
        self.armed = True

    def leave(self, text: str) -> None:
        """Leave a traceback for the parent: this process ends because of it."""
        if self._fd >= 0:
            told = text.replace("\0", "").encode(errors="backslashreplace")[-_ENOUGH_BYTES:]
            with suppress(OSError):  # the dataset may have closed all descriptors
                os.write(self._fd, f"{_EXCEPTION}\n".encode() + told)


def read(status_fd: int, worker: int) -> str:
    """All that a worker has left so far. Called in the parent, whether the worker lives or not."""
    return _left(status_fd, worker).decode(errors="replace")


def forget(status_fd: int, worker: int) -> None:
    """Empty a dead worker's region before its successor writes there."""
    left = len(_left(status_fd, worker))
    if left:
        os.pwrite(status_fd, bytes(left), _start(worker))


def has_room(text: str) -> bool:
    """Whether a worker that has left this text may be asked for more: regions do not wrap."""
    return len(text) < _ENOUGH_BYTES


def crash_stack(text: str) -> list[str]:
    """What a dead worker left because it died: the stack of a crash or of an exception, in lines. Nothing after SIGKILL."""
    crash, exception = text.rfind(_CRASH), text.rfind(_EXCEPTION)
    if exception > crash:
        lines = text[exception:].splitlines()[1:]
        return lines if len(lines) <= 2 * _FRAMES else [lines[0], "  ...", *lines[-2 * _FRAMES :]]
    return shortened(text[crash:]) if crash >= 0 else []


def shortened(dump: str) -> list[str]:
    """The lines of a dump that help: of the thread it concerns, innermost first, without what is below the user's code.

    A crash in a thread that Python does not know concerns none of those listed: then it is the main thread, the last one. One that
    waits for its hands concerns those of them that fetch rows.
    """
    _, current, concerned = dump.partition("Current thread 0x")
    if not current:
        _, _, concerned = dump.rpartition("Thread 0x")
    python, _, native = concerned.partition("C stack trace")
    frames, of_hands = _frames(python)
    if of_hands and not frames:
        return _of_hands(dump) or ["(it waits for its threads)"]
    natives = [line.strip() for line in native.splitlines()[1:] if line.startswith("  ")]
    return _cut(_of_user(frames)) + _cut(natives)


def _frames(thread: str) -> tuple[list[str], bool]:
    """The frames of one thread down to where it is ours for good, and whether that is in the code of hands."""
    frames: list[str] = []
    for line in thread.splitlines()[1:]:
        if line.startswith(("Thread 0x", "Current thread 0x")) or _is_ours(line, "main.py"):
            break
        if _is_ours(line, "fetch_threads.py"):
            return frames, True
        if line.startswith("  "):
            frames.append(line.strip())
    return frames, False


def _of_hands(dump: str) -> list[str]:
    """What the hands are at, the most common first. Those that wait for rows are left out."""
    stacks = Counter(
        tuple(frames) for frames, of_hands in map(_frames, dump.split("Thread 0x")[1:]) if of_hands and frames
    )
    lines: list[str] = []
    for frames, count in stacks.most_common(_STACKS):
        lines += [f"({count} of its threads)", *_cut(list(frames))]
    return lines


def _of_user(frames: list[str]) -> list[str]:
    """Without our own frames at the outer end, unless there are no others."""
    inner = len(frames)
    while inner and _is_ours(frames[inner - 1]):
        inner -= 1
    return frames[:inner] or frames


def _cut(frames: list[str]) -> list[str]:
    half = _FRAMES // 2
    return frames if len(frames) <= _FRAMES else [*frames[:half], "...", *frames[-half:]]


def _is_ours(line: str, file: str = "") -> bool:
    """Whether this frame is the worker's own code: from there on down the stack is always the same."""
    return os.path.join(_WORKER, file) in line


def _left(status_fd: int, worker: int) -> bytes:
    return os.pread(status_fd, _REGION_BYTES, _start(worker)).split(b"\0", 1)[0]


def _start(worker: int) -> int:
    return (1 + worker) * _REGION_BYTES

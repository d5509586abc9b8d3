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
"""Asks a worker for its stack. SIGUSR1 and SIGUSR2 belong to users, the first real-time signals to libraries."""


class StackFile:
    """The region of one worker. Made in the worker before user code runs. ``armed``: whether it answers to ``SIGNAL``."""

    armed = False

    def __init__(self, status_fd: int, worker: int) -> None:
        self._fd = -1
        try:
            self._fd = os.open(f"/proc/self/fd/{status_fd}", os.O_RDWR | os.O_CLOEXEC)
            os.lseek(self._fd, _start(worker), os.SEEK_SET)
        except OSError:  # no /proc: crash reports then have no stack
            return
        options: dict[str, Any] = {"c_stack": True} if sys.version_info >= (3, 14) else {}
        faulthandler.enable(file=self._fd, all_threads=True, **options)
        faulthandler.register(SIGNAL, file=self._fd, all_threads=True, chain=False)
        self.armed = True

    def leave(self, text: str) -> None:
        """Write the traceback that ends this process, for the parent."""
        if self._fd >= 0:
            data = text.replace("\0", "").encode(errors="backslashreplace")[-_ENOUGH_BYTES:]
            with suppress(OSError):  # the dataset may have closed all descriptors
                os.write(self._fd, f"{_EXCEPTION}\n".encode() + data)


def read(status_fd: int, worker: int) -> str:
    """Return all that a worker has written so far. Called in the parent, whether the worker lives or not."""
    return _left(status_fd, worker).decode(errors="replace")


def forget(status_fd: int, worker: int) -> None:
    """Empty a dead worker's region before its successor writes there."""
    left = len(_left(status_fd, worker))
    if left:
        os.pwrite(status_fd, bytes(left), _start(worker))


def has_room(text: str) -> bool:
    """Whether a worker with this text in its region may be asked for more: regions do not wrap."""
    return len(text) < _ENOUGH_BYTES


def crash_stack(text: str) -> list[str]:
    """Return the lines of the crash or exception that ended a worker. Empty after SIGKILL."""
    crash, exception = text.rfind(_CRASH), text.rfind(_EXCEPTION)
    if exception > crash:
        lines = text[exception:].splitlines()[1:]
        return lines if len(lines) <= 2 * _FRAMES else [lines[0], "  ...", *lines[-2 * _FRAMES :]]
    return shortened(text[crash:]) if crash >= 0 else []


def shortened(dump: str) -> list[str]:
    """Return the useful lines of a dump: of the failing thread, innermost first, without frames below the user's code.

    A crash in a thread that Python does not know shows the main thread, which is listed last. When that thread waits for fetch
    threads, theirs are shown.
    """
    _, current, concerned = dump.partition("Current thread 0x")
    if not current:
        _, _, concerned = dump.rpartition("Thread 0x")
    python, _, native = concerned.partition("C stack trace")
    frames, in_fetch_thread = _frames(python)
    if in_fetch_thread and not frames:
        return _of_fetch_threads(dump) or ["(it waits for its threads)"]
    natives = [line.strip() for line in native.splitlines()[1:] if line.startswith("  ")]
    return _cut(_of_user(frames)) + _cut(natives)


def _frames(thread: str) -> tuple[list[str], bool]:
    """Return the frames of one thread down to our own code, and whether that is the code of a fetch thread."""
    frames: list[str] = []
    for line in thread.splitlines()[1:]:
        if line.startswith(("Thread 0x", "Current thread 0x")) or _is_ours(line, "main.py"):
            break
        if _is_ours(line, "fetch_threads.py"):
            return frames, True
        if line.startswith("  "):
            frames.append(line.strip())
    return frames, False


def _of_fetch_threads(dump: str) -> list[str]:
    """Return the stacks of busy fetch threads, most common first."""
    stacks = Counter(
        tuple(frames)
        for frames, in_fetch_thread in map(_frames, dump.split("Thread 0x")[1:])
        if in_fetch_thread and frames
    )
    lines: list[str] = []
    for frames, count in stacks.most_common(_STACKS):
        lines += [f"({count} of its threads)", *_cut(list(frames))]
    return lines


def _of_user(frames: list[str]) -> list[str]:
    """Drop our own frames at the outer end, unless there are no others."""
    inner = len(frames)
    while inner and _is_ours(frames[inner - 1]):
        inner -= 1
    return frames[:inner] or frames


def _cut(frames: list[str]) -> list[str]:
    half = _FRAMES // 2
    return frames if len(frames) <= _FRAMES else [*frames[:half], "...", *frames[-half:]]


def _is_ours(line: str, file: str = "") -> bool:
    """Whether this frame is the worker's own code. From there on down, the stack is always the same."""
    return os.path.join(_WORKER, file) in line


def _left(status_fd: int, worker: int) -> bytes:
    return os.pread(status_fd, _REGION_BYTES, _start(worker)).split(b"\0", 1)[0]


def _start(worker: int) -> int:
    return (1 + worker) * _REGION_BYTES

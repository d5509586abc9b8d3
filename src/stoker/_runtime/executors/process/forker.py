"""Starts many workers for the price of one fork: a short-lived child, the forker, makes them while the parent goes on.

    parent ──fork──► forker ──clone──► workers
       ▲               └── for each: number and pid, with its pidfd and the parent's end of its lifeline
       └── the workers are the parent's own children, as if it had forked each of them

A fork takes milliseconds, more with the memory of the process, and every fork makes the parent copy again each page that it then
writes to. With a forker the parent pays for two forks, however many workers there are. All of them see the dataset as it was at
``iter()``. What the forker cannot do, because it was refused or was killed, the parent does itself.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import functools
import gc
import os
import platform
import select
import signal
import socket
import struct
import threading
from collections import deque
from collections.abc import Sequence
from typing import Any, NamedTuple

from stoker._runtime.executors.process import channels, launcher
from stoker._runtime.protocol import parent_descriptors
from stoker._runtime.worker.process import entry, main

WORTHWHILE = 3
"""From how many workers on a forker saves time. For fewer, its own fork would cost more."""

_BIRTH_S = 10.0
"""How long to wait for a worker's pid, or for the forker's end. Both take milliseconds, unless the machine is starved."""

_NEWS = struct.Struct("<ii")
"""A worker's number, and its pid or a negative errno."""

_CLONE3 = 435
_ROBUST_LISTS = {"x86_64": (273, 274), "aarch64": (99, 100)}
"""By machine: the numbers of the calls that set and get a thread's list of robust mutexes."""

_CLONE_PIDFD, _CLONE_PARENT, _CLONE_CHILD_CLEARTID, _CLONE_CHILD_SETTID = 0x1000, 0x8000, 0x200000, 0x1000000
_PR_GET_TID_ADDRESS = 40
_UNSUPPORTED = (errno.ENOSYS, errno.EPERM, errno.EINVAL)
_supported: bool | None = None


class Birth(NamedTuple):
    """A worker that the forker made, or could not make: then ``pid`` is a negative errno and there are no descriptors."""

    worker: int
    pid: int
    pidfd: int = -1
    lifeline_fd: int = -1


def is_supported() -> bool:
    """Whether this system lets a child make siblings of its own."""
    global _supported
    if _supported is None:
        _supported = (
            platform.machine() in _ROBUST_LISTS and hasattr(os, "pidfd_open") and _tid_address() is not None
        )
    return _supported


class Forker:
    """The parent's side. Owner: the executor, on the thread that iterates; ``await_birth`` may be called on any thread."""

    def __init__(self, context: Any, boots: Sequence[main.WorkerBoot]) -> None:
        with launcher.refusals("fork"):
            parent_descriptors.ensure_spare(2 * len(boots) + 3)  # they arrive later, when nobody could say so
        self.processes = {
            boot.worker: context.Process(target=entry.run, args=(boot,), daemon=True) for boot in boots
        }
        self.unborn = set(self.processes)
        """The workers that were not heard of yet."""
        self.over = False
        """Whether the forker has ended and everything that it sent was read."""
        self._lock = threading.RLock()
        self._births: deque[Birth] = deque()
        self.control_fd, theirs = channels.control()
        try:
            with launcher.interrupts_held_back():
                self._pid = os.fork()
                if self._pid == 0:
                    _become_forker(theirs, list(zip(boots, self.processes.values(), strict=True)))
            self.pidfd = os.pidfd_open(self._pid)
        except BaseException:
            parent_descriptors.close_private(self.control_fd)
            raise
        finally:
            os.close(theirs)
        parent_descriptors.keep_private(self.pidfd)
        for worker, process in self.processes.items():
            launcher.adopt(process, functools.partial(self._pid_of, worker))

    def births(self) -> list[Birth]:
        """Return what came since the last call."""
        with self._lock:
            self._read()
            found = list(self._births)
            self._births.clear()
        return found

    def stop(self) -> None:
        """Have it make no further workers. Idempotent; returns at once."""
        if self.control_fd >= 0:
            control = socket.socket(fileno=self.control_fd)
            with contextlib.suppress(OSError):  # it has ended
                control.shutdown(socket.SHUT_WR)
            control.detach()

    def await_end(self) -> None:
        """Wait until it has ended; kill it when it does not."""
        if not _readable(self.pidfd, _BIRTH_S):
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self.pidfd, signal.SIGKILL)
            _readable(self.pidfd, _BIRTH_S)

    def close(self) -> None:
        """Reap it, after its end. Workers that it never made count as ended. Idempotent."""
        if self.control_fd < 0:
            return
        with contextlib.suppress(ChildProcessError):  # other code in this program has reaped it
            os.waitpid(self._pid, os.WNOHANG)
        parent_descriptors.close_private(self.control_fd)
        parent_descriptors.close_private(self.pidfd)
        self.control_fd = self.pidfd = -1
        for worker in self.unborn:
            self.processes[worker]._popen.never()

    def _pid_of(self, worker: int) -> int | None:
        """Wait for the pid of a worker; None if it was not made."""
        with self._lock:
            while (
                worker in self.unborn and not self.over and _readable(self.control_fd, _BIRTH_S, self.pidfd)
            ):
                self._read()
        return self.processes[worker]._popen.known_pid  # type: ignore[no-any-return]

    def _read(self) -> None:
        """Take in all news. When it had ended before, there will be no more."""
        if self.over:
            return
        ended = _readable(self.pidfd, 0)
        control = socket.socket(fileno=self.control_fd)
        control.setblocking(False)
        try:
            while True:
                try:
                    message, fds, _, _ = socket.recv_fds(control, _NEWS.size, 2)
                except OSError:
                    break
                if not message:
                    break
                worker, pid = _NEWS.unpack(message)
                self._take(worker, pid, fds)
        finally:
            control.detach()
        self.over = ended

    def _take(self, worker: int, pid: int, fds: Sequence[int]) -> None:
        self.unborn.discard(worker)
        popen = self.processes[worker]._popen
        if pid > 0:
            popen.born(pid)
        else:
            popen.never()
        if len(fds) == 2:
            for fd in fds:
                parent_descriptors.keep_private(fd)
            self._births.append(Birth(worker, pid, *fds))
            return
        for fd in fds:  # there was no room for the other one, so the worker's lifeline has ended it
            os.close(fd)
        self._births.append(Birth(worker, pid if pid < 0 else -errno.EMFILE))
        if -pid in _UNSUPPORTED:
            global _supported
            _supported = False


def _readable(fd: int, patience_s: float, *more: int) -> bool:
    ready = select.poll()
    for each in (fd, *more):
        ready.register(each, select.POLLIN)
    return bool(ready.poll(patience_s * 1000))


# In the forker


def _become_forker(control_fd: int, workers: Sequence[tuple[main.WorkerBoot, Any]]) -> None:
    """Make these workers, one after the other. Does not return, and ends when the parent stops listening."""
    code = 1
    try:
        gc.freeze()  # a collection would touch, and so copy, the parent's objects
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
        clone = _Clone()
        control = socket.socket(fileno=control_fd)
        control.setblocking(True)  # the user may have set a default timeout for sockets
        for boot, process in workers:
            if _readable(control_fd, 0):  # only its end can arrive here
                break
            _make(clone, control, boot, process)
        control.detach()
        code = 0
    finally:
        os._exit(code)


def _make(clone: _Clone, control: socket.socket, boot: main.WorkerBoot, process: Any) -> None:
    ours, theirs = socket.socketpair()
    boot.lifeline_fd = theirs.fileno()
    with ours, theirs:
        try:
            pid, pidfd = clone()
        except OSError as error:
            control.send(_NEWS.pack(boot.worker, -(error.errno or errno.EAGAIN)))
            return
        if pid == 0:
            os.close(ours.detach())
            os.close(control.detach())
            theirs.detach()
            launcher.run_as_worker(process, boot.lifeline_fd)
        try:
            socket.send_fds(control, [_NEWS.pack(boot.worker, pid)], [pidfd, ours.fileno()])
        finally:
            os.close(pidfd)


class _Clone:
    """Forks this process as ``os.fork`` does, except that the child's parent is ours. Only for a process with one thread.

    A thread of glibc keeps its number and its list of robust mutexes where the kernel knows them; a child has to get both anew.
    """

    def __init__(self) -> None:
        # PyDLL keeps Python's lock during the call, as os.fork does.
        self._libc = ctypes.PyDLL(None, use_errno=True)
        self._set_robust_list, get_robust_list = _ROBUST_LISTS[platform.machine()]
        self._tid_address = _tid_address()
        self._robust_list, self._robust_bytes = ctypes.c_void_p(), ctypes.c_size_t()
        self._libc.syscall(
            get_robust_list, 0, ctypes.byref(self._robust_list), ctypes.byref(self._robust_bytes)
        )
        self._pidfd = ctypes.c_int(-1)
        flags = _CLONE_PARENT | _CLONE_PIDFD | _CLONE_CHILD_SETTID | _CLONE_CHILD_CLEARTID
        pidfd_address = ctypes.addressof(self._pidfd)
        self._arguments = (ctypes.c_uint64 * 11)(flags, pidfd_address, self._tid_address or 0)

    def __call__(self) -> tuple[int, int]:
        """Return (pid, pidfd) of the child here, and (0, -1) in the child."""
        python = ctypes.pythonapi
        python.PyOS_BeforeFork()
        pid = self._libc.syscall(
            _CLONE3, ctypes.byref(self._arguments), ctypes.c_size_t(ctypes.sizeof(self._arguments))
        )
        if pid == 0:
            self._libc.syscall(self._set_robust_list, self._robust_list, self._robust_bytes)
            python.PyOS_AfterFork_Child()
            return 0, -1
        number = ctypes.get_errno()
        python.PyOS_AfterFork_Parent()
        if pid < 0:
            raise OSError(number, os.strerror(number))
        return pid, self._pidfd.value


def _tid_address() -> int | None:
    """Where glibc keeps the number of this thread; None where the kernel does not say."""
    address = ctypes.c_void_p()
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_GET_TID_ADDRESS, ctypes.byref(address), 0, 0, 0) != 0:
        return None
    return address.value

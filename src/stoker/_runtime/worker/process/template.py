"""Runs a template: a process that unpacks the dataset once and from which the workers of a pool are forked.

    fork server, or a spawned interpreter ──► template (torch imported, dataset unpacked) ──fork──► workers, replacements too

The template tells the parent whether workers may be forked from it. It then forks one worker per request and reports exit
statuses, until the parent closes the channel. Threads, open files and processes must not be shared by a fork. If unpacking the
dataset made any, no worker is forked from the template, and each worker unpacks for itself.
"""

from __future__ import annotations

import gc
import os
import select
import signal
import socket
import sys
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, fields
from multiprocessing import forkserver, reduction, resource_tracker, util
from typing import Any, NamedTuple

from stoker._runtime.protocol import log_forwarding, status_page
from stoker._runtime.protocol.lifeline import hold_lifeline
from stoker._runtime.protocol.spec_fds import SpecFds
from stoker._runtime.worker import collation
from stoker._runtime.worker.process import main, process_setup

READY = b"ready"
_MAX_REASON_BYTES = 2000
_THREADS_END_S = 0.1
"""How long joined threads may take to leave the kernel's list."""


@dataclass(slots=True)
class TemplateBoot:
    """Everything a template starts with. Requests come through ``control_fd``; closing the lifeline ends it."""

    control_fd: int
    lifeline_fd: int
    note_fd: int
    status_fd: int
    levels: dict[str, int]
    spec_fds: SpecFds

    def __reduce__(self) -> Any:
        fds = (self.control_fd, self.lifeline_fd, self.note_fd, self.status_fd)
        return _arrive, ([reduction.DupFd(fd) for fd in fds], self.levels, self.spec_fds)


def _arrive(passed: list[Any], levels: dict[str, int], spec_fds: SpecFds) -> TemplateBoot:
    control_fd, lifeline_fd, note_fd, status_fd = (item.detach() for item in passed)
    return TemplateBoot(control_fd, lifeline_fd, note_fd, status_fd, levels, spec_fds)


def run(boot: TemplateBoot) -> None:
    """Entry point of the process."""
    process_setup.reset_signals()
    hold_lifeline(boot.lifeline_fd)
    process_setup.close_on_exec()
    process_setup.name_process("template")
    page = status_page.StatusPage(boot.status_fd)
    note_socket = socket.socket(fileno=boot.note_fd)
    log_forwarding.forward(log_forwarding.NoteSender(note_socket, -1, page.control), boot.levels)
    process_setup.single_thread()
    process_setup.forget_default_device()
    collation.install()
    control = socket.socket(fileno=boot.control_fd)
    control.setblocking(True)  # the user may have set a default timeout for sockets
    reason = unpack_once(boot.spec_fds)
    process_setup.reset_signals()  # code of the dataset may have set some
    # If the parent ignores SIGCHLD, exit codes of workers would be lost.
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    util._flush_std_streams()  # type: ignore[attr-defined]  # or every worker would print what is buffered here
    with suppress(BrokenPipeError, ConnectionResetError):  # the parent is gone
        control.send(reason.encode()[:_MAX_REASON_BYTES] or READY)
        if not reason:
            gc.freeze()  # a collection in a worker would touch, and so copy, what is here
            _TemplateServer(control, boot).serve()
    util._exit_function()  # type: ignore[attr-defined]  # removes what multiprocessing made while unpacking
    os._exit(0)  # a regular exit would wait for threads of the dataset


def unpack_once(spec_fds: SpecFds) -> str:
    """Unpack the dataset for all workers. Return why no worker may be forked from this process, or an empty text."""
    try:
        os.close(os.pidfd_open(os.getpid()))
        before = _BeforeUnpacking(_descriptors(), _threads())
        main.inherit(spec_fds.unpack())
    except Exception as error:  # the workers raise it too, as any error of the dataset
        return f"unpacking it raised {type(error).__name__}: {error}"
    return _unfit(before)


class _BeforeUnpacking(NamedTuple):
    """Descriptors and threads before unpacking. The threads belong to BLAS libraries, which handle forks themselves."""

    descriptors: dict[int, os.stat_result]
    threads: set[str]


def _unfit(before: _BeforeUnpacking) -> str:
    """Describe what unpacking left that processes must not share; empty if nothing."""
    deadline = time.monotonic() + _THREADS_END_S
    while (more := _threads() - before.threads) and time.monotonic() < deadline:
        time.sleep(0.001)  # the end of a native thread cannot be waited for
    if more:
        names = [thread.name for thread in threading.enumerate() if thread is not threading.main_thread()]
        return f"unpacking it started threads ({', '.join(names) or 'native ones'})"
    known = {(found.st_dev, found.st_ino) for found in before.descriptors.values()}
    for fd, found in _descriptors().items():
        link = os.readlink(f"/proc/self/fd/{fd}")
        if fd in before.descriptors or (found.st_dev, found.st_ino) in known or link.startswith(_MEMORY):
            continue
        return f"unpacking it opened {link}"
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return ""
    return "unpacking it started a process"


_MEMORY = ("/memfd:", "/dev/shm/")
"""Descriptors of memory have no file position that processes could disturb."""


def _threads() -> set[str]:
    return set(os.listdir("/proc/self/task"))


def _descriptors() -> dict[int, os.stat_result]:
    found = {}
    for name in os.listdir("/proc/self/fd"):
        try:
            found[int(name)] = os.fstat(int(name))
        except OSError:  # the one that listed the directory
            continue
    return found


class _TemplateServer:
    """Forks workers on request. Owner: the template's only thread."""

    def __init__(self, control: socket.socket, boot: TemplateBoot) -> None:
        self._control = control
        self._private_fds = [
            getattr(boot, field.name) for field in fields(boot) if field.name.endswith("_fd")
        ]
        self._private_fds.append(boot.spec_fds.fd)
        self._workers: dict[int, tuple[int, int]] = {}  # by pidfd: pid, where its exit status goes
        self._poll = select.poll()
        self._poll.register(control, select.POLLIN)

    def serve(self) -> None:
        """Work until the parent closes the channel. The workers end by their own lifelines."""
        while True:
            for fd, _ in self._poll.poll():
                if fd != self._control.fileno():
                    self._reap(fd)
                    continue
                message, fds, _, _ = socket.recv_fds(self._control, 1, forkserver.MAXFDS_TO_SEND)
                if not message:
                    return
                self._fork(*fds)

    def _fork(self, data_fd: int, status_fd: int, *fds: int) -> None:
        """Fork a worker that reads its process object from ``data_fd``. Write its pid, or a negative errno, to ``status_fd``."""
        kept = False
        try:
            pid = os.fork()
            if pid == 0:
                self._become_worker(data_fd, status_fd, fds)
            try:
                pidfd = os.pidfd_open(pid)
            except OSError:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
                raise
            self._workers[pidfd] = pid, status_fd
            self._poll.register(pidfd, select.POLLIN)
            kept = True
            _tell(status_fd, pid)
        except OSError as error:
            _tell(status_fd, -(error.errno or 1))
        finally:
            for fd in (data_fd, *fds, *(() if kept else (status_fd,))):
                os.close(fd)

    def _become_worker(self, data_fd: int, status_fd: int, fds: tuple[int, ...]) -> None:
        """Continue in the forked child as multiprocessing's fork server does. Does not return."""
        code = 1
        try:
            unused = [status_fd, *self._private_fds, *self._workers]
            unused += [fd for _, fd in self._workers.values()]
            server: Any = forkserver
            tracker: Any = resource_tracker._resource_tracker
            passed = [server._forkserver._forkserver_alive_fd, tracker._fd, *fds]
            code = server._serve_one(data_fd, passed, unused, {})
        except EOFError:  # the parent has withdrawn the request, or is gone
            pass
        except Exception:
            sys.excepthook(*sys.exc_info())
            sys.stderr.flush()
        finally:
            os._exit(code)

    def _reap(self, pidfd: int) -> None:
        pid, status_fd = self._workers.pop(pidfd)
        self._poll.unregister(pidfd)
        os.close(pidfd)
        try:
            _, found = os.waitpid(pid, 0)
            _tell(status_fd, os.waitstatus_to_exitcode(found))
        except ChildProcessError:  # code of the dataset has collected it: the status is lost
            pass
        os.close(status_fd)


def _tell(fd: int, number: int) -> None:
    with suppress(BrokenPipeError):  # the parent is gone
        os.write(fd, forkserver.SIGNED_STRUCT.pack(number))

"""Starts the workers of a pool: by fork, or from a template that has the dataset unpacked.

Under spawn and forkserver, a template (``worker.template``) is started with the first worker and forks all later ones. There is no
template when it is unfit or gone, or when the pool has one worker. Then each worker unpacks the packed spec for itself.
"""

from __future__ import annotations

import functools
import logging
import os
import socket
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from multiprocessing import forkserver, popen_forkserver, spawn, util
from types import FunctionType, ModuleType
from typing import Any

from stoker._pickling.spec_pickle import SpecPickle
from stoker._runtime.executors.interrupt_delay import interrupts_let_through
from stoker._runtime.executors.process import channels, launcher
from stoker._runtime.protocol import parent_descriptors, wire
from stoker._runtime.protocol.spec_fds import SpecFds
from stoker._runtime.protocol.worker_spec import WorkerSpec
from stoker._runtime.worker.process import entry, main, template

WORTHWHILE_BYTES = 1 << 20
"""A pickle of this size takes 10 ms and some 5 MiB per worker to unpack; a template takes 20 to 30 ms to start."""

WORTHWHILE_IMPORTS = 50
"""The number of modules that come with the dataset from which a template pays."""

_IN_SERVER = {
    *sys.stdlib_module_names,
    "__main__",
    "cloudpickle",
    "numpy",
    "psutil",
    "stoker",
    "threadpoolctl",
    "torch",
}

PATIENCE_S = 60.0
"""How long a template may take to be ready, beside the time for the size of the dataset."""

_FORK_S = 10.0
"""How long a fork may take. It takes milliseconds, unless the template is stopped or starved."""

_UNPACKED_BYTES_PER_S = 2 << 20
"""The slowest unpacking to wait for. Normal unpacking is ten times faster."""

_FAREWELL_S = 1.0
_log = logging.getLogger("stoker")

_KILLED_S = 10.0
"""How long the kernel may take to end a process whose lifeline was closed."""


class Spawner:
    """Starts workers, and owns the template and the packed spec. Used on the thread that iterates."""

    def __init__(self, context: Any, spec: WorkerSpec, packed_spec: SpecPickle | None) -> None:
        self._context = context
        self._spec = spec
        self._packed_spec = packed_spec
        self._template: _TemplateHandle | None = None
        self._due = spec.num_workers
        self._spawns = context.get_start_method() == "spawn"
        self._wanted = spec.num_workers > 1 and hasattr(os, "pidfd_open")

    def start(self, boot: main.WorkerBoot) -> Any:
        """Start a process that runs this boot. Raises StartRefused when the system has no room for it."""
        if boot.spec is not None:
            return launcher.start(self._context, entry.run, boot)
        if self._wanted:
            self._wanted = False
            if self._spawns or _is_worthwhile(self._packed()):
                self._build(boot)
        if self._template is not None:
            try:
                return self._template.start(boot)
            except _TemplateGone as why:
                self._drop(logging.WARNING, str(why))
        with self._spec_fds() as spec_fds:
            process = launcher.start(self._context, entry.run, replace(boot, spec_fds=spec_fds))
        self._due -= 1
        return process

    def catch_up(self) -> None:
        """Write the rest of the packed spec when all processes start, which takes longer. Called after each ``start``."""
        if self._due <= 0 and self._packed_spec is not None:
            self._load()

    def close(self) -> None:
        """End the template and close the packed spec, after the workers have ended. Idempotent."""
        try:
            if self._template is not None:
                self._template.close()
                self._template = None
        finally:
            if self._packed_spec is not None:
                self._packed_spec.close()

    def _build(self, boot: main.WorkerBoot) -> None:
        with self._spec_fds() as spec_fds:
            self._template = _TemplateHandle(self._context)
            self._template.launch(boot, spec_fds)
        self._load()
        patience_s = PATIENCE_S + self._packed().root_bytes / _UNPACKED_BYTES_PER_S
        try:
            unfit = self._template.await_ready(patience_s)
        except _TemplateGone as why:
            self._drop(logging.WARNING, str(why))
        else:
            if unfit:
                self._drop(logging.INFO, unfit)

    def _drop(self, level: int, why: str) -> None:
        assert self._template is not None
        self._template.close()
        self._template = None
        _log.log(
            level,
            "each worker unpickles the dataset for itself, because the template process is not used: %s",
            why,
        )

    def _packed(self) -> SpecPickle:
        if self._packed_spec is None:
            with parent_descriptors.may_run_out("the packed dataset"), interrupts_let_through():
                self._packed_spec = SpecPickle(self._spec, later=True)
        return self._packed_spec

    def _load(self) -> None:
        packed_spec = self._packed()
        with interrupts_let_through():
            packed_spec.load()

    @contextmanager
    def _spec_fds(self) -> Iterator[SpecFds]:
        """Pass the packed spec to a process that is started inside this context."""
        packed_spec = self._packed()
        fds = packed_spec.fds
        fds_socket = channels.fds_socket(fds) if len(fds) > wire.FDS_PER_MESSAGE else -1
        try:
            yield SpecFds(packed_spec.fd, fds, fds_socket)
        finally:
            if fds_socket >= 0:
                os.close(fds_socket)


def _is_worthwhile(packed_spec: SpecPickle) -> bool:
    """Whether unpacking once for all workers saves more than a template costs."""
    return packed_spec.root_bytes >= WORTHWHILE_BYTES or _imports(packed_spec.modules) >= WORTHWHILE_IMPORTS


def _imports(names: Iterable[str]) -> int:
    """Estimate how many modules a worker must import that the fork server lacks: those of the packages in use."""
    packages: set[str] = set()
    for name in names:
        if _package(name) in _IN_SERVER:
            continue
        packages.add(_package(name))
        for value in list(vars(sys.modules[name]).values()) if name in sys.modules else ():
            if isinstance(value, ModuleType):
                packages.add(_package(value.__name__))
            elif isinstance(value, type | FunctionType):
                packages.add(_package(str(value.__module__)))
    packages -= _IN_SERVER
    return sum(_package(name) in packages for name in list(sys.modules)) if packages else 0


def _package(name: str) -> str:
    return name.partition(".")[0]


class _TemplateGone(Exception):
    """Raised when the template does not answer; its text says why."""


class _TemplateHandle:
    """The parent's side of a template, which ends when this is closed, or with the parent."""

    def __init__(self, context: Any) -> None:
        self._context = context
        self._process: Any = None
        self._control_fd = self._lifeline_fd = -1

    def launch(self, boot: main.WorkerBoot, spec_fds: SpecFds) -> None:
        """Start the template, with the note channel of this worker's pool."""
        self._control_fd, control_fd = channels.control()
        lifeline_fd = -1
        try:
            self._lifeline_fd, lifeline_fd = channels.lifeline()
            begin = template.TemplateBoot(
                control_fd, lifeline_fd, boot.note_fd, boot.status_fd, boot.levels, spec_fds
            )
            self._process = launcher.start(self._context, template.run, begin)
        finally:
            for fd in (control_fd, lifeline_fd):
                if fd >= 0:
                    os.close(fd)

    def await_ready(self, patience_s: float) -> str:
        """Wait for its first message: why no worker may be forked from it, or empty."""
        self._await(self._control_fd, patience_s)
        message = os.read(self._control_fd, 1 << 16)
        if not message:
            self._process.join(_FAREWELL_S)
            raise _TemplateGone(f"the template process ended with exit code {self._process.exitcode}")
        return "" if message == template.READY else message.decode(errors="replace")

    def start(self, boot: main.WorkerBoot) -> Any:
        """Fork a worker from the template."""
        popen = functools.partial(_TemplatePopen, origin=self)
        return launcher.start(self._context, entry.run, boot, popen=popen)

    def fork(self, fds: list[int], data: memoryview) -> tuple[int, int, int]:
        """Fork a worker and send it ``data``; return (pid, descriptor of its exit status, descriptor that ends with us)."""
        status_fd, child_status_fd = os.pipe()
        child_data_fd, data_fd = os.pipe()
        try:
            try:
                with socket.socket(fileno=os.dup(self._control_fd)) as control:
                    control.setblocking(True)  # the user may have set a default timeout for sockets
                    socket.send_fds(control, [b"+"], [child_data_fd, child_status_fd, *fds])
            finally:
                os.close(child_data_fd)
                os.close(child_status_fd)
            self._await(status_fd, _FORK_S)
            pid = forkserver.read_signed(status_fd)
            if pid < 0:
                raise OSError(-pid, os.strerror(-pid))
            launcher.send_to_child(data_fd, data)
        except BaseException as error:
            os.close(status_fd)
            os.close(data_fd)
            if isinstance(error, EOFError | ConnectionError):
                raise _TemplateGone("the template process has ended") from error
            raise
        return pid, status_fd, data_fd

    def close(self) -> None:
        """Ask it to leave, and end it when it does not. Idempotent."""
        control_fd, self._control_fd = self._control_fd, -1
        parent_descriptors.close_private(control_fd)
        try:
            if self._process is not None:
                self._process.join(_FAREWELL_S)
        finally:
            lifeline_fd, self._lifeline_fd = self._lifeline_fd, -1
            parent_descriptors.close_private(lifeline_fd)
        if self._process is not None and self._process.is_alive():
            self._process.kill()  # while it imports, it does not watch the lifeline yet
            self._process.join(_KILLED_S)
        self._process = None

    def _await(self, fd: int, patience_s: float) -> None:
        if not launcher.await_readable(fd, patience_s):
            raise _TemplateGone(f"the template process did not answer within {patience_s:.0f} s")


class _TemplatePopen(popen_forkserver.Popen):
    """multiprocessing's handle of a forkserver process, for a process that a template forked."""

    def __init__(self, child: Any, origin: _TemplateHandle) -> None:
        self._origin: _TemplateHandle | None = origin
        self._fds: list[int]
        super().__init__(child)

    def _launch(self, child: Any) -> None:
        del child._Popen  # must not be pickled with the process object
        data = launcher.packed_for_child(self, _preparation(child._name), child)
        assert self._origin is not None
        self.pid, self.sentinel, parent_fd = self._origin.fork(self._fds, data)
        self._origin = None
        self.finalizer = util.Finalize(self, _close_both, (parent_fd, self.sentinel))


def _close_both(*fds: int) -> None:
    for fd in fds:
        os.close(fd)


def _preparation(name: str) -> dict[str, Any]:
    """Return what a new process sets first, without folder and paths: it has those from the template."""
    data: dict[str, Any] = spawn.get_preparation_data(name)
    return {key: value for key, value in data.items() if key not in ("dir", "sys_path")}

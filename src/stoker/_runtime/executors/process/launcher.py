"""Starts worker processes under fork, spawn and forkserver.

fork and spawn use no path of the file system. The fork server of multiprocessing listens on a socket below the temporary
directory; where that cannot work (too long a path, a directory that vanished), it gets a private directory elsewhere.
"""

from __future__ import annotations

import errno
import functools
import gc
import io
import multiprocessing.util
import os
import resource
import select
import shutil
import signal
import stat
import tempfile
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing import context as mp_context
from multiprocessing import (
    forkserver,
    popen_fork,
    popen_forkserver,
    process,
    reduction,
    resource_tracker,
    spawn,
)
from pathlib import Path
from typing import Any, NoReturn

import psutil

from stoker._host.private_files import keeps_names
from stoker._runtime.executors.interrupt_delay import interrupts_let_through
from stoker._runtime.protocol import parent_descriptors
from stoker.errors import StartRefused

_PRELOAD = ["stoker._runtime.worker.process.preload"]
_SOCKET_PATH_BYTES = 107
"""The longest path of a socket, without the closing zero."""

_REFUSALS = (errno.ENOMEM, errno.EAGAIN, *parent_descriptors.SPENT)
_patching = threading.Lock()
_started: weakref.WeakSet[Any] = weakref.WeakSet()


def start(
    ctx: Any, target: Callable[[Any], None], boot: Any, *, popen: Callable[[Any], Any] | None = None
) -> Any:
    """Start a ``Process`` of this context that runs ``target(boot)``. Raises StartRefused when the system has no room for it.

    ``popen`` replaces the context's own way to start a process. Called by the spawner, on the thread that iterates.
    """
    child = ctx.Process(target=target, args=(boot,), daemon=True)
    method = ctx.get_start_method()
    if method == "fork" and hasattr(os, "pidfd_open"):
        child._Popen = functools.partial(_ForkPopen, lifeline_fd=boot.lifeline_fd)
    elif popen is not None:
        child._Popen = popen
    with refusals(method):
        if method != "fork":
            # multiprocessing leaks pipe ends when it runs out of descriptors.
            parent_descriptors.ensure_spare(10)
        with _daemons_may_have_children(), _main_stays_out(method):
            if method == "forkserver":
                if popen is None:
                    child._Popen = _ServerPopen
                    _ready_server()
                child.start()
            else:
                with interrupts_held_back():
                    child.start()
    _started.add(child)
    return child


def watch(child: Any) -> int:
    """Return a descriptor that becomes readable when the process ends; -1 if it has ended. The caller closes it."""
    if isinstance(child._popen, _ForkPopen):
        return child._popen.hand_over()
    if not hasattr(os, "pidfd_open"):
        return os.dup(child.sentinel)
    try:
        return os.pidfd_open(child.pid)
    except ProcessLookupError:
        return -1


class _ForkPopen(popen_fork.Popen):
    """multiprocessing's handle of a forked process, without its two pipes.

    The worker notices the parent's end by the lifeline; the parent notices the worker's end by a pidfd. A refused fork leaves
    nothing open.
    """

    def __init__(self, child: Any, lifeline_fd: int) -> None:
        self._lifeline_fd = lifeline_fd
        self._reaping = threading.RLock()
        self.peak_bytes = 0
        """Its largest resident memory, once its exit status was collected."""
        super().__init__(child)

    def _launch(self, child: Any) -> None:
        parent_descriptors.ensure_spare(1)  # for the pidfd, which reports the death of the worker
        self.pid = os.fork()
        if self.pid == 0:
            run_as_worker(child, self._lifeline_fd)
        try:
            self.sentinel = os.pidfd_open(self.pid)
        except OSError:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
            raise
        self.finalizer = multiprocessing.util.Finalize(self, _close, (self.sentinel,))

    def hand_over(self) -> int:
        """Return the pidfd, which the caller closes from now on."""
        if self.finalizer is not None:
            self.finalizer.cancel()
            self.finalizer = None
        return self.sentinel

    def poll(self, flag: int = os.WNOHANG) -> int | None:
        """Collect the exit status if it has ended. Any thread: the housekeeper may collect it while the user joins it."""
        with self._reaping:
            if self.returncode is None:
                try:
                    pid, status, usage = os.wait4(self.pid, flag)
                except OSError:  # other code in this program has collected it
                    return None
                if pid == self.pid:
                    self.returncode = os.waitstatus_to_exitcode(status)
                    self.peak_bytes = usage.ru_maxrss * 1024
            return self.returncode

    def wait(self, timeout: float | None = None) -> int | None:
        """Wait as multiprocessing does, with a descriptor of its own, because the watcher closes the other one."""
        if self.poll() is not None or (timeout is not None and timeout <= 0):
            return self.returncode
        try:
            fd = os.pidfd_open(self.pid)
        except OSError:  # already waited for, or no descriptor is free
            return self.poll() if timeout is not None else self.poll(0)
        try:
            ended = select.poll()
            ended.register(fd, select.POLLIN)
            ended.poll(None if timeout is None else timeout * 1000)
        finally:
            os.close(fd)
        return self.poll()


class _ServerPopen(popen_forkserver.Popen):
    """multiprocessing's handle of a process that its fork server forks. Ctrl-C during the start leaves nothing open.

    All that the process needs is sent before its pid is waited for. So if nobody wants it any more, it ends by its lifeline.
    """

    _fds: list[int]

    def _launch(self, child: Any) -> None:
        del child._Popen  # must not be pickled with the process object
        data = packed_for_child(self, spawn.get_preparation_data(child._name), child)
        self.sentinel, data_fd = forkserver.connect_to_new_process(self._fds)
        self.finalizer = multiprocessing.util.Finalize(self, _close, (data_fd, self.sentinel))
        try:
            send_to_child(data_fd, data)
            await_readable(self.sentinel)  # the server answers when it has imported torch
            self.pid = forkserver.read_signed(self.sentinel)
        except BaseException:
            self.finalizer()
            raise


def packed_for_child(popen: Any, preparation: dict[str, Any], child: Any) -> memoryview:
    """Return what a spawned process reads first. The popen collects the descriptors that travel with it."""
    buffer = io.BytesIO()
    mp_context.set_spawning_popen(popen)
    try:
        reduction.dump(preparation, buffer)
        reduction.dump(child, buffer)
    finally:
        mp_context.set_spawning_popen(None)
    return buffer.getbuffer()


def send_to_child(fd: int, data: memoryview) -> None:
    """Write all of it to a pipe. Lets Ctrl-C through while nobody reads."""
    os.set_blocking(fd, False)
    while data:
        try:
            data = data[os.write(fd, data) :]
        except BlockingIOError:
            await_readable(fd, writable=True)
    os.set_blocking(fd, True)


def await_readable(fd: int, patience_s: float | None = None, *, writable: bool = False) -> bool:
    """Wait until there is something to read, or room to write; whether that came in time. Lets Ctrl-C through."""
    ready = select.poll()
    ready.register(fd, select.POLLOUT if writable else select.POLLIN)
    with interrupts_let_through():
        return bool(ready.poll(None if patience_s is None else patience_s * 1000))


def run_as_worker(child: Any, lifeline_fd: int) -> NoReturn:
    """Run a process object in the process that was just forked for it."""
    code = 1
    gc.freeze()  # first: a collection would touch, and so copy, the parent's objects
    try:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
        code = child._bootstrap(parent_sentinel=lifeline_fd)
    finally:
        os._exit(code)


def adopt(child: Any, await_pid: Callable[[], int | None]) -> None:
    """Make a process object of ours stand for a worker that another process forks. ``await_pid`` waits for its pid."""
    child._Popen = functools.partial(_AdoptedPopen, await_pid=await_pid)
    with _daemons_may_have_children():
        child.start()
    _started.add(child)


class _AdoptedPopen(_ForkPopen):
    """multiprocessing's handle of a child of ours that another process forked. Asking for its pid waits for it."""

    def __init__(self, child: Any, await_pid: Callable[[], int | None]) -> None:
        self.known_pid: int | None = None
        self._await_pid: Callable[[], int | None] | None = await_pid
        super().__init__(child, -1)

    def _launch(self, child: Any) -> None:
        self.sentinel = -1

    @property
    def pid(self) -> int | None:  # type: ignore[override]
        """Its pid; None if it was never forked."""
        if self._await_pid is None:
            return self.known_pid
        return self._await_pid()

    def born(self, pid: int) -> None:
        """Note that it was forked."""
        self.known_pid = pid
        self._await_pid = None

    def never(self) -> None:
        """Count it as ended: it was not forked, and will not be."""
        self._await_pid = None
        self.returncode = 0

    def poll(self, flag: int = os.WNOHANG) -> int | None:
        """Collect the exit status if it was forked and has ended."""
        return super().poll(flag) if self.known_pid is not None else self.returncode

    def wait(self, timeout: float | None = None) -> int | None:
        """Wait for its end, after it was forked."""
        return self.returncode if self.pid is None else super().wait(timeout)


def _close(*fds: int) -> None:
    for fd in fds:
        os.close(fd)


def _ready_server() -> None:
    """Prepare multiprocessing's fork server unless it runs: it imports torch, and its socket gets a usable path."""
    server: Any = forkserver._forkserver
    with server._lock:
        if _serves_us(server):
            return
        if server._preload_modules == ["__main__"]:  # the user has not chosen
            server.set_forkserver_preload(list(_PRELOAD))
        _find_place()
        ours = server._preload_modules == _PRELOAD
    if ours:  # other preloads do not unblock the signal
        with interrupts_held_back():
            server.ensure_running()


def _serves_us(server: Any) -> bool:
    """Whether the server runs and is ours. multiprocessing would fail to wait for one inherited through a fork."""
    if server._forkserver_pid is None:
        return False
    try:
        ended, _ = os.waitpid(server._forkserver_pid, os.WNOHANG)
    except ChildProcessError:
        ended = server._forkserver_pid
    if not ended:
        if os.path.exists(server._forkserver_address):
            return True
        # Something removed its socket, so it cannot be reached any more.
        os.kill(server._forkserver_pid, signal.SIGKILL)
        os.waitpid(server._forkserver_pid, 0)
    os.close(server._forkserver_alive_fd)
    server._forkserver_address = server._forkserver_alive_fd = server._forkserver_pid = None
    return False


def _find_place() -> None:
    """Make sure that multiprocessing's temporary directory can hold the server's socket.

    A socket without a path is no way out: anybody on the machine could connect, and what arrives there is unpickled.
    """
    config: Any = process.current_process()._config  # type: ignore[attr-defined]
    held = config.get("tempdir")
    if held is not None and _is_ours(held) and _has_room(held, ""):
        return
    bases = [_default_base(), os.environ.get("XDG_RUNTIME_DIR"), "/tmp", "/var/tmp", "/dev/shm"]
    tried = [base for base in bases if base]
    for base in tried:
        if not _has_room(base, "/stoker-12345678") or not keeps_names(base):
            continue
        try:
            place = tempfile.mkdtemp(prefix="stoker-", dir=base)
        except OSError:
            continue
        multiprocessing.util.Finalize(None, _remove_place, args=(place,), exitpriority=-100)
        config["tempdir"] = place
        return
    raise StartRefused(
        errno.ENOENT,
        f"the fork server needs a directory for its socket: writable, no place where others can rename it, and short enough that "
        f"the socket's whole path has at most {_SOCKET_PATH_BYTES} bytes. None of these fits: {', '.join(tried)}. "
        "Set TMPDIR to such a directory, or use "
        "multiprocessing_context='spawn' or executor='thread'",
    )


def _default_base() -> str | None:
    try:
        return tempfile.gettempdir()
    except OSError:
        return None


def _has_room(base: str, below: str) -> bool:
    return len(os.fsencode(base)) + len(f"{below}/listener-12345678") <= _SOCKET_PATH_BYTES


def _is_ours(folder: str) -> bool:
    """Whether this directory exists, belongs to us, and is closed to others."""
    try:
        found = os.lstat(folder)
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & 0o077


def _remove_place(place: str, rmtree: Callable[..., Any] = shutil.rmtree) -> None:
    rmtree(place, ignore_errors=True)


@contextmanager
def refusals(method: str) -> Iterator[None]:
    """Turn the system's refusal to start a worker into an error with the numbers and the ways out."""
    try:
        yield
    except (OSError, EOFError, MemoryError) as error:
        # A MemoryError of Python's own says nothing at all.
        number = errno.ENOMEM if isinstance(error, MemoryError) else getattr(error, "errno", None)
        # An error in the fork server shows here as a closed connection.
        server = method == "forkserver" and isinstance(error, EOFError | ConnectionError)
        if isinstance(error, StartRefused) or not (server or number in _REFUSALS):
            raise
        if server:
            number, why = number or errno.EPIPE, "the fork server ended before it started the worker"
            found = f"{_memory()}. {_processes()}. Use fewer workers or executor='thread'"
        else:
            why = os.strerror(number or 0)
            found = _circumstances(number, method)
        text = f"a worker process ({method}) could not be started: {why}. {found}"
        raise StartRefused(number, text) from error


def _circumstances(number: int | None, method: str) -> str:
    if number == errno.ENOMEM:
        other = ", or multiprocessing_context='forkserver' or 'spawn', which do not copy this process"
        return f"{_memory()}. Use fewer workers or executor='thread'{other if method == 'fork' else ''}"
    if number == errno.EAGAIN:
        return f"{_processes()}. Use fewer workers or executor='thread', or raise the limit (ulimit -u)"
    return parent_descriptors.census()


def _memory() -> str:
    mib = 1 << 20
    own = psutil.Process().memory_info().rss // mib
    free = psutil.virtual_memory().available // mib
    mode = _read("/proc/sys/vm/overcommit_memory") or "unknown"
    strict = " (strict: a fork must be able to copy all of this process)" if mode == "2" else ""
    return f"This process has {own} MiB resident, {free} MiB are available, vm.overcommit_memory is {mode}{strict}"


def _processes() -> str:
    soft, hard = resource.getrlimit(resource.RLIMIT_NPROC)
    limit, most = ("unlimited" if value < 0 else value for value in (soft, hard))
    text = f"This user may have {limit} processes and threads (hard limit {most})"
    for line in _read("/proc/self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers in ("", "pids"):
            group = f"/sys/fs/cgroup{'/pids' if controllers else ''}{path.rstrip('/')}"
            if most := _read(f"{group}/pids.max"):
                text += f", its control group {most}, of which {_read(f'{group}/pids.current')} are there"
    return text


def _read(path: str) -> str:
    try:
        return Path(path).read_text().strip()
    except OSError:
        return ""


@contextmanager
def _daemons_may_have_children() -> Iterator[None]:
    """Allow daemonic processes to start workers. multiprocessing fears orphans; our workers end with their parent."""
    config: Any = process.current_process()._config  # type: ignore[attr-defined]
    daemon = config.pop("daemon", None)
    try:
        yield
    finally:
        if daemon is not None:
            config["daemon"] = daemon


@contextmanager
def interrupts_held_back() -> Iterator[None]:
    """Start a worker with Ctrl-C blocked: before it can ignore the signal, it would print a traceback.

    The block survives exec. The parent receives a blocked signal when the worker has started.
    """
    resource_tracker.ensure_running()  # starting it later would unblock the signal
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def _main_stays_out(method: str) -> Iterator[None]:
    """Keep a spawned worker from importing the training script: everything it needs travels by value.

    That import breaks scripts without a ``__main__`` guard, notebooks and code read from stdin.
    """
    if method == "fork":
        yield
        return
    module: Any = spawn
    with _patching:
        original = module.get_preparation_data

        def without_main(name: str) -> dict[str, Any]:
            data: dict[str, Any] = original(name)
            data.pop("init_main_from_name", None)
            data.pop("init_main_from_path", None)
            return data

        module.get_preparation_data = without_main
        try:
            yield
        finally:
            module.get_preparation_data = original


def _disown() -> None:
    """Forget the workers in a forked child: multiprocessing would end them when the child exits."""
    children: Any = process._children  # type: ignore[attr-defined]
    children.difference_update(_started)
    _started.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_disown)

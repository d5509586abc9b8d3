"""Runs one process per node and pool, from which the workers of that node are forked: the dataset is unpacked once per node.

    relay (a Ray actor) ── abstract socket ──► node host: torch imported, dataset unpacked ──fork──► worker of that relay

The first relay of a node binds the socket, which only one can do, and starts this process with it. Later relays connect. On its own
node the trainer is faster: it binds the socket and forks the process (``near_host``). A request is one message with descriptors;
the answers are the pid of the new worker and, later, its exit status. The process belongs to no relay: it ends when the last
connection is closed. It never calls Ray, and neither do the workers.
"""

from __future__ import annotations

import contextlib
import errno
import gc
import hashlib
import json
import multiprocessing.util
import os
import pickle
import select
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator, Sequence
from typing import Any, NoReturn

ANSWER = struct.Struct("<qq")
"""What it answers: a pid (negative: an error number) and STARTED; or a pid and the exit code."""

STARTED = 1 << 32
"""In place of an exit code: the worker was forked."""

FDS = ("boot", "task", "result", "lifeline", "note", "arena", "status")
"""The descriptors of a request, in this order. ``boot`` has the pickled rest."""

_CREDENTIALS = struct.Struct("=iII")
_MOST_NAMES = 8
_MOST_WAITING = 1024
_CONNECT_S = 30.0
LONELY_S = 30.0
"""How long it waits for its first relay."""

_PYTHON = ("-P", "-c")
"""Without the current folder: a file there that is called "json.py", perhaps of another user, must not be what is imported."""

_START = """
import json, os, sys
if os.fork():
    os._exit(0)
told = json.loads(sys.argv[1])
sys.path[:] = told["path"]
from stoker._runtime.executors.ray.node_host import serve
serve(told)
"""


def addresses(pool: str, node: str) -> Iterator[str]:
    """The names of the socket of a node's host, for one pool. The first one is used, unless another user has taken it.

    They differ for processes that must not share a host: in other namespaces, or of another interpreter.

    Such a name has no owner and no mode: whoever knows it can take it or connect to it. So both sides ask who the other one is.
    """
    name = f"\0stoker-ray-{_digest(pool, node)}"
    for number in range(_MOST_NAMES):
        yield name + (f"-{number}" if number else "")


def _digest(*words: str) -> str:
    """A digest of these words, and of the namespaces and the interpreter of this process: a name may have 107 characters."""
    found = [*words, sys.executable, sys.prefix, sys.version]
    for kind in ("pid", "mnt", "user"):
        with contextlib.suppress(OSError):
            found.append(os.readlink(f"/proc/self/ns/{kind}"))
    return hashlib.blake2s("\n".join(found).encode()).hexdigest()


def connect(name: str) -> socket.socket | None:
    """Return a connection to a node's host; None if there is none. Called by a relay.

    Raises PermissionError if another user has taken the name.
    """
    line = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        line.settimeout(_CONNECT_S)
        line.connect(name)
        if not is_ours(line):
            raise PermissionError(errno.EPERM, "another user has taken the name of this node's host")
    except ConnectionRefusedError:
        line.close()
        return None
    except BaseException:
        line.close()
        raise
    line.settimeout(None)
    return line


def is_ours(line: socket.socket) -> bool:
    """Whether a process of this user, or of root, is at the other end of a connection."""
    _, user, _ = _CREDENTIALS.unpack(
        line.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    )
    return user in (os.geteuid(), 0)


def take(name: str) -> socket.socket | None:
    """Take the name for a new host; None if it is taken. Nobody can connect before ``listen``."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        listener.bind(name)
    except OSError:
        listener.close()
        return None
    return listener


def bind(name: str) -> socket.socket | None:
    """Take the name for a new host; None if it is taken. Connections wait until the host accepts them."""
    listener = take(name)
    if listener is not None:
        listener.listen(_MOST_WAITING)
    return listener


def launch(listener: socket.socket, spec_fd: int, fds: Sequence[int]) -> None:
    """Start the host of this node. It is nobody's child: Ray ends the children of an actor that leaves."""
    told = json.dumps(
        {
            "listener": listener.fileno(), "spec": spec_fd, "fds": list(fds), "lifeline": -1, "path": sys.path, "plain": False,
        }
    )  # fmt: skip
    passed = (listener.fileno(), spec_fd, *fds)
    command = [sys.executable, *_PYTHON, _START, told]
    subprocess.run(
        command, pass_fds=passed, stdin=subprocess.DEVNULL, start_new_session=True, check=True, timeout=60
    )


def serve(told: dict[str, Any]) -> None:
    """Entry point of the process. Does not return."""
    collecting = gc.isenabled()
    gc.disable()  # importing torch makes no garbage
    from stoker._runtime.protocol.lifeline import hold_lifeline
    from stoker._runtime.protocol.spec_fds import SpecFds
    from stoker._runtime.worker.process import process_setup

    process_setup.reset_signals()
    if told["lifeline"] >= 0:
        hold_lifeline(told["lifeline"])
    process_setup.close_on_exec()
    if collecting:
        gc.enable()
    listener = socket.socket(fileno=told["listener"])
    _serve(listener, SpecFds(told["spec"], told["fds"]), told["lifeline"], unpack=not told["plain"])


def serve_forked(listener: socket.socket, spec_fds: Any, lifeline_fd: int) -> None:
    """Serve in a process that the trainer has forked. Relays can connect when the dataset is unpacked. Does not return."""
    from stoker._runtime.worker.process import process_setup

    process_setup.reset_signals()
    # What multiprocessing does in a child of its own: what is to end with the trainer must not end here.
    util: Any = multiprocessing.util
    util._finalizer_registry.clear()
    util._run_after_forkers()
    _serve(listener, spec_fds, lifeline_fd, unpack=True)


def _serve(listener: socket.socket, spec_fds: Any, lifeline_fd: int, *, unpack: bool) -> None:
    from stoker._runtime.worker import collation
    from stoker._runtime.worker.process import main, process_setup, template

    process_setup.name_process("ray host")
    process_setup.single_thread()
    process_setup.forget_default_device()
    collation.install()
    listener.settimeout(None)
    listener.setblocking(False)
    if unpack:
        if template.unpack_once(spec_fds):
            # Its threads or files must not be shared by a fork. A new interpreter leaves unpacking to each worker.
            _start_anew(listener, spec_fds, lifeline_fd)
        process_setup.reset_signals()  # code of the dataset may have set some
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    gc.freeze()  # a collection in a worker would touch, and so copy, what is here
    listener.listen(_MOST_WAITING)
    _HostServer(listener, None if unpack else spec_fds, main, lifeline_fd).serve()
    os._exit(0)  # a regular exit would wait for threads of the dataset


def _start_anew(listener: socket.socket, spec_fds: Any, lifeline_fd: int) -> NoReturn:
    """Go on in a new interpreter that does not unpack the dataset."""
    passed = (listener.fileno(), spec_fds.fd, *spec_fds.fds, *((lifeline_fd,) if lifeline_fd >= 0 else ()))
    for fd in passed:
        os.set_inheritable(fd, True)
    told = {
        "listener": listener.fileno(), "spec": spec_fds.fd, "fds": list(spec_fds.fds), "lifeline": lifeline_fd,
        "path": sys.path, "plain": True,
    }  # fmt: skip
    os.execv(sys.executable, [sys.executable, *_PYTHON, _START, json.dumps(told)])


class _HostServer:
    """Forks workers on request. Owner: the only thread of the process."""

    def __init__(self, listener: socket.socket, spec_fds: Any, main: Any, lifeline_fd: int = -1) -> None:
        self._lifeline_fd = lifeline_fd
        self._listener = listener
        self._spec_fds = spec_fds
        self._main = main
        self._lines: dict[int, socket.socket] = {}
        self._workers: dict[int, tuple[int, int]] = {}  # by pidfd: pid, number of the line
        self._poll = select.poll()
        self._poll.register(listener, select.POLLIN)

    def serve(self) -> None:
        """Work until no relay is connected."""
        met = False
        while self._lines or not met:
            found = self._poll.poll(None if self._lines else LONELY_S * 1000)
            if not found:
                return
            for fd, _ in found:
                if fd == self._listener.fileno():
                    line, _ = self._listener.accept()
                    if not is_ours(line):  # what it sends would be unpickled
                        line.close()
                        continue
                    line.setblocking(True)
                    self._lines[line.fileno()] = line
                    self._poll.register(line, select.POLLIN)
                    met = True
                elif fd in self._workers:
                    self._reap(fd)
                elif fd in self._lines:
                    self._request(fd)

    def _request(self, number: int) -> None:
        line = self._lines[number]
        try:
            message, fds, _, _ = socket.recv_fds(line, 1, len(FDS))
        except ConnectionError:
            message, fds = b"", []
        if not message:
            self._poll.unregister(line)
            del self._lines[number]
            line.close()
            return
        try:
            pid = os.fork()
            if pid == 0:
                self._become_worker(dict(zip(FDS, fds, strict=True)))
            pidfd = os.pidfd_open(pid)
            self._workers[pidfd] = pid, number
            self._poll.register(pidfd, select.POLLIN)
            self._tell(number, pid, STARTED)
        except OSError as error:
            self._tell(number, -(error.errno or 1), STARTED)
        finally:
            for fd in fds:
                os.close(fd)

    def _become_worker(self, fds: dict[str, int]) -> None:
        """Continue in the forked child as a worker. Does not return."""
        code = 1
        try:
            for fd in (
                self._listener.detach(),
                *((self._lifeline_fd,) if self._lifeline_fd >= 0 else ()),
                *self._workers,
                *[line.detach() for line in self._lines.values()],
            ):
                os.close(fd)
            with open(fds["boot"], "rb") as file:
                rest = pickle.load(file)
            if self._lifeline_fd >= 0:  # forked from the trainer
                os.environ.clear()
                os.environ.update(rest["environment"])
                os.chdir(rest["folder"])
            del rest["environment"], rest["folder"]
            boot = self._main.WorkerBoot(
                task_fd=fds["task"], result_fd=fds["result"], lifeline_fd=fds["lifeline"], note_fd=fds["note"],
                arena_fd=fds["arena"], status_fd=fds["status"], spec=None, spec_fds=self._spec_fds, **rest,
            )  # fmt: skip
            self._main.run(boot)
            code = 0
        except BaseException:
            sys.excepthook(*sys.exc_info())
        finally:
            for stream in (sys.stdout, sys.stderr):
                stream.flush()
            os._exit(code)

    def _reap(self, pidfd: int) -> None:
        pid, number = self._workers.pop(pidfd)
        self._poll.unregister(pidfd)
        os.close(pidfd)
        try:
            _, found = os.waitpid(pid, 0)
            code = os.waitstatus_to_exitcode(found)
        except ChildProcessError:  # code of the dataset has collected it
            code = 255
        self._tell(number, pid, code)

    def _tell(self, number: int, pid: int, what: int) -> None:
        line = self._lines.get(number)
        if line is not None:
            with contextlib.suppress(OSError):  # the relay is gone
                line.send(ANSWER.pack(pid, what))

"""Training scripts in interpreters that have imported torch already: an import takes seconds, a fork some milliseconds.

An incubator is one process per test process, in which nothing but imports has run. For every script it forks a child that
takes over the script's arguments, environment, folder and standard streams, runs it as ``__main__`` and then ends as an interpreter
does, with all its exit handlers. Such a script differs from one that was started by a shell in two ways: it does not
live through the import of torch, and its parent is the incubator. What a test has to say about these two needs a real one.

``Popen`` is for tests; ``python -m tests.warm FD`` is the incubator.
"""

from __future__ import annotations

import gc
import json
import os
import select
import socket
import subprocess
import sys
import types
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
_REQUEST_BYTES = 1 << 17


class Incubator:
    """The test process's end. Opened before the first test that needs it, so that the leak guard knows it."""

    def __init__(self) -> None:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            # A session of its own: Ctrl-C at the terminal is for the tests.
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.warm", str(theirs.fileno())],
                cwd=ROOT,
                env=environment(),
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )

    def start(self, request: dict[str, Any], fds: Sequence[int]) -> int:
        """Fork a script with these descriptors: its three standard streams, and where its status is to be written. Its pid."""
        message = json.dumps(request).encode()
        assert len(message) < _REQUEST_BYTES
        socket.send_fds(self._socket, [message], fds)
        answer = self._socket.recv(_REQUEST_BYTES)
        if not answer:
            raise RuntimeError(f"the incubator ended with code {self._process.wait()}")
        return int(answer)

    def close(self) -> None:
        """End the incubator; scripts that still run are their tests' business."""
        self._socket.close()
        self._process.wait()


incubator: Incubator | None = None
"""Of this test process; set by the fixture in ``tests/conftest.py``."""


def environment(**variables: str) -> Mapping[str, str]:
    """What a script sees: the packages that this process sees, and no warning about the number of cores."""
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(part for part in sys.path if part),
        "PYTHONWARNINGS": "ignore:This DataLoader will create",
        **variables,
    }


class Popen(subprocess.Popen[str]):
    """A script's process as ``subprocess`` has it: ``[path, *arguments]`` or ``["-c", source]``, text."""

    def __init__(self, args: Sequence[str], **options: Any) -> None:
        self._status_fd, self._write_fd = os.pipe()
        try:
            super().__init__(args, text=True, **options)
        finally:
            os.close(self._write_fd)

    def _execute_child(
        self, args: Any, executable: Any, preexec: Any, close: Any, keep: Any, *rest: Any
    ) -> None:
        cwd, env, _, _, _, stdin, stdin_w, stdout_r, stdout, stderr_r, stderr, *others = rest
        assert incubator is not None, "the test does not have the fixture `warm_scripts`"
        request = {
            "args": list(args),
            "cwd": str(cwd or os.getcwd()),
            "env": dict(env if env is not None else environment()),
            "session": bool(others[-2]),
        }
        given = (stdin, stdout, stderr)
        fds = [fd if fd >= 0 else standard for standard, fd in enumerate(given)]
        self.pid = incubator.start(request, [*fds, self._write_fd])
        self._child_created = True
        self._close_pipe_fds(stdin, stdin_w, stdout_r, stdout, stderr_r, stderr)  # type: ignore[attr-defined]

    def _take_status(self, timeout_s: float | None) -> int | None:
        if self.returncode is None and select.select([self._status_fd], [], [], timeout_s)[0]:
            said = os.read(self._status_fd, 16)
            os.close(self._status_fd)
            self.returncode = int(said) if said else -9  # the incubator itself was killed
        return self.returncode

    def _internal_poll(self, *_: Any, **__: Any) -> int | None:
        return self._take_status(0)

    def _wait(self, timeout: float | None) -> int:
        code = self._take_status(timeout)
        if code is None:
            raise subprocess.TimeoutExpired(self.args, timeout or 0.0)
        return code


def run(
    args: Sequence[str], *, timeout: float, given: str = "", **options: Any
) -> subprocess.CompletedProcess[str]:
    """Run a script to its end, as ``subprocess.run`` does with ``capture_output``."""
    pipe = subprocess.PIPE
    with Popen(args, stdin=pipe, stdout=pipe, stderr=pipe, **options) as process:
        try:
            out, err = process.communicate(given, timeout=timeout)
        except BaseException:
            process.kill()
            raise
    return subprocess.CompletedProcess(list(args), process.returncode, out, err)


def _serve(control: socket.socket) -> dict[str, Any] | None:
    """The incubator's loop. Returns a request in the child that is to run it, and None when the tests are over."""
    import torch  # noqa: F401

    import stoker.loader  # noqa: F401

    # The end of a script collects several times: over all that was imported it takes half a second, and a copy of every page.
    gc.collect()
    gc.freeze()
    running: dict[int, tuple[int, int]] = {}
    events = select.poll()
    events.register(control, select.POLLIN)
    while True:
        for fd, _ in events.poll():
            if fd != control.fileno():
                pid, status_fd = running.pop(fd)
                events.unregister(fd)
                os.close(fd)
                code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
                os.write(status_fd, str(code).encode())
                os.close(status_fd)
                continue
            message, fds, _, _ = socket.recv_fds(control, _REQUEST_BYTES, 4)
            if not message:
                return None
            pid = os.fork()
            if pid == 0:
                for watch, (_, status_fd) in running.items():
                    os.close(watch)
                    os.close(status_fd)
                control.close()
                for standard, given in enumerate(fds[:3]):
                    os.dup2(given, standard)
                for given in fds:
                    os.close(given)
                request: dict[str, Any] = json.loads(message)
                return request
            for given in fds[:3]:
                os.close(given)
            watch = os.pidfd_open(pid)
            running[watch] = (pid, fds[3])
            events.register(watch, select.POLLIN)
            control.send(str(pid).encode())


def _become(request: dict[str, Any]) -> tuple[types.ModuleType, Any]:
    """Turn this fork of the incubator into the process that the script would have; its main module and its code."""
    import multiprocessing.process
    import random
    import tempfile

    import numpy as np

    if request["session"]:
        os.setsid()
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["env"])
    random.seed()
    np.random.seed()
    tempfile.tempdir = None
    multiprocessing.process.ORIGINAL_DIR = os.getcwd()  # type: ignore[attr-defined]
    main = types.ModuleType("__main__")
    sys.modules["__main__"] = main
    script, *arguments = request["args"]
    sys.argv = [script, *arguments]
    if script == "-c":
        sys.argv.remove(arguments[0])
        sys.path[0] = ""
        return main, compile(arguments[0], "<string>", "exec")
    path = Path(script)
    sys.path[0] = str(path.resolve().parent)
    main.__file__ = script
    return main, compile(path.read_text(), script, "exec")


def _run(request: dict[str, Any]) -> None:
    """The script's life. Nothing of the incubator may hold its module: what is frozen is only let go when modules are emptied."""
    main, code = _become(request)
    exec(code, main.__dict__)


if __name__ == "__main__":
    request = _serve(socket.socket(fileno=int(sys.argv[1])))
    if request is not None:
        _run(request)

"""The sandbox: a process that has loaded the target. It forks a child for every probe that it is asked for.

It is a fresh interpreter (``python -m stoker._tools.sandbox.server``), or a fork of the process that called
``stoker.doctor(obj)`` or ``stoker.tune(obj)``. It has a session of its own, and every forked probe a process group of its own.
Groups end as a whole: when the doctor (or the tuner) says so, and by the kernel's hand when the doctor is gone. Standard output
and error are a pipe that the doctor reads.

    doctor ── request, with a socket for the answer ─► sandbox ── fork ─► probe ── the fact ─► doctor
"""

from __future__ import annotations

import gc
import importlib
import io
import json
import multiprocessing.process
import multiprocessing.util
import os
import pickle
import signal
import socket
import sys
import warnings
from contextlib import suppress
from dataclasses import is_dataclass, replace
from typing import Any, NamedTuple

from stoker._runtime.protocol import stacks
from stoker._runtime.protocol.lifeline import hold_lifeline
from stoker._tools.sandbox.child import LENGTH
from stoker._tools.sandbox.outcome import FactUnavailable
from stoker._tools.sandbox.progress_page import ProgressPage
from stoker._tools.sandbox.subject import Subject
from stoker.errors import TargetError

REQUEST_BYTES = 1 << 16
_SUBREAPER = 36
_TIDY_S = 2


class SandboxPipes(NamedTuple):
    """The sandbox's descriptors: requests come on ``control``, the closing of ``lifeline`` kills, ``output`` takes prints."""

    control: int
    lifeline: int
    page: int
    output: int


def run(wires: SandboxPipes, subject: Subject | None) -> None:
    """Serve requests until the doctor closes the control socket. Never returns to what was running before a fork."""
    _isolate(wires)
    page = ProgressPage(wires.page)
    with socket.socket(fileno=wires.control) as control:
        while True:
            message, fds, _, _ = socket.recv_fds(control, REQUEST_BYTES, 1)
            if not message:
                return
            request: dict[str, Any] = json.loads(message)
            with socket.socket(fileno=fds[0]) as answer:
                if "load" in request:
                    control.send(json.dumps({"pid": os.getpid()}).encode())
                    subject = _load(request, answer)
                elif request.get("fork", True):
                    _in_fork(request, subject, page, wires, control, answer)
                    continue
                else:
                    control.send(json.dumps({"pid": os.getpid()}).encode())
                    _probe(request, subject, page, wires.page, answer)
            control.send(json.dumps({"status": 0}).encode())


def _isolate(wires: SandboxPipes) -> None:
    """Before user code runs: a session of its own, no terminal, no handlers of the caller's, an end together with the doctor's."""
    with suppress(PermissionError):  # it is one already
        os.setsid()
    with suppress(OSError, ValueError):
        signal.set_wakeup_fd(-1)
    for number in signal.valid_signals():
        with suppress(OSError, ValueError):
            if callable(signal.getsignal(number)):
                signal.signal(number, signal.SIG_DFL)
    hold_lifeline(wires.lifeline, -os.getpgrp())
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(wires.output, 1)
    os.dup2(wires.output, 2)
    os.close(null)
    os.close(wires.output)
    sys.stdin = open(0, closefd=False)  # noqa: SIM115
    sys.stdout = open(1, "w", buffering=1, errors="replace", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", buffering=1, errors="replace", closefd=False)  # noqa: SIM115
    vars(sys).update(__stdout__=sys.stdout, __stderr__=sys.stderr)
    stacks.StackFile(wires.page, 0)
    with suppress(OSError), open("/proc/self/oom_score_adj", "w") as score:
        score.write("1000")  # should memory end, the kernel takes a probe and not somebody's training
    with suppress(Exception):  # children whose parents are gone come to us, so that the doctor finds them
        import ctypes

        ctypes.CDLL(None).prctl(_SUBREAPER, 1, 0, 0, 0)


def _load(request: dict[str, Any], answer: socket.socket) -> Subject | None:
    from stoker._tools.sandbox import target

    try:
        import torch  # noqa: F401

        target.note_sites()
        subject = target.load(
            request["load"], batch_size=request["batch_size"], num_workers=request["num_workers"]
        )
    except TargetError as error:
        _send(answer, packed(("refused", str(error), error.stack)))
        return None
    except BaseException as error:
        said = f"{type(error).__name__}: {target.text_of(error)}"
        _send(answer, packed(("refused", said, target.user_stack(error))))
        return None
    _answer_with_fact(answer, request["first"], subject)  # here and not in a fork: threads do not survive one
    return subject


def _in_fork(
    request: dict[str, Any],
    subject: Subject | None,
    page: ProgressPage,
    wires: SandboxPipes,
    control: socket.socket,
    answer: socket.socket,
) -> None:
    ours, theirs = socket.socketpair()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of forks in processes with threads: the limits are there for it
        pid = os.fork()
    if pid == 0:
        try:
            gc.freeze()
            os.setpgid(0, 0)
            ours.close()
            control.close()
            hold_lifeline(theirs.fileno(), -os.getpgrp())
            if request["calm"]:
                _calm()
            _probe(request, subject, page, wires.page, answer)
            _tidy()
        finally:
            os._exit(0)
    with ours:
        theirs.close()
        answer.close()
        with suppress(OSError):
            os.setpgid(pid, pid)
        control.send(json.dumps({"pid": pid}).encode())
        try:
            status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        except ChildProcessError:  # the user's code waits for all children
            status = 0
        control.send(json.dumps({"status": status}).encode())


def _tidy() -> None:
    """Let multiprocessing remove its named semaphores and folders, as at the end of an interpreter; or end soon."""
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(_TIDY_S)
    gc.collect()  # of what was made since the fork: the rest is frozen
    multiprocessing.util._run_finalizers()  # type: ignore[attr-defined]


def _calm() -> None:
    """One thread per native pool, as in a worker: those of OpenMP do not survive the fork."""
    from stoker._runtime.worker.process.process_setup import single_thread

    single_thread()


def _probe(
    request: dict[str, Any], subject: Subject | None, page: ProgressPage, stack_fd: int, answer: socket.socket
) -> None:
    from stoker._runtime.worker import collation

    assert subject is not None
    collation.uninstall()
    stacks.StackFile(stack_fd, 0)
    if request.get("folder"):
        config: Any = vars(multiprocessing.process.current_process())["_config"]
        config["tempdir"] = request["folder"]
    watched = replace(
        subject,
        avoid=frozenset(request.get("avoid", ())),
        touch=page.touch,
        trial=request.get("trial", {}),
        kept={} if request["fork"] else subject.kept,
    )
    _answer_with_fact(answer, request["probe"], watched)


def _answer_with_fact(answer: socket.socket, module: str, subject: Subject) -> None:
    from stoker._tools.sandbox.target import text_of, user_stack

    try:
        fact = importlib.import_module(module).probe(subject)
        told = packed(("fact", fact))
        unpacked(told)
    except FactUnavailable as error:
        told = packed(("failed", str(error), error.stack))
    except BaseException as error:
        told = packed(
            ("failed", f"the probe failed: {type(error).__name__}: {text_of(error)}", user_stack(error))
        )
    _send(answer, told)


def _send(answer: socket.socket, told: bytes) -> None:
    """One message, its length before it."""
    answer.sendall(LENGTH.pack(len(told)) + told)


def packed(what: Any) -> bytes:
    """Return it as it travels."""
    return pickle.dumps(what, protocol=5)


def unpacked(told: bytes) -> Any:
    """What ``packed`` made: plain values and facts. Raises UnpicklingError for anything else: no code of others is imported."""
    return _Facts(io.BytesIO(told)).load()


class _Facts(pickle.Unpickler):
    """Takes builtin values, and the package's own dataclasses and named tuples, which facts are made of."""

    def find_class(self, module: str, name: str) -> Any:
        if module == "builtins" and name in ("set", "frozenset", "complex"):
            return super().find_class(module, name)
        if module.startswith("stoker."):
            found = super().find_class(module, name)
            if is_dataclass(found) or (isinstance(found, type) and issubclass(found, tuple)):
                return found
        raise pickle.UnpicklingError(f"a fact holds a {module}.{name}, which is no plain value")


if __name__ == "__main__":
    run(SandboxPipes(*map(int, sys.argv[1:5])), None)

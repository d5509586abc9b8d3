"""Starts a sandbox for the doctor or the tuner, asks it for facts, and ends a probe that exceeds its time or memory.

No user code runs here. Everything happens on the thread that calls, in one loop that waits for answers, output and death at once.
"""

from __future__ import annotations

import errno
import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import time
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import stoker
from stoker._host.private_files import temporary_folder
from stoker._record.finding import size
from stoker._tools.sandbox import progress_page, server, user_stacks
from stoker._tools.sandbox.child import LENGTH, complete
from stoker._tools.sandbox.held import HeldSandbox
from stoker._tools.sandbox.outcome import ProbeFailure
from stoker._tools.sandbox.process_tree import ProcessTree
from stoker._tools.sandbox.subject import Subject
from stoker.errors import TargetError

_WEIGH_S = 0.1
_OUTPUT_BYTES = 1 << 16
_READS = 16
_ANSWER_BYTES = 256 << 20
_FAREWELL_S = 5.0
_LONGEST_FOLDER = 70
_HANG_S = 5.0
"""For how long a sample must have been worked on to be called hanging, when the time for all of it is up."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What came of a request. Exactly one of ``fact``, ``failure`` and ``probe_failure`` is there."""

    fact: Any = None
    failure: str = ""
    """Why there is none, in a line: the probe raised, or the target was refused."""
    stack: str = ""
    probe_failure: ProbeFailure | None = None


class SandboxClient:
    """A sandbox and what is needed to end it. Close it. One request at a time."""

    def __init__(self, subject: Subject | HeldSandbox | None, *, memory_limit_bytes: int | None) -> None:
        """Fork this process, which has the subject, or with None start an interpreter that will load one.

        A sandbox that a script has forked of itself is taken over, with its descriptors.
        """
        self._limit_bytes = memory_limit_bytes
        self._output = b""
        self._popen: subprocess.Popen[bytes] | None = None
        self.alive = True
        self._folder = _folder()
        if isinstance(subject, HeldSandbox):
            control, lifeline, self._page_fd, self._out_fd = subject.take()
            self._control, self._lifeline = socket.socket(fileno=control), socket.socket(fileno=lifeline)
            self._page = progress_page.ProgressPage(self._page_fd)
            self.pid = subject.pid
            self._processes = ProcessTree(self.pid)
            self._processes.settle()
            os.set_blocking(self._out_fd, False)
            return
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        life, held = socket.socketpair()
        out_r, out_w = os.pipe()
        self._control, self._lifeline, self._out_fd = ours, life, out_r
        self._page_fd = progress_page.make()
        self._page = progress_page.ProgressPage(self._page_fd)
        wires = server.SandboxPipes(theirs.fileno(), held.fileno(), self._page_fd, out_w)
        try:
            self.pid = self._start(wires) if subject is None else self._fork(wires, subject)
            self._processes = ProcessTree(self.pid)
        except BaseException:
            self.close()
            raise
        finally:
            theirs.close()
            held.close()
            os.close(out_w)
        os.set_blocking(out_r, False)

    @property
    def output(self) -> str:
        """The last that user code printed."""
        return self._output.decode(errors="replace")

    def load(self, target: str, *, first: str, limit_s: float, **arguments: Any) -> Answer:
        """Have a fresh interpreter load a target, and then run the probe of module ``first`` there: that is the answer."""
        answer = self._ask({"load": target, "first": first, **arguments}, limit_s)
        self._processes.settle()
        return answer

    def probe(
        self,
        module: str,
        *,
        limit_s: float,
        within_s: float | None = None,
        avoid: Iterable[int] = (),
        in_fork: bool = True,
        calm: bool = True,
        trial: Mapping[str, Any] | None = None,
    ) -> Answer:
        """Run the probe of a module, in a fork of the sandbox or in the sandbox itself, which a probe failure then ends.

        ``calm`` leaves native pools of a fork with one thread, as in a worker. ``trial`` is what the subject tells the probe.

        With ``within_s``, which all of it may take, the limit counts from the last sample that was begun: slow ones are no hang.
        """
        request = {"probe": module, "avoid": list(avoid), "fork": in_fork, "calm": calm, "trial": trial or {}}
        return self._ask(request, limit_s, within_s)

    def close(self) -> None:
        """End it with all that came of it. Idempotent."""
        if self._control.fileno() < 0:
            return
        self._control.close()
        if self.alive and hasattr(self, "_processes"):
            self._processes.kill(self.pid)
            self._reap()
        self.alive = False
        self._lifeline.close()
        os.close(self._out_fd)
        self._page.close()
        os.close(self._page_fd)
        shutil.rmtree(self._folder, ignore_errors=True)

    def _start(self, wires: server.SandboxPipes) -> int:
        # -P: a file of the user's that is called "select.py" must not be what our own imports find.
        self._popen = subprocess.Popen(
            [sys.executable, "-P", "-m", "stoker._tools.sandbox.server", *map(str, wires)],
            stdin=subprocess.DEVNULL,
            stdout=wires.output,
            stderr=wires.output,
            pass_fds=wires,
            env=environment(),
            start_new_session=True,
        )
        return self._popen.pid

    def _fork(self, wires: server.SandboxPipes, subject: Subject) -> int:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            pid = os.fork()
        if pid == 0:
            try:
                for fd in (self._control.fileno(), self._lifeline.fileno(), self._out_fd):
                    os.close(fd)
                server.run(wires, subject)
            finally:
                os._exit(0)
        return pid

    def _ask(self, request: dict[str, Any], limit_s: float, within_s: float | None = None) -> Answer:
        request["folder"] = self._folder
        self._page.clear()
        user_stacks.forget(self._page_fd)
        ours, theirs = socket.socketpair()
        with ours:
            with theirs:
                try:
                    socket.send_fds(self._control, [json.dumps(request).encode()], [theirs.fileno()])
                except OSError as error:
                    if error.errno not in (errno.EPIPE, errno.ECONNRESET):
                        raise
            ours.setblocking(False)
            return self._watch(ours, limit_s, within_s)

    def _watch(self, answer: socket.socket, limit_s: float, within_s: float | None) -> Answer:
        """Wait for the answer, or for a reason to give it up."""
        deadline = time.monotonic() + limit_s
        last = deadline if within_s is None else time.monotonic() + within_s
        begun = 0
        weigh_at = 0.0
        pid, status, told = self.pid, None, b""
        events = select.poll()
        for fd in (answer.fileno(), self._control.fileno(), self._out_fd):
            events.register(fd, select.POLLIN)
        while status is None:
            now = time.monotonic()
            if now >= min(deadline, last):
                if complete(told):  # it has answered, and then hangs at its own end
                    break
                waited_s = now - (deadline - limit_s)
                if waited_s >= min(limit_s, _HANG_S):
                    return self._hung(pid, waited_s)
                return self._ended(pid, Answer(failure=f"it was not done after {within_s:.3g} s"))
            if now >= weigh_at:
                taken = self._processes.weigh(pid, self._limit_bytes)
                if self._limit_bytes is not None and taken > self._limit_bytes:
                    return self._ate(pid, taken)
                weigh_at = time.monotonic() + _WEIGH_S
                samples = self._page.read().samples
                if samples != begun and within_s is not None:
                    begun, deadline = samples, now + limit_s
            ready = {fd for fd, _ in events.poll(min(_WEIGH_S, deadline - now) * 1000 + 1)}
            if self._out_fd in ready and not self._drain():
                events.unregister(self._out_fd)
            if answer.fileno() in ready:
                part = _read(answer)
                told += part
                if not part:
                    events.unregister(answer)
                if len(told) > _ANSWER_BYTES:
                    return self._ended(pid, Answer(failure="its answer has no end"))
            if self._control.fileno() in ready:
                message = self._control.recv(server.REQUEST_BYTES)
                if not message:  # the sandbox is gone
                    status = self._reap()
                    break
                said = json.loads(message)
                pid, status = said.get("pid", pid), said.get("status")
        while part := _read(answer):
            told += part
        self._drain()
        if not complete(told):
            return self._died(pid, status)
        if pid != self.pid:
            self._processes.kill(pid)
        kind, *rest = server.unpacked(told[LENGTH.size :])
        return Answer(rest[0]) if kind == "fact" else Answer(failure=rest[0], stack=rest[1])

    def _hung(self, pid: int, limit_s: float) -> Answer:
        index = self._page.read().at  # first: the signal that asks for a stack may wake it up
        frames = user_stacks.of_group(self._page_fd, pid, [each.pid for each in self._processes.members(pid)])
        probe_failure = ProbeFailure("hung", index, f"no answer for {limit_s:.3g} s", frames)
        return self._ended(pid, Answer(probe_failure=probe_failure))

    def _ate(self, pid: int, taken_bytes: int) -> Answer:
        assert self._limit_bytes is not None
        text = f"{size(taken_bytes)} of the {size(self._limit_bytes)} it may take"
        index = self._page.read().at
        frames = user_stacks.of_group(self._page_fd, pid, [pid])
        return self._ended(pid, Answer(probe_failure=ProbeFailure("ate memory", index, text, frames)))

    def _died(self, pid: int, status: int | None) -> Answer:
        probe_failure = ProbeFailure(
            "died", self._page.read().at, _ending(status), user_stacks.of_crash(self._page_fd)
        )
        self._processes.kill(pid)
        if pid == self.pid and self.alive:
            self._reap()
        return Answer(probe_failure=probe_failure)

    def _ended(self, pid: int, answer: Answer) -> Answer:
        """Kill it and hear from the sandbox that it is gone."""
        self._processes.kill(pid)
        if pid == self.pid:
            self._reap()
            return answer
        events = select.poll()
        events.register(self._control, select.POLLIN)
        deadline = time.monotonic() + _FAREWELL_S
        while events.poll(max(0.0, deadline - time.monotonic()) * 1000):
            message = self._control.recv(server.REQUEST_BYTES)
            if not message:
                break
            if "status" in json.loads(message):
                return answer
        self._processes.kill(self.pid)  # it does not answer: whatever keeps it, it is of no more use
        self._reap()
        return answer

    def _reap(self) -> int | None:
        """How the sandbox ended; it has been killed or has gone."""
        self.alive = False
        if self._popen is not None:
            return self._popen.wait()
        try:
            return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        except ChildProcessError:
            return None

    def _drain(self) -> bool:
        """Read what was printed; False when the other end is closed."""
        for _ in range(_READS):  # who prints without an end must not keep us from looking at the clock
            try:
                part = os.read(self._out_fd, _OUTPUT_BYTES)
            except BlockingIOError:
                return True
            if not part:
                return False
            self._output = (self._output + part)[-_OUTPUT_BYTES:]
        return True


def refusal(target: str, answer: Answer, output: str) -> TargetError:
    """Why a target was not loaded, as an error."""
    probe_failure = answer.probe_failure
    if probe_failure is None:
        return TargetError(answer.failure, answer.stack, output)
    said = {
        "hung": f"{target} was not loaded: {probe_failure.text}",
        "died": f"{target} ended the process that loaded it: {probe_failure.text}",
        "ate memory": f"{target} took too much memory while it was loaded: {probe_failure.text}",
    }
    return TargetError(said[probe_failure.what], probe_failure.stack, output)


def _folder() -> str:
    """A place for the sockets of multiprocessing: workers that are killed cannot remove theirs. "" where there is none."""
    try:
        folder = temporary_folder("stoker-doctor-")
    except OSError:
        return ""
    if len(folder) < _LONGEST_FOLDER:
        return folder
    os.rmdir(folder)  # a socket below it would have too long a path, where it has not without us
    return ""


def environment() -> dict[str, str]:
    """Ours. A stoker that is not installed is found where it is: the new interpreter does not look into the current folder."""
    home = os.path.dirname(os.path.dirname(os.path.abspath(stoker.__file__)))
    known = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    if f"-packages{os.sep}" in __file__ or home in known:
        return dict(os.environ)
    return {**os.environ, "PYTHONPATH": os.pathsep.join([*filter(None, known), home])}


def _read(answer: socket.socket) -> bytes:
    try:
        return answer.recv(1 << 16)
    except (BlockingIOError, ConnectionError):
        return b""


def _ending(status: int | None) -> str:
    if status is None:
        return "ended"
    if status >= 0:
        return f"ended the process with exit code {status}"
    try:
        return f"killed by {signal.Signals(-status).name}"
    except ValueError:
        return f"killed by signal {-status}"

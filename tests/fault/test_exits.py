"""Every way out of a training script leaves nothing behind: no worker, no word on stderr that does not belong there."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import textwrap
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

import stoker
from stoker.testing import Gate
from tests import warm
from tests.fault.datasets import Gated

GONE_S = 10.0
"""Bound on a wait that ends at once when all is well; only a worker that stays makes it run out."""

SCRIPT = """
    import gc, os, signal, sys
    from stoker import DataLoader
    from tests.fault.datasets import Gated

    class Busy(Gated):
        def __getitem__(self, index):
            if index:
                os.write(1, f"{os.getpid()}\\n".encode())
            return super().__getitem__(index)

    def told():
        return sys.stdin.readline()

    def leave_by_break(loader):
        for _ in loader:
            told()
            break

    def leave_by_del(loader):
        iterator = iter(loader)
        next(iterator), told()
        del iterator

    def leave_by_collection(loader):
        cycle = [iter(loader)]
        cycle.append(cycle)
        next(cycle[0]), told()
        del cycle
        gc.collect()

    def leave_by_a_caught_error(loader):
        try:
            for _ in loader:
                told()
                raise ValueError("in the training loop")
        except ValueError:
            pass

    def train(loader, how):
        iterator = iter(loader)
        next(iterator)
        if how in ("kill", "interrupt"):
            next(iterator)
        told()
        if how == "error":
            raise ValueError("in the training loop")
        if how == "sys.exit":
            sys.exit(3)
        if how == "os._exit":
            os._exit(4)
        return iterator

    if __name__ == "__main__":
        method, how, gate = sys.argv[1:]
        options = dict(batch_sampler=[[0], [1], [-1], [-2]], num_workers=3, multiprocessing_context=method)
        loader = DataLoader(Busy(gate, 1), persistent_workers=how == "end", **options)
        leave = globals().get(f"leave_by_{how}")
        if leave is None:
            iterator = train(loader, how)
        else:
            leave(loader)
            del loader
            told()
"""


class Script:
    """A training script with three busy workers: one waits in the kernel, one computes, one was stopped.

    ``processes`` is how many say that they are there: of workers that have not started yet there is only their template.
    """

    def __init__(self, process: subprocess.Popen[str], processes: int = 3) -> None:
        assert process.stdout is not None
        self.process = process
        pids = [int(process.stdout.readline()) for _ in range(processes)]
        self.watches = [os.pidfd_open(pid) for pid in pids]
        for watch in self.watches[2:]:
            signal.pidfd_send_signal(watch, signal.SIGSTOP)

    def tell(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def workers_left(self) -> int:
        """How many workers are still there, after a sandbox wait."""
        return sum(not select.select([watch], [], [], GONE_S)[0] for watch in self.watches)

    def end(self) -> tuple[int, str]:
        """(exit code, what it wrote to stderr)."""
        _, said = self.process.communicate(timeout=60)
        return self.process.returncode, said


@contextlib.contextmanager
def script(method: str, how: str, folder: Path, processes: int = 3, **variables: str) -> Iterator[Script]:
    gate = folder / "gate"
    os.mkfifo(gate)
    path = folder / "train.py"
    path.write_text(textwrap.dedent(SCRIPT))
    pipe = subprocess.PIPE
    with warm.Popen(
        [str(path), method, how, str(gate)],
        stdin=pipe, stdout=pipe, stderr=pipe, start_new_session=True, env=environment(folder, **variables),
    ) as process:  # fmt: skip
        running = None
        try:
            running = Script(process, processes)
            yield running
        finally:
            process.kill()
            for watch in running.watches if running is not None else ():
                with contextlib.suppress(ProcessLookupError):
                    signal.pidfd_send_signal(watch, signal.SIGKILL)
                os.close(watch)


def environment(folder: Path, **variables: str) -> Mapping[str, str]:
    """A script's environment; processes that it starts also find what is in its folder."""
    found = warm.environment(**variables)
    return {**found, "PYTHONPATH": os.pathsep.join([str(folder), found["PYTHONPATH"]])}


@pytest.mark.parametrize("method", ["fork", "forkserver"])
def test_no_worker_outlives_a_killed_parent(method: str, tmp_path: Path) -> None:
    """Row 34. That one of them is stopped changes nothing. Neither does a fork server leave its socket behind."""
    places = tmp_path / "places"
    places.mkdir()
    with script(method, "kill", tmp_path, TMPDIR=str(places)) as training:
        training.process.kill()
        assert training.workers_left() == 0
        assert training.end() == (-signal.SIGKILL, "")
    assert list(places.iterdir()) == []


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_an_interrupt_gives_one_traceback(method: str, tmp_path: Path) -> None:
    """Row 35. The signal goes to the whole group, as a terminal sends it."""
    with script(method, "interrupt", tmp_path) as training:
        os.killpg(training.process.pid, signal.SIGINT)
        code, said = training.end()
        assert training.workers_left() == 0
        assert code == -signal.SIGINT
        assert said.count("Traceback") == 1
        assert said.endswith("\nKeyboardInterrupt\n")


@pytest.mark.parametrize(
    ("method", "how"),
    [
        ("fork", "break"),
        ("fork", "del"),
        ("fork", "collection"),
        ("fork", "a_caught_error"),
        ("forkserver", "break"),
    ],
)
def test_leaving_the_loop_ends_the_workers(method: str, how: str, tmp_path: Path) -> None:
    """Row 35. The script goes on afterwards."""
    with script(method, how, tmp_path) as training:
        training.tell()
        assert training.workers_left() == 0
        assert training.process.poll() is None
        training.tell()
        assert training.end() == (0, "")


@pytest.mark.parametrize(
    ("method", "how", "code"),
    [
        ("fork", "end", 0),
        ("fork", "sys.exit", 3),
        ("fork", "os._exit", 4),
        ("fork", "error", 1),
        ("forkserver", "end", 0),
        ("forkserver", "os._exit", 4),
    ],
)
def test_leaving_the_script_ends_the_workers(method: str, how: str, code: int, tmp_path: Path) -> None:
    """Row 35. The iterator is alive when the interpreter ends: in a global, in a frame, in a traceback."""
    with script(method, how, tmp_path) as training:
        training.tell()
        left, said = training.end()
        assert training.workers_left() == 0
        assert left == code
        if how == "error":
            assert said.count("Traceback") == 1
            assert said.endswith("\nValueError: in the training loop\n")
        else:
            assert said == ""


SLOW_START = """
    import os, sys
    if "--multiprocessing-fork" in sys.orig_argv:
        os.write(1, f"{os.getpid()}\\n".encode())
        os.open(os.environ["GATE"], os.O_RDONLY)
"""


def test_an_interrupt_while_workers_start_gives_one_traceback(tmp_path: Path) -> None:
    """Row 35. What workers are to be forked from is still importing when the signal comes: it waits in ``sitecustomize``."""
    (tmp_path / "sitecustomize.py").write_text(textwrap.dedent(SLOW_START))
    with script("spawn", "interrupt", tmp_path, processes=1, GATE=str(tmp_path / "gate")) as training:
        os.killpg(training.process.pid, signal.SIGINT)
        code, said = training.end()
        assert training.workers_left() == 0
        assert code == -signal.SIGINT
        assert said.count("Traceback") == 1


INERT = """
    import gc, os, sys
    from stoker import DataLoader
    from stoker.testing import Gate
    from tests.fault.datasets import Gated

    if __name__ == "__main__":
        method, how, folder = sys.argv[1:]
        gate = Gate(folder)
        loader = DataLoader(
            Gated(gate.path, 1), batch_sampler=[[0], [1], [2], [3]], num_workers=2, multiprocessing_context=method
        )
        holder = [iter(loader)]
        holder.append(holder)
        assert next(holder[0]).tolist() == [0]
        child = os.fork()
        if child == 0:
            if how == "close":
                loader.close()
            if how == "collection":
                del holder, loader
                gc.collect()
            sys.exit(7)  # through atexit, as any program
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
        pids = [worker.pid for worker in holder[0]._workers]
        gate.open()
        print([batch.tolist() for batch in holder[0]])
        print(pids == [worker.pid for worker in holder[0]._workers])
        gate.close()
"""


@pytest.mark.parametrize(
    ("method", "how"), [("fork", "exit"), ("fork", "close"), ("fork", "collection"), ("forkserver", "exit")]
)
def test_a_forked_child_that_ends_leaves_the_workers_alone(method: str, how: str, tmp_path: Path) -> None:
    """Row 50. multiprocessing's own exit handler runs in the child too, and knows the parent's workers by their pids."""
    path = tmp_path / "train.py"
    path.write_text(textwrap.dedent(INERT))
    done = warm.run([str(path), method, how, str(tmp_path)], timeout=100)
    assert (done.stdout, done.stderr) == ("[[1], [2], [3]]\nTrue\n", "")


def signal_state() -> tuple[Any, ...]:
    wakeup_fd = signal.set_wakeup_fd(-1)
    signal.set_wakeup_fd(wakeup_fd)
    return wakeup_fd, {number: signal.getsignal(number) for number in signal.valid_signals()}


def test_a_death_raises_nothing_outside_of_next(tmp_path: Path) -> None:
    """Row 27, as the trainer sees it: no handler is installed, and its code between two batches runs on."""
    before = signal_state()
    gate = Gate(str(tmp_path))
    with stoker.DataLoader(Gated(gate.path, 50), batch_size=10, num_workers=2) as loader:
        iterator = iter(loader)
        first = next(iterator).tolist()
        assert signal_state() == before
        watches = [os.pidfd_open(worker.pid) for worker in iterator._workers]
        for watch in watches:
            signal.pidfd_send_signal(watch, signal.SIGKILL)
        for watch in watches:
            while not select.select([watch], [], [], 0)[0]:
                pass  # the trainer's own code, in which a handler of SIGCHLD would run
            os.close(watch)
        gate.open()
        assert first + [value for batch in iterator for value in batch.tolist()] == list(range(100))
    gate.close()
    assert signal_state() == before

"""The suite and the leak guard, tested on executors and blocks that break the rules."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from typing import Any

import pytest

from stoker._runtime.executors.base import Arrival
from stoker._runtime.executors.inline import InlineExecutor
from stoker._runtime.scheduler import messages as m
from stoker.testing import ExecutorConformance, leak_guard


class Twice(InlineExecutor):
    """Answers everything twice."""

    def wait(self, timeout_s: float | None) -> list[Arrival]:
        return super().wait(timeout_s) * 2


class Stubborn(InlineExecutor):
    """Makes what nobody wants any more."""

    def wait(self, timeout_s: float | None) -> list[Arrival]:
        if self._tasks:
            self.begin(self._start.__class__(self._tasks[0].ticket.epoch, 0))
        return super().wait(timeout_s)


class Hasty(InlineExecutor):
    """Gives tasks back and makes them all the same."""

    def withdraw(self) -> list[Arrival]:
        tasks = list(self._tasks)
        back = super().withdraw()
        self._tasks.extend(tasks)
        return back


class Soothing(InlineExecutor):
    """Makes batches of failures."""

    def wait(self, timeout_s: float | None) -> list[Arrival]:
        return [
            Arrival(epoch, m.BatchReady(*event) if isinstance(event, m.BatchFailed) else event)
            for epoch, event in super().wait(timeout_s)
        ]


class Leaky(InlineExecutor):
    """Opens something at the end."""

    def close(self) -> None:
        super().close()
        LEFT.append(os.open(os.devnull, os.O_RDONLY))


LEFT: list[int] = []
"""What Leaky opened."""


@pytest.mark.parametrize(
    ("broken", "clause"),
    [
        (Twice, "test_every_task_is_answered_exactly_once"),
        (Stubborn, "test_tasks_of_an_earlier_epoch_are_skipped"),
        (Hasty, "test_withdrawn_tasks_come_back_once_and_are_never_made"),
        (Soothing, "test_a_failure_carries_the_exception_and_the_next_task_is_made"),
        (Leaky, "test_close_without_a_worker_ever_started"),
    ],
)
def test_the_suite_finds_a_broken_executor(broken: Any, clause: str) -> None:
    class Suite(ExecutorConformance):
        has_workers = False

        def make_executor(self, spec: Any, *, bound: bool) -> Any:
            return self.kind(spec)

        kind = InlineExecutor

    getattr(Suite(), clause)()
    Suite.kind = broken
    with pytest.raises(AssertionError):
        getattr(Suite(), clause)()
    while LEFT:
        os.close(LEFT.pop())


def test_the_guard_names_a_descriptor() -> None:
    with pytest.raises(AssertionError, match=r"descriptor .*null"), leak_guard(grace_s=0):
        fd = os.open(os.devnull, os.O_RDONLY)
    os.close(fd)


def test_the_guard_names_a_thread() -> None:
    done = threading.Event()
    thread = threading.Thread(target=done.wait, name="left-behind")
    with pytest.raises(AssertionError, match=r"thread .*left-behind"), leak_guard(grace_s=0):
        thread.start()
    done.set()
    thread.join()


def test_the_guard_names_a_child() -> None:
    reading, writing = os.pipe()
    with pytest.raises(AssertionError, match="child pid"), leak_guard(grace_s=0):
        child = os.fork()
        if child == 0:
            os.close(writing)
            os.read(reading, 1)
            os._exit(0)
    os.close(writing)
    os.close(reading)
    os.waitpid(child, 0)


def test_the_guard_lets_errors_through_and_clean_blocks_pass() -> None:
    with leak_guard():
        os.close(os.open(os.devnull, os.O_RDONLY))
    with pytest.raises(KeyError), leak_guard():
        raise KeyError


def test_importing_the_tools_imports_neither_torch_nor_pytest() -> None:
    program = "import sys, stoker.testing; print({'torch', 'pytest', 'numpy'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"

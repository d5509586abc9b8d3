"""One suite, every executor. A new backend adds one line to BACKENDS."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from typing import Any, ClassVar

import pytest

from stoker._runtime.executors.inline import InlineExecutor
from stoker._runtime.executors.process.executor import ProcessExecutor
from stoker._runtime.executors.thread import ThreadExecutor
from stoker._runtime.protocol.worker_spec import WorkerSpec
from stoker._runtime.transport.arena import Arena
from stoker.testing import ExecutorConformance
from tests.conformance.remote import RemoteExecutor

Make = Callable[..., Any]


def processes(method: str, backing: Any = None) -> Make:
    """Worker processes of one start method over an arena of one backing."""

    def make(spec: WorkerSpec, *, bound: bool) -> ProcessExecutor:
        context = multiprocessing.get_context(method)
        return ProcessExecutor(spec, context, Arena(backing=backing), bound=bound)

    return make


def inline(spec: WorkerSpec, *, bound: bool) -> InlineExecutor:
    return InlineExecutor(spec)


# name: (how to make one, has workers, workers can die)
BACKENDS: dict[str, tuple[Make, bool, bool]] = {
    "inline": (inline, False, False),
    "thread": (ThreadExecutor, True, False),
    "fork": (processes("fork"), True, True),
    "fork-file": (processes("fork", "file"), True, True),
    "spawn": (processes("spawn"), True, True),
    "forkserver": (processes("forkserver"), True, True),
    "remote": (RemoteExecutor, True, True),
}


class _Backend(ExecutorConformance):
    make: ClassVar[Make]

    def make_executor(self, spec: WorkerSpec, *, bound: bool) -> Any:
        return type(self).make(spec, bound=bound)

    def arena_of(self, executor: Any) -> Arena | None:
        return getattr(executor, "_arena", None)


# Spawned workers import torch anew, seconds each, and once they run nothing but their start differs from the fork server's.
SPAWNED = {
    "test_every_task_is_answered_exactly_once",
    "test_a_dead_worker_is_lost_once_after_its_last_result",
    "test_a_dead_worker_can_be_replaced",
    "test_close_ends_busy_workers",
}


def _suite(name: str, make: Make, has_workers: bool, workers_can_die: bool) -> type:
    every = {test for test in dir(ExecutorConformance) if test.startswith("test_")}
    assert every > SPAWNED
    traits: dict[str, Any] = {
        **dict.fromkeys(every - SPAWNED if name == "spawn" else ()),
        "make": staticmethod(make),
        "has_workers": has_workers,
        "workers_can_die": workers_can_die,
        "__module__": __name__,
    }
    return pytest.mark.xdist_group(name)(type(f"Test_{name}", (_Backend,), traits))


globals().update({f"Test_{name}": _suite(name, *row) for name, row in BACKENDS.items()})

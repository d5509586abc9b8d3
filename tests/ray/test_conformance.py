"""The contract of executors, on a Ray cluster: all workers in actors, and one in a process beside one in an actor."""

from __future__ import annotations

import multiprocessing
import os
import signal
from contextlib import AbstractContextManager, nullcontext
from typing import Any, ClassVar

import pytest

import stoker
from stoker._runtime.executors.ray.executor import RayExecutor
from stoker._runtime.protocol.status_page import PID
from stoker._runtime.protocol.worker_spec import WorkerSpec
from stoker._runtime.transport.arena import Arena
from stoker.testing import ExecutorConformance

pytestmark = pytest.mark.usefixtures("cluster")


class Test_ray(ExecutorConformance):  # as the other backends are named
    workers_can_die = True
    local: ClassVar[int] = 0
    method: ClassVar[str] = "fork"  # the workers of this node are forked from this process

    def make_executor(self, spec: WorkerSpec, *, bound: bool) -> Any:
        context = multiprocessing.get_context(self.method)
        return RayExecutor(spec, context, Arena(), bound=bound, options=stoker.Ray(local=self.local))

    def arena_of(self, executor: Any) -> Arena | None:
        arena: Arena = executor._arena
        return arena

    def kill(self, executor: Any, worker: int) -> None:
        os.kill(executor._status.row(worker)[PID], signal.SIGKILL)

    def watch_leaks(self) -> AbstractContextManager[None]:
        return nullcontext()  # the guard of this folder does it


class Test_ray_and_local(Test_ray):
    local = 1
    method = "forkserver"  # a relay starts the host, as on any other node

"""No workers: batches are made on the thread that asks for them."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any

from stoker._core import messages as m
from stoker._core.types import Task
from stoker._executors.base import Arrival, Sighting, Start
from stoker._executors.making import carry_out
from stoker._worker.maker import Maker
from stoker._worker.spec import WorkerSpec


class InlineExecutor:
    """Makes one batch per ``wait``. The global generators are put back as they were after each."""

    shared_memory = False
    eager = False
    workers: Sequence[Any] = ()

    def __init__(self, spec: WorkerSpec) -> None:
        self._maker = Maker(spec, 0, inline=True)
        self._tasks: deque[Task] = deque()
        self._start = Start(0, 0)

    def begin(self, start: Start) -> None:
        self._start = start

    def agree(self, layout: int) -> None:
        return None

    def spawn(self, worker: int) -> None:
        return None

    def submit(self, task: Task) -> None:
        self._tasks.append(task)

    def wait(self, timeout_s: float | None) -> list[Arrival]:
        if timeout_s == 0 or not self._tasks:  # nothing is ever there before it is waited for
            return []
        task = self._tasks.popleft()
        if task.ticket.epoch != self._start.epoch:
            return [_withdrawn(task)]
        return [carry_out(self._maker, task, self._start, 0)]

    def withdraw(self) -> list[Arrival]:
        back = [_withdrawn(task) for task in self._tasks]
        self._tasks.clear()
        return back

    def sightings(self) -> list[Sighting]:
        return []

    def retire(self, worker: int | None) -> None:
        return None

    def close(self) -> None:
        self._tasks.clear()


def _withdrawn(task: Task) -> Arrival:
    return Arrival(task.ticket.epoch, m.Withdrawn(task.ticket.seq, task.attempt, task.part.number))

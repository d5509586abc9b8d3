"""Drives one executor in tests: datasets that a test controls, tasks built by hand, results opened."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from stoker._runtime.executors.base import Arrival, Executor
    from stoker._runtime.transport.arena import Arena


class Gate:
    """Blocks workers in any process: ``pass_through`` waits until ``open``.

    It is a FIFO: opening its reading end blocks in the kernel until there is a writer. There is no polling and no shared lock,
    and a waiting worker can be killed.
    """

    def __init__(self, folder: str) -> None:
        self.path = os.path.join(folder, "gate")
        os.mkfifo(self.path)
        self._fd = -1

    def open(self) -> None:
        """Let all workers through from now on. Idempotent."""
        if self._fd < 0:
            self._fd = os.open(self.path, os.O_RDWR)

    def close(self) -> None:
        """Close the descriptor. Idempotent."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def pass_through(path: str) -> None:
    """Wait at a gate. Called in a worker, with ``Gate.path``."""
    os.close(os.open(path, os.O_RDONLY))


class GatedNumbers:
    """A dataset whose index says what happens: a number is doubled, a text is a gate to wait at, None fails."""

    def __getitem__(self, index: int | str | None) -> int:
        if index is None:
            raise LookupError("no such sample", 17)
        if isinstance(index, str):
            pass_through(index)
            return -1
        return 2 * index


class NumberStream:
    """An iterable dataset of this many numbers, the same in every worker."""

    def __init__(self, count: int) -> None:
        self._count = count

    def __iter__(self) -> Iterator[int]:
        return iter(range(self._count))


class Bench:
    """Tests one executor: builds tasks by hand, opens results as the engine would, and keeps everything.

    Owner: a test, on its own thread. ``seen`` holds every arrival in order.
    """

    def __init__(self, executor: Executor, arena: Arena | None, gate: Gate) -> None:
        from stoker._runtime.pool.batch_opener import BatchOpener
        from stoker._runtime.scheduler.slots import SlotTable

        self.executor = executor
        self.arena = arena
        self.gate = gate
        self.seen: list[Arrival] = []
        self._slots = SlotTable()
        self._opener = BatchOpener(self._slots, arena, executor.agree, executor.remember)
        self._epoch = 0
        self._seq = 0
        self._pulls: Counter[int] = Counter()
        self.tickets: dict[tuple[int, int], Any] = {}

    def begin(self) -> int:
        """Start the next epoch; return its number."""
        from stoker._runtime.executors.base import IterationStart

        self._epoch += 1
        self._pulls.clear()
        self.executor.begin(IterationStart(self._epoch, seed=5))
        return self._epoch

    def submit(self, indices: list[Any], *, worker: int | None = None, parts: int = 1) -> tuple[int, int]:
        """Submit one ticket, whole or in parts; return its (epoch, seq)."""
        from stoker._runtime.scheduler.row_ranges import row_ranges, share_ranges
        from stoker._runtime.scheduler.types import Part, Task, Ticket

        shared = self.executor.shared_memory
        ticket = Ticket(self._epoch, self._seq, self._seq, indices, seed=5, rows=len(indices))
        self._seq += 1
        slot = self._slots.acquire() if shared else None
        pull = 0
        if worker is not None:
            pull = self._pulls[worker]
            self._pulls[worker] += 1
        spans = share_ranges(row_ranges(len(indices)), parts)
        for number, (start, stop) in enumerate(spans):
            scratch = self._slots.acquire() if shared and parts > 1 else None
            part = Part(number, len(spans), start, stop)
            self.executor.submit(Task(ticket, part, 0, slot, scratch, worker, pull))
        self.tickets[self._epoch, ticket.seq] = ticket
        return self._epoch, ticket.seq

    def wait_until(self, done: Callable[[], bool]) -> None:
        """Wait, without end, until ``done``; a missing arrival shows as the test's timeout."""
        while not done():
            self.seen += self.executor.wait(None)

    def settled(self, key: tuple[int, int]) -> list[Any]:
        """Return all events that answer a ticket."""
        from stoker._runtime.scheduler import messages as m

        answers = (m.BatchReady, m.BatchFailed, m.SourceEnded, m.Withdrawn)
        return [
            event for epoch, event in self.seen if isinstance(event, answers) and (epoch, event.seq) == key
        ]

    def wait_for(self, *keys: tuple[int, int]) -> list[Any]:
        """Return the answers to these whole tickets, in this order. Asserts that each has exactly one."""
        self.wait_until(lambda: all(self.settled(key) for key in keys))
        for key in keys:
            assert len(self.settled(key)) == 1, f"ticket {key} was answered {self.settled(key)}"
        return [self.settled(key)[0] for key in keys]

    def open(self, key: tuple[int, int], events: Sequence[Any]) -> Any:
        """Return the batch of a ticket; raise what its worker raised."""
        from stoker._runtime.scheduler import messages as m

        return self._opener.open(m.Deliver(self.tickets[key], tuple(events)))

    def batches(self, *keys: tuple[int, int]) -> list[Any]:
        """Wait for these tickets and open them."""
        return [self.open(key, [event]) for key, event in zip(keys, self.wait_for(*keys), strict=True)]

    def losses(self, worker: int) -> list[int]:
        """Return where in ``seen`` this worker's loss was reported."""
        from stoker._runtime.scheduler import messages as m

        return [
            place
            for place, (_, event) in enumerate(self.seen)
            if isinstance(event, m.WorkerLost) and event.worker == worker
        ]

    def close(self) -> None:
        """Close the executor twice, drop it, and close what belongs to it.

        It is dropped because the process handles in ``workers`` keep a descriptor each as long as they live.
        """
        self.executor.close()
        self.executor.close()
        del self.executor, self._opener
        self.gate.open()
        self.gate.close()
        if self.arena is not None:
            self.arena.close()

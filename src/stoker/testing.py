"""Tools for tests, also for people who add a backend: the executor conformance suite and the leak guard.

    class TestMine(ExecutorConformance):
        def make_executor(self, spec, *, bound):
            return MyExecutor(spec, bound=bound)

pytest is not imported here and neither is torch: what a tool needs it imports when it runs.
"""

from __future__ import annotations

import gc
import os
import select
import signal
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import forkserver, resource_tracker
from time import monotonic
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from stoker._executors.base import Arrival, Executor
    from stoker._transports.arena import Arena
    from stoker._worker.spec import WorkerSpec

GRACE_S = 2.0
"""How long what was already let go of may take to disappear (a process that is on its way out)."""

_STEP_S = 0.01


@dataclass(frozen=True, slots=True)
class Holdings:
    """What this process holds at one moment, each item in words that help to find its origin."""

    descriptors: frozenset[str]
    threads: frozenset[str]
    children: frozenset[str]
    mappings: frozenset[str]

    def beyond(self, before: Holdings) -> list[str]:
        """Name everything held now that was not held ``before``."""
        return [
            f"{kind[:-1] if kind != 'children' else 'child'} {item}"
            for kind in self.__slots__
            for item in sorted(getattr(self, kind) - getattr(before, kind))
        ]


def holdings() -> Holdings:
    """Take stock. Reads only /proc and interpreter state: it opens nothing that outlives the call."""
    return Holdings(_descriptors(), _threads(), _children(), _mappings())


def leaks_since(before: Holdings, *, grace_s: float = GRACE_S) -> list[str]:
    """What is held beyond ``before`` and does not go away, described; empty when nothing leaked.

    Called on the main thread, with the objects under test dropped. Only what looks like a leak pays for a
    garbage collection, which costs tens of milliseconds once torch is loaded.
    """
    if not holdings().beyond(before):
        return []
    gc.collect()
    deadline_s = monotonic() + grace_s
    while leaked := holdings().beyond(before):
        if monotonic() > deadline_s:
            return [_described(leak) for leak in leaked]
        select.select([], [], [], _STEP_S)
    return []


@contextmanager
def leak_guard(*, grace_s: float = GRACE_S) -> Iterator[None]:
    """Fail with AssertionError when the block leaves descriptors, threads, children or our mappings behind.

    An exception from the block passes through unexamined: its traceback keeps its locals alive.
    """
    before = holdings()
    yield
    leaked = leaks_since(before, grace_s=grace_s)
    if leaked:
        raise AssertionError("leaked: " + "; ".join(leaked))


def _descriptors() -> frozenset[str]:
    # The resource tracker and the fork server live as long as the session by multiprocessing's design.
    lasting = {_attribute(resource_tracker, "_resource_tracker", "_fd")}
    lasting.add(_attribute(forkserver, "_forkserver", "_forkserver_alive_fd"))
    found = set()
    for fd in os.listdir("/proc/self/fd"):
        if int(fd) in lasting:
            continue
        try:
            found.add(f"{fd} -> {os.readlink(f'/proc/self/fd/{fd}')}")
        except FileNotFoundError:  # the descriptor that listed the directory
            continue
    return frozenset(found)


def _threads() -> frozenset[str]:
    # Native threads are not counted: torch and BLAS start their pools on first use and keep them.
    return frozenset(f"{thread.ident} {thread.name}" for thread in threading.enumerate())


def _children() -> frozenset[str]:
    try:  # one system call tells most tests that there is nobody to look for; it reaps nothing
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return frozenset()
    import psutil

    lasting = {
        _attribute(resource_tracker, "_resource_tracker", "_pid"),
        _attribute(forkserver, "_forkserver", "_forkserver_pid"),
    }
    # Workers started by the fork server are its children, so look below it.
    descendants = psutil.Process().children(recursive=True)
    return frozenset(f"pid {child.pid}" for child in descendants if child.pid not in lasting)


def _mappings() -> frozenset[str]:
    with open("/proc/self/maps", "rb") as maps:
        text = maps.read()
    if b"stoker-" not in text:
        return frozenset()
    names = [os.path.basename(line.split(None, 5)[-1]) for line in text.splitlines() if b"stoker-" in line]
    ours = Counter(name.decode() for name in names if name.removeprefix(b"memfd:").startswith(b"stoker-"))
    # Numbered, not by address: a loader that a wider fixture keeps may replace a mapping by a longer one.
    return frozenset(f"{name} #{number}" for name, count in ours.items() for number in range(count))


def _attribute(module: object, singleton: str, name: str) -> int | None:
    return getattr(getattr(module, singleton, None), name, None)


def _described(leak: str) -> str:
    if not leak.startswith("child pid "):
        return leak
    import psutil

    try:
        process = psutil.Process(int(leak.removeprefix("child pid ")))
        return f"{leak} ({process.status()}: {' '.join(process.cmdline())[:120]})"
    except psutil.Error:
        return leak


class Gate:
    """A door in front of a worker, in whatever process it is: ``pass_through`` blocks until ``open``.

    It is a FIFO: opening its reading end blocks in the kernel until there is a writer. No polling, no shared lock, and a
    worker that waits there can be killed.
    """

    def __init__(self, folder: str) -> None:
        self.path = os.path.join(folder, "gate")
        os.mkfifo(self.path)
        self._fd = -1

    def open(self) -> None:
        """Let everybody through from now on. Idempotent."""
        if self._fd < 0:
            self._fd = os.open(self.path, os.O_RDWR)

    def close(self) -> None:
        """Give the descriptor back. Idempotent."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def pass_through(path: str) -> None:
    """Wait at a gate. Called in a worker, with ``Gate.path``."""
    os.close(os.open(path, os.O_RDONLY))


class Numbers:
    """A dataset whose index says what happens: a number is doubled, a text is a gate to wait at, None fails."""

    def __getitem__(self, index: int | str | None) -> int:
        if index is None:
            raise LookupError("no such sample", 17)
        if isinstance(index, str):
            pass_through(index)
            return -1
        return 2 * index


class Stream:
    """An iterable dataset of this many numbers, the same in every worker."""

    def __init__(self, count: int) -> None:
        self._count = count

    def __iter__(self) -> Iterator[int]:
        return iter(range(self._count))


class Bench:
    """One executor on the bench: tasks built by hand, results opened as the engine would, everything kept.

    Owner: a test, on its own thread. ``seen`` holds every arrival in order.
    """

    def __init__(self, executor: Executor, arena: Arena | None, gate: Gate) -> None:
        from stoker._core.slots import SlotTable
        from stoker._engine.handoff import Handoff

        self.executor = executor
        self.arena = arena
        self.gate = gate
        self.seen: list[Arrival] = []
        self._slots = SlotTable()
        self._handoff = Handoff(self._slots, arena)
        self._epoch = 0
        self._seq = 0
        self._pulls: Counter[int] = Counter()
        self.tickets: dict[tuple[int, int], Any] = {}

    def begin(self) -> int:
        """Start the next epoch; its number."""
        from stoker._executors.base import Start

        self._epoch += 1
        self._pulls.clear()
        self.executor.begin(Start(self._epoch, seed=5))
        return self._epoch

    def submit(self, indices: list[Any], *, worker: int | None = None, parts: int = 1) -> tuple[int, int]:
        """Submit one ticket, whole or in parts; its (epoch, seq)."""
        from stoker._core.types import Part, Task, Ticket

        shared = self.executor.shared_memory
        ticket = Ticket(self._epoch, self._seq, self._seq, indices, seed=5, rows=len(indices))
        self._seq += 1
        slot = self._slots.acquire() if shared else None
        pull = 0
        if worker is not None:
            pull = self._pulls[worker]
            self._pulls[worker] += 1
        for number in range(parts):
            edges = [len(indices) * edge // parts for edge in (number, number + 1)]
            scratch = self._slots.acquire() if shared and parts > 1 else None
            part = Part(number, parts, *edges)
            self.executor.submit(Task(ticket, part, 0, slot, scratch, worker, pull))
        self.tickets[self._epoch, ticket.seq] = ticket
        return self._epoch, ticket.seq

    def wait_until(self, done: Callable[[], bool]) -> None:
        """Wait, without end, until ``done``; a missing arrival shows as the test's timeout."""
        while not done():
            self.seen += self.executor.wait(None)

    def settled(self, key: tuple[int, int]) -> list[Any]:
        """All events that answer a ticket."""
        from stoker._core import messages as m

        answers = (m.BatchReady, m.BatchFailed, m.SourceEnded, m.Withdrawn)
        return [
            event for epoch, event in self.seen if isinstance(event, answers) and (epoch, event.seq) == key
        ]

    def wait_for(self, *keys: tuple[int, int]) -> list[Any]:
        """The answers to these whole tickets, in this order; each is asserted to be the only one so far."""
        self.wait_until(lambda: all(self.settled(key) for key in keys))
        for key in keys:
            assert len(self.settled(key)) == 1, f"ticket {key} was answered {self.settled(key)}"
        return [self.settled(key)[0] for key in keys]

    def open(self, key: tuple[int, int], events: Sequence[Any]) -> Any:
        """The batch of a ticket; raises what its worker raised."""
        from stoker._core import messages as m

        return self._handoff.open(m.Deliver(self.tickets[key], tuple(events)))

    def batches(self, *keys: tuple[int, int]) -> list[Any]:
        """Wait for these tickets and open them."""
        return [self.open(key, [event]) for key, event in zip(keys, self.wait_for(*keys), strict=True)]

    def losses(self, worker: int) -> list[int]:
        """Where in ``seen`` this worker's loss was reported."""
        from stoker._core import messages as m

        return [
            place
            for place, (_, event) in enumerate(self.seen)
            if isinstance(event, m.WorkerLost) and event.worker == worker
        ]

    def close(self) -> None:
        """Close the executor twice, as anybody may, and then what belongs to it."""
        self.executor.close()
        self.executor.close()
        self.gate.open()
        self.gate.close()
        if self.arena is not None:
            self.arena.close()


class ExecutorConformance:
    """The contract of ``Executor``, clause by clause. Mix it into a pytest class and say how one is made."""

    workers_can_die: ClassVar[bool] = False
    """Whether a worker can vanish without being told to; ``kill`` must then end one at once."""

    has_workers: ClassVar[bool] = True
    """Whether there are workers at all: False for an executor that works on the caller's thread."""

    def make_executor(self, spec: WorkerSpec, *, bound: bool) -> Executor:
        """A new executor, no worker started."""
        raise NotImplementedError

    def arena_of(self, executor: Executor) -> Arena | None:
        """The arena that its slots lie in, which the suite closes; None without shared memory."""
        return None

    def kill(self, executor: Executor, worker: int) -> None:
        """End a worker as the kernel would when memory is short."""
        os.kill(executor.workers[worker].pid, signal.SIGKILL)

    @contextmanager
    def bench(
        self, *, workers: int = 1, bound: bool = False, stream: int | None = None, spawn: bool = True
    ) -> Iterator[Bench]:
        """An executor at the beginning of its first epoch; closed, and examined for leaks, at the end."""
        from stoker._worker.spec import WorkerSpec

        spec = WorkerSpec(
            dataset=Numbers() if stream is None else Stream(stream),
            iterable=stream is not None,
            auto_collation=True,
            collate_fn=list,
            drop_last=False,
            worker_init_fn=None,
            num_workers=workers if self.has_workers else 0,
            rng="batch",
            rank=0,
            own_collate=False,
        )
        with tempfile.TemporaryDirectory(prefix="stoker-bench-") as folder, leak_guard():
            executor = self.make_executor(spec, bound=bound)
            bench = Bench(executor, self.arena_of(executor), Gate(folder))
            try:
                bench.begin()
                if spawn:
                    for worker in range(workers):
                        executor.spawn(worker)
                yield bench
            finally:
                bench.close()
                del bench, executor

    # Results

    def test_every_task_is_answered_exactly_once(self) -> None:
        with self.bench(workers=2) as bench:
            keys = [bench.submit([number, number + 1]) for number in range(40)]
            assert bench.batches(*keys) == [[2 * number, 2 * number + 2] for number in range(40)]
            bench.seen += bench.executor.wait(0)
            assert [len(bench.settled(key)) for key in keys] == [1] * 40

    def test_a_failure_carries_the_exception_and_the_next_task_is_made(self) -> None:
        with self.bench() as bench:
            bad, good = bench.submit([1, None]), bench.submit([1, 2])
            failed, _ = bench.wait_for(bad, good)
            try:
                bench.open(bad, [failed])
            except LookupError as error:
                assert error.args == ("no such sample", 17)
                del error
            else:
                raise AssertionError("the failure was delivered as a batch")
            assert bench.batches(good) == [[2, 4]]

    def test_parts_of_a_ticket_come_one_by_one_and_fit_together(self) -> None:
        with self.bench(workers=2) as bench:
            if not bench.executor.shared_memory:
                return  # the engine splits tickets only where rows have one slot to meet in
            key = bench.submit(list(range(40)), parts=2)
            bench.wait_until(lambda: len(bench.settled(key)) == 2)
            events = sorted(bench.settled(key), key=lambda event: event.part)
            assert [event.part for event in events] == [0, 1]
            assert bench.open(key, events).tolist() == list(range(0, 80, 2))

    # Bound tasks and streams

    def test_bound_tasks_go_to_their_worker_in_order(self) -> None:
        with self.bench(workers=2, bound=True) as bench:
            keys = [bench.submit([number], worker=number % 2) for number in range(12)]
            events = bench.wait_for(*keys)
            if self.has_workers:
                assert [event.worker for event in events] == [number % 2 for number in range(12)]
            for worker in range(2):
                own = [
                    event.seq for _, event in bench.seen if getattr(event, "seq", 0) % 2 == worker
                    if bench.settled((1, getattr(event, "seq", -1)))
                ]  # fmt: skip
                assert own == sorted(own)

    def test_a_stream_ends_and_stays_ended(self) -> None:
        workers = 2 if self.has_workers else 1
        with self.bench(workers=workers, bound=True, stream=5) as bench:
            for _ in range(2):  # a new epoch begins the stream anew
                keys = [
                    [bench.submit([None] * 2, worker=worker) for _ in range(5)] for worker in range(workers)
                ]
                for own in keys:
                    assert bench.batches(*own[:3]) == [[0, 1], [2, 3], [4]]
                    kinds = [type(event).__name__ for event in bench.wait_for(*own[3:])]
                    assert kinds == ["SourceEnded", "SourceEnded"]
                bench.begin()

    # Work that nobody wants any more

    def test_tasks_of_an_earlier_epoch_are_skipped(self) -> None:
        with self.bench(spawn=False) as bench:
            stale = [bench.submit([number]) for number in range(3)]
            bench.begin()
            fresh = bench.submit([4])
            bench.executor.spawn(0)
            assert [type(event).__name__ for event in bench.wait_for(*stale)] == ["Withdrawn"] * 3
            assert bench.batches(fresh) == [[8]]

    def test_withdrawn_tasks_come_back_once_and_are_never_made(self) -> None:
        with self.bench(spawn=False) as bench:
            keys = [bench.submit([number]) for number in range(5)]
            bench.seen += bench.executor.withdraw()
            assert [type(event).__name__ for event in bench.wait_for(*keys)] == ["Withdrawn"] * 5
            assert bench.executor.withdraw() == []
            later = bench.submit([7])
            bench.executor.spawn(0)
            assert bench.batches(later) == [[14]]
            assert [len(bench.settled(key)) for key in keys] == [1] * 5

    def test_withdrawing_beside_a_busy_worker_loses_nothing(self) -> None:
        with self.bench() as bench:
            if bench.executor.eager:
                keys = [bench.submit([bench.gate.path])]
            else:
                keys = [bench.submit([1])]
            keys += [bench.submit([number]) for number in range(3)]
            bench.seen += bench.executor.withdraw()
            bench.gate.open()
            bench.wait_for(*keys)
            kinds = [type(event).__name__ for event in bench.wait_for(*keys)]
            assert set(kinds[:1]) <= {"BatchReady", "Withdrawn"}
            assert kinds[1:] == ["Withdrawn"] * 3

    # Waiting

    def test_wait_returns_when_nothing_comes(self) -> None:
        with self.bench() as bench:
            if bench.executor.eager:
                bench.submit([bench.gate.path])
            while arrivals := bench.executor.wait(0.05):
                bench.seen += arrivals
            assert bench.executor.wait(0) == []

    # Life and death

    def test_a_retired_worker_is_reported_once_and_as_expected(self) -> None:
        if not self.has_workers:
            return
        with self.bench(workers=2, bound=True) as bench:
            first = bench.submit([1], worker=0)
            bench.executor.retire(0)
            bench.wait_until(lambda: bool(bench.losses(0)))
            assert bench.batches(first) == [[2]]
            [place] = bench.losses(0)
            loss: Any = bench.seen[place].event
            assert loss.expected
            assert bench.batches(bench.submit([3], worker=1)) == [[6]]
            assert len(bench.losses(0)) == 1

    def test_a_dead_worker_is_lost_once_after_its_last_result(self) -> None:
        if not self.workers_can_die:
            return
        with self.bench(workers=2, bound=True) as bench:
            done = [bench.submit([number], worker=0) for number in range(3)]
            bench.batches(*done)
            bench.submit([bench.gate.path], worker=0)
            self.kill(bench.executor, 0)
            bench.submit([9], worker=0)
            bench.wait_until(lambda: bool(bench.losses(0)))
            bench.submit([9], worker=0)  # nobody is there: neither an error nor an answer
            assert bench.batches(bench.submit([3], worker=1)) == [[6]]
            [place] = bench.losses(0)
            loss: Any = bench.seen[place].event
            assert not loss.expected
            assert loss.reason
            after = [event for _, event in bench.seen[place:] if getattr(event, "worker", None) == 0]
            assert after == [loss]

    def test_a_dead_worker_can_be_replaced(self) -> None:
        if not self.workers_can_die:
            return
        with self.bench() as bench:
            bench.batches(bench.submit([1]))
            self.kill(bench.executor, 0)
            bench.wait_until(lambda: bool(bench.losses(0)))
            key = bench.submit([2])
            bench.executor.spawn(0)
            assert bench.batches(key) == [[4]]
            assert len(bench.losses(0)) == 1

    def test_close_ends_busy_workers(self) -> None:
        with self.bench() as bench:
            bench.batches(bench.submit([1]))
            if bench.executor.eager:
                bench.submit([bench.gate.path])
            handles = list(bench.executor.workers)
            bench.executor.close()
            bench.gate.open()  # a thread cannot be ended from outside: it leaves with its current sample
            for handle in handles:
                handle.join(GRACE_S)
                assert not handle.is_alive()

    def test_close_without_a_worker_ever_started(self) -> None:
        with self.bench(spawn=False) as bench:
            bench.submit([1])

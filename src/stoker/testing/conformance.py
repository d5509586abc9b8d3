"""The contract of ``Executor`` as tests that every backend runs."""

from __future__ import annotations

import os
import signal
import tempfile
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any, ClassVar

from stoker._runtime.executors.base import wakes
from stoker.testing.bench import Bench, Gate, GatedNumbers, NumberStream
from stoker.testing.leaks import GRACE_S, leak_guard

if TYPE_CHECKING:
    from stoker._runtime.executors.base import Executor
    from stoker._runtime.protocol.worker_spec import WorkerSpec
    from stoker._runtime.transport.arena import Arena


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

    def watch_leaks(self) -> AbstractContextManager[None]:
        """Fails when the block leaves something behind."""
        return leak_guard()

    @contextmanager
    def bench(
        self, *, workers: int = 1, bound: bool = False, stream: int | None = None, spawn: bool = True
    ) -> Iterator[Bench]:
        """An executor at the beginning of its first epoch; closed, and examined for leaks, at the end."""
        from stoker._runtime.protocol.worker_spec import WorkerSpec

        spec = WorkerSpec(
            dataset=GatedNumbers() if stream is None else NumberStream(stream),
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
        with tempfile.TemporaryDirectory(prefix="stoker-bench-") as folder, self.watch_leaks():
            executor = self.make_executor(spec, bound=bound)
            bench = Bench(executor, self.arena_of(executor), Gate(folder))
            try:
                bench.begin()
                if spawn:
                    for worker in range(workers):
                        executor.spawn(worker)
                yield bench
            finally:
                del executor
                bench.close()

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
            told: Any = None
            try:
                bench.open(bad, [failed])
            except LookupError as error:
                told = error.args
            assert told == ("no such sample", 17)
            assert bench.batches(good) == [[2, 4]]

    def test_parts_of_a_ticket_come_one_by_one_and_fit_together(self) -> None:
        with self.bench() as bench:
            if not bench.executor.shared_memory:
                return  # the engine splits tickets only where rows have one slot to meet in
            for _ in range(2):  # first as samples, then in the places that were agreed on
                key = bench.submit(list(range(40)), parts=2)
                while len(events := bench.settled(key)) < 2:
                    bench.seen += bench.executor.wait(None)
                events.sort(key=lambda event: event.part)
                assert [event.part for event in events] == [0, 1]
                assert bench.open(key, events).tolist() == list(range(0, 80, 2))

    # Bound tasks and streams

    def test_bound_tasks_go_to_their_worker_in_order(self) -> None:
        with self.bench(workers=2, bound=True) as bench:
            keys = [bench.submit([number], worker=number % 2) for number in range(12)]
            events = bench.wait_for(*keys)
            if self.has_workers:
                assert [event.worker for event in events] == [number % 2 for number in range(12)]
            answered = [event for _, event in bench.seen if event in events]
            for worker in range(2):
                own = events[worker::2]
                assert [event for event in answered if event in own] == own

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
        with self.bench(workers=1) as bench:
            assert bench.batches(bench.submit([1])) == [[2]]  # the worker is up and has said so
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
            bench.executor.workers[0].join()
            # ``wait(0)`` collects what has arrived.
            while bench.executor.workers and not bench.losses(0):
                arrivals = bench.executor.wait(0)
                assert arrivals, "the loss is there and wait(0) does not tell"
                bench.seen += arrivals
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
                del handle
            handles.clear()

    def test_wake_ends_waits(self) -> None:
        with self.bench() as bench:
            executor = waker = bench.executor
            if not wakes(waker):
                return
            bench.batches(bench.submit([1]))
            bench.submit([bench.gate.path])
            waker.wake()
            for _ in range(3):
                while executor.wait(None):  # what a worker says when it starts
                    executor.guard.release()
                executor.guard.release()
            del executor, waker  # handles of processes keep descriptors

    def test_close_without_a_worker_ever_started(self) -> None:
        with self.bench(spawn=False) as bench:
            bench.submit([1])

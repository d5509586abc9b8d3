"""A watched wait: when it becomes an error, when a warning, and what these say. The clock and the workers are ours."""

from __future__ import annotations

import warnings
from types import SimpleNamespace
from typing import Any, cast

import pytest

from stoker._runtime.engine import stall_monitor
from stoker._runtime.engine.stall_monitor import StallMonitor
from stoker._runtime.executors.base import WorkerActivity
from stoker._runtime.scheduler import policy
from stoker._runtime.scheduler.types import Ticket
from stoker.errors import WorkerStalled, WorkerTimeout

EPOCH = 5


class Workers:
    """An executor of which only what a monitor asks for exists."""

    eager = True

    def __init__(self) -> None:
        self.workers: list[Any] = []
        self.seen: list[WorkerActivity] = []
        self.up: list[tuple[int, int]] = []
        self.asked: list[int] = []
        self.dismissed: list[int] = []

    def activities(self) -> list[WorkerActivity]:
        return self.seen

    def dismiss(self, epoch: int) -> None:
        self.dismissed.append(epoch)

    def starting(self) -> list[tuple[int, int]]:
        return self.up

    def stack(self, worker: int) -> list[str]:
        self.asked.append(worker)
        return [f"stack of {worker}"]


class Schedule:
    """A scheduler of which only what a monitor asks for exists."""

    def __init__(self) -> None:
        self.head = 3
        self.usual_ns = 0.0

    def median_ns(self) -> float:
        return self.usual_ns

    def ticket(self, seq: int) -> Ticket | None:
        return Ticket(EPOCH, seq, seq, [10 * seq, 10 * seq + 1], 0, rows=2) if seq < 100 else None


class Clock:
    """A clock that goes when told."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


class Watch:
    """A monitor with all it looks at."""

    def __init__(self, clock: Clock, timeout_s: float = 0.0) -> None:
        self.clock = clock
        self.workers = cast(Any, Workers())
        self.schedule = cast(Any, Schedule())
        self.monitor = StallMonitor(self.workers, self.schedule, EPOCH, "train", timeout_s)

    def after(self, seconds: float) -> tuple[bool, list[str]]:
        """What a check says this long after now, and its warnings."""
        self.monitor.left_s()
        self.clock.now_s += seconds
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            odd = self.monitor.check()
        assert all(each.category is WorkerStalled for each in caught)
        return odd, [str(each.message) for each in caught]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(stall_monitor, "monotonic", clock)
    return clock


def on(
    worker: int, seq: int, *, row: int = 1, epoch: int = EPOCH, since_s: float = 40, collating: bool = False
) -> WorkerActivity:
    return WorkerActivity(worker, 9000 + worker, epoch, seq, 0, row, int(since_s * 1e9), collating)


def test_it_waits_no_longer_than_the_nearer_of_timeout_and_patience(clock: Clock) -> None:
    assert Watch(clock).monitor.left_s() == policy.PATIENCE_S
    assert Watch(clock, 4).monitor.left_s() == 4
    assert Watch(clock, 400).monitor.left_s() == policy.PATIENCE_S


def test_slow_batches_are_given_more_time(clock: Clock) -> None:
    watch = Watch(clock)
    watch.schedule.usual_ns = 10e9
    assert watch.monitor.left_s() == policy.PATIENCE_S
    assert watch.after(policy.PATIENCE_S) == (False, [])
    assert watch.monitor.left_s() == policy.PATIENCE_MEDIANS * 10 - policy.PATIENCE_S
    assert watch.after(199 - policy.PATIENCE_S) == (False, [])
    odd, [said] = watch.after(2)
    assert odd
    assert "has waited 201.0 s for batch 3 (recent ones took 10 s)" in said


def test_each_warning_doubles_the_time_to_the_next(clock: Clock) -> None:
    watch = Watch(clock)
    watch.workers.seen = [on(0, 3)]
    reported = [second for second in range(1, 1000) if watch.after(1)[0]]
    assert reported == [30, 60, 120, 240, 480, 960]


def test_it_names_worker_index_and_stack(clock: Clock) -> None:
    watch = Watch(clock)
    watch.workers.seen = [on(1, 4, since_s=99), on(0, 3)]
    _, [said] = watch.after(31)
    assert said.splitlines() == [
        "DataLoader 'train' has waited 31.0 s for batch 3 (none has arrived yet) [stoker explain STK804]",
        "  worker 0 (pid 9000) has been on dataset index 31 (row 1 of batch 3) for 40.0 s",
        "    stack of 0",
        "  worker 1 (pid 9001) has been on dataset index 41 (row 1 of batch 4) for 99.0 s",
    ]


def test_all_parts_of_the_awaited_batch_tell_their_stacks(clock: Clock) -> None:
    watch = Watch(clock)
    watch.workers.seen = [on(0, 3, row=0), on(1, 3), on(2, 5)]
    watch.after(31)
    assert watch.workers.asked == [0, 1]


def test_when_nobody_is_on_the_awaited_batch_the_busiest_tells(clock: Clock) -> None:
    """Every worker is held up by something else: the one for longest is the likely culprit."""
    watch = Watch(clock)
    watch.workers.seen = [on(0, 7, since_s=2), on(1, 8, since_s=50)]
    _, [said] = watch.after(31)
    assert said.splitlines()[1:3] == [
        "  worker 1 (pid 9001) has been on dataset index 81 (row 1 of batch 8) for 50.0 s",
        "    stack of 1",
    ]
    assert watch.workers.asked == [1]


def test_a_worker_of_an_older_epoch_is_not_taken_for_one_on_the_awaited_batch(clock: Clock) -> None:
    watch = Watch(clock)
    watch.workers.seen = [on(0, 3, epoch=EPOCH - 1, since_s=500), on(1, 3)]
    _, [said] = watch.after(31)
    assert watch.workers.asked == [1]
    assert (
        said.splitlines()[-1]
        == "  worker 0 (pid 9000) has been on a batch of an earlier epoch, which is no longer needed, for 500.0 s"
    )


def test_collation_threads_and_forgotten_tickets(clock: Clock) -> None:
    watch = Watch(clock)
    watch.workers.seen = [on(0, 3, collating=True), on(1, 100)._replace(pid=0)]
    _, [said] = watch.after(31)
    assert "worker 0 (pid 9000) has been on the collation of batch 3 of dataset indices [30, 31] for" in said
    assert "worker thread 1 has been on a batch of an earlier epoch, which is no longer needed, for" in said


def test_of_many_busy_workers_a_few_are_named(clock: Clock) -> None:
    watch = Watch(clock)
    watch.workers.seen = [on(worker, 3 + worker) for worker in range(64)]
    _, [said] = watch.after(31)
    assert said.count("has been on") == 4
    assert "and 60 more workers are busy" in said


def test_workers_that_have_not_started(clock: Clock) -> None:
    watch = Watch(clock)
    watch.workers.up = [(0, 77)]
    _, [said] = watch.after(31)
    assert said.endswith("\n  worker 0 (pid 77) has not started yet\n    stack of 0")


def test_nobody_at_work(clock: Clock) -> None:
    _, [said] = Watch(clock).after(31)
    assert said.endswith("; no worker is working on a batch")


def test_idle_workers_are_named_only_when_something_keeps_them_from_working(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    watch = Watch(clock)
    watch.workers.workers = [SimpleNamespace(pid=pid) for pid in (9000, 9001, 9002, None)]
    watch.workers.seen = [on(0, 7)]
    monkeypatch.setattr(stall_monitor, "state_of", lambda pid: "it is stopped" if pid != 9002 else "")
    _, [said] = watch.after(31)
    assert said.splitlines()[3:] == ["  a worker (pid 9001) takes no work: it is stopped"]
    watch.workers.seen = [on(0, 3)]
    _, [said] = watch.after(60)
    assert "takes no work" not in said


@pytest.mark.parametrize("timeout_s", [5, 0.5])
def test_the_timeout_is_an_error_in_torchs_words(clock: Clock, timeout_s: float) -> None:
    """Row 33: worker, index and stack beside the words."""
    watch = Watch(clock, timeout_s)
    watch.workers.seen = [on(0, 3)]
    assert watch.after(timeout_s / 2) == (False, [])
    with pytest.raises(WorkerTimeout) as caught:
        watch.after(timeout_s)
    first, second, third = str(caught.value).splitlines()
    assert first == f"DataLoader timed out after {timeout_s} seconds"
    assert second.startswith("  worker 0 (pid 9000) has been on dataset index 31")
    assert third == "    stack of 0"


def test_a_long_timeout_comes_after_warnings(clock: Clock) -> None:
    watch = Watch(clock, 100)
    assert watch.after(31)[0]
    assert watch.monitor.left_s() == pytest.approx(29)
    assert watch.after(30)[0]
    assert watch.monitor.left_s() == pytest.approx(39)
    with pytest.raises(WorkerTimeout):
        watch.after(40)


def test_who_makes_batches_himself_is_not_warned(clock: Clock) -> None:
    watch = Watch(clock)
    watch.workers.eager = False
    assert watch.monitor.left_s() is None
    assert watch.after(1000) == (False, [])


def test_who_makes_batches_himself_gets_the_whole_timeout(clock: Clock) -> None:
    """He keeps it himself, and tells it as the user gave it."""
    workers = cast(Any, Workers())
    workers.eager = False
    watch = StallMonitor(workers, cast(Any, Schedule()), EPOCH, "train", 2)
    clock.now_s += 0.1
    assert watch.left_s() == 2


def test_time_to_wait_is_never_nothing(clock: Clock) -> None:
    """Zero would mean: only collect what is there. A wait that is over asks for one more look."""
    watch = Watch(clock, 2)
    clock.now_s += 3
    left_s = watch.monitor.left_s()
    assert left_s is not None
    assert left_s > 0

"""What the tuner's probes measure with: orders that never end, a consumer, counters, and what is made of a record's table."""

from __future__ import annotations

import json
import pickle
import signal
import time
from dataclasses import replace
from itertools import islice
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from stoker._record.readings.machine import Counters
from stoker._runtime.simulation.work import Demand
from stoker._tools.probes.digest import NotComparable, digest
from stoker._tools.probes.loader_timing import CallTimes, consume
from stoker._tools.sandbox.outcome import FactUnavailable
from stoker._tools.sandbox.refusal import TargetRefused, failure_of
from stoker._tools.sandbox.subject import Subject
from stoker._tools.sandbox.time_limit import BatchTimeout, limit
from stoker._tools.tune.instruments import pickled_size, resource_usage, step
from stoker._tools.tune.instruments.bench_loader import EndlessOrder, NoBatch
from stoker._tools.tune.instruments.lenient_dataset import lenient
from stoker._tools.tune.instruments.own_record import MadeBatch, made_batches, made_since
from stoker._tools.tune.instruments.probe_order import ProbeOrder
from stoker._tools.tune.instruments.step import SimulatedStep, call, step_of
from stoker._tools.tune.instruments.worker_run import WorkerRun, work_of


def subject(length: int = 10, **arguments: Any) -> Subject:
    return Subject(list(range(length)), arguments={"batch_size": 4, **arguments})


def test_an_order_goes_round_and_all_that_share_it_go_on_where_one_stopped():
    of = subject()
    assert list(islice(EndlessOrder(of, shared=False), 5)) == [
        [0, 1, 2, 3],
        [4, 5, 6, 7],
        [8, 9],
        [0, 1, 2, 3],
        [4, 5, 6, 7],
    ]
    one, other = iter(EndlessOrder(of)), iter(EndlessOrder(of))
    assert [next(one), next(other), next(one), next(other)] == [
        [0, 1, 2, 3],
        [4, 5, 6, 7],
        [8, 9],
        [0, 1, 2, 3],
    ]
    without = replace(of, avoid=frozenset({0, 5}))
    assert next(iter(EndlessOrder(without))) == [1, 2, 3, 4]


def test_an_order_drops_short_batches_where_the_loader_does_and_says_when_there_are_none():
    assert list(islice(EndlessOrder(subject(drop_last=True)), 3)) == [
        [0, 1, 2, 3],
        [4, 5, 6, 7],
        [0, 1, 2, 3],
    ]
    assert list(islice(EndlessOrder(subject(2, batch_size=None)), 3)) == [0, 1, 0]
    assert list(islice(EndlessOrder(subject(batch_size=None, batch_sampler=[[3], [1, 2]])), 3)) == [
        [3],
        [1, 2],
        [3],
    ]
    for empty in (subject(0), subject(3, drop_last=True)):
        with pytest.raises(NoBatch, match="gives no batch"):
            next(iter(EndlessOrder(empty)))


def test_a_sampler_that_raises_is_asked_anew_the_next_time():
    class Sampler:
        times = 0

        def __iter__(self):
            self.times += 1
            if self.times == 1:
                raise RuntimeError("not yet")
            return iter(range(4))

    of = subject(sampler=Sampler())
    with pytest.raises(RuntimeError, match="not yet"):
        next(iter(EndlessOrder(of)))
    assert next(iter(EndlessOrder(of))) == [0, 1, 2, 3]


def test_a_script_begins_with_one_row_settles_on_more_and_gives_the_same_again():
    script = ProbeOrder(subject(12), rows=1)
    asked = iter(script)
    assert [next(asked), next(asked)] == [[0], [4]]
    script.taken = 1
    script.settle(2)
    assert [next(asked), next(asked)] == [[8, 9], [0, 1]]
    assert script.first_whole == 2
    script.again()
    assert [next(asked) for _ in range(3)] == [[8, 9], [0, 1], [8, 9]]
    assert script.first_again == 4


def test_a_script_of_which_nothing_comes_ends():
    assert len(list(ProbeOrder(subject(8), rows=None))) == 64


@given(count=st.integers(1, 40), group=st.integers(1, 12))
def test_only_whole_groups_of_batches_count_once_there_are_two(count: int, group: int):
    times = CallTimes(
        [10 * each for each in range(count)], [10 * each + 4 for each in range(count)], 10 * count
    )
    batches, wall_ns, wait_ns = times.counted(group)
    assert batches == (count - count % group if count >= 2 * group else count)
    assert (wall_ns, wait_ns) == (10 * batches, 4 * batches)


def test_a_consumer_takes_what_is_the_least_and_bursts_whole():
    came = iter(range(100))
    stepped: list[int] = []
    times = consume(lambda: next(came), stepped.append, seconds=0, least=5, limit_ns=1 << 62, burst=3)
    assert stepped == [0, 1, 2, 3, 4, 5]
    assert len(times.asked_ns) == len(times.given_ns) == 6
    assert times.asked_ns[0] <= times.given_ns[0] <= times.asked_ns[1] <= times.ended_ns
    one = consume(lambda: next(came), None, seconds=1e9, least=1 << 60, limit_ns=0)
    assert len(one.given_ns) == 1


def test_a_stand_spends_its_cpu_time_and_sleeps_the_rest(monkeypatch: pytest.MonkeyPatch):
    now, slept = [0], list[float]()

    def clock() -> int:
        now[0] += 1000
        return now[0]

    monkeypatch.setattr(step, "_clock", clock)
    monkeypatch.setattr("time.sleep", slept.append)
    SimulatedStep(Demand(1_000_000, 400_000), late_ns=50_000)(None)
    assert 0.4e-3 < slept[0] < 0.6e-3
    assert now[0] >= 400_000
    SimulatedStep(Demand(1000, 5000))(None)
    assert len(slept) == 1


TABLE = {
    "epoch": [1, 1, 1, 1],
    "seq": [0, 1, 1, 2],
    "rows": [4, 2, 2, 4],
    "asked_ns": [0, 100, 100, 200],
    "given_ns": [90, 190, 190, 290],
    "received_ns": [10, 110, 120, 210],
    "fetched_ns": [50, 150, 160, 250],
    "collated_ns": [60, 160, 170, 260],
    "sent_ns": [70, 170, 180, 270],
    "cpu_ns": [0, 60, 0, 0],
    "runq_ns": [0, 30, 0, 0],
    "metered_ns": [0, 120, 0, 0],
}


def test_batches_that_share_a_reading_have_its_shares_and_the_run_queue_is_left_out():
    first, second, third, last = made_batches(TABLE)
    assert (first.seq, first.rows) == (0, 4)
    assert first.batch_ns == int(50 * 0.75)
    assert first.collate_ns == int(10 * 0.75)
    assert first.cpu_ns == 25
    assert second.cpu_ns == third.cpu_ns == last.cpu_ns == 25
    assert made_batches({}) == []
    assert first.slow_ns == 0, "rows were not timed"
    assert first.queued_ns == 50 - first.batch_ns
    assert made_batches(TABLE | {"slow_ns": [7] * len(TABLE["seq"])})[0].slow_ns == 7
    (alone,) = made_batches({name: column[:1] for name, column in TABLE.items()})
    assert (alone.batch_ns, alone.cpu_ns) == (50, 50)


def test_parts_of_a_batch_are_one_and_what_was_begun_before_a_pause_is_left_out():
    batches, busy = made_since(TABLE, 100, 1)
    assert batches == (120, 60)
    assert busy == pytest.approx(180 / 190)
    batches, busy = made_since(TABLE, 100, 2, resumed_ns=115)
    assert batches == (60, 60)
    assert busy == pytest.approx(120 / (2 * 190))
    assert made_since(TABLE, 1000, 1) == ((), None)


def one(seq: int, fetch_ns: int = 80, cpu_ns: int = 50, rows: int = 2) -> MadeBatch:
    return MadeBatch(seq, rows, fetch_ns, 20, 5, cpu_ns)


def test_work_leaves_the_first_batch_out_and_multiplies_what_was_made_smaller():
    batches = [one(0, 1000), one(1), one(2), one(3)]
    run = WorkerRun(
        9, batches, [(batches[0], one(4)), (batches[1], one(5, 40))], scale=4.0, parent_ns=7, batch_bytes=10
    )
    work = work_of(run)
    assert work.rows == 8
    assert work.batch_ns == (400, 400, 400)
    assert work.cpu_ns == (200, 200, 200)
    assert (work.collate_ns, work.handover_ns, work.parent_ns, work.batch_bytes) == (80, 20, 7, 40)
    assert (work.cold_ns, work.warm_ns) == (400, 240)
    assert work_of(WorkerRun(9, [one(0, 1000)])).batch_ns == (1020,)
    assert work_of(WorkerRun(9)).batch_ns == ()


def counters(at_ns: int, parent: int, busy: int, pressure: int) -> Counters:
    return Counters(at_ns, parent, None, None, busy, 0, 0, None, None, None, pressure)


def test_the_usage_is_what_lies_between_two_readings():
    before = resource_usage.UsageReading(counters(0, 0, 0, 0), {1: 100}, {"1/1": 10})
    after = resource_usage.UsageReading(
        counters(1000, 200, 1500, 250), {1: 400, 2: 100}, {"1/1": 110, "2/2": 100}
    )
    found = resource_usage.between(before, after, 2)
    assert (found.wall_ns, found.parent_cpu_ns, found.workers_cpu_ns) == (1000, 200, 400)
    assert found.runq_share == 0.1
    assert found.foreign_cpus == 0.9
    assert found.pressure == 0.25


def test_a_dataset_is_weighed_without_a_copy_of_what_it_holds():
    held = {"rows": torch.zeros(1000), "more": np.zeros(500), "names": ["a", "b"]}
    found = pickled_size.pickled_size(held, 1e9)
    assert found is not None
    assert 8000 < found.bytes < 9000
    assert pickled_size.pickled_size(lambda: 0, None) is None


def test_failures_are_one_line():
    assert failure_of(ValueError("first\nsecond")) == "ValueError: first"
    assert failure_of(KeyError()) == "KeyError"
    assert failure_of(TargetRefused("as it is")) == "as it is"
    wrapped = "Caught ValueError in a worker.\nOriginal Traceback (most recent call last):\n  x\nValueError: bad 7\n"
    assert failure_of(ValueError(wrapped)) == "ValueError: bad 7"
    assert len(failure_of(ValueError("x" * 1000))) == 300


class Some:
    def __init__(self) -> None:
        self.label = "mine"

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> int:
        if index in (3, 4):
            raise ValueError(index)
        return index


class Together(Some):
    def __getitems__(self, indices: list[int]) -> list[int]:
        return [self[index] for index in indices]


def test_neighbours_stand_in_for_samples_that_raise():
    kind = lenient(Some())
    assert [kind[3], kind[7], len(kind), kind.label] == [5, 7, 8, "mine"]
    assert not hasattr(kind, "__getitems__")
    assert lenient(Together()).__getitems__([2, 3]) == [2, 5]
    assert pickle.loads(pickle.dumps(kind))[4] == 5


def test_equal_batches_have_equal_digests():
    batch = {"x": torch.arange(6).view(2, 3), "y": [np.ones(2), "text", None, 1.5], "z": torch.tensor(True)}
    again = {
        "x": torch.arange(6).view(2, 3).t().contiguous().t(),
        "y": [np.ones(2), "text", None, 1.5],
        "z": torch.tensor(True),
    }
    assert digest(batch, strict=True) == digest(again, strict=True)
    for other in ({**batch, "z": torch.tensor(False)}, {**batch, "y": 3}, list(batch.values())):
        assert digest(other, strict=True) != digest(batch, strict=True)
    assert digest(torch.zeros(2, dtype=torch.bfloat16)) != digest(torch.zeros(2, dtype=torch.float16))
    with pytest.raises(NotComparable, match="function"):
        digest([lambda: 0], strict=True)


def test_a_limit_looks_first_and_then_raises_and_puts_back_what_was_there(monkeypatch):
    """By a clock on which the time is up after the first look: on a busy machine both may come at once."""
    before, timer = signal.getsignal(signal.SIGALRM), signal.getitimer(signal.ITIMER_REAL)
    looks: list[int] = []
    clock = SimpleNamespace(monotonic=lambda: 1.0 if looks else 0.0, perf_counter_ns=time.perf_counter_ns)
    monkeypatch.setattr("stoker._tools.sandbox.time_limit.time", clock)
    with (
        pytest.raises(BatchTimeout, match="nothing within"),
        limit(0.02, "nothing", look_s=0.005, look=lambda: looks.append(1)),
    ):
        while True:
            signal.pause()
    assert looks == [1]
    assert signal.getsignal(signal.SIGALRM) is before
    assert (signal.getitimer(signal.ITIMER_REAL)[0] > 0) == (timer[0] > 0)


def test_a_step_function_is_found_once_and_its_failure_has_the_users_stack():
    of = replace(subject(), trial={"step": "json:dumps"})
    assert step_of(of) is json.dumps
    assert step_of(replace(of, trial={"step": True})) is json.dumps
    with pytest.raises(FactUnavailable, match="cannot be had"):
        step_of(replace(of, trial={"step": "json:nothing"}))
    with pytest.raises(FactUnavailable, match="no function"):
        step_of(replace(of, trial={"step": "json:__name__"}))
    with pytest.raises(FactUnavailable, match="there is no step"):
        step_of(subject())

    def step(batch: Any) -> None:
        raise RuntimeError("boom\nmore")

    with pytest.raises(FactUnavailable, match=r"^the step function raised RuntimeError: boom$") as caught:
        call(step, None)
    assert "test_instruments.py" in caught.value.stack

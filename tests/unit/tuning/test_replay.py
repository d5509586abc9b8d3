"""Replays: cases with a known answer, and what must hold in all."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stoker._runtime.simulation.replay import LANE_ROW_NS, SimulationResult, replay, threads_speed
from stoker._runtime.simulation.simulator import BatchTiming, Simulation
from stoker._runtime.simulation.work import Demand, Work

MS = 1_000_000
ENDLESS = Demand(0)


def sleeping(*batch_ms: float, **extra: Any) -> Work:
    times = tuple(int(each * MS) for each in batch_ms)
    return Work(rows=extra.pop("rows", 32), batch_ns=times, cpu_ns=(0,) * len(times), **extra)


def computing(*batch_ms: float, **extra: Any) -> Work:
    times = tuple(int(each * MS) for each in batch_ms)
    return Work(rows=extra.pop("rows", 32), batch_ns=times, cpu_ns=times, **extra)


STRAGGLERS = sleeping(*([5.0] * 15 + [80.0]))


def interval_ms(run: SimulationResult) -> float:
    return run.interval_ns / MS


def test_one_worker_is_as_fast_as_it_makes_batches() -> None:
    run = replay(sleeping(4, 6), ENDLESS, workers=1, window=2, cpus=2)
    assert interval_ms(run) == pytest.approx(5.0)
    assert run.stall == pytest.approx(1.0)
    assert run.busy == pytest.approx(1.0)


def test_sleeping_workers_do_not_mind_the_cpus() -> None:
    assert interval_ms(replay(sleeping(10), ENDLESS, workers=20, window=40, cpus=1)) == pytest.approx(0.5)


@pytest.mark.parametrize("workers", [2, 3, 8])
def test_computing_workers_share_the_cpus(workers: int) -> None:
    run = replay(computing(10), ENDLESS, workers=workers, window=2 * workers, cpus=2)
    assert interval_ms(run) == pytest.approx(5.0, rel=0.01)


def test_waits_are_filled_by_others() -> None:
    work = Work(rows=32, batch_ns=(10 * MS,), cpu_ns=(5 * MS,))
    four = interval_ms(replay(work, ENDLESS, workers=4, window=8, cpus=2))
    sixteen = interval_ms(replay(work, ENDLESS, workers=16, window=32, cpus=2))
    assert 2.5 <= four < 3.2
    assert sixteen == pytest.approx(2.5, rel=0.01)


def test_a_step_that_waits_leaves_its_cpu_to_workers() -> None:
    waits = replay(computing(10), Demand(10 * MS), workers=1, window=2, cpus=1)
    computes = replay(computing(10), Demand(10 * MS, cpu_ns=10 * MS), workers=1, window=2, cpus=1)
    assert interval_ms(waits) == pytest.approx(10.0)
    assert interval_ms(computes) == pytest.approx(20.0)


def test_nothing_overlaps_without_workers() -> None:
    run = replay(computing(10), Demand(30 * MS), workers=0, window=0, cpus=4)
    assert interval_ms(run) == pytest.approx(40.0)
    assert run.stall == pytest.approx(0.25)
    halved = replay(computing(10), Demand(30 * MS), workers=0, window=0, cpus=0.5)
    assert interval_ms(halved) == pytest.approx(50.0)


def test_the_parent_is_a_limit_of_its_own() -> None:
    run = replay(sleeping(1, parent_ns=MS), ENDLESS, workers=64, window=128, cpus=64)
    assert interval_ms(run) == pytest.approx(0.75), "a quarter of it was falling asleep and waking up"
    assert run.stall == pytest.approx(0.0)


def test_a_handover_takes_the_worker_time() -> None:
    assert interval_ms(
        replay(sleeping(4, handover_ns=MS), ENDLESS, workers=1, window=4, cpus=2)
    ) == pytest.approx(5.0)


def test_a_window_of_one_keeps_one_worker_busy() -> None:
    many = replay(sleeping(10), Demand(4 * MS), workers=8, window=1, cpus=8)
    one = replay(sleeping(10), Demand(4 * MS), workers=1, window=1, cpus=8)
    assert many.interval_ns == pytest.approx(one.interval_ns) == pytest.approx(10.0 * MS)
    assert many.busy == pytest.approx(one.busy / 8)


def test_stragglers_hold_up_the_line_unless_order_is_free() -> None:
    demand = Demand(6 * MS)
    ordered = replay(STRAGGLERS, demand, workers=4, window=8, cpus=4)
    free = replay(STRAGGLERS, demand, workers=4, window=8, cpus=4, in_order=False)
    deep = replay(STRAGGLERS, demand, workers=4, window=32, cpus=4)
    assert ordered.stall > 0.1
    assert free.stall == pytest.approx(0.0, abs=0.005)
    assert deep.stall == pytest.approx(0.0, abs=0.005)


def test_a_burst_of_millions_is_replayed_as_one_of_the_same_time_for_a_batch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("stoker._runtime.simulation.replay._MOST_BURST", 16)
    work = computing(2)
    within = replay(work, Demand(16 * 5 * MS, burst=16), workers=2, window=64, cpus=2)
    beyond = replay(work, Demand(12_000_000 * 5 * MS, burst=12_000_000), workers=2, window=64, cpus=2)
    assert beyond == within


def test_a_burst_needs_batches_that_are_there() -> None:
    demand = Demand(40 * MS, burst=4)
    shallow = replay(sleeping(10), demand, workers=1, window=1, cpus=2)
    deep = replay(sleeping(10), demand, workers=1, window=5, cpus=2)
    assert interval_ms(shallow) == pytest.approx(17.5)
    assert interval_ms(deep) == pytest.approx(10.0)


def test_idle_workers_share_a_batch() -> None:
    whole = replay(computing(40, rows=128), Demand(12 * MS), workers=4, window=1, cpus=8)
    shared = replay(computing(40, rows=128), Demand(12 * MS), workers=4, window=1, cpus=8, split=True)
    small = replay(computing(1, rows=128), ENDLESS, workers=4, window=1, cpus=8, split=True)
    assert interval_ms(whole) == pytest.approx(40.0)
    assert interval_ms(shared) == pytest.approx(12.0)
    assert interval_ms(small) == pytest.approx(1.0)


def test_threads_overlap_waits_and_not_the_gil() -> None:
    slept = replay(sleeping(32, rows=32), ENDLESS, workers=1, window=2, cpus=2, threads=8)
    computed = replay(computing(32, rows=32), ENDLESS, workers=1, window=2, cpus=2, threads=8)
    few_rows = replay(sleeping(32, rows=4), ENDLESS, workers=1, window=2, cpus=2, threads=8)
    lanes_ms = LANE_ROW_NS / MS
    assert interval_ms(slept) == pytest.approx(4.0 + 32 * lanes_ms)
    assert interval_ms(computed) == pytest.approx(32.0 + 32 * lanes_ms)
    assert interval_ms(few_rows) == pytest.approx(8.0 + 4 * lanes_ms)


def test_a_slow_row_is_divided_by_nobody() -> None:
    one_row = replace(sleeping(32, rows=32), slow_ns=(24 * MS,))
    threads = replay(one_row, ENDLESS, workers=1, window=2, cpus=2, threads=8)
    split = replay(one_row, Demand(MS), workers=4, window=1, cpus=8, split=True)
    even = replay(sleeping(32, rows=32), Demand(MS), workers=4, window=1, cpus=8, split=True)
    assert interval_ms(threads) == pytest.approx(24.0 + 32 * LANE_ROW_NS / MS)
    assert interval_ms(split) == pytest.approx(24.0 + 4.0)
    assert interval_ms(even) == pytest.approx(16.0), "of 32 rows two halves"


def test_threads_compute_as_far_as_they_were_seen_to() -> None:
    work = Work(rows=32, batch_ns=(32 * MS,), cpu_ns=(32 * MS,), threads_gain=2.0)
    inside = replay(work, ENDLESS, workers=1, window=2, cpus=4, threads=4)
    as_workers = replay(work, ENDLESS, workers=4, window=8, cpus=4, executor="thread")
    locked = replay(computing(32), ENDLESS, workers=4, window=8, cpus=4, executor="thread")
    assert interval_ms(inside) == pytest.approx(8.0 + 8 * LANE_ROW_NS / MS)
    assert interval_ms(as_workers) == pytest.approx(8.0)
    assert interval_ms(locked) == pytest.approx(32.0)
    assert threads_speed(work, 3) == pytest.approx(3.0)


def test_batches_that_take_no_time_end() -> None:
    assert replay(sleeping(0), ENDLESS, workers=2, window=4, cpus=2).interval_ns >= 0.0


def test_no_batch_times_are_refused() -> None:
    with pytest.raises(ValueError, match="no batch times"):
        replay(Work(rows=1, batch_ns=(), cpu_ns=()), ENDLESS, workers=1, window=1, cpus=1)


BATCHES = st.lists(st.tuples(st.integers(0, 20), st.integers(0, 20)), min_size=1, max_size=12).map(
    lambda parts: Work(
        rows=16,
        batch_ns=tuple((cpu + off) * MS + 1 for cpu, off in parts),
        cpu_ns=tuple(cpu * MS for cpu, _ in parts),
    )
)


@settings(max_examples=25, deadline=None)
@given(
    work=BATCHES,
    workers=st.integers(1, 9),
    cpus=st.integers(1, 6),
    step=st.integers(0, 20),
    in_order=st.booleans(),
)
def test_nothing_beats_the_bounds(work: Work, workers: int, cpus: int, step: int, in_order: bool) -> None:
    run = replay(
        work,
        Demand(step * MS),
        workers=workers,
        window=3 * workers,
        cpus=cpus,
        in_order=in_order,
        batches=40 * len(work.batch_ns),
    )
    # The last batches may be cut off at another place of the cycle than the first: that is what the slack is for.
    slack = 1.0 + 4.0 / len(work.batch_ns) / 10
    assert run.interval_ns * slack >= step * MS
    assert run.interval_ns * slack >= work.typical_ns / workers * 0.95
    assert run.interval_ns * slack >= work.typical_cpu_ns / min(cpus, workers) * 0.95
    assert 0.0 <= run.stall <= 1.0
    assert 0.0 <= run.busy <= 1.0
    if run.interval_ns:
        assert run.stall == pytest.approx(1.0 - step * MS / run.interval_ns, abs=1e-6)


@settings(max_examples=25, deadline=None)
@given(
    times=st.lists(st.integers(1, 40), min_size=1, max_size=16),
    workers=st.integers(1, 5),
    step=st.integers(1, 12),
)
def test_a_deeper_window_never_hurts(times: list[int], workers: int, step: int) -> None:
    """Without contention for CPUs. With it a deeper window can keep more workers computing against the step."""
    work = sleeping(*times)
    runs = [
        replay(work, Demand(step * MS), workers=workers, window=window, cpus=8)
        for window in (1, 2, 4, 8, 16, 32)
    ]
    moments = [run.interval_ns for run in runs]
    # Each replay leaves out its own first window: where it begins to count differs.
    for shallow, deep in pairwise(moments):
        assert deep <= shallow * 1.05


@settings(max_examples=25, deadline=None)
@given(
    work=BATCHES,
    workers=st.integers(1, 6),
    window=st.integers(1, 9),
    split=st.booleans(),
    in_order=st.booleans(),
)
def test_time_at_work_is_what_batches_take(
    work: Work, workers: int, window: int, split: bool, in_order: bool
) -> None:
    """With a CPU for everybody, workers are at work as long as the batches that they made, or are making, take."""
    run = Simulation(
        [
            BatchTiming(float(cpu), float(whole - cpu))
            for whole, cpu in zip(work.batch_ns, work.cpu_ns, strict=True)
        ],
        workers=workers,
        window=window,
        capacity=workers + 1,
        in_order=in_order,
        split_rows=64 if split else 0,
        parent_ns=0.0,
        step_cpu_ns=0.0,
        step_off_ns=float(MS),
        burst=1,
    )
    run.advance(50)
    seen = run.progress()
    made_ns = [float(work.batch_ns[number % len(work.batch_ns)]) for number in range(seen.batches + window)]
    assert seen.batches == 50
    assert sum(made_ns[:50]) - sum(sorted(made_ns)[-window:]) <= seen.busy_ns + 1.0
    assert seen.busy_ns <= sum(made_ns) + 1.0

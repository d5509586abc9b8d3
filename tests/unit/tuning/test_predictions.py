"""Questions to the replay beyond one run."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from stoker._runtime.simulation.point import Interval, Point
from stoker._runtime.simulation.predictions import (
    SimulationCase,
    error,
    error_of,
    faster,
    prefetch_for,
    what_if,
)
from stoker._runtime.simulation.replay import replay_setting
from stoker._runtime.simulation.setting import Setting
from stoker._runtime.simulation.work import Demand, Work

MS = 1_000_000
STEADY = Work(rows=32, batch_ns=(10 * MS,), cpu_ns=(10 * MS,), batch_bytes=1 << 20)
STRAGGLERS = Work(rows=32, batch_ns=(5 * MS,) * 15 + (80 * MS,), cpu_ns=(0,) * 16, batch_bytes=1 << 20)


def table(
    work: Work,
    demand: Demand,
    *,
    workers: Iterable[int],
    prefetch: Iterable[int],
    cpus: float,
    orders: Sequence[bool] = (True, False),
) -> list[dict[str, Any]]:
    """Stall and throughput for all these workers, windows and orders."""
    prefetch = tuple(prefetch)
    return [
        SimulationCase(Setting(workers=count, prefetch=factor), cpus, demand, in_order=in_order).plain(work)
        for count in workers
        for factor in (prefetch if count else (1,))
        for in_order in (orders if count else (True,))
    ]


def case(workers: int = 4, step_ms: float = 6, **extra: Any) -> SimulationCase:
    made = SimulationCase(
        Setting(workers=workers, prefetch=2, split=False), cpus=8, demand=Demand(int(step_ms * MS))
    )
    return replace(made, **extra)


def test_steady_batches_need_no_deep_window() -> None:
    assert prefetch_for(case(), STEADY) == 1


def test_stragglers_need_one_within_memory() -> None:
    deep = prefetch_for(case(), STRAGGLERS)
    assert deep > 2
    assert case(window=deep * 4).answer(STRAGGLERS).stall < 0.005
    assert prefetch_for(case(), STRAGGLERS, room_bytes=32 << 20) == 2
    assert prefetch_for(case(), STRAGGLERS, room_bytes=1) == 1


def test_a_burst_wants_its_batches_beside_those_in_the_making() -> None:
    assert prefetch_for(case(demand=Demand(80 * MS, burst=8)), STEADY) >= 3


def test_a_faster_accelerator_leaves_the_cpu_part() -> None:
    assert faster(Demand(10 * MS, cpu_ns=2 * MS), 2.0) == Demand(6 * MS, cpu_ns=2 * MS)


def test_what_if_is_plain_and_tells_the_way_things_go() -> None:
    told = {each["name"]: each for each in what_if(case(workers=2, step_ms=4, cpus=2.0), STEADY)}
    assert json.loads(json.dumps(told)) == told
    now = told["as it is"]["interval_ns"]
    assert now == pytest.approx(5 * MS, rel=0.01)
    assert told["twice the workers"]["interval_ns"] == pytest.approx(now, rel=0.01), (
        "both CPUs are busy already"
    )
    assert told["4 more cores and workers"]["interval_ns"] == pytest.approx(4 * MS, rel=0.01)
    assert told["an accelerator twice as fast"]["stall"] > told["as it is"]["stall"]
    assert {"one worker"} <= {each["name"] for each in what_if(case(workers=0), STEADY)}


def test_a_window_left_open_deepens() -> None:
    fixed = case().answer(STRAGGLERS)
    open_ = case(setting=Setting(workers=4, split=False)).answer(STRAGGLERS)
    assert open_.stall < fixed.stall / 4


def test_order_and_assignment_cost_what_they_are_known_to_cost() -> None:
    """Exponential batch times, a load of .9, 4 workers, a window of 16: dealt round-robin, pulled, and in any order."""
    chance = random.Random(7)
    times = tuple(int(chance.expovariate(1.0) * 10 * MS) for _ in range(2000))
    work = Work(rows=32, batch_ns=times, cpu_ns=(0,) * len(times))
    demand = Demand(int(work.typical_ns / 4 / 0.9))

    def stall(engine: str, in_order: bool) -> float:
        setting = Setting(workers=4, prefetch=4, split=False, engine=engine)
        run = replay_setting(work, demand, setting, 8, in_order=in_order, batches=2000)
        return run.stall

    dealt, pulled, free = stall("torch", True), stall("stoker", True), stall("stoker", False)
    assert dealt > 1.5 * pulled > 3 * free
    assert free < 0.02


def test_a_table_has_a_row_for_each() -> None:
    rows = table(STRAGGLERS, Demand(6 * MS), workers=[0, 2, 4], prefetch=[2, 4], cpus=4.0)
    assert len(rows) == 1 + 2 * 2 * 2
    assert {"workers", "window", "in_order", "interval_ns", "stall", "busy"} <= set(rows[0])


def test_the_oracle_owns_up() -> None:
    def point(workers: int, predicted: float | None, measured: float, failure: str = "") -> Point:
        interval = Interval(measured, measured, measured)
        return Point(
            Setting(workers=workers), interval, Interval(1, 1, 1), 0.0, 0.0, None, 1, 0, predicted, failure
        )

    told = error(
        [point(1, 110, 100), point(2, 98, 100), point(4, 80, 100), point(5, None, 1), point(6, 9, 1, "died")]
    )
    assert told["points"] == 3
    assert told["median"] == pytest.approx(0.1)
    assert told["worst"] == pytest.approx(0.2)
    assert told["bias"] == pytest.approx(-0.02)
    assert told["worst_at"]["num_workers"] == 4
    assert error_of([])["median"] is None

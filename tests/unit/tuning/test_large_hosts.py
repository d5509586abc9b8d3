"""Hosts with 192 cores, 8 ranks and datasets without end: what is said of them, and what it takes to say it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from stoker._runtime.simulation.limits import LAST_RESORT, knee, limits, most
from stoker._runtime.simulation.predictions import SimulationCase, prefetch_for
from stoker._runtime.simulation.replay import replay
from stoker._runtime.simulation.setting import Setting
from stoker._runtime.simulation.simulator import BatchTiming, Simulation
from stoker._runtime.simulation.work import Demand, Host, Work
from stoker._tools.tune.model.regime import regime

MS = 1_000_000
GIANT = Host(cpus=192, machine_cpus=192, copy_bytes_per_s=10e9, room_bytes=1 << 40)
RANK = replace(GIANT, cpus=24, ranks=8, room_bytes=1 << 37)
DECODING = Work(
    rows=256,
    batch_ns=tuple((180 + place % 5 * 10) * MS for place in range(64)),
    cpu_ns=tuple((180 + place % 5 * 10) * MS for place in range(64)),
    parent_ns=2 * MS,
    batch_bytes=38 << 20,
    worker_bytes=200 << 20,
)


def rehearsed(workers: int, batches: int) -> int:
    """Events that so many batches take."""
    run = Simulation(
        [BatchTiming(5e6, 5e6)],
        workers=workers,
        window=2 * workers,
        capacity=192,
        in_order=True,
        split_rows=0,
        parent_ns=1e5,
        step_cpu_ns=1e5,
        step_off_ns=1e6,
        burst=1,
    )
    run.advance(batches)
    return run.progress().events


def test_the_cpus_of_a_giant_are_not_what_binds() -> None:
    assert knee(DECODING, GIANT, Demand(0)) == 191
    found = most(DECODING, GIANT, Demand(0))
    assert found.workers < 191
    assert found.workers == LAST_RESORT
    assert "(parent)" in found.reason or "(memory)" in found.reason
    assert limits(DECODING, GIANT, Demand(0), workers=191)[0].name == "parent"


def test_more_workers_than_the_parent_can_take_from_gain_nothing() -> None:
    times = [
        replay(DECODING, Demand(0), workers=count, window=2 * count, cpus=192).interval_ns
        for count in (32, 96, 128, 191)
    ]
    assert times[0] == pytest.approx(DECODING.typical_ns / 32, rel=0.05)
    assert times[1] > times[2] * 1.1
    assert times[2] == pytest.approx(times[3], rel=0.02)
    assert times[3] == pytest.approx(DECODING.handling_ns, rel=0.02)


def test_a_step_that_asks_for_many_gets_them() -> None:
    found = most(DECODING, GIANT, Demand(4 * MS))
    assert (found.name, found.workers) == ("step", 41)
    assert most(DECODING, GIANT, Demand(MS)).name == "parent", "it takes longer than the step"


def test_eight_ranks_get_an_eighth_each() -> None:
    found = most(DECODING, RANK, Demand(0))
    assert (found.workers, found.name) == (24, "cpus")
    assert "8 ranks" in found.reason
    large = replace(DECODING, batch_bytes=300 << 20)
    assert most(large, RANK, Demand(0)).name == "memory", "eight of them at once"
    one = replay(DECODING, Demand(0), workers=23, window=46, cpus=24).interval_ns
    assert one == pytest.approx(DECODING.typical_ns / 23, rel=0.06)


def test_waits_on_a_giant_are_bounded_by_the_parent() -> None:
    waiting = replace(DECODING, cpu_ns=(MS,) * 64)
    assert most(waiting, GIANT, Demand(0)).workers == LAST_RESORT
    assert most(waiting, replace(GIANT, room_bytes=1 << 31), Demand(0)).name == "room"


def test_the_regime_of_a_giant_is_the_parent_when_nothing_else_is_short() -> None:
    quick = replace(DECODING, batch_ns=(20 * MS,) * 64, cpu_ns=(20 * MS,) * 64)
    assert regime(quick, GIANT).name == "parent"
    assert regime(DECODING, replace(GIANT, cpus=8)).name == "compute"


def test_what_a_replay_takes_goes_by_batches_and_nothing_else() -> None:
    """Never by the length of the dataset, which it is not told; hardly by workers."""
    few, many = rehearsed(8, 400), rehearsed(8, 800)
    assert many < 2.2 * few
    assert rehearsed(191, 400) < 8 * (400 + 2 * 191)


def test_windows_are_found_for_a_giant_too() -> None:
    case = SimulationCase(Setting(workers=32, prefetch=2), 192.0, Demand(8 * MS))
    assert prefetch_for(case, DECODING, room_bytes=1 << 40) <= 2
    assert prefetch_for(case, DECODING, room_bytes=1 << 30) == 1

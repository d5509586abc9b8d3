"""Limits: the classic rules come out of what was measured, with their reasons."""

from __future__ import annotations

from dataclasses import replace

import pytest

from stoker._runtime.simulation.limits import LAST_RESORT, knee, limits, most, need
from stoker._runtime.simulation.work import Demand, Host, Work

MS = 1_000_000
NONE = Demand(0)
COMPUTE = Work(rows=64, batch_ns=(10 * MS,), cpu_ns=(10 * MS,))
SLEEP = Work(rows=64, batch_ns=(10 * MS,), cpu_ns=(0,))
MIXED = Work(rows=64, batch_ns=(10 * MS,), cpu_ns=(5 * MS,))
LAPTOP = Host(cpus=8, machine_cpus=8)
GIANT = Host(cpus=192, machine_cpus=192)


def test_the_tightest_limit_comes_first_and_says_why() -> None:
    few = limits(COMPUTE, LAPTOP, NONE, workers=2)
    many = limits(COMPUTE, LAPTOP, NONE, workers=16)
    fed = limits(COMPUTE, LAPTOP, Demand(50 * MS), workers=2)
    assert (few[0].name, few[0].interval_ns) == ("workers", 5 * MS)
    assert "2 workers that take 10 ms" in few[0].sentence
    assert (many[0].name, many[0].interval_ns) == ("cpus", 10 * MS / 8)
    assert fed[0].name == "step"
    assert "training loop itself takes 50 ms" in fed[0].sentence


def test_every_resource_has_its_limit() -> None:
    work = replace(MIXED, parent_ns=4 * MS, batch_bytes=64 << 20, read_bytes=10 << 20)
    host = replace(LAPTOP, copy_bytes_per_s=10e9)
    named = {each.name: each for each in limits(work, host, NONE, workers=64, disk_bytes_per_s=1e9)}
    assert set(named) == {"workers", "cpus", "storage", "memory", "parent"}
    assert named["storage"].interval_ns == pytest.approx((10 << 20) / 1e9 * 1e9)
    assert named["parent"].interval_ns == 3.75 * MS
    assert named["cpus"].interval_ns == pytest.approx(8.75 * MS / 8)
    assert all(each.sentence for each in named.values())


def test_without_workers_nothing_overlaps() -> None:
    first = limits(COMPUTE, LAPTOP, Demand(5 * MS), workers=0)[0]
    assert (first.name, first.interval_ns) == ("workers", 15 * MS)


@pytest.mark.parametrize(
    ("work", "step_ms", "wanted"),
    [
        (SLEEP, 10, 2),
        (SLEEP, 2, 6),
        (COMPUTE, 100, 1),
        (replace(SLEEP, batch_ns=(1, 29 * MS), cpu_ns=(0, 0)), 10, 3),
    ],
)
def test_workers_that_keep_up_have_some_to_spare(work: Work, step_ms: int, wanted: int) -> None:
    assert need(work, Demand(step_ms * MS)) == wanted


def test_no_demand_needs_no_number() -> None:
    assert need(SLEEP, NONE) is None
    assert need(SLEEP, Demand(80 * MS, burst=8)) == need(SLEEP, Demand(10 * MS))


def test_compute_fills_the_cpus_and_waits_go_past_them() -> None:
    assert knee(COMPUTE, LAPTOP, NONE) == 8
    assert knee(MIXED, LAPTOP, NONE) == 16
    assert knee(SLEEP, LAPTOP, NONE) is None


def test_a_training_loop_that_computes_keeps_its_cpu() -> None:
    two = Host(cpus=2, machine_cpus=2)
    assert knee(COMPUTE, two, Demand(10 * MS)) == 2, "it only waits"
    assert knee(COMPUTE, two, Demand(10 * MS, cpu_ns=10 * MS)) == 1
    assert knee(COMPUTE, LAPTOP, Demand(10 * MS, cpu_ns=10 * MS)) == 7
    assert knee(COMPUTE, Host(cpus=1), Demand(10 * MS, cpu_ns=10 * MS)) == 1


def test_a_very_large_host_is_capped_with_the_reason() -> None:
    unknown = most(COMPUTE, GIANT, NONE)
    assert (unknown.workers, unknown.name) == (LAST_RESORT, "last resort")
    assert "at 192 workers (cpus)" in unknown.reason
    assert "nothing is known" in most(SLEEP, GIANT, NONE).reason
    parent = most(replace(COMPUTE, parent_ns=MS), GIANT, NONE)
    assert (parent.workers, parent.name) == (14, "parent")
    rank = replace(GIANT, copy_bytes_per_s=10e9, ranks=8, cpus=24)
    memory = most(replace(COMPUTE, batch_bytes=240 << 20), rank, NONE)
    assert (memory.workers, memory.name) == (6, "memory"), (
        "eight ranks at once, and a batch is nothing but copies"
    )
    room = most(replace(COMPUTE, worker_bytes=1 << 30), replace(GIANT, room_bytes=16 << 30), NONE)
    assert (room.workers, room.name) == (8, "room")
    wanted = most(COMPUTE, GIANT, Demand(MS // 10))
    assert (wanted.workers, wanted.name) == (118, "step"), "a demand is a reason for more"


def test_ranks_share_what_there_is() -> None:
    rank = Host(cpus=24, machine_cpus=192, ranks=8, copy_bytes_per_s=10e9)
    assert most(COMPUTE, rank, NONE)[:2] == (24, "cpus")
    assert "8 ranks" in most(COMPUTE, rank, NONE).reason
    big = replace(COMPUTE, batch_bytes=4 << 20)
    alone = replace(rank, ranks=1, cpus=192)
    assert most(big, rank, NONE).workers < most(big, alone, NONE).workers


def test_a_billion_samples_are_no_matter() -> None:
    assert most(COMPUTE, GIANT, NONE) == most(
        replace(COMPUTE, batch_ns=(10 * MS,) * 9, cpu_ns=(10 * MS,) * 9), GIANT, NONE
    )

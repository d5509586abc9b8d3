"""Regimes: what each kind of work is called, and which warnings come with it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from stoker._runtime.simulation.point import Interval, Point
from stoker._runtime.simulation.setting import Setting
from stoker._runtime.simulation.work import Demand, Host, Work
from stoker._tools.tune.model.regime import regime

MS = 1_000_000
HOST = Host(cpus=4, machine_cpus=4)


def work(off: float, **extra: float) -> Work:
    made = Work(rows=32, batch_ns=(9 * MS, 11 * MS) * 16, cpu_ns=(int((1 - off) * 10 * MS),) * 32)
    return replace(made, **extra)  # type: ignore[arg-type]


def point(workers: int, cpu_ms: float) -> Point:
    one = Interval(1.0, 1.0, 1.0)
    return Point(Setting(workers=workers), one, one, 0.0, cpu_ms * MS, None, 1)


@pytest.mark.parametrize(
    ("seen", "name"),
    [
        (work(1.0), "sleep"),
        (work(0.9, cold_ns=10 * MS, warm_ns=9 * MS), "sleep"),
        (work(0.9, cold_ns=10 * MS, warm_ns=2 * MS), "storage"),
        (work(0.05), "compute"),
        (work(0.05, threads_gain=1.0), "compute"),
        (work(0.35), "mixed"),
        (work(0.05, parent_ns=4 * MS), "parent"),
        (Work(rows=64, batch_ns=(MS // 10,) * 20, cpu_ns=(MS // 10,) * 20, parent_ns=MS // 10), "parent"),
    ],
)
def test_the_kind_of_work_has_a_name(seen: Work, name: str) -> None:
    found = regime(seen, HOST)
    assert found.name == name
    assert found.sentence


def test_threads_that_compute_under_the_gil() -> None:
    assert regime(work(0.05, threads_gain=1.0), HOST, executor="thread").name == "gil"
    assert regime(work(0.05, threads_gain=1.9), HOST, executor="thread").name == "compute"
    assert regime(work(0.05, threads_gain=1.0), replace(HOST, gil=False), executor="thread").name == "compute"


def test_cpu_time_that_grows_with_workers_is_memory() -> None:
    assert regime(work(0.05), HOST, points=[point(1, 10), point(4, 14)]).name == "memory"
    assert regime(work(0.05), HOST, points=[point(1, 10), point(4, 11)]).name == "compute"
    assert regime(work(0.05), HOST, points=[point(1, 10), point(8, 14)]).name == "compute", (
        "they had no CPU each"
    )


def test_batches_too_large_for_memory() -> None:
    rank = Host(cpus=24, machine_cpus=192, ranks=8, copy_bytes_per_s=1e9)
    assert regime(work(0.05, batch_bytes=64 << 20), rank).name == "memory"
    assert regime(work(0.05, batch_bytes=64 << 10), rank).name == "compute"


def test_a_slow_step_makes_the_parent_no_limit() -> None:
    busy = work(0.05, parent_ns=4 * MS)
    assert regime(busy, HOST, Demand(100 * MS)).name == "compute", "one worker keeps up"


def warnings_of(seen: Work, demand: Demand | None = None, **extra: float) -> str:
    return " ".join(regime(seen, HOST, demand, **extra).warnings)  # type: ignore[arg-type]


def test_a_stand_in_for_decoding_is_warned_of() -> None:
    even = replace(work(1.0), batch_ns=(10 * MS,) * 32)
    uneven = replace(work(1.0), batch_ns=(2 * MS, 18 * MS) * 16)
    assert "does not carry over" in warnings_of(even)
    assert "does not carry over" not in warnings_of(uneven)


def test_a_warm_cache_is_warned_of() -> None:
    assert "page cache" in warnings_of(work(0.05, read_bytes=0))
    assert "page cache" not in warnings_of(work(0.05, read_bytes=1 << 20))
    assert "page cache" not in warnings_of(work(0.05))
    assert "second epoch" in warnings_of(work(0.9, cold_ns=10 * MS, warm_ns=2 * MS))


def test_a_step_given_as_a_number_is_warned_of_where_cpus_matter() -> None:
    assert "--step module:function" in warnings_of(work(0.05), Demand(10 * MS, source="step-ms"))
    assert "--step module:function" not in warnings_of(work(0.05), Demand(10 * MS, source="step"))
    assert "--step module:function" not in warnings_of(work(1.0), Demand(10 * MS, source="step-ms"))


def test_little_and_disturbed_evidence_is_warned_of() -> None:
    few = replace(work(0.05), batch_ns=(MS, MS), cpu_ns=(MS, MS))
    assert "Only 2 batches" in warnings_of(few)
    assert "Only" not in warnings_of(work(0.05))
    assert "other programs" in warnings_of(work(0.05), runq_share=0.4)

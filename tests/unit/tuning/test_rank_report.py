"""The observations of several ranks, combined into one."""

from dataclasses import replace
from typing import Any

import pytest

from stoker._runtime.autoscale.policy import AutoscalePolicy
from stoker._runtime.autoscale.ranks.rank_file import RankRow
from stoker._runtime.autoscale.ranks.rank_report import RankReport, combined
from stoker._runtime.autoscale.types import AutoscaleBounds, Observation
from tests.unit.tuning.simulated_loader import Plant, Times

MINE = Observation(
    steps=100,
    wall_ns=1_000_000_000,
    wait_ns=10_000_000,
    workers=2,
    window=4,
    busy=0.4,
    waits=5,
    blocked=1,
    cpu_ns=2e6,
    off_ns=2e6,
    batch_ns=(4_000_000,),
    own_cpu_ns=500_000_000,
    room_bytes=1000,
    worker_bytes=10,
    foreign_cpus=3.0,
)


def test_alone_it_is_the_window_itself() -> None:
    assert combined(MINE, []) is MINE


def test_the_rank_that_waits_most_gives_the_wait_and_its_reasons() -> None:
    slow = replace(
        MINE,
        wait_ns=300_000_000,
        busy=0.95,
        waits=80,
        blocked=40,
        cpu_ns=6e6,
        off_ns=2e6,
        room_bytes=None,
        worker_bytes=30,
    )
    whole = combined(MINE, [RankReport.of(MINE), RankReport.of(slow)])
    assert whole.stall == 0.3
    assert whole.interval_ns == MINE.interval_ns
    assert (whole.busy, whole.waits, whole.blocked) == (0.95, 80, 40)
    assert whole.batch_ns == (8_000_000,)
    assert (whole.room_bytes, whole.worker_bytes) == (1000, 30)


def test_ranks_that_do_not_wait_for_each_other_count_by_the_mean() -> None:
    whole = combined(MINE, [RankReport.of(replace(MINE, wall_ns=2 * MINE.wall_ns))])
    assert whole.interval_ns == 1.5 * MINE.interval_ns
    assert whole.stall == MINE.stall


def test_what_other_ranks_compute_is_not_foreign() -> None:
    whole = combined(MINE, [RankReport.of(MINE)])
    assert whole.foreign_cpus is not None
    assert abs(whole.foreign_cpus - (3.0 - 0.7)) < 1e-9


def test_nothing_to_go_by_while_a_rank_warms_up() -> None:
    assert combined(MINE, [RankReport.of(replace(MINE, warm_up=True))]).warm_up


def test_a_report_survives_being_written_as_numbers() -> None:
    report = RankReport.of(replace(MINE, busy=None, room_bytes=None))
    assert RankReport.from_numbers([float(each) for each in report]) == report


def test_one_policy_decides_for_eight_ranks() -> None:
    """192 CPUs, 24 for each rank; the last rank's samples take twice as long, and all wait for it."""

    def times(rank: int) -> Times:
        return lambda rng, number: (0.06 * (1 + (rank == 7)), 0.02)

    plants = [
        Plant(24.0, times(rank), lambda now_s: (0.001, 0.019), workers=4, seed=rank) for rank in range(8)
    ]
    policy = AutoscalePolicy(AutoscaleBounds(64, "the limit of this test", cpus=24.0, window_most=512))
    stalls = []
    for _ in range(14):
        windows = [plant.run(policy.period.seconds, policy.period.steps) for plant in plants]
        slowest_ns = max(each.interval_ns for each in windows)  # whose step everybody's takes as long as
        windows = [replace(each, wall_ns=int(each.steps * slowest_ns)) for each in windows]
        reports = [RankReport.of(each) for each in windows]
        stalls.append(max(each.stall for each in reports))
        action = policy.decide(combined(windows[0], reports[1:]))
        for plant in plants if action is not None and action.kind != "hold" else []:
            assert action is not None
            plant.apply(action)
            plant.run(0.2, 1)
    assert stalls[0] > 0.3
    assert max(stalls[-3:]) < 0.02
    assert len({plant.workers for plant in plants}) == 1
    assert 7 <= plants[0].workers <= 12


@pytest.mark.parametrize("number", [float("nan"), float("inf"), -2.0, 1e300])
def test_numbers_that_no_rank_writes_are_refused(number: float) -> None:
    """They once ended every loader of the job: int() of what is no number."""
    numbers = list(map(float, RankReport.of(MINE)))
    assert RankReport.from_numbers(numbers) == RankReport.of(MINE)
    with pytest.raises(ValueError, match="negative, too large, or none"):
        RankReport.from_numbers([number, *numbers[1:]])
    row = RankRow(4000, 0, 7, 5, report=RankReport.of(MINE))
    assert RankRow.unpack(row.pack()) == row
    assert RankRow.unpack(row._replace(report=row.report._replace(cpu_ns=number)).pack()) is None  # type: ignore[union-attr]


@pytest.mark.parametrize("changed", [{"pid": 0}, {"pid": 1 << 40}, {"workers": 1 << 40}, {"window": -1}])
def test_a_row_that_no_rank_writes_is_as_if_it_were_not_there(changed: Any) -> None:
    assert RankRow.unpack(RankRow(4000, 0, 7, 5)._replace(**changed).pack()) is None

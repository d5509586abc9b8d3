"""Observations: their values, alone and joined."""

from stoker._runtime.autoscale.types import SAMPLED, Observation

MS = 1_000_000


def test_a_window_tells_interval_demand_and_stall() -> None:
    window = Observation(
        steps=10, wall_ns=100 * MS, wait_ns=25 * MS, workers=2, window=4, cpu_ns=3 * MS, off_ns=1 * MS
    )
    assert window.interval_ns == 10 * MS
    assert window.step_ns == 7.5 * MS
    assert window.stall == 0.25
    assert window.making_ns == 4 * MS
    assert window.off_share == 0.25


def test_an_empty_window_divides_by_nothing() -> None:
    window = Observation(steps=0, wall_ns=0, wait_ns=0, workers=0, window=1)
    assert (window.interval_ns, window.step_ns, window.stall, window.making_ns, window.off_share) == (
        0,
        0,
        0,
        0,
        0,
    )
    assert window.joined(window).steps == 0


def test_what_was_not_metered_is_taken_from_batch_times() -> None:
    assert Observation(1, 1, 0, 1, 2, batch_ns=(2 * MS, 4 * MS)).making_ns == 3 * MS


def test_joined_windows_add_up() -> None:
    first = Observation(
        10,
        100,
        20,
        2,
        4,
        busy=0.5,
        waits=3,
        blocked=1,
        cpu_ns=4.0,
        batch_ns=(1,) * SAMPLED,
        foreign_cpus=1.0,
        gap_ns=9,
    )
    later = Observation(
        30,
        300,
        40,
        2,
        6,
        busy=0.9,
        waits=5,
        blocked=2,
        cpu_ns=8.0,
        batch_ns=(2,),
        foreign_cpus=None,
        own_cpu_ns=5,
    )
    both = first.joined(later)
    assert (both.steps, both.wall_ns, both.wait_ns, both.waits, both.blocked) == (40, 400, 60, 8, 3)
    assert both.window == 6
    assert both.busy is not None
    assert abs(both.busy - 0.8) < 1e-9
    assert both.cpu_ns == 7.0
    assert both.foreign_cpus is None
    assert both.own_cpu_ns is None
    assert both.gap_ns == 9
    assert len(both.batch_ns) == SAMPLED
    assert both.batch_ns[-1] == 2

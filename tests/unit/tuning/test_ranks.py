"""Several ranks as one window."""

from dataclasses import replace

from stoker._core.tuning.ranks import Report, gathered
from stoker._core.tuning.window import Window

MINE = Window(
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
    assert gathered(MINE, []) is MINE


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
    whole = gathered(MINE, [Report.of(MINE), Report.of(slow)])
    assert whole.stall == 0.3
    assert whole.interval_ns == MINE.interval_ns
    assert (whole.busy, whole.waits, whole.blocked) == (0.95, 80, 40)
    assert whole.batch_ns == (8_000_000,)
    assert (whole.room_bytes, whole.worker_bytes) == (1000, 30)


def test_what_other_ranks_compute_is_not_foreign() -> None:
    whole = gathered(MINE, [Report.of(MINE)])
    assert whole.foreign_cpus is not None
    assert abs(whole.foreign_cpus - (3.0 - 0.7)) < 1e-9


def test_nothing_to_go_by_while_a_rank_warms_up() -> None:
    assert gathered(MINE, [Report.of(replace(MINE, warm_up=True))]).warm_up


def test_a_report_survives_being_written_as_numbers() -> None:
    report = Report.of(replace(MINE, busy=None, room_bytes=None))
    assert Report.from_numbers([float(each) for each in report]) == report

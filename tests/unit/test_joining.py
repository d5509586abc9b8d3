"""Loaders that were made anew for every epoch."""

from __future__ import annotations

from stoker._record.merge_loaders import merged
from stoker._record.readings.memory_curve import MOST_EACH, MemoryReading, as_columns, readings
from stoker._record.schema import Event, LoaderRecord, Period, SlowestSample
from stoker._tools.report.verdict.verdict import judge
from tests.unit.records import SECOND, loader, run, steps


def an_epoch(number: int) -> LoaderRecord:
    made = loader({("start", -1, "start_up"): 0.5, ("fetch", 0, "io"): 0.2}, steps=steps(3))
    made.slowest = [SlowestSample(7 + number, 100 + number, 0, 0, 1, 2)]
    made.events = [Event(number * SECOND, "restart", "it died")]
    made.memory = as_columns([MemoryReading(number * SECOND, 0, 40 + number, 2000 + number, 1000 + number)])
    made.periods = [Period(number * SECOND, (number + 1) * SECOND, 100, 7, 5, {"io": 7})]
    return made


def test_they_are_one_with_as_many_epochs() -> None:
    """Sums add up, epochs are told apart, and a start that is paid for each time is named."""
    assert judge(run(an_epoch(0))).loaders[0].causes.cause == "io"
    (found,) = merged([an_epoch(number) for number in range(3)])
    one = an_epoch(0)
    assert found.totals.epochs == 3
    assert found.totals.wait_ns == sum(each.ns for each in found.blame) == 3 * one.totals.wait_ns
    assert found.totals.wake_ns == [3 * each for each in one.totals.wake_ns]
    assert found.totals.first_batch_ns == one.totals.first_batch_ns
    assert found.totals.hidden_ns is None
    assert found.totals.window == one.totals.window
    assert found.load.wall_ns == 3 * one.load.wall_ns
    assert found.load.throttled_ns is None
    assert [each.worker for each in found.workers] == [0, 1]
    assert found.workers[1].pid == one.workers[1].pid
    assert found.workers[1].busy_ns == 3 * one.workers[1].busy_ns
    assert found.workers[1].private_growth_bytes == one.workers[1].private_growth_bytes
    assert [(each.index, each.epoch) for each in found.slowest] == [(9, 2), (8, 1), (7, 0)]
    assert [each.at_ns for each in found.events] == [0, SECOND, 2 * SECOND]
    assert [each.steps for each in found.periods] == [100, 100, 100]
    assert [each.pid for each in readings(found.memory)] == [40, 41, 42]
    assert len(found.steps["seq"]) == 3 * len(one.steps["seq"])
    assert len(set(found.steps["epoch"])) == 3
    assert judge(run(found)).loaders[0].causes.cause == "start_up"


def test_others_stay_apart() -> None:
    """Another line, another dataset, other options, no line that is known, or a loader that was kept over epochs."""
    different = [
        loader(),
        loader(site="train.py:32"),
        loader(dataset="Texts"),
        loader(options={"batch_size": 8}),
        loader(totals={"epochs": 2}),
        loader(totals={"epochs": 2}),
        loader(site=None),
        loader(site=None),
    ]
    assert merged(different) == different


def test_what_is_kept_of_very_many_is_bounded() -> None:
    (found,) = merged([an_epoch(number) for number in range(2000)])
    assert len(found.events) == 1000
    assert found.events_dropped == 1000
    assert len(found.slowest) == 16
    assert len(found.periods) <= 240
    assert sum(each.steps for each in found.periods) == 200_000
    assert found.periods[-1].ended_ns == 2000 * SECOND
    assert len(found.memory["at_ns"]) <= MOST_EACH
    assert found.memory["at_ns"][-1] == 1999 * SECOND

"""From scans to figures: the last seconds brought up to now, and a wait that is under way laid on the worker that has it."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from stoker._record.run_page.page import PageReading
from stoker._record.run_page.summary import RecentSums, Summary, summary_of
from stoker._tools.top.lines import board
from stoker._tools.top.live import LoaderLive, document, live
from stoker._tools.top.processes import LoaderSeen, PoolSeen, ProcessScan, ThreadTimes, WorkerSeen
from tests.unit.records import MS, SECOND, Waits, loader

AT = 1000 * SECOND


def summary(waits_s: Waits | None = None, *, at_ns: int = AT, **changed: Any) -> Summary:
    return summary_of(loader(waits_s, **changed), RecentSums(), workers=2, at_ns=at_ns, depth=3)


def worker(number: int, **changed: Any) -> WorkerSeen:
    usual: dict[str, Any] = {
        "pid": 50 + number, "phase": "fetch", "since_ns": AT, "epoch": 1, "seq": number, "part": 0, "row": 2, "index": None,
        "resident_bytes": 0, "busy_ns": 0, "tasks": 1, "meter": None,
    }  # fmt: skip
    return WorkerSeen(worker=number, **{**usual, **changed})


def seen(told: Summary | None, *workers: WorkerSeen, **words: int) -> LoaderSeen:
    reading = PageReading(
        owner_pid=40,
        owner_start=1,
        asked_ns=words.get("asked_ns", 0),
        given_ns=words.get("given_ns", AT),
        steps=words.get("steps", told["whole"]["steps"] if told else 0),
        summary=told,
    )
    return LoaderSeen((1, 2), 40, "train.py", reading, (PoolSeen(40, 2, 1, workers),) if workers else ())


def at(moment_ns: int, *loaders: LoaderSeen) -> ProcessScan:
    return ProcessScan(moment_ns, loaders)


def only(now: ProcessScan, before: ProcessScan | None = None) -> LoaderLive:
    [told] = live(now, before)
    return told


def test_figures_of_the_last_seconds() -> None:
    told = only(at(AT, seen(summary({("fetch", 0, "io"): 0.6, ("fetch", 1, "compute"): 0.4}, step_s=1.0))))
    assert told.stall == pytest.approx(0.5)
    assert told.ready == pytest.approx(0.5)
    assert told.rate == pytest.approx(50)
    assert told.rows_rate == pytest.approx(50 * 64)
    assert (told.cause, told.causes) == ("io", {"io": 0.6, "compute": 0.4})
    assert (told.window, told.depth, told.num_workers, told.steps) == (4, 3, 2, 100)
    assert told.cpu == pytest.approx(0.1)
    assert told.off == pytest.approx(0.9)
    assert told.waiting_s is None


def test_a_small_stall_has_no_cause() -> None:
    told = only(at(AT, seen(summary({("fetch", 0, "io"): 0.01}, step_s=1.0))))
    assert told.stall == pytest.approx(0.01, rel=0.02)
    assert told.cause is None


def test_a_wait_under_way_counts_and_is_laid_on_the_oldest_batch() -> None:
    """The page says all is well; since then the consumer has waited five seconds for a worker that is off the CPU."""
    told_by_page = summary(step_s=5.0)
    now_ns = AT + 5 * SECOND
    stuck = worker(1, seq=7, since_ns=AT - SECOND, index=17, meter=ThreadTimes(4 * MS, 0))
    other = worker(0, seq=9, since_ns=now_ns - MS, meter=ThreadTimes(9 * SECOND, 0))
    before = at(
        now_ns - SECOND, seen(told_by_page, replace(other, busy_ns=0, phase="idle"), stuck, asked_ns=AT)
    )
    told = only(at(now_ns, seen(told_by_page, other, stuck, asked_ns=AT)), before)
    assert told.waiting_s == pytest.approx(5)
    assert told.stall == pytest.approx(0.5)
    assert told.rate == pytest.approx(100 / 10)
    assert told.cause == "io"
    assert [(each.worker, each.index, each.for_s) for each in told.workers if each.awaited] == [(1, 17, 6.0)]


def test_a_wait_longer_than_what_is_recent_is_all_there_is() -> None:
    told = only(at(AT + 60 * SECOND, seen(summary({("fetch", 0, "compute"): 1.0}), asked_ns=AT)))
    assert told.stall == pytest.approx(1.0)
    assert told.rate == 0
    assert (told.cause, told.causes) == ("unknown", {"unknown": 1.0})


def test_a_loader_at_rest_does_not_stall() -> None:
    told = only(at(AT + 60 * SECOND, seen(summary({("fetch", 0, "io"): 1.0}), given_ns=AT)))
    assert (told.stall, told.cause, told.ready, told.rate, told.cpu) == (None,) * 5
    assert told.idle_s == pytest.approx(60)
    assert told.stall_whole == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("cpu_ms", "runq_ms", "cause"), [(950, 10, "compute"), (100, 800, "starved"), (10, 0, "io")]
)
def test_what_the_awaited_worker_does_is_the_cause(cpu_ms: int, runq_ms: int, cause: str) -> None:
    page = summary()
    now_ns = AT + 30 * SECOND
    before = at(now_ns - SECOND, seen(page, worker(0, meter=ThreadTimes(0, 0)), asked_ns=AT))
    now = at(now_ns, seen(page, worker(0, meter=ThreadTimes(cpu_ms * MS, runq_ms * MS)), asked_ns=AT))
    assert only(now, before).cause == cause


def test_who_makes_batches_himself_is_the_cause_himself() -> None:
    page = summary(executor="inline", workers=[])
    before, now = (
        replace(seen(page, asked_ns=AT), meter=meter)
        for meter in (ThreadTimes(0, 0), ThreadTimes(100 * MS, 850 * MS))
    )
    told = only(at(AT + 30 * SECOND, now), at(AT + 29 * SECOND, before))
    assert told.causes == {"starved": 0.85, "compute": 0.1, "io": 0.05}


def test_busy_shares_count_the_task_under_way() -> None:
    page = summary()
    now_ns = AT + 10 * SECOND
    half = worker(0, phase="idle", busy_ns=5 * SECOND)
    whole = worker(1, since_ns=AT, busy_ns=0)
    quarter = worker(2, since_ns=now_ns - 250 * MS, busy_ns=SECOND)
    before = at(
        now_ns - SECOND, seen(page, replace(half, busy_ns=4500 * MS), whole, replace(quarter, phase="idle"))
    )
    told = only(at(now_ns, seen(page, half, whole, quarter)), before)
    assert [each.busy for each in told.workers] == pytest.approx([0.5, 1.0, 0.25])
    assert told.busy == pytest.approx(1.75 / 3)


def test_shares_of_workers_are_of_the_time_they_were_at_work() -> None:
    page = summary()
    now_ns = AT + 10 * SECOND
    before = at(now_ns - SECOND, seen(page, worker(0, phase="idle", meter=ThreadTimes(0, 0))))
    now = at(
        now_ns, seen(page, worker(0, phase="idle", busy_ns=500 * MS, meter=ThreadTimes(100 * MS, 25 * MS)))
    )
    told = only(now, before)
    assert (told.cpu, told.runq, told.off) == pytest.approx((0.2, 0.05, 0.75))


def test_a_worker_of_an_epoch_that_is_over_is_waited_for_by_nobody() -> None:
    stale, current = worker(0, epoch=0, seq=1), worker(1, seq=5)
    told = only(at(AT + SECOND, seen(summary(), stale, current, asked_ns=AT)))
    assert [(each.stale, each.awaited) for each in told.workers] == [(True, False), (False, True)]


def test_all_parts_of_the_oldest_batch_are_waited_for() -> None:
    parts = [worker(number, seq=4, part=number) for number in range(3)]
    told = only(at(AT + SECOND, seen(summary(), *parts, asked_ns=AT)))
    assert all(each.awaited for each in told.workers)


def test_a_page_without_a_summary_still_tells_of_the_wait() -> None:
    told = only(at(AT + 2 * SECOND, seen(None, worker(0), asked_ns=AT, steps=0)))
    assert told.recorded
    assert told.waiting_s == pytest.approx(2)
    assert told.num_workers == 1
    assert (told.stall, told.rate, told.name) == (None, None, None)


@pytest.mark.parametrize("part", ["recent", "whole", "at_ns", "event", "executor"])
@pytest.mark.parametrize("value", [None, 3, "x", [], {}], ids=repr)
def test_a_summary_that_is_not_one_costs_its_figures_only(part: str, value: Any) -> None:
    odd: Any = {**summary({("fetch", 0, "io"): 1.0}), part: value}
    told = only(
        at(
            AT + SECOND,
            replace(seen(summary(), worker(0), asked_ns=AT), reading=PageReading(40, 1, AT, AT, 7, odd)),
        )
    )
    assert (told.steps, len(told.workers)) == (7, 1)
    assert board(told)


def test_a_loader_without_a_record_shows_its_workers() -> None:
    pool = PoolSeen(40, 0, 1, (worker(0, index=3),))
    told = only(at(AT, LoaderSeen((1, 2), 40, "x", None, (pool,))))
    assert not told.recorded
    assert [each.index for each in told.workers] == [3]
    assert told.waiting_s is None


def test_the_document_is_json() -> None:
    page = summary({("fetch", 0, "io"): 1.0})
    told = live(at(AT, seen(page, worker(0), asked_ns=AT)))
    whole = document(told, ("process 1: Permission denied",), at_unix_s=1.5)
    assert json.loads(json.dumps(whole)) == whole
    assert (whole["format"], whole["version"]) == ("stoker-top", 1)
    assert whole["skipped"] == ["process 1: Permission denied"]
    assert whole["loaders"][0]["cause"] == "io"


def test_two_loaders_of_one_line_are_told_apart_as_a_report_does() -> None:
    """Both were called `loader: __main__.Jpegs`."""
    told = [
        summary(name="loader", dataset="__main__.Jpegs", site="train.py:49", options={"sampler": sampler})
        for sampler in ("RandomSampler", "SequentialSampler")
    ]
    train, valid = live(at(AT, *(seen(each) for each in told)))
    assert (train.name, valid.name) == ("loader of Jpegs, shuffled", "loader of Jpegs, in order")
    assert "loader of Jpegs, shuffled (train.py:49), process" in board(train)[0].text
    (alone,) = live(at(AT, seen(told[0])))
    assert alone.name == "loader"
    assert "loader of Jpegs (train.py:49), process" in board(alone)[0].text

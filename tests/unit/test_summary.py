"""The summary of a record: small, plain, and true about the last seconds."""

from __future__ import annotations

import json

from stoker._record.run_page.page import PAGE_BYTES
from stoker._record.run_page.summary import RECENT_NS, RecentSums, added, summary_of, sums_of
from stoker._record.schema import Event, SlowestSample
from tests.unit.records import MS, SECOND, loader, worker


def test_sums_are_those_of_the_record() -> None:
    record = loader(
        {("fetch", 0, "io"): 0.6, ("collate", 0, "io"): 0.1, ("fetch", 1, "compute"): 0.3}, step_s=1.0
    )
    summary = summary_of(record, RecentSums(), workers=2, at_ns=5 * SECOND, depth=2, undelivered_bytes=7)
    whole = summary["whole"]
    assert whole["causes"] == {"io": 700 * MS, "compute": 300 * MS}
    assert (whole["wait_ns"], whole["step_ns"], whole["steps"], whole["ready"]) == (SECOND, SECOND, 100, 50)
    assert whole["busy_ns"] == sum(each.busy_ns for each in record.workers)
    assert summary["recent"] == whole
    assert [(each["stage"], each["worker"]) for each in summary["blame"]] == [
        ("fetch", 0),
        ("fetch", 1),
        ("collate", 0),
    ]
    assert (summary["workers"], summary["window"], summary["depth"], summary["undelivered_bytes"]) == (
        2,
        4,
        2,
        7,
    )


def test_recent_is_what_the_last_ten_seconds_added() -> None:
    recently = RecentSums()
    for second in range(30):
        # It waits for I/O in the first 15 seconds, and for compute from then on.
        waits = {
            ("fetch", 0, "io"): min(second, 15) * 0.5,
            ("fetch", 0, "compute"): max(0, second - 15) * 0.25,
        }
        record = loader(waits, totals={"steps": 10 * second, "wall_ns": second * SECOND})
        summary = summary_of(record, recently, workers=2, at_ns=100 * SECOND + second * SECOND)
    recent = summary["recent"]
    assert recent["ns"] == RECENT_NS
    assert recent["steps"] == 100
    assert recent["causes"] == {"compute": 2500 * MS}
    assert summary["whole"]["causes"] == {"io": 7500 * MS, "compute": 3500 * MS}


def test_causes_that_were_settled_later_still_add_up() -> None:
    before = sums_of(loader({("fetch", 0, "unknown"): 0.4, ("fetch", 0, "io"): 0.1}))
    now = sums_of(loader({("fetch", 0, "io"): 0.5, ("fetch", 0, "compute"): 0.4}))
    since = added(now, before)
    assert since["wait_ns"] == 400 * MS
    assert since["causes"] == {"io": 200 * MS, "compute": 200 * MS}
    assert added(before, now)["causes"] == {}, "a record that began anew"


def test_what_was_not_measured_is_none() -> None:
    silent = summary_of(loader(workers=[], num_workers=0), RecentSums(), workers=2, at_ns=1)["whole"]
    assert silent["busy_ns"] is silent["cpu_ns"] is None
    unmetered = loader(workers=[worker(0, metered_ns=0)])
    whole = summary_of(unmetered, RecentSums(), workers=2, at_ns=1)["whole"]
    assert whole["busy_ns"] == SECOND
    assert whole["cpu_ns"] is whole["runq_ns"] is whole["off_ns"] is None


def test_the_slowest_come_first_with_indices_that_json_knows() -> None:
    slow = [
        SlowestSample(index, ns, 0, 1, 2, 3)
        for ns, index in enumerate([17, "cat.jpg", (3, 4), None, True, 2.5, object])
    ]
    summary = summary_of(loader(slowest=slow), RecentSums(), workers=2, at_ns=1)
    assert [each["index"] for each in summary["slowest"]] == [repr(object), "2.5", "True", None, "(3, 4)"]
    assert json.loads(json.dumps(summary)) == summary


def test_the_last_event_is_told_on_the_clock() -> None:
    events = [Event(1, "start", "a"), Event(2 * MS, "restart", "worker 0 died")]
    summary = summary_of(loader(events=events), RecentSums(), workers=2, at_ns=9, began_ns=SECOND)
    assert summary["event"] == {"at_ns": SECOND + 2 * MS, "kind": "restart", "reason": "worker 0 died"}


def test_it_fits_its_page_whatever_the_record_holds() -> None:
    long = "ü" * 100_000
    waits = {("fetch", place, "io"): 1.0 for place in range(1000)}
    slow = [SlowestSample(long, ns, 0, 1, 2, 3) for ns in range(100)]
    record = loader(
        waits,
        name=long,
        dataset=long,
        site=long,
        slowest=slow,
        events=[Event(1, "x", long)],
        num_workers=1000,
    )
    assert len(json.dumps(summary_of(record, RecentSums(), workers=2, at_ns=1))) < PAGE_BYTES // 2

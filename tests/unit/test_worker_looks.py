"""Where workers sleep, as the recorder looks now and then: counted by worker, and added up over loaders that are one."""

from __future__ import annotations

import pytest

from stoker._record.merge_loaders import merged
from stoker._record.readings import worker_usage
from stoker._record.readings.worker_usage import WorkerUsage
from stoker._record.totals import RunningTotals
from tests.unit.records import loader, worker

LOCKED, FREE, GONE = 11, 12, 13


@pytest.fixture(autouse=True)
def kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    told = {LOCKED: True, FREE: False, GONE: None}
    monkeypatch.setattr(worker_usage, "waits_for_lock", told.__getitem__)


def usage() -> WorkerUsage:
    made = WorkerUsage()
    made.pids = {0: LOCKED, 1: FREE, 2: GONE}
    return made


def test_looks_are_counted_and_a_process_that_is_gone_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_usage, "_GLANCE_NS", 0)
    monkeypatch.setattr(worker_usage, "_REST", 0)
    totals, looking = RunningTotals(0), usage()
    for _ in range(3):
        looking.glance(totals)
    counted = {number: (each.looks, each.locked_looks) for number, each in totals.workers.items()}
    assert counted == {0: (3, 3), 1: (3, 0)}


def test_a_look_is_not_repeated_at_once() -> None:
    totals, looking = RunningTotals(0), usage()
    looking.glance(totals)
    looking.glance(totals)
    assert totals.workers[0].looks == 1


def test_loaders_that_are_one_add_their_looks() -> None:
    parts = [loader(num_workers=1, workers=[worker(0, looks=5, locked_looks=2)]) for _ in range(2)]
    [one] = merged(parts)
    assert (one.workers[0].looks, one.workers[0].locked_looks) == (10, 4)

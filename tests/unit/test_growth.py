"""What processes occupied over time: few readings, of everybody, with the first and the last of each."""

from __future__ import annotations

import itertools
import os
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stoker._host.process_memory import Footprint
from stoker._record.readings import worker_usage
from stoker._record.readings.memory_curve import (
    MOST,
    MOST_EACH,
    MemoryCurve,
    MemoryReading,
    as_columns,
    readings,
    thinned,
)
from stoker._record.readings.worker_usage import PARENT, Size, WorkerUsage
from stoker._record.schema import MEMORY_COLUMNS, RunRecord
from stoker._record.totals import RunningTotals
from stoker.errors import RecordError
from tests.unit.records import MS, SECOND, loader, run


def series(workers: int, looks: int) -> list[MemoryReading]:
    return [
        MemoryReading(at * SECOND, worker, 100 + worker, 9 * at, 5 * at)
        for at in range(looks)
        for worker in range(workers)
    ]


@settings(max_examples=20, deadline=None)
@given(st.integers(1, 300), st.integers(1, 40))
def test_each_keeps_its_first_and_its_last(workers: int, looks: int) -> None:
    found = thinned(series(workers, looks))
    assert len(found) <= MOST
    assert found == sorted(found, key=lambda each: each.at_ns)
    for worker in (0, workers - 1):
        moments = [each.at_ns for each in found if each.worker == worker]
        assert (moments[0], moments[-1]) == (0, (looks - 1) * SECOND)


def test_a_long_run_is_kept_evenly() -> None:
    growth = MemoryCurve()
    for at in range(5000):
        growth.add([MemoryReading(at * SECOND, 0, 7, at, at)])
    kept = growth.columns(0)["at_ns"]
    gaps = [later - earlier for earlier, later in itertools.pairwise(kept)]
    assert len(kept) <= MOST_EACH
    assert max(gaps) <= 5000 * SECOND // (MOST_EACH // 8)


def test_thousands_of_workers_keep_two_each() -> None:
    assert len(thinned(series(MOST, 3))) == 2 * MOST


def test_columns_are_readings_and_back() -> None:
    some = series(3, 2)
    assert readings(as_columns(some)) == some
    assert tuple(as_columns(some)) == MEMORY_COLUMNS
    assert readings({}) == readings({"at_ns": [1]}) == []
    assert as_columns([]) == {}


def test_a_record_without_them_reads_and_a_damaged_one_is_refused() -> None:
    record = run(loader(memory=as_columns(series(2, 2))))
    data = record.as_dict()
    assert RunRecord.from_dict(data).loaders[0].memory == record.loaders[0].memory
    data["loaders"][0]["memory"]["colour"] = [1, 2, 3]  # of a later version
    assert RunRecord.from_dict(data).loaders[0].memory == record.loaders[0].memory
    del data["loaders"][0]["memory"]
    assert RunRecord.from_dict(data).loaders[0].memory == {}
    for damaged in ({"at_ns": [1], "worker": []}, {"at_ns": ["<b>"]}, {"at_ns": 7}, [1]):
        data["loaders"][0]["memory"] = damaged
        with pytest.raises(RecordError):
            RunRecord.from_dict(data)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Weighing takes 30 ms each; a process has pid MB, and pid 13 is gone."""
    now = [SECOND]

    def footprint(pid: int) -> Footprint | None:
        now[0] += 30 * MS
        return None if pid == 13 else Footprint(pid << 20, pid << 19)

    def get_clock() -> int:
        return now[0]

    monkeypatch.setattr(worker_usage, "footprint", footprint)
    monkeypatch.setattr(worker_usage, "_clock", get_clock)
    monkeypatch.setattr(worker_usage, "_cpu_clock", get_clock)
    monkeypatch.setattr(worker_usage, "resident_bytes", lambda: 1 << 20)
    return now


def weighed(of: WorkerUsage) -> list[int]:
    return of.memory.columns(0).get("worker", [])


def test_a_look_goes_on_where_the_last_one_stopped(clock: list[int]) -> None:
    """With hundreds of workers each has its turn, and the loop never waits for all of them."""
    hands, accounts = WorkerUsage(), RunningTotals(0)
    hands.pids = {worker: 100 + worker for worker in range(9)}
    assert hands.look(accounts) == 0, "it is too early"
    clock[0] += SECOND
    assert hands.look(accounts) == 30 * MS
    assert hands.look(accounts) == 0, "it rests"
    for _ in range(11):
        clock[0] += 3 * SECOND
        hands.look(accounts)
    assert weighed(hands) == [0, 1, 2, 3, 4, 5, 6, 7, 8, PARENT, 0, 1]
    assert sorted(accounts.workers) == list(range(9)), "the training process is no worker"
    assert accounts.workers[8].private_bytes == 108 << 19


def test_workers_that_go_are_weighed_sooner(clock: list[int]) -> None:
    hands, accounts = WorkerUsage(), RunningTotals(0)
    told: list[Size] = [Size(0, 50, None, None, None, baseline_bytes=20 << 20), Size(1, 13, None, None, None)]
    hands.tally(told, accounts)
    assert hands.look(accounts, last=True) == 90 * MS, "however short the run was"
    assert accounts.workers[0].private_growth_bytes == 5 << 20
    assert accounts.workers[1].private_bytes is None, "it is gone"
    clock[0] += 2 * SECOND
    assert hands.look(accounts, last=True) == 0
    clock[0] += SECOND
    assert hands.look(accounts, last=True)
    assert weighed(hands) == [0, PARENT, 0, PARENT]
    assert hands.memory.columns(0)["pid"][1] == os.getpid()


def test_a_very_large_training_process_is_left_out(clock: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_usage, "resident_bytes", lambda: 5 << 30)
    hands = WorkerUsage()
    hands.pids = {0: 50}
    hands.look(RunningTotals(0), last=True)
    assert weighed(hands) == [0]

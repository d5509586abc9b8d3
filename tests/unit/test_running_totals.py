"""Sums over steps, and what is kept of them: bounded, however long the run."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from stoker._record import totals as module
from stoker._record.attribution import Attribution
from stoker._record.schema import STEP_COLUMNS, Period, SlowestSample, StepRow
from stoker._record.step_buffer import HELD_BACK, ROWS, StepBuffer
from stoker._record.totals import KEPT_FIRST, KEPT_LAST, KEPT_SLOW, RunningTotals, _fewer, table
from tests.unit.test_blame import MS, made, row

SECOND = 1000 * MS


def steps(count: int, first: int = 0) -> np.ndarray[Any, Any]:
    """Steps of 10 ms of which 4 are a wait for a worker that computes for 3 of them."""
    rows = []
    for seq in range(first, first + count):
        asked = (10 + 10 * seq) * MS
        ticket = made(
            seq % 2, 11 + 10 * seq, 14 + 10 * seq, 14 + 10 * seq, 14 + 10 * seq, dispatched_ns=asked
        )
        rows.append(row(asked_ns=asked, got_ns=asked + 4 * MS, seq=seq, batch_bytes=100, **ticket))
    return np.array(rows, np.int64)


def fed(count: int, pieces: int = 1) -> RunningTotals:
    running_totals, attribution, last = RunningTotals(5 * MS), Attribution(workers=2), (0, 0)
    for piece in range(pieces):
        last = running_totals.add(steps(count // pieces, piece * (count // pieces)), attribution, last)
    return running_totals


@pytest.mark.parametrize("pieces", [1, 4])
def test_totals(pieces: int) -> None:
    running_totals = fed(40, pieces)
    totals = running_totals.totals
    assert (totals.steps, totals.rows, totals.bytes) == (40, 640, 4000)
    assert totals.wait_ns == 40 * 4 * MS
    assert totals.step_ns == 39 * 6 * MS
    assert totals.first_batch_ns == 9 * MS
    assert totals.ready == 0
    assert sum(totals.wait_histogram) == 40
    assert sum(each.ns for each in running_totals.blame()) == totals.wait_ns
    assert {(one.tasks, one.rows, one.cpu_ns) for one in running_totals.workers.values()} == {
        (20, 320, 60 * MS)
    }


def test_a_long_gap_is_no_step() -> None:
    rows = steps(4)
    rows[2:, :4] += 60 * SECOND
    running_totals = RunningTotals(5 * MS)
    running_totals.add(rows, Attribution(workers=2), (0, 0))
    assert running_totals.totals.step_ns == 2 * 6 * MS
    assert running_totals.totals.idle_ns == 60 * SECOND + 6 * MS


def test_rows_that_are_only_skimmed_add_up_too() -> None:
    running_totals, attribution = RunningTotals(5 * MS), Attribution(workers=2)
    last = running_totals.add(steps(40), attribution, (0, 0))
    before = running_totals.blame()
    last = running_totals.skim(steps(40, 40), last, 0)
    totals = running_totals.totals
    assert (totals.steps, totals.estimated_steps, totals.rows) == (80, 40, 1280)
    assert totals.step_ns == 79 * 6 * MS
    assert sum(each.ns for each in running_totals.blame()) == pytest.approx(totals.wait_ns)
    assert [(each.stage, each.cause) for each in running_totals.blame()] == [
        (each.stage, each.cause) for each in before
    ]
    assert sum(one.tasks for one in running_totals.workers.values()) == 80
    running_totals.skim(steps(40, 80), last, 10 * MS)  # of which pinning took some
    running_totals.split_open_stage(10 * MS, 0)
    assert sum(each.ns for each in running_totals.blame()) == pytest.approx(running_totals.totals.wait_ns)
    assert {each.stage: each.ns for each in running_totals.blame()}["pin"] == 10 * MS


def test_between_two_epochs_is_no_step() -> None:
    rows = steps(6)
    rows[3:, STEP_COLUMNS.index("epoch")] = 2
    running_totals, attribution = RunningTotals(5 * MS), Attribution(workers=2)
    last = running_totals.add(rows[:3], attribution, (0, 0))
    running_totals.add(rows[3:], attribution, last)
    assert running_totals.totals.step_ns == 4 * 6 * MS


def test_an_endless_run_stays_small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_PERIODS", 8)
    running_totals = fed(40_000, pieces=50)
    kept = running_totals.rows()
    assert KEPT_FIRST + KEPT_LAST <= len(kept) <= KEPT_FIRST + KEPT_LAST + 800
    assert len(kept) + running_totals.dropped == running_totals.added == 40_000
    assert kept[0, STEP_COLUMNS.index("seq")] == 0
    assert kept[-1, STEP_COLUMNS.index("seq")] == 39_999
    assert len(running_totals.periods) <= 8
    assert sum(each.steps for each in running_totals.periods) == 40_000
    assert sum(each.wait_ns for each in running_totals.periods) == running_totals.totals.wait_ns


def test_the_slowest_samples_are_kept_and_each_once() -> None:
    running_totals = RunningTotals(0)
    floors = [
        running_totals.note_slow(SlowestSample(index, 100 + index, 0, 1, index, 0)) for index in range(40)
    ]
    assert floors[KEPT_SLOW - 2] == 0
    assert floors[-1] == 140 - KEPT_SLOW
    running_totals.note_slow(SlowestSample(39, 500, 1, 2, 7, 3))
    assert len(running_totals.slowest) == KEPT_SLOW
    assert [(each.index, each.ns) for each in running_totals.slowest[:2]] == [(39, 500), (38, 138)]


def test_a_look_ahead_changes_nothing() -> None:
    running_totals = fed(10)
    before = (running_totals.totals.steps, dict(running_totals.sums), running_totals.workers[0].tasks)
    running_totals.copy().add(steps(10, 10), Attribution(workers=2), (0, 0))
    assert (running_totals.totals.steps, dict(running_totals.sums), running_totals.workers[0].tasks) == before


def test_moments_count_from_the_beginning_and_what_was_not_measured_stays_0() -> None:
    columns = table(steps(2), 5 * MS)
    assert columns["asked_ns"] == [5 * MS, 15 * MS]
    assert columns["received_ns"] == [6 * MS, 16 * MS]
    assert columns["cpu_ns"] == [3 * MS, 3 * MS]
    assert table(np.array([row(asked_ns=9 * MS)], np.int64), 5 * MS)["sent_ns"] == [0]


class Owner:
    """Takes rows as a recorder does."""

    def __init__(self) -> None:
        self.taken: list[np.ndarray[Any, Any]] = []
        self.ticks: list[int] = []

    def fold(self, step_buffer: StepBuffer) -> None:
        self.taken.append(step_buffer.take(final=False))

    def tick(self, step_buffer: StepBuffer, now_ns: int) -> None:
        self.ticks.append(now_ns)
        step_buffer.due_ns = now_ns + SECOND

    def rest(self, step_buffer: StepBuffer) -> None:
        raise AssertionError("nobody asked for it")

    rested = rest


def test_a_buffer_is_folded_when_it_is_full_and_keeps_the_last_rows() -> None:
    owner = Owner()
    step_buffer = StepBuffer(owner, Attribution())
    rows = steps(ROWS + 50)
    for each in rows.tolist():
        step_buffer.write(StepRow(*each))
    assert [len(each) for each in owner.taken] == [ROWS - HELD_BACK]
    assert step_buffer.rows == HELD_BACK + 50
    written = np.concatenate([*owner.taken, step_buffer.take(final=True)])
    given = STEP_COLUMNS.index("given_ns")
    written[:, given] = rows[:, given]  # what ticks took was added
    assert np.array_equal(written, rows)
    assert step_buffer.rows == 0
    assert all(
        later - earlier >= SECOND for earlier, later in zip(owner.ticks, owner.ticks[1:], strict=False)
    )


def test_pinning_is_part_of_the_wait() -> None:
    step_buffer = StepBuffer(Owner(), Attribution())
    step_buffer.write(StepRow(*steps(1)[0].tolist()))
    given = int(step_buffer.pending()[0, STEP_COLUMNS.index("given_ns")])
    step_buffer.pinned(given + 5, given + 105)
    assert step_buffer.pin_ns == 100
    assert step_buffer.pending()[0, STEP_COLUMNS.index("given_ns")] == given + 105


def test_stretches_of_a_long_run_stay_about_even() -> None:
    """A day of them, one a second: the morning is told as closely as the evening."""
    periods: list[Period] = []
    for second in range(20_000):
        periods.append(Period(second * 10**9, (second + 1) * 10**9, 3, 2, 1, {"io": 2}))
        if len(periods) > 240:
            periods = _fewer(periods)
    assert 100 <= len(periods) <= 240
    assert sum(each.steps for each in periods) == 60_000
    assert sum(each.causes["io"] for each in periods) == 40_000
    assert max(each.ended_ns - each.began_ns for each in periods) <= 20_000 * 10**9 // 50
    assert [each.ended_ns for each in periods[:-1]] == [each.began_ns for each in periods[1:]]


def test_an_epoch_of_a_new_pool_is_told_by_its_iter() -> None:
    rows = steps(6)  # all of epoch 1: pools count from the beginning
    running_totals, attribution = RunningTotals(5 * MS), Attribution(workers=2)
    running_totals.opened(5 * MS, 6 * MS)
    running_totals.opened(int(rows[3, 0]) - 2 * MS, int(rows[3, 0]) - MS)
    last = running_totals.add(rows[:2], attribution, (0, 0))
    assert running_totals.totals_with(rows[2:], last).step_ns == 4 * 6 * MS
    running_totals.add(rows[2:], attribution, last)
    assert running_totals.totals.step_ns == 4 * 6 * MS


def test_the_last_step_before_no_batch_came_is_one_and_counts_once() -> None:
    running_totals, attribution, rows = RunningTotals(5 * MS), Attribution(workers=2), steps(4)
    given_ns = int(rows[1, 3])
    for _ in range(2):
        running_totals.stopped(given_ns + 3 * MS, given_ns + 4 * MS, "fetch", "unknown", given_ns)
    running_totals.add(rows, attribution, (0, 0))
    assert running_totals.totals.step_ns == (6 + 3 + 6) * MS


def test_moments_between_steps_are_not_kept_for_ever() -> None:
    running_totals = RunningTotals(0)
    for number in range(20_000):
        running_totals.opened(number, number)
    assert len(running_totals.breaks) < 10_000

"""How busy a worker is that hands one batch over while it makes the next, as torch's do."""

from __future__ import annotations

import numpy as np

from stoker._record.attribution import Attribution
from stoker._record.schema import STEP_COLUMNS
from stoker._record.totals import RunningTotals


def rows(*tasks: tuple[int, int, int]) -> np.ndarray:
    """(worker, received, sent), delivered in this order, each asked for when the one before was given."""
    made = np.zeros((len(tasks), len(STEP_COLUMNS)), np.int64)
    at = {name: place for place, name in enumerate(STEP_COLUMNS)}
    asked = 1
    for row, (worker, received, sent) in zip(made, tasks, strict=True):
        got = max(asked, sent)
        row[[at[name] for name in ("asked_ns", "got_ns", "planned_ns", "given_ns")]] = asked, got, got, got
        row[at["worker"]], row[at["dispatched_ns"]] = worker, 1
        row[[at[name] for name in ("received_ns", "fetched_ns", "collated_ns", "sent_ns")]] = (
            received,
            received,
            received,
            sent,
        )
        asked = got
    return made


def test_time_that_two_batches_share_counts_once():
    accounts, folder = RunningTotals(0), Attribution(workers=2)
    first = rows((0, 10, 50), (1, 10, 40), (0, 30, 80))
    accounts.add(first, folder, (0, 0))
    assert [accounts.workers[number].busy_ns for number in (0, 1)] == [70, 30]
    looked_ahead = accounts.copy()
    looked_ahead.add(rows((0, 70, 100)), folder.copy(), (0, 0))
    accounts.add(rows((0, 70, 100), (1, 60, 90)), folder, (0, 0))  # also across two foldings
    assert looked_ahead.workers[0].busy_ns == 90
    assert [accounts.workers[number].busy_ns for number in (0, 1)] == [90, 60]


def test_blame_of_batches_that_overlap_adds_up():
    made = rows((0, 10, 50), (0, 30, 80), (0, 60, 120), (0, 90, 200))
    sums, _ = Attribution(workers=1).fold(made)
    assert sum(sums.values()) == 199

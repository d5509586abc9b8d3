"""Rows of the step buffer, summed into observations."""

from __future__ import annotations

from typing import Any

import numpy as np

from stoker._record.schema import STEP_COLUMNS
from stoker._runtime.autoscale.observations import ObservationSums

MS = 1_000_000


def row(**known: int) -> list[int]:
    return [known.get(name, 0) for name in STEP_COLUMNS]


def step(asked: int, given: int, *, made: tuple[int, int], **known: int) -> list[int]:
    """A batch that was asked for and given at these milliseconds, and in a worker's hands between those of ``made``."""
    got = known.pop("got", given)
    return row(
        asked_ns=asked * MS, got_ns=got * MS, given_ns=given * MS, received_ns=made[0] * MS, sent_ns=made[1] * MS,
        **{"rows": 4, "batch_bytes": 100, **known},
    )  # fmt: skip


def rows(*found: list[int]) -> Any:
    return np.array(found, dtype=np.int64)


def test_sums_of_steps() -> None:
    sums = ObservationSums()
    found = rows(
        step(110, 120, made=(60, 119), cpu_ns=30 * MS, runq_ns=10 * MS, metered_ns=60 * MS),
        step(130, 130, made=(70, 125), got=130),
        step(140, 160, made=(100, 159)),
    )
    assert sums.add(found, 100 * MS) == 160 * MS
    window = sums.observation(workers=4, window=8, split=True)
    assert (window.steps, window.wall_ns, window.wait_ns, window.waits) == (3, 60 * MS, 30 * MS, 2)
    assert (window.gap_ns, window.batch_bytes, window.rows, window.split) == (10 * MS, 100, 4, True)
    assert window.batch_ns == (59 * MS, 55 * MS, 59 * MS)
    assert window.busy == (59 + 55 + 59) / (4 * 60)
    mean = (59 + 55 + 59) / 3 * MS
    assert np.isclose(window.cpu_ns, mean / 2)
    assert np.isclose(window.runq_ns, mean / 6)
    assert np.isclose(window.off_ns, mean / 3)


def test_a_batch_behind_that_is_ready_tells_of_the_head_of_the_line() -> None:
    sums = ObservationSums()
    sums.add(rows(step(100, 200, made=(0, 199)), step(200, 200, made=(0, 110), got=200)), 90 * MS)
    assert (sums.waits, sums.blocked) == (1, 1)
    waiting = ObservationSums()
    waiting.add(rows(step(100, 200, made=(0, 199), depth=2)), 90 * MS)
    assert waiting.blocked == 1


def test_parts_of_a_batch_count_together() -> None:
    sums = ObservationSums()
    first = step(110, 120, made=(100, 110))
    second = step(110, 120, made=(100, 115), part=1)
    sums.add(rows(first, second, step(130, 140, made=(120, 139))), 100 * MS)
    assert sums.steps == 2
    assert sums.batch_ns == [25 * MS, 19 * MS]


def test_a_pause_of_the_training_loop_is_no_step() -> None:
    sums = ObservationSums()
    sums.add(rows(step(110, 120, made=(100, 119)), step(20_000, 20_010, made=(200, 210))), 100 * MS)
    assert (sums.steps, sums.wall_ns, sums.gap_ns) == (1, 20 * MS, 10 * MS)


def test_segments_are_joined_without_what_lies_between() -> None:
    sums = ObservationSums()
    sums.add(rows(step(110, 120, made=(100, 119))), 100 * MS)
    sums.add(rows(step(5010, 5020, made=(5000, 5019))), 5000 * MS)
    assert (sums.steps, sums.wall_ns) == (2, 40 * MS)


def test_nothing_is_known_of_workers_where_there_are_none() -> None:
    sums = ObservationSums()
    sums.add(rows(step(110, 120, made=(110, 119))), 100 * MS)
    window = sums.observation(workers=0, window=1)
    assert window.busy is None
    assert (window.cpu_ns, window.off_ns) == (0, 0)

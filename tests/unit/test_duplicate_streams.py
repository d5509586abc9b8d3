"""A stream that every worker reads whole is noticed; streams that only look like it are not."""

from __future__ import annotations

import logging
from typing import Any

import pytest
import torch

from stoker._runtime.engine.duplicate_streams import DuplicateStreams
from stoker._runtime.pool.loader_stats import LoaderStats


def warned(caplog: pytest.LogCaptureFixture, *batches: tuple[int, Any], workers: int = 2) -> list[str]:
    """What is logged at the end of an epoch in which workers gave these."""
    caplog.clear()
    stats = LoaderStats("loader")
    duplicates = DuplicateStreams.of(stats, workers, streams=True)
    assert duplicates is not None
    with caplog.at_level(logging.WARNING, logger="stoker"):
        for worker, batch in batches:
            duplicates.note(worker, batch)
        duplicates.ended()
    assert DuplicateStreams.of(stats, workers, streams=True) is None, "judged once for each loader"
    return caplog.messages


def rows(*values: int) -> dict[str, Any]:
    return {"x": torch.tensor(values), "name": [f"row {value}" for value in values]}


def test_the_same_batches_from_every_worker(caplog: pytest.LogCaptureFixture) -> None:
    order = [(0, rows(0, 1)), (1, rows(0, 1)), (0, rows(2, 3)), (1, rows(2, 3)), (0, rows(4)), (1, rows(4))]
    (text,) = warned(caplog, *order)
    assert "the first 2 batches of all 2 workers are the same" in text
    assert "each sample appears 2 times in these 6 batches" in text
    assert "STK502" in text


@pytest.mark.parametrize(
    "order",
    [
        [(0, rows(0)), (1, rows(1)), (0, rows(2)), (1, rows(3))],  # shared out
        [(0, rows(0)), (1, rows(0)), (0, rows(2)), (1, rows(3))],  # one sample is there twice
        [
            (0, rows(7)),
            (1, rows(7)),
            (0, rows(7)),
            (1, rows(7)),
        ],  # the same for ever: made up, for a benchmark
        [(0, rows(0)), (0, rows(1)), (0, rows(2))],  # one worker had nothing
        [(0, rows(0)), (1, rows(0))],  # too few to tell
        [],
    ],
)
def test_streams_that_are_fine(order: list[tuple[int, Any]], caplog: pytest.LogCaptureFixture) -> None:
    assert warned(caplog, *order) == []


def test_batches_of_odd_kinds_cost_nothing_but_the_verdict(caplog: pytest.LogCaptureFixture) -> None:
    class Odd(dict):
        def items(self) -> Any:
            raise RuntimeError("not to be read")

    odd = [torch.zeros(0), torch.eye(3).to_sparse(), torch.empty(2, device="meta"), None, object(), Odd(a=1)]
    assert warned(caplog, (0, odd), (1, odd), (0, odd), (1, odd)) == []


@pytest.mark.parametrize(("workers", "streams"), [(1, True), (0, True), (4, False)])
def test_where_there_is_nothing_to_compare(workers: int, streams: bool) -> None:
    assert DuplicateStreams.of(LoaderStats("loader"), workers, streams=streams) is None

"""Where in the data somebody is, in words."""

from __future__ import annotations

from typing import Any

import pytest

from stoker._runtime.scheduler.ticket_text import place
from stoker._runtime.scheduler.types import Ticket


def ticket_of(indices: Any, *, seq: int = 7, rows: int | None = None) -> Ticket:
    if rows is None:
        rows = len(indices) if hasattr(indices, "__len__") else 0
    return Ticket(0, seq, 0, indices, 0, rows=rows)


def test_a_row_is_named_by_its_dataset_index() -> None:
    assert place(ticket_of([40, 13, 99]), 1) == "dataset index 13 (row 1 of batch 7)"


@pytest.mark.parametrize("row", [-1, 3, 1 << 40])
def test_a_row_that_cannot_be_blames_no_index(row: int) -> None:
    assert place(ticket_of([40, 13, 99]), row) == "batch 7 of dataset indices [40, 13, 99]"


def test_collation_blames_no_index_whatever_row_was_fetched_last() -> None:
    assert place(ticket_of([4, 5]), 1, collating=True) == "the collation of batch 7 of dataset indices [4, 5]"


def test_of_a_long_batch_the_first_indices_and_their_number() -> None:
    told = place(ticket_of(list(range(500))), -1)
    assert told == "batch 7 of dataset indices [0, 1, 2, 3, 4, 5, 6, 7, … (500 in all)]"
    assert "…" not in place(ticket_of(list(range(8))), -1)


@pytest.mark.parametrize("indices", [None, [None, None]])
@pytest.mark.parametrize("row", [-1, 0, 1])
def test_a_stream_has_no_indices(indices: Any, row: int) -> None:
    assert place(ticket_of(indices, rows=2), row) == "batch 7"


def test_without_batching_the_one_index() -> None:
    assert place(ticket_of("a-key", rows=0), 0) == "dataset index 'a-key'"
    assert place(ticket_of("a-key", rows=0), -1) == "dataset index 'a-key'"


def test_any_iterable_of_any_index() -> None:
    assert place(ticket_of(("left", (3, 4))), 1) == "dataset index (3, 4) (row 1 of batch 7)"
    assert place(ticket_of({"a": 1, "b": 2}), 1) == "dataset index 'b' (row 1 of batch 7)"


def test_an_index_that_fills_pages_is_cut() -> None:
    told = place(ticket_of(["x" * 5000, "y"]), 0)
    assert len(told) < 130
    assert told.startswith("dataset index 'xxx")
    assert "..." in told


def test_an_index_whose_repr_fails_is_still_told() -> None:
    class Mute:
        def __repr__(self) -> str:
            raise ValueError("no words")

    assert place(ticket_of([Mute(), 2]), 0) == "dataset index <Mute without repr> (row 0 of batch 7)"
    assert place(ticket_of([Mute(), 2]), -1) == "batch 7 of dataset indices [<Mute without repr>, 2]"


def test_tensor_indices() -> None:
    torch = pytest.importorskip("torch")
    told = place(ticket_of(torch.tensor([8, 9])), 1)
    assert "tensor(9)" in told
    assert "row 1 of batch 7" in told

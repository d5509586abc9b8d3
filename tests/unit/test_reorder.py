"""Whatever order items come in, they leave in the order of their numbers, each once."""

from __future__ import annotations

from itertools import permutations

import pytest

from stoker._runtime.scheduler.reorder import Reorder


def test_a_run_leaves_as_soon_as_its_first_is_there() -> None:
    reorder: Reorder[str] = Reorder()
    assert reorder.put(2, "c") == []
    assert reorder.put(1, "b") == []
    assert (reorder.head, len(reorder)) == (0, 2)
    assert reorder.put(0, "a") == ["a", "b", "c"]
    assert (reorder.head, len(reorder)) == (3, 0)


def test_an_empty_number_holds_nobody_up() -> None:
    reorder: Reorder[str] = Reorder(first=5)
    assert reorder.put(6, None) == []
    assert reorder.put(7, "c") == []
    assert reorder.put(5, None) == ["c"]
    assert reorder.head == 8


def test_without_order_everything_leaves_at_once() -> None:
    reorder: Reorder[str] = Reorder(in_order=False)
    assert reorder.put(3, "d") == ["d"]
    assert reorder.put(1, None) == []
    assert reorder.put(0, "a") == ["a"]
    assert len(reorder) == 0


@pytest.mark.parametrize("empty", [set(), {0}, {4}, {1, 2}, {0, 1, 2, 3, 4}], ids=str)
def test_any_arrival_gives_the_same_departure(empty: set[int]) -> None:
    for order in permutations(range(5)):
        reorder: Reorder[int] = Reorder()
        out = [item for seq in order for item in reorder.put(seq, None if seq in empty else seq)]
        assert out == [seq for seq in range(5) if seq not in empty]
        assert len(reorder) == 0

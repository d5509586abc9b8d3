"""The grid depends on the number of rows alone, covers every row once and is never cut."""

from __future__ import annotations

from itertools import pairwise

import pytest

from stoker._runtime.scheduler.row_ranges import MAX_RANGES, ROWS_PER_RANGE, mix, row_ranges, share_ranges


@pytest.mark.parametrize(
    ("rows", "ranges"),
    [
        (0, ()),
        (1, ((0, 1),)),
        (16, ((0, 16),)),
        (17, ((0, 8), (8, 17))),
        (33, ((0, 11), (11, 22), (22, 33))),
        (64, ((0, 16), (16, 32), (32, 48), (48, 64))),
    ],
)
def test_known_grids(rows: int, ranges: tuple[tuple[int, int], ...]) -> None:
    assert row_ranges(rows) == ranges


@pytest.mark.parametrize("parts", range(1, 10))
@pytest.mark.parametrize("rows", [1, 15, 16, 17, 31, 33, 64, 100, 127, 128, 129, 1000, 4999])
def test_ranges_and_shares_cover_all_rows_once(rows: int, parts: int) -> None:
    ranges = row_ranges(rows)
    assert len(ranges) == min(MAX_RANGES, -(-rows // ROWS_PER_RANGE))
    shares = share_ranges(ranges, parts)
    assert len(shares) == min(parts, len(ranges))
    for spans in (ranges, shares):
        assert spans[0][0] == 0
        assert spans[-1][1] == rows
        assert all(stop == start for (_, stop), (start, _) in pairwise(spans))
        assert all(start < stop for start, stop in spans)
    edges = {start for start, _ in ranges}
    assert {start for start, _ in shares} <= edges, "a share never cuts a range"


@pytest.mark.parametrize("parts", range(1, 10))
@pytest.mark.parametrize("rows", [1, 15, 16, 17, 31, 33, 64, 100, 127, 128, 129, 1000, 4999])
def test_shares_are_even(rows: int, parts: int) -> None:
    ranges = row_ranges(rows)
    counts = [sum(start <= at < stop for at, _ in ranges) for start, stop in share_ranges(ranges, parts)]
    assert max(counts) - min(counts) <= 1


def test_mixing_depends_on_every_word_and_on_their_order() -> None:
    words = [(1, 2, 3), (3, 2, 1), (1, 2), (1, 2, 4), (0, 1, 2, 3), (1, 2, 3, 0), ()]
    assert len({mix(*each) for each in words}) == len(words)
    assert mix(1, 2, 3) == mix(1, 2, 3)


@pytest.mark.parametrize("words", [(), (0,), (-1,), (1 << 64,), (-(1 << 70), 1 << 70), (1, 2, 3, 4, 5)])
def test_mixing_gives_64_bits(words: tuple[int, ...]) -> None:
    assert 0 <= mix(*words) < 1 << 64


def test_neighbours_are_spread() -> None:
    """Seeds of neighbouring batches differ in about half of their bits."""
    distances = [(mix(7, position) ^ mix(7, position + 1)).bit_count() for position in range(200)]
    assert 28 < sum(distances) / len(distances) < 36

"""Rows of one batch in parts: joined they are what torch's collation makes of all samples, or the same error."""

from __future__ import annotations

import os
from collections import namedtuple
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from torch.utils.data import default_collate

from stoker._runtime.scheduler.types import SlotRef
from stoker._runtime.transport.arena import Arena
from stoker._runtime.transport.writer import ArenaWriter
from stoker._runtime.worker.split_batches import PartRows, collate_part, join_placed, samples_of
from tests.compat.compare import assert_same

Sample = Callable[[int], Any]
"""A kind of sample: the value of row n."""

Point = namedtuple("Point", ["x", "label"])

TENSORS = [
    torch.float32,
    torch.float64,
    torch.int64,
    torch.uint8,
    torch.bool,
    torch.bfloat16,
    torch.complex64,
]
ARRAYS = ["float32", "float64", "int16", "uint8", "bool", "uint16", "complex128"]
SCALARS = [np.float32, np.float64, np.int8, np.int64, np.uint16, np.bool_, np.float16]


class Table:
    """Both sides of an arena: workers that share a slot, each with a scratch slot, and the parent that joins."""

    def __init__(self) -> None:
        self.arena = Arena()
        self._fd = os.dup(self.arena.fd)
        self._writers = [ArenaWriter(self._fd, self.arena.stride) for _ in range(4)]
        self._generation = 0

    def make(self, samples: Sequence[Any], cuts: Sequence[int], agreed: int) -> list[PartRows]:
        """What the parent reads when worker n has made the n-th part."""
        self.arena.prepare(5)
        edges = [0, *cuts, len(samples)]
        parts = []
        for number, (start, stop) in enumerate(pairwise(edges)):
            writer = self._writers[number]
            part = collate_part(
                samples[start:stop], writer.open(0), start=start, rows=len(samples), agreed=agreed
            )
            receipt = writer.open(1 + number).write(part)
            region = self.arena.copy_out(SlotRef(1 + number, 0), receipt.nbytes)
            parts.append(region.load(receipt.root_offset, receipt.root_bytes))
        return parts

    def join(self, parts: Sequence[PartRows]) -> Any:
        """As the hand-off does it."""
        region = self.arena.copy_out(SlotRef(0, 0), max(part.nbytes for part in parts))
        if all(part.raw is None for part in parts):
            return join_placed(parts, region.tensor)
        with torch.no_grad():
            return default_collate(samples_of(parts, region.tensor))

    def close(self) -> None:
        for writer in self._writers:
            writer.close()
        os.close(self._fd)
        self.arena.close()


@pytest.fixture
def table() -> Iterator[Table]:
    table = Table()
    yield table
    table.close()


def tensor_of(dtype: torch.dtype, shape: Sequence[int]) -> Sample:
    return lambda row: torch.full(tuple(shape), row % 2 if dtype is torch.bool else row, dtype=dtype)


def array_of(dtype: str, shape: Sequence[int]) -> Sample:
    return lambda row: np.full(tuple(shape), row).astype(dtype)


def scalar_of(kind: Any) -> Sample:
    return lambda row: kind(row)


def dict_of(inside: dict[Any, Sample]) -> Sample:
    return lambda row: {key: make(row) for key, make in inside.items()}


def list_of(inside: Sequence[Sample]) -> Sample:
    return lambda row: [make(row) for make in inside]


def tuple_of(inside: Sequence[Sample]) -> Sample:
    return lambda row: tuple(make(row) for make in inside)


def point_of(x: Sample, label: Sample) -> Sample:
    return lambda row: Point(x(row), label(row))


shapes = st.lists(st.integers(0, 3), max_size=3)
plain: list[Sample] = [
    lambda row: row,
    lambda row: row - (1 << 40),
    lambda row: row / 7,
    lambda row: float("nan") if row % 2 else -0.0,
    lambda row: row % 3 == 0,
    lambda row: f"row {row}",
    lambda row: bytes([row % 256]),
]
odd: list[Sample] = [
    lambda row: None,
    lambda row: 1 << 70,
    lambda row: {1, 2},
    lambda row: torch.arange(row + 1),
    lambda row: [0] * row,
    lambda row: {str(row): 1},
    lambda row: row if row % 2 else row / 2,
    lambda row: torch.ones(2, requires_grad=True),
    lambda row: np.array(["a", "b"]),
    lambda row: np.arange(4)[::-1],
    lambda row: torch.nn.Parameter(torch.ones(1), requires_grad=False),
]
leaves = st.one_of(
    st.builds(tensor_of, st.sampled_from(TENSORS), shapes),
    st.builds(array_of, st.sampled_from(ARRAYS), shapes),
    st.builds(scalar_of, st.sampled_from(SCALARS)),
    st.sampled_from(plain),
)
regular = st.recursive(
    leaves,
    lambda inside: st.one_of(
        st.builds(dict_of, st.dictionaries(st.sampled_from(["a", "b", 3, ("t", 1)]), inside, max_size=3)),
        st.builds(list_of, st.lists(inside, max_size=3)),
        st.builds(tuple_of, st.lists(inside, max_size=3)),
        st.builds(point_of, inside, inside),
    ),
    max_leaves=5,
)
irregular = st.one_of(
    st.sampled_from(odd),
    st.builds(point_of, regular, st.sampled_from(odd)),
    st.builds(list_of, st.lists(leaves, max_size=2)),
)


@st.composite
def batches(draw: st.DrawFn) -> tuple[list[Any], list[int]]:
    """Samples, mostly of one kind, and where they are cut."""
    rows = draw(st.integers(1, 9))
    cuts = draw(st.sets(st.integers(1, rows - 1), max_size=3)) if rows > 1 else set()
    usual = draw(regular)
    samples = [usual(row) for row in range(rows)]
    if draw(st.integers(0, 2)) == 0:
        unusual = draw(st.one_of(irregular, regular))
        for row in draw(st.sets(st.integers(0, rows - 1), min_size=1)):
            samples[row] = unusual(row)
    return samples, sorted(cuts)


def outcome(make: Callable[[], Any]) -> Any:
    """What came of it: a batch, or the type of the error."""
    try:
        return make()
    except Exception as error:
        return type(error)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], max_examples=200)
@given(batches())
@example(([1, 2.5], [1]))
@example(([True, 2], [1]))
@example((["a", "b", "c"], [1, 2]))
@example(([("a", {"k": b"1"}), ("b", {"k": b"2"})], [1]))
@example(([{}, {}], [1]))
@example(([torch.zeros(2), torch.zeros(3)], [1]))
@pytest.mark.filterwarnings("ignore::UserWarning")  # torch says some things once, and then never
def test_parts_joined_are_what_torch_collates(table: Table, batch: tuple[list[Any], list[int]]) -> None:
    samples, cuts = batch
    with torch.no_grad():
        expected = outcome(lambda: default_collate(list(samples)))
    unsettled = table.make(samples, cuts, agreed=0)
    assert all(part.raw is not None for part in unsettled)
    check(expected, outcome(lambda: table.join(unsettled)))
    for agreed in {part.layout for part in unsettled}:
        settled = table.make(samples, cuts, agreed)
        assert [part.layout for part in settled] == [part.layout for part in unsettled]
        assert all((part.raw is None) == (part.layout == agreed != 0) for part in settled)
        check(expected, outcome(lambda: table.join(settled)))


def check(expected: Any, got: Any) -> None:
    if isinstance(expected, type):
        assert got is expected
    else:
        assert_same(expected, got, path="batch")


REGULAR = {
    "image": tensor_of(torch.uint8, (3, 4)),
    "box": array_of("float32", (4,)),
    "name": plain[5],
    "id": plain[0],
}


def test_rows_go_to_their_places_in_any_order_of_parts(table: Table) -> None:
    samples = [dict_of(REGULAR)(row) for row in range(10)]
    [first, *_] = table.make(samples, [4], 0)
    parts = table.make(samples, [4], first.layout)
    assert [(part.start, part.stop) for part in parts] == [(0, 4), (4, 10)]
    assert len({part.nbytes for part in parts}) == 1
    assert_same(default_collate(samples), table.join(parts), path="batch")


def test_places_are_aligned_and_apart(table: Table) -> None:
    samples = [dict_of(REGULAR)(row) for row in range(3)]
    [part] = table.make(samples, [], table.make(samples, [], 0)[0].layout)
    placed = [column for column in part.columns if column.dtype is not None]
    ends = [
        column.offset + 3 * column.dtype.itemsize * int(np.prod(column.shape))
        for column in placed
        if column.dtype
    ]
    assert all(column.offset % 64 == 0 for column in placed)
    assert all(end <= later.offset for end, later in zip(ends, placed[1:], strict=False))
    assert ends[-1] <= part.nbytes


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (plain[0], plain[2]),
        (plain[0], plain[4]),
        (plain[5], plain[6]),
        (scalar_of(np.int64), plain[0]),
        (array_of("uint8", (2,)), tensor_of(torch.uint8, (2,))),
        (tensor_of(torch.uint8, (2,)), tensor_of(torch.int64, (2,))),
        (tensor_of(torch.uint8, (2, 1)), tensor_of(torch.uint8, (1, 2))),
        (list_of([plain[0]]), tuple_of([plain[0]])),
        (dict_of({"a": plain[0], "b": plain[0]}), dict_of({"a": plain[0], "c": plain[0]})),
        (point_of(plain[0], plain[0]), tuple_of([plain[0], plain[0]])),
        (list_of([plain[0], list_of([plain[0]])]), list_of([list_of([plain[0]]), plain[0]])),
    ],
)
def test_rows_that_do_not_go_together_have_different_layouts(
    table: Table, one: Sample, other: Sample
) -> None:
    layouts = [table.make([make(0), make(1)], [], 0)[0].layout for make in (one, other)]
    assert 0 not in layouts
    assert layouts[0] != layouts[1]


def test_a_layout_does_not_depend_on_values_or_the_number_of_rows(table: Table) -> None:
    make = dict_of(REGULAR)
    layouts = {
        part.layout
        for rows in (1, 2, 30)
        for part in table.make([make(row + rows) for row in range(rows)], [1] if rows > 1 else [], 0)
    }
    assert len(layouts) == 1


def test_a_layout_fits_a_word_of_the_status_page(table: Table) -> None:
    for make in (*plain, dict_of(REGULAR)):
        assert 0 < table.make([make(1)], [], 0)[0].layout < 1 << 63


@pytest.mark.parametrize("make", odd[:4])
def test_irregular_rows_have_no_layout_and_travel_as_they_are(table: Table, make: Sample) -> None:
    [part] = table.make([make(1), make(2)], [], 0)
    assert part.layout == 0
    assert part.raw is not None
    assert len(part.raw) == 2


def test_samples_taken_apart_again_are_the_samples(table: Table) -> None:
    make = tuple_of([*(scalar_of(kind) for kind in SCALARS), dict_of(REGULAR), point_of(plain[2], plain[4])])
    samples = [make(row) for row in range(5)]
    parts = table.make(samples, [2], table.make(samples, [2], 0)[0].layout)
    assert all(part.raw is None for part in parts)
    region = table.arena.copy_out(SlotRef(0, 0), parts[0].nbytes)
    assert_same(samples, samples_of(parts, region.tensor), path="samples")

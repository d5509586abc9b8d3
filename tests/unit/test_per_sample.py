"""``stoker.generator()``: whose key it has, whoever makes the sample."""

from __future__ import annotations

import os
import random
import threading
import weakref
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

import stoker
from stoker._runtime.protocol.status_page import WORDS
from stoker._runtime.protocol.thread_context import current
from stoker._runtime.scheduler.row_ranges import row_ranges, share_ranges
from stoker._runtime.worker.batch_maker import BatchMaker, StatusView
from stoker._runtime.worker.rng import seeding
from tests.unit.makers import maker, order


@pytest.fixture(autouse=True)
def _put_back() -> Iterator[None]:
    with seeding.generators_kept():
        yield
    assert current.sample_rng is None


class Keyed:
    """Rows of two numbers drawn in two calls, and of one of each other kind."""

    def __getitem__(self, index: int) -> tuple[int, float, float, float, float]:
        first, second = stoker.generator().random(), stoker.generator().random()
        drawn = torch.rand((), generator=stoker.generator("torch")).item()
        return index, first, second, drawn, stoker.generator("python").random()


class AtOnce:
    def __getitems__(self, indices: list[int]) -> list[float]:
        return [stoker.generator().random() for _ in indices]


def whole(one: BatchMaker, **changed: Any) -> Any:
    return one.make(order(list(range(40)), **changed), None)


def test_the_kinds() -> None:
    class Kinds:
        def __getitem__(self, index: int) -> Any:
            return stoker.generator(), stoker.generator("torch"), stoker.generator("python")

    [kinds] = maker(Kinds()).make(order([0]), None)
    assert [type(each) for each in kinds] == [np.random.Generator, torch.Generator, random.Random]
    with pytest.raises(ValueError, match='kind must be "numpy", "torch" or "python", not \'cupy\''):
        stoker.generator("cupy")  # type: ignore[call-overload]


def test_one_sample_has_one_object_and_the_next_another() -> None:
    class Objects:
        def __getitem__(self, index: int) -> Any:
            return stoker.generator(), stoker.generator()

    rows = maker(Objects()).make(order([0, 0, 0]), None)
    assert all(first is second for first, second in rows)
    assert len({id(first) for first, _ in rows}) == 3


@pytest.mark.parametrize("rng", ["batch", "sample", "torch"])
def test_rows_are_the_same_whoever_makes_them(rng: str) -> None:
    expected = whole(maker(Keyed(), rng=rng))
    assert len({number for row in expected for number in row[1:]}) == 160
    assert whole(maker(Keyed(), rng=rng, worker=3), attempt=1) == expected
    assert whole(maker(Keyed(), rng=rng, inline=True)) == expected
    assert whole(maker(Keyed(), rng=rng, shared=True)) == expected  # a thread's
    for mode in ("skip", "replace"):
        assert whole(maker(Keyed(), rng=rng, on_bad_sample=mode)) == expected
    rows: list[Any] = []
    for number, (start, stop) in enumerate(share_ranges(row_ranges(40), 2)):
        part = order(list(range(start, stop)), part=number, parts=2, start=start, stop=stop, rows=40)
        rows += maker(Keyed(), rng=rng).make_part(part, None, 0).raw or []
    assert rows == expected


def test_an_order_that_is_carried_out_again_gives_the_same() -> None:
    one = maker(Keyed())
    assert one.make(order([5]), None) == one.make(order([5]), None)


@pytest.mark.parametrize("changed", [{"position": 1}, {"seed": 78}])
@pytest.mark.parametrize("rng", ["batch", "sample", "torch"])
def test_another_place_or_seed_gives_other_numbers(rng: str, changed: dict[str, int]) -> None:
    [one], [other] = (
        maker(Keyed(), rng=rng).make(each, None) for each in (order([3]), order([3], **changed))
    )
    assert not set(one[1:]) & set(other[1:])


def test_by_batch_ranks_differ_and_by_sample_only_the_place_counts() -> None:
    left, right = (maker(Keyed(), rank=rank).make(order([3]), None) for rank in (0, 1))
    assert left != right
    alone = maker(Keyed(), rng="sample").make(order(list(range(12))), None)
    for rank in (0, 1):
        one = maker(Keyed(), rng="sample", rank=rank, stride=2)
        rows = one.make(order([rank, rank + 2, rank + 4], position=rank), None)
        rows += one.make(order([rank + 6, rank + 8, rank + 10], position=rank + 6, seq=1), None)
        assert rows == alone[rank::2]


def test_quick_and_slow_rows_have_the_same_keys() -> None:
    """Rows that take long are fetched one by one, others a range at a time."""
    one = maker(Keyed(), watch=StatusView([0] * WORDS, [1]))
    one._singly = False
    quick = whole(one)
    one._singly = True
    assert whole(one) == quick == whole(maker(Keyed()))


@pytest.mark.parametrize("rng", ["batch", "sample"])
def test_all_rows_at_once_draw_from_one(rng: str) -> None:
    def rows(**changed: Any) -> Any:
        return maker(AtOnce(), rng=rng).make(order([0, 1, 2], **changed), None)

    assert len(set(rows())) == 3
    assert rows() == rows(attempt=1) != rows(position=1)
    assert maker(AtOnce(), rng=rng, on_bad_sample="skip").make(order([0, 1, 2]), None) == rows()


def test_collation_has_the_batch_for_a_key() -> None:
    def collate_fn(rows: Any) -> Any:
        return [*rows, stoker.generator().random(), stoker.generator().random()]

    def made(dataset: Any, **changed: Any) -> Any:
        return maker(dataset, collate_fn=collate_fn).make(order([0, 1], **changed), None)

    first, second = made(["a", "b"])[2:]
    assert first != second
    assert made(["a", "b"])[2:] == made(Keyed())[2:] == [first, second]
    assert made(["a", "b"], position=1)[2] != first
    assert len(set(made(AtOnce()))) == 4
    single = maker(["a"], auto_collation=False, collate_fn=lambda row: stoker.generator().random())
    assert single.make(order(0), None) == single.make(order(0), None)


class Failing(Keyed):
    """Some rows draw and then raise."""

    def __getitem__(self, index: int) -> Any:
        row = super().__getitem__(index)
        if index in (3, 4, 20):
            raise KeyError(index)
        return row


def test_bad_rows_change_nothing_for_the_good_ones() -> None:
    expected = whole(maker(Keyed()))
    skipped = whole(maker(Failing(), on_bad_sample="skip")).contents
    assert skipped == [row for row in expected if row[0] not in (3, 4, 20)]
    replaced = whole(maker(Failing(), on_bad_sample="replace")).contents
    for row, (wanted, found) in enumerate(zip(expected, replaced, strict=True)):
        if row in (3, 4, 20):
            assert found[0] == row + (
                2 if row == 3 else 1
            )  # the next good one of its range, with the row's own numbers
            assert found[1:] == wanted[1:]
        else:
            assert found == wanted


class Stream:
    def __iter__(self) -> Iterator[Any]:
        opened = stoker.generator().random()
        while True:
            yield opened, stoker.generator().random()


def test_a_stream_has_its_pulls_for_keys() -> None:
    def pulls(start: int, **changed: Any) -> list[Any]:
        one = maker(Stream(), iterable=True, **changed)
        return [one.make(order([None] * 2, seq=at, position=at, pull=at), None) for at in range(start, 4)]

    expected = pulls(0)
    assert len({number for batch in expected for _, number in batch}) == 8
    assert pulls(2) == expected[2:]  # a replacement winds forward
    assert pulls(0, rng="torch") == pulls(0, shared=True) == pulls(0, inline=True) == expected
    assert pulls(0, worker=1)[0] != expected[0] != pulls(0, rank=1)[0]


def test_a_loader_inside_a_dataset_has_keys_of_its_own() -> None:
    inner = maker(Keyed(), inline=True)

    class Outer:
        def __getitem__(self, index: int) -> Any:
            before = stoker.generator()
            rows = inner.make(order([index, index + 1], seed=5), None)
            assert stoker.generator() is before
            return before.random(), rows

    class Bare:
        def __getitem__(self, index: int) -> Any:
            return stoker.generator().random()

    outer = maker(Outer()).make(order([0, 1]), None)
    assert [row[0] for row in outer] == maker(Bare()).make(order([0, 1]), None)
    assert [row[1:] for row in outer[0][1]] == [row[1:] for row in outer[1][1]]


def test_a_process_that_a_dataset_forks_has_no_keys() -> None:
    """Workers of a torch loader inside a dataset, say: each of them would go through the same numbers."""

    class Forking:
        def __getitem__(self, index: int) -> bool:
            child = os.fork()
            if child == 0:
                os._exit(0 if current.sample_rng is None else 1)
            return current.sample_rng is not None and os.waitpid(child, 0)[1] == 0

    assert maker(Forking()).make(order([0]), None) == [True]


def test_nothing_of_an_order_is_kept() -> None:
    class Objects:
        def __getitem__(self, index: int) -> Any:
            return stoker.generator("python")

    class Indices(list[int]):
        pass

    one = maker(Objects())
    indices = Indices([0])
    held = weakref.ref(indices), weakref.ref(one.make(order(indices), None)[0])
    del indices
    assert [each() for each in held] == [None, None]


def test_after_an_error_nobody_has_a_key() -> None:
    with pytest.raises(KeyError):
        whole(maker(Failing()))
    with pytest.raises(KeyError):
        maker(Failing()).make_part(order([3], stop=1, rows=1), None, 0)
    assert current.sample_rng is None


def test_outside_of_any_sample_torch_gives_the_seed() -> None:
    """One draw for every call, on any thread."""
    torch.manual_seed(3)
    first = Keyed()[0]
    assert Keyed()[0] != first
    torch.manual_seed(3)
    assert Keyed()[0] == first
    torch.manual_seed(3)
    for _ in range(4):
        torch.empty((), dtype=torch.int64).random_()
    expected = torch.rand(2)
    torch.manual_seed(3)
    thread = threading.Thread(target=Keyed().__getitem__, args=(0,))
    thread.start()
    thread.join()
    assert torch.equal(torch.rand(2), expected)


def test_the_values_stay_what_they_are() -> None:
    """Pinned: another value would change every user's random numbers between two versions."""

    class Raw:
        def __getitem__(self, index: int) -> int:
            return int(stoker.generator().bit_generator.random_raw())

    def first(**changed: Any) -> int:
        return int(maker(Raw(), rank=1, stride=2, **changed).make(order([8, 9], position=3), None)[1])

    assert first() == first(rng="torch") == 5905719225563840052
    assert first(rng="sample") == 8624103282528714254

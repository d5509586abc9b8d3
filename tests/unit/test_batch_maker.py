"""Making batches: seeds that do not depend on the split, indices in errors, streams."""

from __future__ import annotations

import copy
import itertools
import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import default_collate

import stoker
from stoker._runtime.protocol.status_page import COLLATING, EPOCH, INDEX, NO_INDEX, PHASE, ROW, WORDS
from stoker._runtime.scheduler.row_ranges import row_ranges, share_ranges
from stoker._runtime.worker import batch_maker
from stoker._runtime.worker.batch_maker import BatchMaker, StatusView
from stoker._runtime.worker.rng import dataset_generators, seeding
from stoker._runtime.worker.stream import Abandoned
from stoker.errors import SampleStopIteration
from tests.unit.makers import maker, order


@pytest.fixture(autouse=True)
def _put_back() -> Iterator[None]:
    with seeding.generators_kept():
        yield


class Dice:
    """Rows of random numbers from every global generator."""

    def __getitem__(self, index: int) -> tuple[int, float, float, float]:
        return index, random.random(), float(np.random.rand()), float(torch.rand(()))


class Breaking:
    def __init__(self, at: Any, error: BaseException) -> None:
        self.at = at
        self.error = error

    def __getitem__(self, index: Any) -> Any:
        if index == self.at:
            raise self.error
        return index


class Many:
    """Fetches a whole batch at once."""

    def __init__(self) -> None:
        self.asked: list[list[int]] = []

    def __getitem__(self, index: int) -> Any:
        raise AssertionError("rows are not fetched one by one where __getitems__ exists")

    def __getitems__(self, indices: list[int]) -> list[float]:
        self.asked.append(indices)
        return [random.random() for _ in indices]


def in_parts(dataset: Any, indices: list[int], parts: int, **changed: Any) -> list[Any]:
    """The samples of a batch when every part is made by a maker of its own."""
    cut = share_ranges(row_ranges(len(indices)), parts)
    rows: list[Any] = []
    for number, (start, stop) in enumerate(cut):
        part = order(
            indices[start:stop], part=number, parts=len(cut), start=start, stop=stop, rows=len(indices)
        )
        made = maker(dataset, worker=number, **changed).make_part(part, None, 0)
        assert made.raw is not None
        rows += made.raw
    return rows


@pytest.mark.parametrize("rng", ["batch", "sample"])
@pytest.mark.parametrize("parts", [1, 2, 3, 8])
def test_rows_are_the_same_whatever_the_split(rng: str, parts: int) -> None:
    indices = list(range(500, 600))
    whole = maker(Dice(), rng=rng).make(order(indices), None)
    assert in_parts(Dice(), indices, parts, rng=rng) == whole
    assert (
        len({row[1] for row in whole})
        == len({row[2] for row in whole})
        == len({row[3] for row in whole})
        == 100
    )


def test_rows_are_the_same_whoever_made_what_before() -> None:
    seasoned = maker(Dice(), worker=3)
    for seq in range(4):
        seasoned.make(order(list(range(40)), seq=seq, position=seq), None)
    wanted = order(list(range(40)), seq=9, position=9)
    assert seasoned.make(wanted, None) == maker(Dice()).make(wanted, None)


def test_a_repeated_task_gives_the_same_rows() -> None:
    one = maker(Dice())
    assert one.make(order([1, 2], attempt=2), None) == one.make(order([1, 2]), None)


@pytest.mark.parametrize("changed", [{"position": 1}, {"seed": 78}])
def test_another_place_or_seed_gives_other_numbers(changed: dict[str, int]) -> None:
    first = maker(Dice()).make(order([3]), None)
    second = maker(Dice()).make(order([3], **changed), None)
    assert all(left != right for left, right in zip(first[0][1:], second[0][1:], strict=True))


def test_ranks_draw_different_numbers() -> None:
    assert maker(Dice(), rank=0).make(order([3]), None) != maker(Dice(), rank=1).make(order([3]), None)


def test_by_sample_the_batch_size_does_not_matter() -> None:
    indices = list(range(60))
    rows: dict[int, list[Any]] = {}
    for size in (1, 7, 20, 60):
        one = maker(Dice(), rng="sample")
        starts = range(0, 60, size)
        batches = [
            one.make(order(indices[at : at + size], seq=seq, position=at), None)
            for seq, at in enumerate(starts)
        ]
        rows[size] = list(itertools.chain(*batches))
    assert rows[1] == rows[7] == rows[20] == rows[60]


@pytest.mark.parametrize("replicas", [1, 2, 3])
def test_by_sample_the_number_of_ranks_does_not_matter(replicas: int) -> None:
    alone = maker(Dice(), rng="sample").make(order(list(range(24))), None)
    rows: list[Any] = []
    for rank in range(replicas):
        one = maker(Dice(), rng="sample", rank=rank, stride=replicas)
        mine = list(range(rank, 24, replicas))
        first = one.make(order(mine[:5], position=rank), None)
        rest = one.make(order(mine[5:], seq=1, position=rank + 5 * replicas), None)
        rows += first + rest
    assert sorted(rows) == alone


def test_by_sample_every_row_is_seeded_once_and_ranges_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    keys: list[int] = []
    monkeypatch.setattr("stoker._runtime.worker.rng.seeder.seed_all", lambda key, torch_too: keys.append(key))
    rows = [seeding.sample_key(77, place) for place in range(10, 50)]
    maker(Dice(), rng="sample").make(order(list(range(40)), position=10), None)
    assert keys == rows
    keys.clear()
    maker(Dice(), rng="sample", on_bad_sample="skip").make(order(list(range(40)), position=10), None)
    assert keys == rows
    for one, wanted in (
        (maker(Many(), rng="sample"), order(list(range(40)), position=10)),
        (maker(Many(), rng="sample", on_bad_sample="skip"), order(list(range(40)), position=10)),
        (maker(Dice(), rng="sample", auto_collation=False), order(3, position=10)),
        (maker(Dice(), rng="sample", auto_collation=False, on_bad_sample="skip"), order(3, position=10)),
    ):
        keys.clear()
        one.make(wanted, None)
        assert keys == rows[:1]  # all at once: from the key of the first row


class Faulty(Dice):
    """Some rows draw and then raise."""

    def __getitem__(self, index: int) -> tuple[int, float, float, float]:
        row = super().__getitem__(index)
        if index % 7 == 3:
            raise KeyError(index)
        return row


@pytest.mark.parametrize("mode", ["skip", "replace"])
def test_by_sample_bad_rows_change_nothing_for_the_good_ones(mode: str) -> None:
    expected = maker(Dice(), rng="sample").make(order(list(range(40))), None)
    found = maker(Faulty(), rng="sample", on_bad_sample=mode).make(order(list(range(40))), None).contents
    good = [row for row in expected if row[0] % 7 != 3]
    if mode == "skip":
        assert found == good
    else:  # another sample in the row's place, with the row's own numbers
        assert [row[1:] for row in found] == [row[1:] for row in expected]
        assert [row for row in found if row in expected] == good
    again = maker(Faulty(), rng="sample", on_bad_sample=mode, worker=1)
    assert again.make(order(list(range(40))), None).contents == found


class Stored(Dice):
    """A generator on the dataset beside the global ones."""

    def __init__(self) -> None:
        self.generator: Any = np.random.default_rng()

    def __getitem__(self, index: int) -> Any:
        return *super().__getitem__(index), self.generator.random()


@pytest.mark.parametrize("rng", ["batch", "sample"])
def test_stored_generators_are_seeded_where_the_global_ones_are(rng: str) -> None:
    def one(**changed: Any) -> BatchMaker:
        dataset = Stored()
        return maker(dataset, rng=rng, stored=dataset_generators.find(dataset), **changed)

    indices = list(range(40))
    expected = one().make(order(indices), None)
    assert len({row[4] for row in expected}) == 40
    inline = one(inline=True)
    put_back = inline.spec.dataset.generator.bit_generator.state
    assert inline.make(order(indices), None) == expected
    assert inline.spec.dataset.generator.bit_generator.state == put_back
    rows: list[Any] = []
    for number, (start, stop) in enumerate(share_ranges(row_ranges(40), 2)):
        part = order(indices[start:stop], part=number, parts=2, start=start, stop=stop, rows=40)
        rows += one().make_part(part, None, 0).raw or []
    assert rows == expected
    untouched = one(shared=True)
    untouched.make(order(indices), None)
    assert untouched.seeder._stored is None


def test_what_a_revision_brought_is_seeded() -> None:
    dataset = Stored()
    late = maker(dataset)
    late.seeder.revised()
    assert late.make(order([1, 2]), None) == maker(Stored(), stored=dataset_generators.find(dataset)).make(
        order([1, 2]), None
    )
    left_alone = maker(dataset, rng="torch")
    left_alone.seeder.revised()
    assert left_alone.seeder._stored is None


def test_after_a_revision_a_copy_of_a_global_generator_is_still_seeded_like_it() -> None:
    """Here it is a copy, as under spawn: only the parent could see that it was the global one."""
    dataset = Stored()
    dataset.generator = copy.copy(random._inst)
    paths = tuple(
        each._replace(number=dataset_generators.AS_GLOBAL) for each in dataset_generators.find(dataset)
    )
    before = maker(dataset, stored=paths).make(order([1, 2]), None)
    revised = maker(dataset, stored=paths)
    revised.seeder.revised()
    assert revised.make(order([1, 2]), None) == before


def test_by_batch_the_batch_size_does_matter() -> None:
    """What "sample" is there for; if this ever fails, one of the two modes is superfluous."""
    large = maker(Dice()).make(order([0, 1]), None)
    small = maker(Dice()).make(order([1], seq=1, position=1), None)
    assert large[1] != small[0]


@pytest.mark.parametrize(("rng", "shared"), [("torch", False), ("batch", True), ("sample", True)])
def test_generators_are_left_to_run_where_they_are_not_ours(rng: str, shared: bool) -> None:
    one = maker(Dice(), rng=rng, shared=shared)
    seeding.seed_all(4)
    expected = Dice()[0]
    seeding.seed_all(4)
    assert one.make(order([0]), None) == [expected]


def test_torch_is_left_alone_when_it_is_not_ours() -> None:
    one = maker(Dice())
    one.seeder.leave_torch()
    torch.manual_seed(11)
    [row] = one.make(order([0]), None)
    torch.manual_seed(11)
    assert row[3] == float(torch.rand(()))
    assert row[1:3] == maker(Dice()).make(order([0]), None)[0][1:3]


def test_inline_leaves_the_generators_as_found() -> None:
    seeding.seed_all(9)
    expected = Dice()[0]
    seeding.seed_all(9)
    inline = maker(Dice(), inline=True).make(order(list(range(40))), None)
    assert Dice()[0] == expected
    assert inline == maker(Dice()).make(order(list(range(40))), None)


def test_inline_leaves_them_as_found_after_an_error_too() -> None:
    seeding.seed_all(9)
    expected = Dice()[0]
    seeding.seed_all(9)
    with pytest.raises(KeyError):
        maker(Breaking(2, KeyError("gone")), inline=True).make(order([1, 2]), None)
    assert Dice()[0] == expected


def test_a_batch_fetched_at_once_is_one_range() -> None:
    dataset = Many()
    got = maker(dataset).make(order(list(range(100))), None)
    assert dataset.asked == [list(range(100))]
    seeding.seed_all(seeding.range_key(seeding.batch_key(77, 0, 0), 0))
    assert got == [random.random() for _ in range(100)]


# Errors


def notes_of(error: BaseException) -> list[str]:
    return getattr(error, "__notes__", [])


@pytest.mark.parametrize("attempt", [0, 1])
@pytest.mark.parametrize("at", [500, 517, 539])
def test_the_index_is_in_the_notes(at: int, attempt: int) -> None:
    one = maker(Breaking(at, KeyError("gone")))
    one.make(order(list(range(40))), None)  # quick rows: from now on they are fetched a range at a time
    with pytest.raises(KeyError) as caught:
        one.make(order(list(range(500, 540)), seq=1, attempt=attempt), None)
    assert notes_of(caught.value) == [f"stoker: while fetching dataset index {at}"]


@pytest.mark.parametrize("attempt", [0, 1])
@pytest.mark.parametrize("at", [500, 512, 513, 539])
def test_stop_iteration_is_named(at: int, attempt: int) -> None:
    """It would otherwise end the epoch, or the range, silently."""
    one = maker(Breaking(at, StopIteration()))
    one.make(order(list(range(40))), None)
    with pytest.raises(SampleStopIteration, match=f"for index {at}, ") as caught:
        one.make(order(list(range(500, 540)), seq=1, attempt=attempt), None)
    assert isinstance(caught.value.__cause__, StopIteration)


def test_the_index_is_right_in_a_later_part() -> None:
    [_, (start, stop)] = share_ranges(row_ranges(40), 2)
    indices = list(range(500 + start, 500 + stop))
    part = order(indices, part=1, parts=2, start=start, stop=stop, rows=40)
    with pytest.raises(KeyError) as caught:
        maker(Breaking(533, KeyError("gone"))).make_part(part, None, 0)
    assert notes_of(caught.value) == ["stoker: while fetching dataset index 533"]


@pytest.mark.parametrize(
    ("error", "kind"), [(KeyError("gone"), KeyError), (StopIteration(), SampleStopIteration)]
)
def test_a_single_sample_names_its_index_too(error: Exception, kind: type[Exception]) -> None:
    with pytest.raises(kind) as caught:
        maker(Breaking("key", error), auto_collation=False).make(order("key"), None)
    assert "'key'" in str([str(caught.value), *notes_of(caught.value)])


def test_an_error_of_getitems_names_the_batch() -> None:
    class Failing(Many):
        def __getitems__(self, indices: list[int]) -> list[float]:
            raise KeyError("gone")

    with pytest.raises(KeyError) as caught:
        maker(Failing()).make(order(list(range(20))), None)
    assert notes_of(caught.value) == [
        "stoker: in the batch of dataset indices [0, 1, 2, 3, 4, 5, 6, 7, … (20 in all)]"
    ]


def test_an_error_of_collation_names_the_batch_and_the_row() -> None:
    ragged = {3: torch.zeros(1), 4: torch.zeros(2)}
    with pytest.raises(RuntimeError) as caught:
        maker(ragged, collate_fn=default_collate, own_collate=True).make(order([3, 4]), None)
    where, code = notes_of(caught.value)
    assert where == "stoker: in the batch of dataset indices [3, 4]"
    assert "stoker explain STK401" in code
    assert "dataset index 4: tensor of shape (2,)" in str(caught.value)


def test_stop_iteration_out_of_collation_is_named() -> None:
    def collate_fn(rows: Any) -> Any:
        return next(iter(()))

    with pytest.raises(RuntimeError, match="collate_fn raised StopIteration"):
        maker([1], collate_fn=collate_fn).make(order([0]), None)


def test_a_long_index_is_cut_in_the_note() -> None:
    with pytest.raises(KeyError) as caught:
        maker(Breaking("x" * 500, KeyError())).make(order(["x" * 500]), None)
    assert len(notes_of(caught.value)[0]) < 140


# Batch samplers may yield anything


class Tens:
    def __getitem__(self, index: Any) -> int:
        return int(index) * 10


@pytest.mark.parametrize(
    "indices", [(1, 2), torch.tensor([1, 2]), np.array([1, 2]), {1: 0, 2: 0}, range(1, 3)], ids=repr
)
def test_any_iterable_is_a_batch(indices: Any) -> None:
    assert maker(Tens()).make(order(indices), None) == [10, 20]


@pytest.mark.parametrize("indices", [7, torch.tensor(7)], ids=repr)
def test_what_is_no_batch_is_a_type_error(indices: Any) -> None:
    with pytest.raises(TypeError, match="itera"):
        maker(Tens()).make(order(indices), None)


@pytest.mark.parametrize(
    ("options", "indices"),
    [
        ({}, [50, 6, 70]),
        ({"auto_collation": False, "collate_fn": str}, 70),
        ({"on_bad_sample": "skip"}, [50, 70]),
        ({"on_bad_sample": "replace"}, [50, 70]),
    ],
    ids=str,
)
def test_the_index_in_the_making_is_shown(options: dict[str, Any], indices: Any) -> None:
    watch = StatusView([0] * WORDS, [1])
    maker(list(range(100)), watch=watch, **options).make(order(indices), None)
    assert watch.here[INDEX] == 70


@pytest.mark.parametrize("index", [True, "70", -3, 1 << 70, (1, 2), None], ids=repr)
def test_what_is_no_number_of_a_sample_is_not_shown_as_one(index: Any) -> None:
    watch = StatusView([0] * WORDS, [1])
    maker({index: 1}, watch=watch).make(order([index]), None)
    assert watch.here[INDEX] == NO_INDEX


# Streams


def test_the_row_is_shown_and_an_old_epoch_is_given_up() -> None:
    watch = StatusView([0] * WORDS, [1])
    maker(list(range(100)), watch=watch).make(order([5, 6, 7]), None)
    assert watch.here[ROW] == 2
    assert watch.here[PHASE] == COLLATING
    watch.there[EPOCH] = 2
    for iterable in (False, True):
        late = maker(list(range(100)), iterable=iterable, watch=watch)
        with pytest.raises(Abandoned):
            late.make(order([5, 6, 7]), None)


def test_plain_values_are_looked_up_in_one_go_from_the_first_batch_on() -> None:
    watch = StatusView([0] * WORDS)
    one = maker(range(100), inline=True, own_collate=True, watch=watch)
    one.unwatch()
    batch = one.make(order([5, 6, 7]), None)
    assert batch == maker(range(100)).make(order([5, 6, 7]), None)
    assert watch.here[ROW] == 0  # no row was shown


def test_what_may_draw_is_shown_row_by_row_even_where_nobody_looks() -> None:
    watch = StatusView([0] * WORDS)
    one = maker(Dice(), inline=True, watch=watch)
    one.unwatch()
    one.make(order([5, 6, 7]), None)
    assert watch.here[ROW] == 2


def test_code_of_the_users_has_its_generator_even_where_nothing_is_seeded() -> None:
    class Asking:
        def __getitem__(self, index: int) -> int:
            return stoker.generator("torch").initial_seed()

    one = maker(Asking(), inline=True, rng="torch")
    one.unwatch()
    found = one.make(order([5, 6, 7]), None)
    assert len(set(found)) == 3
    assert one.make(order([5, 6, 7]), None) == found


def test_rows_fetched_in_one_go_have_a_generator_each(monkeypatch: pytest.MonkeyPatch) -> None:
    class Asking:
        def __getitem__(self, index: int) -> tuple[int, int]:
            first = stoker.generator("torch")
            assert stoker.generator("torch") is first
            return first.initial_seed(), int(stoker.generator("numpy").integers(1 << 60))

    def collated(rows: list[tuple[int, int]]) -> tuple[list[tuple[int, int]], int]:
        return rows, stoker.generator("torch").initial_seed()

    monkeypatch.setattr(
        batch_maker, "_clock", lambda: 0
    )  # every batch is quick, so the second is fetched in one go
    one = maker(Asking(), inline=True, rng="torch", collate_fn=collated, own_collate=False)
    one.unwatch()
    found = one.make(order([5, 6, 7]), None)
    assert len({*found[0], found[1]}) == 4
    assert not one._singly
    assert one.make(order([5, 6, 7]), None) == found

"""Arguments × datasets. Every cell compares batches, order, length, warnings and generator state."""

from __future__ import annotations

from typing import Any

import pytest

from tests.compat.compare import BOTH, Arguments, assert_same, assert_same_run
from tests.compat.samples import Counting, Shaped, Sharded, Squares, keep_rows

WORKERS = (0, 1, 2)


@pytest.mark.parametrize("num_workers", [0, 2])
@pytest.mark.parametrize("kind", Shaped.KINDS)
def test_every_row_structure_is_collated_as_torch_does(kind: str, num_workers: int) -> None:
    assert_same_run(lambda: {"dataset": Shaped(kind), "batch_size": 4, "num_workers": num_workers})


@pytest.mark.parametrize("num_workers", [0, 2])
@pytest.mark.parametrize("kind", Shaped.KINDS)
def test_every_row_structure_is_converted_without_batching(kind: str, num_workers: int) -> None:
    assert_same_run(lambda: {"dataset": Shaped(kind, 4), "batch_size": None, "num_workers": num_workers})


@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize("batch_size", [1, 4, 22, 50])
@pytest.mark.parametrize("num_workers", WORKERS)
def test_batching(num_workers: int, batch_size: int, drop_last: bool, shuffle: bool) -> None:
    def build() -> Arguments:
        return {
            "dataset": Squares(22),
            "batch_size": batch_size,
            "drop_last": drop_last,
            "shuffle": shuffle,
            "num_workers": num_workers,
        }

    assert_same_run(build, epochs=2)


@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("num_workers", WORKERS)
def test_without_batching(num_workers: int, shuffle: bool) -> None:
    def build() -> Arguments:
        return {"dataset": Squares(7), "batch_size": None, "shuffle": shuffle, "num_workers": num_workers}

    assert_same_run(build, epochs=2)


@pytest.mark.parametrize("num_workers", WORKERS)
@pytest.mark.parametrize("length", [0, 1, 3])
def test_datasets_smaller_than_the_number_of_workers(length: int, num_workers: int) -> None:
    assert_same_run(
        lambda: {"dataset": Squares(length), "batch_size": 2, "num_workers": num_workers}, epochs=2
    )


@pytest.mark.parametrize("persistent_workers", [False, True])
@pytest.mark.parametrize("prefetch_factor", [None, 1, 2, 7])
def test_prefetching_changes_nothing(prefetch_factor: int | None, persistent_workers: bool) -> None:
    def build() -> Arguments:
        return {
            "dataset": Squares(19),
            "batch_size": 3,
            "num_workers": 2,
            "prefetch_factor": prefetch_factor,
            "persistent_workers": persistent_workers,
        }

    assert_same_run(build)


@pytest.mark.parametrize("num_workers", WORKERS)
@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize("batch_size", [1, 3, 10, None])
@pytest.mark.parametrize("dataset_class", [Counting, Sharded])
def test_iterable_style(
    dataset_class: Any, batch_size: int | None, drop_last: bool, num_workers: int
) -> None:
    def build() -> Arguments:
        arguments: Arguments = {
            "dataset": dataset_class(),
            "batch_size": batch_size,
            "num_workers": num_workers,
        }
        if batch_size is not None:
            arguments["drop_last"] = drop_last
        return arguments

    assert_same_run(build, epochs=2)


@pytest.mark.parametrize("num_workers", WORKERS)
@pytest.mark.parametrize(
    "dataset", [Squares(9), Counting(9), Shaped("nested", 9)], ids=["map", "iterable", "nested"]
)
def test_custom_collation(dataset: Any, num_workers: int) -> None:
    def build() -> Arguments:
        return {"dataset": dataset, "batch_size": 4, "num_workers": num_workers, "collate_fn": keep_rows}

    assert_same_run(build)


@pytest.mark.parametrize("num_workers", WORKERS)
@pytest.mark.parametrize("rows", [list(range(9)), "abcdefg", range(8), {0: 1.5, 1: 2.5, 2: 3.5}], ids=type)
def test_anything_with_len_and_getitem_is_a_dataset(rows: Any, num_workers: int) -> None:
    assert_same_run(lambda: {"dataset": rows, "batch_size": 2, "num_workers": num_workers})


@pytest.mark.parametrize("num_workers", WORKERS)
def test_out_of_order_delivery_gives_the_same_batches(num_workers: int) -> None:
    def sorted_batches(loader_class: Any) -> list[Any]:
        loader = loader_class(Squares(21), batch_size=2, num_workers=num_workers, in_order=False)
        return sorted(loader, key=lambda batch: int(batch[1][0]))

    theirs, ours = (sorted_batches(loader_class) for loader_class in BOTH)
    assert_same(theirs, ours)

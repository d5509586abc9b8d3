"""What a batch may hold: results of custom collation, layouts, aliasing, the extensible collate map."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import default_collate
from torch.utils.data._utils.collate import collate, default_collate_fn_map

from tests.compat.compare import BOTH, Arguments, assert_same, assert_same_run
from tests.compat.samples import Pair, Row, Shaped, Squares

WORKERS = (0, 1, 2)


def to_channels_last(rows: list[Any]) -> Any:
    return torch.stack(rows).to(memory_format=torch.channels_last)


def to_expanded(rows: list[Any]) -> Any:
    return rows[0].expand(5, *rows[0].shape)


def to_transposed(rows: list[Any]) -> Any:
    return torch.stack(rows).transpose(0, 2), torch.stack(rows)[:, ::2]


def to_every_dtype(rows: list[Any]) -> Any:
    names = "uint8 int8 int16 int32 int64 float16 bfloat16 float32 float64 complex64 complex128 bool"
    return {name: torch.stack(rows).to(getattr(torch, name)) for name in names.split()}


def to_sparse(rows: list[Any]) -> Any:
    return torch.stack([row[0].float() for row in rows]).flatten(1).to_sparse()


def to_row_objects(rows: list[Any]) -> Any:
    return [Row(row.float(), f"row {place}") for place, row in enumerate(rows)]


def to_gradient_leaf(rows: list[Any]) -> Any:
    return torch.stack(rows).float().requires_grad_()


def to_numpy(rows: list[Any]) -> Any:
    stacked = torch.stack(rows).numpy()
    return stacked, stacked.astype("i2"), np.array(["a", "bc"]), np.array([{"k": 1}, None], dtype=object)


def to_nothing(rows: list[Any]) -> Any:
    return None


def to_plain_objects(rows: list[Any]) -> Any:
    return {
        "set": {1, 2},
        "none": None,
        "bytes": b"\0x",
        "range": range(3),
        "pair": Pair(1, (2.5, "x")),
        "nan": float("nan"),
    }


def to_defaultdict(rows: list[Any]) -> Any:
    groups: defaultdict[str, list[Any]] = defaultdict(list)
    for row in rows:
        groups["odd" if int(row[0, 0, 0]) % 2 else "even"].append(row)
    return groups


def to_torch_default(rows: list[Any]) -> Any:
    return {"inner": default_collate(rows), "count": len(rows)}


@pytest.mark.parametrize("num_workers", [0, 2])
@pytest.mark.parametrize(
    "collate_fn",
    [
        to_channels_last, to_expanded, to_transposed, to_every_dtype, to_sparse, to_row_objects,
        to_gradient_leaf, to_numpy, to_nothing, to_plain_objects, to_defaultdict, to_torch_default,
    ],
)  # fmt: skip
def test_what_a_collate_function_made_arrives_as_it_was(collate_fn: Any, num_workers: int) -> None:
    def build() -> Arguments:
        return {
            "dataset": Shaped("uint8_image", 10),
            "batch_size": 4,
            "collate_fn": collate_fn,
            "num_workers": num_workers,
        }

    assert_same_run(build)


def to_big_endian(rows: list[Any]) -> Any:
    return np.array(rows, dtype=">i4")


@pytest.mark.parametrize("num_workers", WORKERS)
def test_the_byte_order_of_arrays_survives(num_workers: int) -> None:
    """Against torch without workers: through its queues such an array arrives in native order."""
    theirs, ours = (
        list(loader_class(range(5), batch_size=2, collate_fn=to_big_endian, num_workers=workers))
        for loader_class, workers in zip(BOTH, (0, num_workers), strict=True)
    )
    assert_same(theirs, ours)


def share_storage(rows: list[Any]) -> Any:
    whole = torch.stack(rows)
    return whole, whole[1:], whole.view(-1), whole


@pytest.mark.parametrize("loader_class", BOTH)
@pytest.mark.parametrize("num_workers", WORKERS)
def test_tensors_over_one_storage_still_alias(loader_class: Any, num_workers: int) -> None:
    loader = loader_class(
        Shaped("tensor", 8), batch_size=4, collate_fn=share_storage, num_workers=num_workers
    )
    for whole, tail, flat, _ in loader:
        whole.fill_(-1)
        assert bool((tail == -1).all())
        assert bool((flat == -1).all())


@pytest.mark.parametrize("num_workers", WORKERS)
def test_batches_are_writable_and_independent(num_workers: int) -> None:
    for loader_class in BOTH:
        kept = list(loader_class(Shaped("tensor", 9), batch_size=3, num_workers=num_workers))
        expected = [batch.clone() for batch in kept]
        kept[0].zero_()
        assert_same(expected[1:], kept[1:])


@pytest.mark.parametrize("num_workers", [1, 2])
def test_kept_batches_survive_the_loader(num_workers: int) -> None:
    for loader_class in BOTH:
        kept = [batch for batch, _ in loader_class(Squares(40), batch_size=2, num_workers=num_workers)]
        assert [int(batch[0, 0, 0]) for batch in kept] == list(range(0, 40, 2))


class Tagged:
    """A type torch's default collation does not know."""

    def __init__(self, value: int) -> None:
        self.value = value


class TaggedRows(Shaped):
    def __init__(self, length: int = 7) -> None:
        super().__init__("scalar", length)

    def __getitem__(self, index: int) -> Any:
        return {"tag": Tagged(index), "n": index}


def collate_tagged(batch: Any, *, collate_fn_map: Any = None) -> Any:
    return torch.tensor([row.value * 10 for row in batch])


def collate_with_own_map(rows: list[Any]) -> Any:
    return collate(rows, collate_fn_map={**default_collate_fn_map, Tagged: collate_tagged})


@pytest.mark.parametrize("num_workers", WORKERS)
def test_the_global_collate_map_can_be_extended(num_workers: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(default_collate_fn_map, Tagged, collate_tagged)
    _, ours = assert_same_run(lambda: {"dataset": TaggedRows(), "batch_size": 3, "num_workers": num_workers})
    assert ours.error is None


@pytest.mark.parametrize("num_workers", WORKERS)
def test_an_override_of_a_known_type_is_honoured(num_workers: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(default_collate_fn_map, torch.Tensor, sum_instead_of_stack)
    assert_same_run(lambda: {"dataset": Squares(9), "batch_size": 3, "num_workers": num_workers})


def sum_instead_of_stack(batch: Any, *, collate_fn_map: Any = None) -> Any:
    return sum(batch)


@pytest.mark.parametrize("num_workers", WORKERS)
def test_a_collate_map_of_ones_own(num_workers: int) -> None:
    def build() -> Arguments:
        return {
            "dataset": TaggedRows(),
            "batch_size": 3,
            "collate_fn": collate_with_own_map,
            "num_workers": num_workers,
        }

    assert_same_run(build)


@pytest.mark.parametrize("num_workers", [0, 2])
@pytest.mark.parametrize("batch_size", [1, 3, 40])
def test_numbers_of_mixed_type_are_collated_as_a_whole(batch_size: int, num_workers: int) -> None:
    def build() -> Arguments:
        return {"dataset": [1, 2.5, 3, 4] * 10, "batch_size": batch_size, "num_workers": num_workers}

    assert_same_run(build)

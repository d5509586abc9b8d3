"""Rows about batches on their way back from a worker: they arrive as they would without one, or are named."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch.utils.data import IterableDataset

import stoker
import stoker.errors
from tests.compat.compare import assert_same
from tests.fault.rows import Made, steps, told


def with_generator(samples: list[int]) -> Any:
    if 5 in samples:
        return {"rows": torch.tensor(samples), "meta": [1, (row for row in samples)]}
    return {"rows": torch.tensor(samples), "meta": []}


@pytest.mark.parametrize("method", ["fork", "forkserver"])
def test_a_batch_that_cannot_be_pickled(method: str) -> None:
    """Row 3: the error names key, type and indices; the other batches arrive. torch waits for ever."""
    loader = stoker.DataLoader(
        Made(int), batch_size=4, collate_fn=with_generator, num_workers=2, multiprocessing_context=method
    )
    before, error, after = steps(loader)
    assert isinstance(error, stoker.errors.UnsendableError)
    assert "batch['meta'][1]: generator" in told(error)
    assert "[4, 5, 6, 7]" in told(error)
    assert [before["rows"].tolist(), after["rows"].tolist()] == [[0, 1, 2, 3], [8, 9, 10, 11]]


WEIGHT = torch.ones(3, requires_grad=True)


def weighted(index: int) -> Any:
    return {"image": WEIGHT * index, "name": str(index)}


@pytest.mark.parametrize("collate_fn", [None, list], ids=["default", "custom"])
@pytest.mark.parametrize("method", ["fork", "forkserver"])
def test_non_leaf_tensors_that_require_grad_arrive_detached(method: str, collate_fn: Any) -> None:
    """Row 3: torch refuses to serialize them, in a thread that nobody hears."""
    options: dict[str, Any] = {"batch_size": 4, "collate_fn": collate_fn}

    def images(batches: Any) -> list[Any]:
        found = []
        for batch in batches:
            samples = [batch] if collate_fn is None else batch
            found.append([sample["image"] for sample in samples])
        return found

    expected = images(stoker.DataLoader(Made(weighted), **options))
    found = images(
        stoker.DataLoader(Made(weighted), num_workers=2, multiprocessing_context=method, **options)
    )
    assert_same([[image.detach() for image in batch] for batch in expected], found)


@pytest.mark.parametrize("collate_fn", [None, list], ids=["default", "custom"])
@pytest.mark.parametrize("method", ["fork", "forkserver"])
def test_samples_on_another_device(method: str, collate_fn: Any) -> None:
    """Row 22: a device that may be used in workers is no fault; its tensors arrive as they are."""

    def shapes(**options: Any) -> list[Any]:
        dataset = Made(lambda index: torch.empty(3, 2, device="meta"))
        loader = stoker.DataLoader(dataset, batch_size=4, collate_fn=collate_fn, **options)
        return [[(row.shape, row.dtype, row.device.type) for row in batch] for batch in loader]

    found = shapes(num_workers=2, multiprocessing_context=method)
    assert found == shapes()
    assert found[0][0][2] == "meta"


def ragged(index: int) -> Any:
    return {"name": str(index), "image": torch.zeros(3, 5 if index == 6 else 4)}


def uneven(index: int) -> Any:
    return torch.zeros(8)[: 3 + (index == 6)]


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (ragged, ["sample['image']", "(3, 4)", "(3, 5)", "dataset index 4", "dataset index 6"]),
        (uneven, ["sample:", "(3,)", "(4,)", "dataset index 4", "dataset index 6"]),
    ],
)
def test_ragged_samples(make: Any, words: list[str]) -> None:
    """Row 23: one message for every number of workers: torch's words, the key, the shapes, the indices."""
    found = []
    for options in (
        {"num_workers": 0},
        {"num_workers": 1},
        {"num_workers": 2, "split_batches": True},
        {"num_workers": 2, "split_batches": False},
        {"num_workers": 1, "executor": "thread"},
        *({"num_workers": 1, "multiprocessing_context": method} for method in ("fork", "forkserver")),
    ):
        _, error, _ = steps(stoker.DataLoader(Made(make), batch_size=4, **options))  # type: ignore[arg-type]
        assert type(error) is RuntimeError
        found.append(told(error))
    assert found == found[:1] * len(found)
    assert found[0].startswith("stack expects each tensor to be equal size")
    for word in words:
        assert word in found[0]


def mixed_tensor(index: int) -> torch.Tensor:
    return torch.tensor([index + 0.5]) if index % 2 else torch.tensor([index])


def mixed_number(index: int) -> float | int:
    return index + 0.5 if index % 2 else index


def half_and_whole(index: int) -> torch.Tensor:
    return torch.tensor([index / 3], dtype=torch.float64 if index % 2 else torch.float16)


@pytest.mark.parametrize("make", [mixed_tensor, mixed_number, half_and_whole])
@pytest.mark.parametrize("method", ["fork", "forkserver"])
def test_samples_of_mixed_dtypes(method: str, make: Any) -> None:
    """Row 24: torch says ``can't be cast`` with one worker and none of it without."""
    expected = list(stoker.DataLoader(Made(make), batch_size=4))
    for num_workers in (1, 2):
        loader = stoker.DataLoader(
            Made(make), batch_size=4, num_workers=num_workers, multiprocessing_context=method
        )
        assert_same(expected, list(loader))


class Stream(IterableDataset[Any]):
    """The samples of a map-style dataset, one after the other."""

    def __init__(self, dataset: Made) -> None:
        self.dataset = dataset

    def __iter__(self) -> Iterator[Any]:
        return (self.dataset[index] for index in range(len(self.dataset)))


def test_a_stream_of_mixed_dtypes() -> None:
    """Row 24: the same for samples that are not asked for by index."""
    stream = Stream(Made(mixed_tensor))
    expected = list(stoker.DataLoader(stream, batch_size=4))
    assert_same(expected, list(stoker.DataLoader(stream, batch_size=4, num_workers=1)))

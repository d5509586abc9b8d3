"""The three examples of the seed text on runtime errors: they simply work, under every start method."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from examples import duel, lambda_transform, large_arrays, opencv_workers

DATASETS = {
    "large arrays": lambda: large_arrays.LargeMemoryDataset(3),
    "lambda transform": lambda: lambda_transform.BadPickleDataset(30),
    "OpenCV": lambda: opencv_workers.ImageDataset(30),
}


@pytest.mark.parametrize("method", duel.METHODS)
@pytest.mark.parametrize("name", DATASETS)
def test_it_works_with_stoker(name: str, method: str) -> None:
    dataset = DATASETS[name]()
    got = list(duel.loader_of(dataset, "stoker", method, num_workers=2))
    assert sum(len(batch) for batch in got) == len(dataset)
    if name == "lambda transform":
        assert all(0 <= value <= at for at, value in enumerate(torch.cat(got).tolist()))
    else:
        assert torch.equal(torch.cat(got), torch.stack([_tensor(each) for each in _all(dataset)]))


def _all(dataset: Any) -> list[Any]:
    return [dataset[index] for index in range(len(dataset))]


def _tensor(sample: Any) -> torch.Tensor:
    return torch.as_tensor(sample)

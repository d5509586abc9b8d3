"""Differences from torch that an adversarial reading found."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import torch.utils.data
from torch.utils.data import Dataset

import stoker


class Told(Dataset[str]):
    """Says what kind of indices it was asked for."""

    def __len__(self) -> int:
        return 8

    def __getitems__(self, indices: Any) -> list[str]:
        return [type(indices).__name__]


@pytest.mark.parametrize(
    "indices", [torch.tensor([0, 1]), np.array([0, 1]), (0, 1), range(2), {0, 1}, {0: 1}, [0]]
)
@pytest.mark.parametrize("workers", [0, 1])
def test_getitems_gets_what_the_sampler_gave(indices: Any, workers: int) -> None:
    expected = list(torch.utils.data.DataLoader(Told(), batch_sampler=[indices]))
    assert list(stoker.DataLoader(Told(), batch_sampler=[indices], num_workers=workers)) == expected

"""Who sees what another process writes into a batch: the same as with torch's loader, and a clone is one's own."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader as TorchLoader
from torch.utils.data import Dataset

import stoker

ROW = 1 << 19
"""Bytes: such a batch is leased, and not copied."""


class Pages(Dataset[np.ndarray[Any, Any]]):
    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> np.ndarray[Any, Any]:
        return np.full(ROW, index, np.uint8)


def seen_after(write: Callable[[torch.Tensor], object], batch: torch.Tensor) -> int:
    """The first byte of a batch, after a forked child wrote into it."""
    child = os.fork()
    if child == 0:
        write(batch)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    return int(batch[0, 0])


def write(batch: torch.Tensor) -> None:
    batch.numpy()[0, 0] = 77


@pytest.mark.parametrize("kind", [TorchLoader, stoker.DataLoader])
def test_a_forked_child_writes_into_the_batch_of_its_parent(kind: Any) -> None:
    """docs/memory.md says so, and what the alternative costs."""
    iterator = iter(kind(Pages(), batch_size=4, num_workers=1))
    batch = next(iterator)
    assert seen_after(write, batch) == 77
    assert seen_after(write, next(iterator).clone()) == 4
    del iterator


@pytest.mark.parametrize("kind", [TorchLoader, stoker.DataLoader])
def test_without_workers_a_child_has_its_own_copy(kind: Any) -> None:
    assert seen_after(write, next(iter(kind(Pages(), batch_size=4)))) == 0

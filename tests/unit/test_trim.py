"""What a worker lets go of, and how large a batch on the heap is taken to be."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import ConcatDataset, Dataset, StackDataset, Subset

from stoker._runtime.transport.batch_size import batch_bytes
from stoker._runtime.worker.trim import nested, release_caches


class Caching(Dataset[int]):
    def __init__(self) -> None:
        self.trims = 0

    def __len__(self) -> int:
        return 3

    def __getitem__(self, index: int) -> int:
        return index

    def __stoker_trim__(self) -> None:
        self.trims += 1


class Raising(Caching):
    def __stoker_trim__(self) -> None:
        raise LookupError("no cache")


class Proxy(Dataset[int]):
    """Passes everything on: its hook is the inner one's."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner
        self.me = self

    def __len__(self) -> int:
        return len(self.inner)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


def test_every_dataset_is_asked_once_however_it_is_held() -> None:
    inner = [Caching() for _ in range(4)]
    whole: Any = ConcatDataset(
        [Subset(inner[0], [0]), Subset(inner[0], [1]), Proxy(inner[1]), StackDataset(a=inner[2], b=inner[3])]
    )
    release_caches(whole)
    assert [each.trims for each in inner] == [1, 1, 1, 1]
    assert sum(1 for _ in nested(whole)) == 9


def test_a_hook_that_raises_is_logged_and_the_others_follow(caplog: pytest.LogCaptureFixture) -> None:
    good = Caching()
    with caplog.at_level(logging.WARNING, "stoker"):
        release_caches(ConcatDataset([Raising(), good]))
    assert good.trims == 1
    assert "__stoker_trim__ of Raising raised LookupError('no cache')" in caplog.text


def test_what_has_no_attributes_has_no_datasets() -> None:
    release_caches([1, 2, 3])
    release_caches(None)


@dataclass
class Batch:
    images: torch.Tensor
    names: list[str]


@pytest.mark.parametrize(
    ("batch", "nbytes"),
    [
        (torch.zeros(4, 8), 128),
        (np.zeros(16, np.int16), 32),
        ({"a": torch.zeros(2), "b": [torch.zeros(1), b"abc", "defg"]}, 8 + 4 + 3 + 4),
        (Batch(torch.zeros(10), ["ab", "c"]), 43),
        ([torch.zeros(1)] * 1024, 4096),
        (7, 0),
        (None, 0),
        ([[[[[torch.zeros(5)]]]]], 0),
    ],
)
def test_the_size_of_a_batch(batch: Any, nbytes: int) -> None:
    assert batch_bytes(batch) == nbytes


def test_a_sparse_tensor_costs_no_error() -> None:
    assert batch_bytes(torch.eye(3).to_sparse()) >= 0

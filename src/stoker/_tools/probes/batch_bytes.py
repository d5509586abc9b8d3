"""Measures the tensors and arrays of a batch or a sample."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any


def batch_bytes(batch: Any) -> int:
    """The bytes of a batch's tensors and arrays."""
    return sum(int(each.nbytes) for each in _tensors(batch))


def _tensors(batch: Any) -> Iterator[Any]:
    import numpy as np
    import torch

    if isinstance(batch, torch.Tensor | np.ndarray):
        yield batch
    elif isinstance(batch, dict):
        for value in batch.values():
            yield from _tensors(value)
    elif isinstance(batch, list | tuple):
        for value in batch:
            yield from _tensors(value)

"""Tells whether fetching and collating can draw random numbers at all.

Without workers, seeding and putting the training loop's generators back is most of a small batch's cost. Where no code of
the user's runs, there is nobody to draw, and both are left out.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch.utils.data import ConcatDataset, Subset, TensorDataset

from stoker._runtime.protocol.worker_spec import WorkerSpec

_VALUES = frozenset({bool, int, float, complex, str, bytes, type(None), torch.Tensor, np.ndarray})
_DEEP = 6
_PARTS = 64


def can_draw(spec: WorkerSpec) -> bool:
    """Whether making a batch may run code that draws. False only where all of it is torch's or Python's own."""
    if spec.iterable or spec.on_bad_sample != "raise" or spec.collate_map is not None:
        return True
    if spec.auto_collation and not spec.own_collate:
        return True
    if not spec.auto_collation and spec.collate_fn is not torch.utils.data._utils.collate.default_convert:
        return True
    return not _only_reads(spec.dataset, _DEEP)


def _only_reads(dataset: Any, deep: int) -> bool:
    """Whether ``dataset[i]`` is a look-up in a container of plain values. Exact types only: a subclass may do anything."""
    kind = type(dataset)
    if not deep:
        return False
    if kind is range or kind is torch.Tensor or kind is np.ndarray:
        return True
    if kind is TensorDataset:
        return all(type(each) is torch.Tensor for each in dataset.tensors)
    if kind is Subset:
        return _only_reads(dataset.dataset, deep - 1)
    if kind is ConcatDataset:
        parts = dataset.datasets
        return len(parts) <= _PARTS and all(_only_reads(each, deep - 1) for each in parts)
    if kind is list or kind is tuple:  # samples of one dataset are alike, or they could not be collated
        return bool(dataset) and _is_value(next(iter(dataset)), deep)
    return False


def _is_value(sample: Any, deep: int) -> bool:
    kind = type(sample)
    if kind in _VALUES:
        return True
    if not deep:
        return False
    if kind is dict:
        return all(_is_value(each, deep - 1) for each in sample.values())
    return (kind is list or kind is tuple) and all(_is_value(each, deep - 1) for each in sample)

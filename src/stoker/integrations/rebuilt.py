"""Builds stoker's loader for the data that a framework has put into a stock loader."""

from __future__ import annotations

import copy
import inspect
from typing import Any

import torch.utils.data
from torch.utils.data import IterableDataset

from stoker.loader import DataLoader

_DATA = ("dataset", "batch_size", "drop_last", "sampler", "batch_sampler", "generator", "_dataset_kind")
"""Attributes of a loader that say what it reads, and in which order."""

_TORCHS = [
    name
    for name in inspect.signature(torch.utils.data.DataLoader.__init__).parameters
    if name
    not in ("self", "batch_size", "shuffle", "sampler", "batch_sampler", "drop_last", "pin_memory_device")
]


def rebuilt(stock: Any, like: Any, options: dict[str, Any] | None = None) -> DataLoader[Any]:
    """stoker's loader with the data of ``stock``, a loader of torch's.

    ``like`` says how it runs: a loader of stoker's is copied, with its class, all its arguments and its state. Of a loader of
    torch's the arguments are taken, and ``options`` added or put in their place.
    """
    if isinstance(like, DataLoader):
        made = copy.copy(like)
        vars(made).update({name: vars(stock)[name] for name in _DATA})
        return made
    given = {name: getattr(stock, name) for name in _TORCHS if name != "dataset"}
    if not stock.num_workers and "num_workers" in (options or {}):
        given["prefetch_factor"] = None
    if isinstance(stock.dataset, IterableDataset):
        given |= {"batch_size": stock.batch_size, "drop_last": stock.drop_last}
    elif stock.batch_sampler is None:
        given |= {"batch_size": None, "sampler": stock.sampler}
    else:
        given["batch_sampler"] = stock.batch_sampler
    return DataLoader(stock.dataset, **{**given, **(options or {})})

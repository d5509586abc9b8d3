"""Releases caches of an idle worker: the dataset's own, Python garbage, and free memory of the C library.

A dataset with caches takes part through a method with an unmistakable name:

    def __stoker_trim__(self) -> None: self.cache.clear()

It is called on the dataset and on all datasets that it holds (``Subset.dataset``, ``ConcatDataset.datasets``), in every worker,
between two tasks.
"""

from __future__ import annotations

import ctypes
import gc
import logging
from collections.abc import Iterator
from typing import Any

from torch.utils.data import Dataset

HOOK = "__stoker_trim__"
_MOST = 10_000
"""How many datasets are visited at most. More than this means endless nesting."""


def release_caches(dataset: object) -> None:
    """Call the hooks, collect garbage, and return free memory of the C library. Never raises an Exception.

    Called on the worker's thread. Executors without processes call it on the asking thread, while no worker is busy.
    """
    for each in nested(dataset):
        hook = getattr(type(each), HOOK, None)
        if hook is not None:
            try:
                hook(each)
            except Exception as error:
                logging.getLogger("stoker").warning("%s of %s raised %r", HOOK, type(each).__name__, error)
    gc.collect()
    _give_heap_back()


def nested(dataset: object) -> Iterator[object]:
    """Yield a dataset and the datasets in its attributes, or in a list, tuple or dict there. Each once."""
    seen = {id(dataset)}
    waiting = [dataset]
    while waiting and len(seen) < _MOST:
        each = waiting.pop()
        yield each
        for value in list(getattr(each, "__dict__", {}).values()):
            for inner in _datasets_in(value):
                if id(inner) not in seen:
                    seen.add(id(inner))
                    waiting.append(inner)


def _datasets_in(value: Any) -> list[Any]:
    if isinstance(value, Dataset):
        return [value]
    if type(value) is dict:
        value = list(value.values()) if len(value) <= _MOST else []
    if type(value) not in (list, tuple) or not value or not isinstance(value[0], Dataset):
        return []  # the first item decides: a list of a million paths is not searched
    return [each for each in value if isinstance(each, Dataset)]


def _give_heap_back() -> None:
    """Return freed memory to the system. glibc keeps it otherwise; other C libraries have no such call."""
    malloc_trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if malloc_trim is not None:
        malloc_trim(0)

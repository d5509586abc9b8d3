"""Notices that an attribute of a dataset was replaced, in a few microseconds, so that a cache can look closer.

Compared are the objects themselves, as ``dataset_sync`` does: of the dataset, of datasets nested in it, and of the objects that
its attributes hold. A list or dict that is changed in place is seen if it is short.
"""

from __future__ import annotations

import weakref
from operator import is_
from types import FunctionType, ModuleType
from typing import Any

import numpy as np
import torch
from torch.utils.data import Dataset

from stoker._pickling.instances import own_dict

_MOST = 12
_ITEMS = 64


class AttributeWatch:
    """Remembers what a dataset and its parts hold; the dataset itself by a weak reference.

    One thread at a time; a race only makes the cache look closer once more.
    """

    def __init__(self, dataset: Any) -> None:
        self._strong, self._dataset = None, None
        try:
            self._dataset = weakref.ref(dataset)
        except TypeError:
            self._strong = dataset
        self._seen: list[tuple[Any, list[Any]]] = []
        self.renew()

    def changed(self) -> bool:
        """Whether anything was replaced since ``renew``."""
        for held, values in self._seen:
            now = held.values() if type(held) is dict else held
            if len(now) != len(values) or not all(map(is_, now, values)):
                return True
        return False

    def renew(self) -> None:
        """Take what is there now as known."""
        seen: list[tuple[Any, list[Any]]] = []
        queue: list[Any] = [self._strong if self._dataset is None else self._dataset()]
        met: set[int] = set()
        for obj in queue:  # grows while it is iterated
            if id(obj) in met or len(seen) >= _MOST:
                continue
            met.add(id(obj))
            held = obj if type(obj) in (list, dict) else own_dict(obj)
            if not held or len(held) > _ITEMS:
                continue
            values = list(held.values()) if type(held) is dict else list(held)
            seen.append((held, values))
            queue += sorted(
                (
                    each
                    for each in values
                    if type(each) in (list, dict) or (own_dict(each) is not None and _is_part(each))
                ),
                key=_rank,
            )
        self._seen = seen


def _is_part(value: Any) -> bool:
    """Whether an object may hold a setting: neither a class, a module, a function nor a tensor."""
    return not isinstance(value, type | ModuleType | FunctionType | torch.Tensor | np.ndarray)


def _rank(value: Any) -> int:
    """Datasets first, then transforms and decoders, then other objects and containers."""
    return 0 if isinstance(value, Dataset) else 1 if callable(value) else 2

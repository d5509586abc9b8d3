"""Notices that an attribute of a dataset was replaced, in a few microseconds, so that a cache can look closer.

Compared are the objects themselves, as ``dataset_sync`` does: of the dataset, of datasets nested in it, and of the objects that
its attributes hold. A list that is changed in place is seen if it is short.
"""

from __future__ import annotations

from operator import is_
from typing import Any

from torch.utils.data import Dataset

from stoker._pickling.instances import own_dict

_MOST = 12
_ITEMS = 64


class AttributeWatch:
    """Remembers what a dataset and its parts hold. One thread at a time; a race only makes the cache look closer once more."""

    def __init__(self, dataset: Any) -> None:
        self._dataset = dataset
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
        queue: list[Any] = [self._dataset]
        met: set[int] = set()
        for obj in queue:  # grows while it is iterated
            if id(obj) in met or len(seen) >= _MOST:
                continue
            met.add(id(obj))
            held = obj if type(obj) is list else own_dict(obj)
            if not held or len(held) > _ITEMS:
                continue
            values = list(held.values()) if type(held) is dict else list(held)
            seen.append((held, values))
            queue += sorted(
                (
                    each
                    for each in values
                    if type(each) is list or (own_dict(each) is not None and _is_part(each))
                ),
                key=lambda each: not isinstance(each, Dataset),
            )
        self._seen = seen


def _is_part(value: Any) -> bool:
    """Whether an object is likely a transform, a decoder or a dataset, and neither a class nor a module."""
    return (callable(value) and not isinstance(value, type)) or isinstance(value, Dataset)

"""Estimates how much memory an object takes: exact for arrays, from a sample for large containers."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from itertools import chain, islice
from typing import Any

import numpy as np
import torch

from stoker._pickling.instances import own_dict

_SAMPLE = 256
_NESTED_SAMPLE = 16
_DEPTH = 6


def estimate(obj: Any) -> int:
    """The bytes of an object and what it holds. An item that occurs many times counts once as far as the sample shows it.

    A few hundred items of a container are looked at, whatever its length.
    """
    return _measured(obj, 0, set())


def _measured(obj: Any, depth: int, seen: set[int]) -> int:
    if id(obj) in seen:
        return 0
    seen.add(id(obj))
    if isinstance(obj, np.ndarray) and not obj.dtype.hasobject:
        return int(obj.nbytes)
    if isinstance(obj, torch.Tensor):
        return _tensor(obj)
    own = _own(obj)
    if depth >= _DEPTH:
        return own
    kind = type(obj)
    if isinstance(obj, dict):
        keys = _items(obj, len(obj), depth, seen)
        return own + keys + _items(obj.values(), len(obj), depth, seen)
    if isinstance(obj, list | tuple | set | frozenset | deque):
        return own + _items(obj, len(obj), depth, seen)
    if isinstance(obj, np.ndarray):
        return own + _items(obj.flat, obj.size, depth, seen)
    if kind.__module__ == "builtins" or isinstance(obj, type):
        return own
    attributes = own_dict(obj)
    if attributes is not None:
        own += _own(attributes) + _items(attributes.values(), len(attributes), depth, seen)
    return own


def _items(items: Iterable[Any], count: int, depth: int, seen: set[int]) -> int:
    """What the items take beside the container's own table of them."""
    limit = _SAMPLE if depth == 0 else _NESTED_SAMPLE
    if count <= limit:
        return sum(_measured(item, depth + 1, seen) for item in items)
    sample = _spread(items, count, limit)
    distinct = {id(item): item for item in sample}
    nbytes = sum(_measured(item, depth + 1, seen) for item in distinct.values())
    if 2 * len(distinct) <= len(sample):  # few different ones, used again and again
        return nbytes
    return nbytes * count // len(sample)


def _spread(items: Iterable[Any], count: int, limit: int) -> list[Any]:
    """A sample from everywhere: data is often sorted by size or by class."""
    step = count // limit
    if isinstance(items, list | tuple):
        return list(items[::step][:limit])
    if isinstance(items, np.flatiter):
        return list(items[::step][:limit])
    return list(islice(items, 0, step * limit, step))


def _own(obj: Any) -> int:
    try:
        return sys.getsizeof(obj)
    except Exception:  # somebody's __sizeof__
        return 0


def _tensor(tensor: torch.Tensor) -> int:
    try:
        return tensor.numel() * tensor.element_size()
    except Exception:  # a subclass or layout that has no such figures
        return 0


def largest(items: Iterable[Any], at_least_bytes: int) -> list[Any]:
    """Return the items that take at least this much each."""
    return [item for item in items if _quick(item) and estimate(item) >= at_least_bytes]


def _quick(item: Any) -> bool:
    """Whether an item could be large at all: numbers and text are not worth an estimate."""
    return not isinstance(item, int | float | str | bytes | bool | type(None))


def item_kinds(container: Any, depth: int) -> list[set[type]]:
    """The types of the items, of what lies in those, and so on; keys of dicts left out. Looks at every item, quickly."""
    found: list[set[type]] = []
    level: Callable[[], Iterable[Any]] = partial(_children, container)
    for _ in range(depth):
        kinds = set(map(type, level()))
        found.append(kinds)
        if not any(map(_is_nested, kinds)):
            break
        level = partial(_below, level, kinds)
    return found


_NESTED = frozenset((list, tuple, dict, set, frozenset))


def _below(level: Callable[[], Iterable[Any]], kinds: set[type]) -> Iterable[Any]:
    if kinds <= _NESTED - {dict}:
        return chain.from_iterable(level())
    if kinds == {dict}:
        return chain.from_iterable(map(dict.values, level()))
    nested = frozenset(filter(_is_nested, kinds))
    return chain.from_iterable(_children(item) for item in level() if type(item) in nested)


def _is_nested(kind: type) -> bool:
    return kind in _NESTED or (issubclass(kind, tuple) and hasattr(kind, "_fields"))


def _children(container: Any) -> Iterable[Any]:
    return container.values() if isinstance(container, dict) else container

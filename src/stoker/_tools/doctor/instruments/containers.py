"""Containers of Python objects that a dataset can reach, by path, and where their objects lie in memory.

Looks at a few thousand items of each, never at all: reading an object writes its reference count, and a probe must not copy
the dataset to find out whether workers do. Runs no code of the user's.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from typing import Any

import numpy as np

from stoker._pickling.instances import own_dict

FEW = 256
"""Containers with more items than this are not entered in search of others."""
_MOST_OBJECTS = 2000
_DEPTH = 4
_ITEM_DEPTH = 3
_ITEM_CHILDREN = 16
PAGE_BYTES = 4096
_CACHED = type(lru_cache(len))
_KINDS = (list, tuple, dict, set, frozenset, deque)


@dataclass(frozen=True, slots=True)
class ContainerPath:
    """A container and its path."""

    path: str
    container: Any


def containers(dataset: Any) -> list[ContainerPath]:
    """Lists, dicts, sets, arrays of objects, and caches: of the dataset, of what it holds, of its class, and globals it reads."""
    found: dict[int, ContainerPath] = {}
    seen: set[int] = set()
    queue: deque[tuple[str, Any, int]] = deque([("dataset", dataset, 0)])
    queue.extend((path, value, 1) for path, value in _beside(dataset))
    while queue and len(seen) < _MOST_OBJECTS:
        path, obj, depth = queue.popleft()
        if id(obj) in seen:
            continue
        seen.add(id(obj))
        if isinstance(obj, (*_KINDS, _CACHED)):
            found.setdefault(id(obj), ContainerPath(path, obj))
        elif isinstance(obj, np.ndarray):
            if obj.dtype.hasobject and obj.ndim:
                found.setdefault(id(obj), ContainerPath(path, obj))
            continue
        if depth < _DEPTH:
            queue.extend((inner, value, depth + 1) for inner, value in _within(path, obj))
    return list(found.values())


def _within(path: str, obj: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(obj, dict):
        if len(obj) <= FEW:
            yield from (
                (f"{path}[{key!r}]", value) for key, value in obj.items() if isinstance(key, str | int)
            )
    elif isinstance(obj, _KINDS):
        if len(obj) <= FEW and not isinstance(obj, set | frozenset):
            yield from ((f"{path}[{place}]", value) for place, value in enumerate(obj))
    elif not isinstance(obj, type) and type(obj).__module__ != "builtins":
        yield from ((f"{path}.{name}", value) for name, value in (own_dict(obj) or {}).items())


def _beside(dataset: Any) -> Iterator[tuple[str, Any]]:
    """What a dataset reads without holding it."""
    for kind in type(dataset).__mro__[:-1]:
        if kind.__module__.partition(".")[0] in ("torch", "typing"):
            continue
        for name, value in vars(kind).items():
            if isinstance(value, (*_KINDS, _CACHED)) and not name.startswith("__"):
                yield f"{kind.__name__}.{name}", value
        for function in map(vars(kind).get, ("__getitem__", "__getitems__", "__iter__")):
            code, names = getattr(function, "__code__", None), getattr(function, "__globals__", {})
            for name in code.co_names if code is not None else ():
                if isinstance(names.get(name), (*_KINDS, _CACHED)):
                    yield f"{kind.__module__}.{name}", names[name]


def length(container: Any) -> int:
    """How many items it has now; 0 when it does not tell."""
    try:
        return container.cache_info().currsize if isinstance(container, _CACHED) else len(container)
    except Exception:  # somebody's subclass
        return 0


@dataclass(frozen=True, slots=True)
class SampledObjects:
    """Some objects of a container: numbers of the pages that have their reference counts, and about what all of them take."""

    place: ContainerPath
    pages: Any
    """Of items at the places that were asked for; an array of page numbers, each once."""
    control: Any
    """Of items halfway between them, less those pages."""
    object_bytes: int


def sampled(place: ContainerPath, fractions: Sequence[float], step: float) -> SampledObjects | None:
    """Items of a container at fractions of its length, and halfway to the next (``step`` apart). None without items to see."""
    count = length(place.container)
    if not count or isinstance(place.container, _CACHED):
        return None
    seen: set[int] = set()
    taken = _taken(place.container, count, [*fractions, *((each + step / 2) % 1.0 for each in fractions)])
    pages: list[int] = []
    control: list[int] = []
    object_bytes, numbers = 0, set()
    for number, item in taken:
        object_bytes += _addresses(item, 0, seen, pages if number < len(fractions) else control)
        numbers.add(number)
    first = np.unique(np.array(pages, dtype=np.int64) // PAGE_BYTES)
    second = np.setdiff1d(np.array(control, dtype=np.int64) // PAGE_BYTES, first)
    return SampledObjects(place, first, second, object_bytes * count // max(1, len(numbers)))


def _taken(container: Any, count: int, fractions: Sequence[float]) -> Iterator[tuple[int, Any]]:
    """Yield the number of each fraction and the item there: of a dict its key, then its value. No item comes twice."""
    wanted: dict[int, int] = {}
    for number, fraction in enumerate(fractions):
        wanted.setdefault(min(count - 1, int(fraction * count)), number)
    if isinstance(container, list | tuple):
        get: Any = tuple.__getitem__ if isinstance(container, tuple) else list.__getitem__
        yield from ((number, get(container, place)) for place, number in wanted.items())
        return
    if isinstance(container, np.ndarray):
        yield from zip(wanted.values(), container.reshape(-1)[list(wanted)].tolist(), strict=True)
        return
    ordered = iter(dict.items(container)) if isinstance(container, dict) else iter(container)
    last = 0
    for place in sorted(wanted):
        item = next(islice(ordered, place - last, None), None)
        last = place + 1
        if isinstance(container, dict) and item is not None:
            # Not the pair: it exists for this moment only, and the next one has the same address.
            yield wanted[place], item[0]
            yield wanted[place], item[1]
        else:
            yield wanted[place], item


def _addresses(obj: Any, depth: int, seen: set[int], addresses: list[int]) -> int:
    """Collects addresses of an object and what it holds; its bytes, of large objects only the page with the count."""
    if id(obj) in seen or obj is None or isinstance(obj, bool | type):
        return 0
    seen.add(id(obj))
    addresses.append(id(obj))
    own = 112 if isinstance(obj, np.ndarray) else min(PAGE_BYTES, sys.getsizeof(obj, 64))
    if depth >= _ITEM_DEPTH:
        return own
    if isinstance(obj, dict):
        children: Iterator[Any] = (each for pair in islice(obj.items(), _ITEM_CHILDREN) for each in pair)
    elif isinstance(obj, _KINDS):
        children = islice(obj, _ITEM_CHILDREN)
    else:
        children = iter((own_dict(obj) or {}).values()) if type(obj).__module__ != "builtins" else iter(())
    inner = sum(_addresses(child, depth + 1, seen, addresses) for child in children)
    many = len(obj) if isinstance(obj, _KINDS) else 0
    return own + (inner * many // _ITEM_CHILDREN if many > _ITEM_CHILDREN else inner)

"""Finds the caches of samples that a dataset holds, by path. Runs no code of the user's."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any

from stoker._pickling.instances import own_dict
from stoker._tools.doctor.facts.target import FoundCache

_MOST_OBJECTS = 2000
_DEPTH = 8
_ITEMS = 256
_OURS = {"CachedDataset": "stoker.cache", "CachedFunction": "stoker.cached"}
_THEIRS = {
    ("monai", "CacheDataset"), ("monai", "CacheNTransDataset"), ("monai", "LMDBDataset"), ("monai", "PersistentDataset"),
    ("monai", "SmartCacheDataset"), ("diskcache", "Cache"), ("diskcache", "FanoutCache"),
    ("joblib", "MemorizedFunc"), ("torchdata", "InMemoryCacheHolderMapDataPipe"), ("torch", "InMemoryCacheHolderMapDataPipe"),
}  # fmt: skip
"""Libraries' caches, by package and class."""


def caches(dataset: Any) -> tuple[FoundCache, ...]:
    """Each cache, with the path of the innermost one that it lies in. What a cache holds in its store is not looked at."""
    found: dict[int, FoundCache] = {}
    seen: set[int] = set()
    queue: deque[tuple[str, Any, int, str | None]] = deque([("dataset", dataset, 0, None)])
    while queue and len(seen) < _MOST_OBJECTS:
        path, obj, depth, inside = queue.popleft()
        if id(obj) in seen:
            continue
        seen.add(id(obj))
        kind = _kind(type(obj))
        if kind is not None:
            found[id(obj)] = FoundCache(path, kind, inside)
            inside = path
        if depth < _DEPTH:
            queue.extend((inner, value, depth + 1, inside) for inner, value in _held(path, obj))
    return tuple(found.values())


def _kind(kind: type) -> str | None:
    for each in kind.__mro__:
        package = each.__module__.partition(".")[0]
        if package == "stoker" and each.__name__ in _OURS:
            return _OURS[each.__name__]
        if (package, each.__name__) in _THEIRS:
            return f"{package}'s {each.__name__}"
    return None


def _held(path: str, obj: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(obj, dict):
        if len(obj) <= _ITEMS:
            yield from (
                (f"{path}[{key!r}]", value) for key, value in dict.items(obj) if isinstance(key, str | int)
            )
    elif isinstance(obj, list | tuple):
        if len(obj) <= _ITEMS:
            yield from ((f"{path}[{place}]", value) for place, value in enumerate(obj))
    elif not isinstance(obj, type):
        ours = _kind(type(obj)) in _OURS.values()  # the store itself holds no other cache
        yield from (
            (f"{path}.{name}", value)
            for name, value in (own_dict(obj) or {}).items()
            if not (ours and name.startswith("_"))
        )
        for each in type(obj).__mro__[:-1]:  # decorated methods
            yield from ((f"{path}.{name}", value) for name, value in vars(each).items() if _kind(type(value)))

"""Looks for paths in the dataset's attributes: texts and ``Path`` objects that name a file or folder which exists here.

It follows instance attributes and containers, not functions. Of a large container it takes some items. Runs no code of the user's.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterator
from itertools import islice
from time import monotonic
from typing import Any

from stoker._pickling.instances import own_dict
from stoker._tools.doctor.facts.paths import HeldPath, PathFacts
from stoker._tools.sandbox.subject import Subject

_DEEP = 5
_ITEMS = 64
"""Of a container, how many are looked at."""
_OBJECTS = 20_000
_BUDGET_S = 1.5
_LONGEST = 4096
_MOST = 200
_LEAVES = (int, float, bytes, bool, complex, type, type(None))


def probe(subject: Subject) -> PathFacts:
    """Breadth first, so that ``dataset.root`` comes before what lies below it."""
    found: dict[str, HeldPath] = {}
    todo: deque[tuple[str, str, Any, int]] = deque([("dataset", "dataset", subject.dataset, 0)])
    seen: set[int] = set()
    until_s = monotonic() + _BUDGET_S
    while todo and len(seen) < _OBJECTS and len(found) < _MOST and monotonic() < until_s:
        at, group, value, depth = todo.popleft()
        if isinstance(value, str | os.PathLike):
            _note(found, at, group, value)
            continue
        if isinstance(value, _LEAVES) or id(value) in seen:
            continue
        seen.add(id(value))
        if depth < _DEEP:
            todo.extend((name, where, each, depth + 1) for name, where, each in _below(at, group, value))
    return PathFacts(tuple(found.values()), complete=not todo)


def _note(found: dict[str, HeldPath], at: str, group: str, value: Any) -> None:
    """One entry for all paths of a container. Only text with a separator counts: any word may be a file's name by chance."""
    if not isinstance(value, str) and type(value).__module__.partition(".")[0] != "pathlib":
        return  # its __fspath__ is the user's code
    text = os.fspath(value)
    if not isinstance(text, str) or os.sep not in text or len(text) > _LONGEST or "\0" in text:
        return
    if not os.path.exists(text):
        return
    known = found.get(group)
    if known is None:
        found[group] = HeldPath(at, os.path.abspath(text))
    else:
        found[group] = HeldPath(known.at, known.path, known.count + 1)


def _below(at: str, group: str, value: Any) -> Iterator[tuple[str, str, Any]]:
    """Name, container and value of what it holds. All items of a container are counted under the container's own name."""
    if type(value) is dict:
        for key, each in islice(value.items(), _ITEMS):
            yield f"{at}[{key!r}]" if isinstance(key, str | int) else f"a value of {at}", at, each
            if isinstance(key, str) and os.sep in key:
                yield f"a key of {at}", f"the keys of {at}", key
    elif type(value) in (list, tuple):
        for place, each in enumerate(islice(value, _ITEMS)):
            yield f"{at}[{place}]", at, each
    elif type(value) in (set, frozenset):
        for each in islice(value, _ITEMS):
            yield f"an item of {at}", at, each
    else:
        for name, each in (own_dict(value) or {}).items():
            yield f"{at}.{name}", f"{at}.{name}", each

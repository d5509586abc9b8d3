"""Which part of something cannot be packed, by its path. Slow: called only after a failure."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from itertools import islice
from typing import Any

from stoker._share.sizes import attributes_of

_PARTS = 1000
_LONG = 40


def culprit(obj: Any, steps: tuple[object, ...]) -> tuple[str, object, str]:
    """The innermost part that cannot be pickled: its path behind the container, itself, and what pickle says of it.

    ``steps`` lead to an item that is known to fail. The search goes on within it.
    """
    path, part = "", obj
    for step in steps:
        try:
            part = part[step]
        except Exception:  # an item of a set: nothing leads to it
            return path, part, ""
        path += f"[{_short(step)}]"
    seen: set[int] = set()
    while id(part) not in seen:
        seen.add(id(part))
        for step_text, inner in islice(_parts(part), _PARTS):
            if id(inner) not in seen and _failure(inner) is not None:
                path, part = path + step_text, inner
                break
    return path, part, _failure(part) or ""


def _failure(obj: object) -> str | None:
    try:
        pickle.dumps(obj, 5)
    except Exception as error:
        return str(error) or type(error).__name__
    return None


def _parts(obj: Any) -> Iterator[tuple[str, object]]:
    if isinstance(obj, dict):
        yield from ((f"[{_short(key)}]", value) for key, value in obj.items())
    elif isinstance(obj, tuple) and hasattr(obj, "_fields"):
        yield from ((f".{name}", value) for name, value in zip(obj._fields, obj, strict=False))
    elif isinstance(obj, list | tuple):
        yield from ((f"[{place}]", value) for place, value in enumerate(obj))
    elif not isinstance(obj, type):
        attributes = attributes_of(obj)
        if attributes is not None:
            yield from ((f".{name}", value) for name, value in attributes.items())


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _LONG else f"{text[: _LONG - 1]}…"

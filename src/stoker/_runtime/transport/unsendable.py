"""Finds the part of a batch that cannot be pickled, and names it by its path."""

from __future__ import annotations

import dataclasses
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from stoker.errors import UnsendableError, coded

_Failure = Callable[[object], Exception | None]


def unsendable(obj: object, error: Exception, failure: _Failure, name: str = "batch") -> UnsendableError:
    """Return the error to raise for ``obj``, as in ``batch['meta'][3]: generator (cannot pickle ...)``.

    ``failure`` returns why a part cannot be pickled by itself, or None. Slow: called only after a failure.
    """
    path, part, reason = _descend(obj, error, failure, name)
    text = f"{path}: {type(part).__qualname__} ({_reason(reason)})"
    return coded(UnsendableError(text), "STK304" if "workers must return CPU tensors" in text else "STK406")


def _descend(obj: object, error: Exception, failure: _Failure, path: str) -> tuple[str, object, Exception]:
    """Follow failing parts down to one that fails although none of its own parts does."""
    seen: set[int] = set()
    if isinstance(error.__cause__ or error, RecursionError):
        # Every step down would fail for the same reason, up to a hundred thousand times.
        return path, obj, error
    while id(obj) not in seen:
        seen.add(id(obj))
        for step, part in _parts(obj):
            reason = None if id(part) in seen else failure(part)
            if reason is not None:
                path, obj, error = path + step, part, reason
                break
    return path, obj, error


def _parts(obj: Any) -> Iterator[tuple[str, object]]:
    """Yield the parts of an object that are pickled with it, each with its step of the path."""
    if isinstance(obj, dict):
        for key, value in obj.items():
            yield f"[{_short(key)}]", value
        for key in obj:
            yield f".keys() {_short(key)}", key
    elif isinstance(obj, tuple) and hasattr(obj, "_fields"):
        yield from ((f".{field}", value) for field, value in zip(obj._fields, obj, strict=False))
    elif isinstance(obj, list | tuple | deque):
        yield from ((f"[{number}]", value) for number, value in enumerate(obj))
    elif isinstance(obj, set | frozenset):
        yield from ((f" item {_short(value)}", value) for value in obj)
    elif isinstance(obj, np.ndarray) and obj.dtype.hasobject:
        yield from ((f".flat[{number}]", value) for number, value in enumerate(obj.flat))
    if isinstance(obj, type) or callable(obj):
        return
    names = set(getattr(obj, "__dict__", ()))
    if dataclasses.is_dataclass(obj):
        names.update(field.name for field in dataclasses.fields(obj))
    for kind in type(obj).__mro__:
        slots = kind.__dict__.get("__slots__", ())
        names.update((slots,) if isinstance(slots, str) else slots)
    for name in sorted(names - {"__dict__", "__weakref__"}):
        if hasattr(obj, name):
            yield f".{name}", getattr(obj, name)


def _reason(error: Exception) -> str:
    return str(error) or type(error).__name__


def _short(value: object, limit: int = 40) -> str:
    text = repr(value)
    return text if len(text) <= limit else f"{text[: limit - 1]}…"

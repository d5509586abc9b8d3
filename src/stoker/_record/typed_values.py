"""Compares values that were read from somewhere with declared types: classes of fields, and what stands in lists and dicts. Pure.

Numbers are finite and fit 64 bits, so that nobody who reckons with them fails or loops for ever.
"""

from __future__ import annotations

import functools
import math
import types
import typing
from dataclasses import is_dataclass
from typing import Any

_LARGEST = (1 << 63) - 1
_LONGEST = 100_000
_MOST_ENTRIES = 100_000


def wrong(value: Any, kind: Any, where: str = "") -> str:
    """What is wrong with a value of this kind, in words; "" if nothing is.

    A kind is int, float, str, bool, None, Any, a TypedDict, a dataclass, or a list, tuple, dict or union of such. A TypedDict's
    entry that is missing becomes None where it may be: an older stoker did not write it.
    """
    found = _wrong_plain(value, kind)
    if found is not None:
        return "" if not found else f"{where or 'it'} is {found}"
    if typing.get_origin(kind) is types.UnionType:
        answers = [wrong(value, each, where) for each in typing.get_args(kind)]
        return "" if "" in answers else max(answers, key=len)
    if typing.is_typeddict(kind):
        return _wrong_dict(value, kind, where)
    if isinstance(kind, type) and is_dataclass(kind):
        if not isinstance(value, kind):
            return f"{where or 'it'} is {_shown(value)}"
        return _first((getattr(value, name), inner, name) for name, inner in _entries(kind).items())
    return _wrong_entries(value, kind, where)


def _wrong_plain(value: Any, kind: Any) -> str | None:
    """The same for what has no entries; None for a kind that has."""
    if kind is Any:
        return ""
    if kind is int or kind is float:
        whole = type(value) is int and -_LARGEST <= value <= _LARGEST
        fits = type(value) is float and math.isfinite(value) and abs(value) <= _LARGEST
        return "" if whole or (fits and kind is float) else "no number that fits"
    if kind is str:
        return "" if type(value) is str and len(value) <= _LONGEST else "no text"
    if kind is bool or kind is type(None):
        return "" if type(value) is kind else _shown(value)
    return None


def _wrong_dict(value: Any, kind: Any, where: str) -> str:
    if not isinstance(value, dict):
        return f"{where or 'it'} is {_shown(value)}"
    before = f"{where}." if where else ""
    entries = _entries(kind)
    for name, inner in entries.items():
        if name not in value:
            if type(None) not in typing.get_args(inner):
                return f"{before}{name} is missing"
            value[name] = None
    return _first((value[name], inner, f"{before}{name}") for name, inner in entries.items())


def _wrong_entries(value: Any, kind: Any, where: str) -> str:
    outer, inner = typing.get_origin(kind) or kind, typing.get_args(kind)
    if not isinstance(value, outer) or len(value) > _MOST_ENTRIES:
        return f"{where or 'it'} is {_shown(value)}"
    if outer is tuple and inner and inner[-1] is not Ellipsis:
        if len(value) != len(inner):
            return f"{where or 'it'} is {_shown(value)}"
        return _first((each, of, where) for each, of in zip(value, inner, strict=True))
    if outer is dict:
        keys, values = inner or (Any, Any)
        return _first((each, keys, where) for each in value) or _first(
            (each, values, where) for each in value.values()
        )
    return _first((each, inner[0] if inner else Any, where) for each in value)


def _first(parts: typing.Iterable[tuple[Any, Any, str]]) -> str:
    return next((found for value, kind, where in parts if (found := wrong(value, kind, where))), "")


@functools.cache
def _entries(kind: Any) -> dict[str, Any]:
    return typing.get_type_hints(kind)


def _shown(value: Any) -> str:
    return "null" if value is None else f"a {type(value).__name__}"

"""Turns the indices that samplers yield into 64-bit numbers: whole numbers as they are, others by a hash of what they say."""

from __future__ import annotations

import operator
from hashlib import blake2b
from typing import Any, NamedTuple

import numpy as np

from stoker._receipt.mixing import MASK, Words


class IndexKeys(NamedTuple):
    """One number per index. ``whole``: all are whole numbers. ``told``: each is known by its value, not by its type alone."""

    keys: Words
    whole: bool
    told: bool


def index_keys(indices: list[Any]) -> IndexKeys:
    """The keys of indices. Never raises for what a sampler may yield."""
    keys, whole, told = np.empty(len(indices), np.uint64), True, True
    for place, index in enumerate(indices):
        number = _whole(index)
        if number is None:
            whole = False
            said = _said(index)
            told = told and said is not None
            text = type(index).__qualname__ if said is None else said
            number = int.from_bytes(blake2b(text.encode("utf-8", "backslashreplace"), digest_size=8).digest())
        keys[place] = number
    return IndexKeys(keys, whole, told)


def _whole(index: Any) -> int | None:
    try:
        number = operator.index(index)
    except Exception:
        return None
    return number & MASK if -(1 << 63) <= number < 1 << 63 else None


def _said(index: Any) -> str | None:
    """A text that is the same for the same index in another process; None where there is none."""
    if type(index) is int:
        return hex(index)  # of thousands of digits Python makes no other text
    if index is None or isinstance(index, str | bytes | bool | float | complex):
        return f"{type(index).__name__} {index!r}"
    if isinstance(index, slice | range):
        return repr(index)
    if isinstance(index, list | tuple):
        inner = [_said(each) for each in index]
        return None if None in inner else f"[{' '.join(map(str, inner))}]"
    if isinstance(index, dict):
        return _said([item for pair in index.items() for item in pair])
    number = _whole(index)
    if number is not None:
        return f"int {number}"
    values = getattr(index, "tolist", None)
    try:
        return None if values is None else _said(values())
    except Exception:
        return None

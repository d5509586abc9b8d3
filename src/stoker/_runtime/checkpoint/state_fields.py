"""Checks each entry of a loader's state. A reader returns the entry as a plain value, or raises any exception."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

Reader = Callable[[Any], Any]

_MOST = 1 << 48
"""Counts stay below it, so that places computed from them fit 64 bits."""
_GENERATORS = ("torch", "python", "numpy")


def whole(value: Any) -> int:
    """An integer, of numpy too: some ways to store a checkpoint make arrays of numbers."""
    if isinstance(value, bool):
        raise TypeError
    number = operator.index(value)
    if not -(1 << 63) <= number < 1 << 63:
        raise OverflowError
    return number


def count(value: Any) -> int:
    """How many there are of something."""
    number = whole(value)
    if not 0 <= number < _MOST:
        raise ValueError
    return number


def seed(value: Any) -> int:
    """As torch draws it."""
    number = whole(value)
    if number < 0:
        raise ValueError
    return number


def flag(value: Any) -> bool:
    """True or False."""
    if not isinstance(value, bool):
        raise TypeError
    return value


def text(value: Any) -> str:
    """A string."""
    if not isinstance(value, str):
        raise TypeError
    return str(value)


def kind(value: Any) -> str:
    """Return the kind of a dataset."""
    if text(value) not in ("map", "iterable"):
        raise ValueError
    return text(value)


def users(value: Any) -> Any:
    """What the user's code made, whatever that is."""
    return value


def maybe(read: Reader) -> Reader:
    """Or None."""
    return lambda value: None if value is None else read(value)


def every(read: Reader) -> Reader:
    """A list of such."""

    def each(value: Any) -> tuple[Any, ...]:
        if not isinstance(value, list | tuple):
            raise TypeError
        return tuple(map(read, value))

    return each


def pair(value: Any) -> tuple[int, int]:
    """Two counts."""
    first, second = every(count)(value)
    return first, second


def mapping(value: Any) -> dict[Any, Any]:
    """A dict, whatever is in it."""
    if not isinstance(value, dict):
        raise TypeError
    return value


def generators(value: Any) -> dict[str, Any]:
    """States of generators, as texts: of those that were given, and of the global ones by name."""
    found: dict[str, Any] = {"given": list(every(text)(mapping(value)["given"]))}
    found |= {name: text(value[name]) for name in _GENERATORS if name in value}
    if "pulled" in value:
        found["pulled"] = generators({"given": [], **mapping(value["pulled"])})
    return found


def boxed(read: Reader) -> Reader:
    """In a tuple of one; JSON makes it a list."""

    def only(value: Any) -> Any:
        if not isinstance(value, list | tuple):
            raise TypeError
        [inner] = value
        return read(inner)

    return only


STATE: dict[str, tuple[Reader, str]] = {
    "kind": (kind, "'map' or 'iterable'"),
    "length": (maybe(count), "a count or None"),
    "sampler": (every(text), "a list of names"),
    "sampler_length": (maybe(count), "a count or None"),
    "replicas": (maybe(count), "a count or None"),
    "rank": (maybe(count), "a count or None"),
    "elastic": (flag, "True or False"),
    "batch_size": (maybe(count), "a count or None"),
    "rng": (text, "a name"),
    "base_seed": (seed, "a seed"),
    "pipe_seed": (maybe(seed), "a seed or None"),
    "batches": (count, "a count"),
    "samples": (count, "a count"),
    "ahead": (every(count), "a list of counts"),
    "finished": (flag, "True or False"),
    "generators": (boxed(generators), "a tuple of one dict of generators' states"),
    "sampler_epoch": (maybe(whole), "a number or None"),
    "sampler_state": (boxed(users), "a tuple of one state or None"),
    "sampler_at": (count, "a count"),
    "dataset_state": (boxed(users), "a tuple of one state or None"),
    "streams": (maybe(every(mapping)), "a list of streams or None"),
    "turn": (count, "a count"),
    "receipt": (boxed(maybe(text)), "a tuple of one text or None"),
    "resized_at": (boxed(maybe(pair)), "a tuple of one pair of counts or None"),
    "not_in_receipt": (maybe(count), "a count or None"),
}
BOXED = ("generators", "sampler_state", "dataset_state", "receipt", "resized_at")
OPTIONAL = ("receipt", "resized_at", "not_in_receipt")
"""Entries that states of earlier versions do not have."""
STREAM: dict[str, tuple[Reader, str]] = {
    "pulled": (count, "a count"),
    "at": (count, "a count"),
    "dataset": (users, ""),
    "iterator": (users, ""),
    "ended": (flag, "True or False"),
    "begun": (flag, "True or False"),
}

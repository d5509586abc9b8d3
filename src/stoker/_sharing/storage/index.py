"""Finds a key in a column of keys, through a hash index of fixed size. A look-up reads one bucket.

Python's own hash of a string differs from process to process, so keys are hashed in a way that does not. Buckets hold one key on
average; the rows of bucket b are ``order[starts[b]:starts[b + 1]]``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from numbers import Number
from typing import Any
from zlib import crc32

import numpy as np

from stoker._pickling.segment import Place, Segment, SegmentWriter
from stoker._sharing.storage.layouts import ColumnLayout

_MIX = 0x9E3779B97F4A7C15
_ALL = (1 << 64) - 1
_NONE = 0x5BD1E995
_HOMES = ("builtins", "numpy", "decimal", "fractions")


class Unstable(Exception):
    """A key whose hash may differ in another process."""


def stable_hash(key: object) -> int:
    """A hash that is the same in every process, and equal for keys that compare equal. Raises Unstable."""
    kind: Any = type(key)
    if kind is str:
        return crc32(key.encode("utf-8", "surrogatepass"))  # type: ignore[attr-defined]
    if kind is int:
        return hash(key)
    if not _hashes_like_its_base(kind):
        raise Unstable(kind.__name__)
    if isinstance(key, str):
        return crc32(str.encode(key, "utf-8", "surrogatepass"))
    if isinstance(key, bytes):
        return crc32(key)
    if isinstance(key, Number):
        if key != key:
            raise Unstable(f"{kind.__name__} that are NaN")  # found by identity alone, which is not packed
        return hash(key)  # numbers hash by value, and equal ones alike whatever their type
    if isinstance(key, tuple):
        mixed = len(key)
        for item in key:
            mixed = ((mixed ^ stable_hash(item)) * _MIX) & _ALL
        return mixed
    if isinstance(key, frozenset):
        return sum(stable_hash(item) for item in key) & _ALL
    if key is None:
        return _NONE
    raise Unstable(kind.__name__)


@lru_cache(maxsize=256)
def _hashes_like_its_base(kind: Any) -> bool:
    """Whether equality and hash are those of Python's own type (or of NumPy's): a subclass may have thought of another."""
    for base in kind.__mro__:
        if "__hash__" in base.__dict__ or "__eq__" in base.__dict__:
            return base.__module__ in _HOMES
    return False


@dataclass(frozen=True, slots=True)
class Index:
    """Where the buckets lie. ``shift`` leaves as many bits of the mixed hash as there are buckets."""

    starts: Place
    order: Place
    kind: str
    shift: int

    @classmethod
    def write(cls, keys: Sequence[object], writer: SegmentWriter) -> Index:
        """Build the index of these keys. Raises Unstable."""
        hashes = np.fromiter((stable_hash(key) & _ALL for key in keys), np.uint64, len(keys))
        bits = max(1, (len(keys) - 1).bit_length())
        buckets = (hashes * np.uint64(_MIX)) >> np.uint64(64 - bits)
        dtype, kind = (np.uint32, "I") if len(keys) < 1 << 32 else (np.uint64, "Q")
        order = np.argsort(buckets, kind="stable").astype(dtype)
        counts = np.bincount(buckets.astype(np.int64), minlength=1 << bits)
        starts = np.zeros((1 << bits) + 1, dtype)
        np.cumsum(counts, out=starts[1:])
        return cls(writer.array(starts), writer.array(order), kind, 64 - bits)


class Keys:
    """The keys of a shared dict or set, and where each is."""

    __slots__ = ("_order", "_shift", "_starts", "at", "rows")

    def __init__(self, segment: Segment, layout: ColumnLayout, index: Index, rows: int) -> None:
        self.at = layout.reader(segment)
        self.rows = rows
        self._starts = segment.words(index.starts, index.kind)
        self._order = segment.words(index.order, index.kind)
        self._shift = index.shift

    def row(self, key: object) -> int:
        """The row of a key; -1 when it is not there."""
        try:
            hashed = stable_hash(key)
        except Unstable:
            hash(key)  # a list is a TypeError, as it would be
            return -1
        starts = self._starts
        bucket = ((hashed * _MIX) & _ALL) >> self._shift
        for place in range(starts[bucket], starts[bucket + 1]):
            row = self._order[place]
            found = self.at(row)
            if found is key or found == key:
                return row
        return -1

    def __iter__(self) -> Iterator[Any]:
        return map(self.at, range(self.rows))

"""Hashes 64-bit numbers in bulk, one to one: what was hashed can be read back (``unmix``).

The digests find accidents: a wrong order, a lost or repeated sample. They do not withstand somebody who forges one.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Words = npt.NDArray[np.uint64]

MASK = (1 << 64) - 1
_STEP = 0x9E3779B97F4A7C15
_FIRST, _SECOND = 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
_UNDO_FIRST, _UNDO_SECOND = pow(_FIRST, -1, 1 << 64), pow(_SECOND, -1, 1 << 64)
_WORDS = tuple(np.uint64(each) for each in (_STEP, _FIRST, _SECOND, 30, 27, 31))
_ROWS = np.uint64(0xD6E8FEB86659FD93)
_ONE = np.uint64(1)


def mix(values: Words) -> Words:
    """A new array with each number hashed (splitmix64)."""
    step, first, second, a, b, c = _WORDS
    mixed: Words = values + step
    mixed ^= mixed >> a
    mixed *= first
    mixed ^= mixed >> b
    mixed *= second
    mixed ^= mixed >> c
    return mixed


def unmix_one(value: int) -> int:
    """The number that ``mix`` made this of."""
    value = _undo_shift(value, 31)
    value = _undo_shift((value * _UNDO_SECOND) & MASK, 27)
    value = _undo_shift((value * _UNDO_FIRST) & MASK, 30)
    return (value - _STEP) & MASK


def _undo_shift(value: int, bits: int) -> int:
    return value ^ (value >> bits) ^ (value >> 2 * bits)


def batch_hashes(mixed: Words, ends: Words) -> Words:
    """One hash per batch of the hashes of its rows, in their order. ``ends`` has where each batch ends. Never 0."""
    starts = np.concatenate((np.zeros(1, np.uint64), ends[:-1]))
    rows = ends - starts
    places = np.arange(len(mixed), dtype=np.uint64)
    places -= np.repeat(starts, rows.astype(np.int64))
    places += places
    places += _ONE
    places *= mixed
    sums = np.concatenate((np.zeros(1, np.uint64), np.cumsum(places, dtype=np.uint64)))
    hashes = mix(sums[ends.astype(np.int64)] - sums[starts.astype(np.int64)] + rows * _ROWS)
    hashes[hashes == 0] = _ONE
    return hashes


def keyed(hashes: Words, numbers: Words) -> Words:
    """Hashes of batches, each bound to its number in the epoch: sums of these tell the order."""
    return mix(hashes + mix(numbers))


def unkeyed(entries: Words, numbers: Words) -> Words:
    """What ``keyed`` was given."""
    a, b, c = (np.uint64(each) for each in (31, 27, 30))
    found: Words = entries ^ (entries >> a) ^ (entries >> np.uint64(62))
    found *= np.uint64(_UNDO_SECOND)
    found ^= (found >> b) ^ (found >> np.uint64(54))
    found *= np.uint64(_UNDO_FIRST)
    found ^= (found >> c) ^ (found >> np.uint64(60))
    found -= np.uint64(_STEP)
    found -= mix(numbers)
    return found


def total(values: Words) -> int:
    """Their sum, modulo 2^64."""
    return int(np.add.reduce(values, dtype=np.uint64)) if len(values) else 0


def words(values: Any) -> Words:
    """Whole numbers as an array, negative ones by their 64 bits."""
    return np.asarray(values, dtype=np.int64).view(np.uint64)

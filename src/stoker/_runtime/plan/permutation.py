"""Computes a shuffled order instead of storing it: position in, element out, for any length, in constant memory.

Positions are cut into two digits, ``left`` in range(a) and ``right`` in range(b) with a · b just above the length. In every round
one digit is moved by a keyed hash of the other (a Feistel network in mixed radix), which can be undone whatever the hash is: so
no two positions meet. The few results that lie beyond the length are sent through again until they do not (cycle walking). Short
orders are too small for a network of rounds to be random enough: they are the sorted order of hashes, in a table.

Integer arithmetic modulo 2**64 only: the same order with every version of numpy and on every machine.
"""

from __future__ import annotations

import math
import operator

import numpy as np
import numpy.typing as npt

from stoker._runtime.scheduler.row_ranges import mix

Words = npt.NDArray[np.uint64]

ROUNDS = 8
"""With four, pairs that share a digit are not random in orders of a few thousand; from five on no test of ours sees it."""
TABLE_LENGTH = 4096
"""Orders up to this length are a table: at most 32 KiB."""
MOST = 1 << 62

_MASK = (1 << 64) - 1
_GOLDEN = 0x9E3779B97F4A7C15
_FIRST = 0xBF58476D1CE4E5B9
_SECOND = 0x94D049BB133111EB
_HALF = np.uint64(32)


class Permutation:
    """A keyed pseudo-random permutation of ``range(length)``. Immutable; any thread.

    ``block`` and ``at`` take many positions at once; ``permutation[i]`` takes one, in plain Python.
    """

    __slots__ = ("_keys", "_left", "_right", "_table", "length")

    def __init__(self, length: int, seed: int, epoch: int = 0) -> None:
        if not 0 <= length <= MOST:
            raise ValueError(f"a permutation has between 0 and 2**62 elements, but got {length}")
        self.length = length
        self._keys = tuple(mix(seed, epoch, 0x5EED, number) for number in range(ROUNDS))
        self._left = math.isqrt(length - 1) + 1 if length else 1
        self._right = -(-length // self._left) or 1
        self._table: Words | None = None
        if length <= TABLE_LENGTH:
            places = np.arange(length, dtype=np.uint64)
            # Distinct inputs have distinct hashes, so the order has no ties that a sort could break its own way.
            self._table = np.argsort(hashed(places, self._keys[0])).astype(np.uint64)

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, position: int) -> int:
        """The element at one position; negative positions count from the end."""
        place = operator.index(position)
        if place < 0:
            place += self.length
        if not 0 <= place < self.length:
            raise IndexError(f"position {position} of a permutation of {self.length}")
        if self._table is not None:
            return int(self._table[place])
        while True:
            place = self._one_pass(place)
            if place < self.length:
                return place

    def block(self, start: int, stop: int, step: int = 1) -> Words:
        """The elements at ``range(start, stop, step)``, which lies within the length."""
        if not 0 <= start <= stop <= self.length or step < 1:
            raise IndexError(f"positions {start}:{stop}:{step} of a permutation of {self.length}")
        return self.at(np.arange(start, stop, step, dtype=np.uint64))

    def at(self, positions: Words) -> Words:
        """The elements at any positions, each below the length. Makes a new array; memory in proportion to it."""
        if self._table is not None:
            return self._table[positions.astype(np.intp)]
        found = self._many_pass(positions)
        beyond = np.flatnonzero(found >= np.uint64(self.length))
        while beyond.size:
            found[beyond] = again = self._many_pass(found[beyond])
            beyond = beyond[again >= np.uint64(self.length)]
        return found

    def _many_pass(self, places: Words) -> Words:
        """All rounds, over arrays. Says the same as ``_one_pass``."""
        width = np.uint64(self._right)
        left = places // width
        right = places - left * width
        for number, key in enumerate(self._keys):
            moved, other, side = (right, left, self._right) if number % 2 else (left, right, self._left)
            step = other + np.uint64(key)
            step *= np.uint64(_FIRST)
            step ^= step >> _HALF
            step *= np.uint64(_SECOND)
            step >>= _HALF
            step *= np.uint64(side)
            step >>= _HALF
            moved += step
            # Where nothing is to be taken off the difference wraps around and is huge: the smaller one is the remainder.
            np.minimum(moved, moved - np.uint64(side), out=moved)
        left *= width
        left += right
        return left

    def _one_pass(self, place: int) -> int:
        left, right = divmod(place, self._right)
        for number, key in enumerate(self._keys):
            if number % 2:
                right = (right + _step(left, key, self._right)) % self._right
            else:
                left = (left + _step(right, key, self._left)) % self._left
        return left * self._right + right


def hashed(words: Words, key: int) -> Words:
    """A 64-bit hash of every word, different for different words (splitmix64's finaliser on a keyed sequence)."""
    mixed = words * np.uint64(_GOLDEN)
    mixed += np.uint64(key)
    mixed ^= mixed >> np.uint64(30)
    mixed *= np.uint64(_FIRST)
    mixed ^= mixed >> np.uint64(27)
    mixed *= np.uint64(_SECOND)
    mixed ^= mixed >> np.uint64(31)
    return mixed


def _step(other: int, key: int, side: int) -> int:
    """How far one digit is moved by the other: a number below ``side``."""
    word = (other + key) * _FIRST & _MASK
    word = (word ^ word >> 32) * _SECOND & _MASK
    return (word >> 32) * side >> 32

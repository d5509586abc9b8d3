"""Saves, restores and seeds a ``random.Random`` by its words, where a trial shows that they lie where CPython has them.

``random.getstate`` and ``setstate`` go through a tuple of 625 numbers, and ``seed`` mixes all words three times: 7 to 10 µs each.
Copying the words takes 0.3 µs. NumPy's Mersenne twister fills the same 624 words from 32 bits, in 1.4 µs.
"""

from __future__ import annotations

import _random
import ctypes
import random
import sys
import threading
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

_PYTHON: Any = random._inst
_AT = object.__basicsize__
_WORDS = 624
_WORDS_BYTES = 4 * _WORDS
_BYTES = 4 + _WORDS_BYTES
"""Of a ``random.Random``, behind the head of every object: its index and its words."""
_UNUSED = _WORDS.to_bytes(4, sys.byteorder)
"""The index of a generator that was just seeded: its first number is made from new words."""
_MASK32 = (1 << 32) - 1

_set_state = _random.Random.setstate


class _Twister(threading.local):
    """A twister of NumPy for each thread, whose words become those of Python's generators."""

    def __init__(self) -> None:
        self.bits = np.random.MT19937(0)
        self.fill = np.random.RandomState(self.bits).seed
        self.words = _view(self.bits.ctypes.state_address, _WORDS_BYTES)


class PythonState:
    """The state of Python's global generator when it was made, or of another ``random.Random``."""

    __slots__ = ("_bytes", "_gauss", "_of", "_there")

    def __init__(self, of: Any = _PYTHON) -> None:
        self._of = of
        self._there = _global_words() if of is _PYTHON else _view(id(of) + _AT, _BYTES)
        self._gauss = of.gauss_next
        self._bytes = bytes(self._there)

    def restore(self) -> None:
        """Put it back. Python's lock is held meanwhile: another thread draws before or after."""
        self._there[:] = self._bytes
        self._of.gauss_next = self._gauss


def python_seeder(of: Any = _PYTHON) -> Callable[[int], None]:
    """Return a function that seeds this ``random.Random`` from a 64-bit key.

    It uses the middle 32 bits. NumPy's legacy generator and torch's, the same twister, take the halves. The numbers are the same
    where the words have to go through a tuple.
    """
    if not (python_is_plain() and numpy_is_plain()):
        return lambda key: _seed_slowly(of, key)
    twister = _twister
    words, index = _view(id(of) + _AT + 4, _WORDS_BYTES), _view(id(of) + _AT, 4)

    def seed(key: int) -> None:
        twister.fill(key >> 16 & _MASK32)
        words[:] = twister.words
        index[:] = _UNUSED
        of.gauss_next = None

    return seed


def _seed_slowly(of: Any, key: int) -> None:
    _twister.fill(key >> 16 & _MASK32)
    _set_state(of, (*_twister.bits.state["state"]["key"].tolist(), _WORDS))
    of.gauss_next = None


@cache
def _global_words() -> memoryview:
    return _view(id(_PYTHON) + _AT, _BYTES)


def _view(address: int, size: int) -> memoryview:
    """The bytes at an address. Whoever writes through it keeps the object there alive, and Python's lock."""
    return memoryview((ctypes.c_char * size).from_address(address)).cast("B")


@cache
def python_is_plain() -> bool:
    """Whether a generator's words lie where CPython has them. Tried on one of our own, which has room for them."""
    if _random.Random.__basicsize__ < _AT + _BYTES or type(_PYTHON) is not random.Random:
        return False
    tried = random.Random(5)
    tried.gauss(0, 1)
    *words, index = tried.getstate()[1]
    raw = ctypes.string_at(id(tried) + _AT, _BYTES)
    if raw != _bytes_of((index, *words)):
        return False
    kept, expected = PythonState(tried), tried.getstate()
    tried.seed(6)
    kept.restore()
    return tried.getstate() == expected


@cache
def numpy_is_plain() -> bool:
    """Whether the words of NumPy's Mersenne twister lie first in the state whose address it tells."""
    tried = np.random.MT19937(7)
    told = ctypes.string_at(tried.ctypes.state_address, _WORDS_BYTES)
    return told == _bytes_of(tried.state["state"]["key"].tolist())


def _bytes_of(words: Any) -> bytes:
    return b"".join(word.to_bytes(4, sys.byteorder) for word in words)


_twister = _Twister()

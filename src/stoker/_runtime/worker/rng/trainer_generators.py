"""Leaves the training loop's global generators as they were while samples are made on its thread.

Without workers, samples are seeded like everywhere else, so the global generators have to be put back after every batch.
torch's state is copied. NumPy's would take 90 µs: it is swapped for one of ours instead. Python's would take 8 µs as the tuple that
``random.getstate`` makes, so its words are copied as bytes where a trial shows that they lie where CPython has them.
"""

from __future__ import annotations

import _random
import ctypes
import random
import sys
from functools import cache
from typing import Any

import numpy as np
import torch

_NUMPY: Any = np.random.mtrand._rand
_swap_in: Any = getattr(np.random, "set_bit_generator", None)
_PYTHON: Any = random._inst
_STATE_AT = object.__basicsize__
_STATE_BYTES = 4 * 625
"""Of a ``random.Random``, behind the head of every object: its index and its 624 words."""
_spares: list[Any] = []
"""Bit generators of ours that no context uses now. Making one takes longer than a batch of numbers."""


class TrainerGenerators:
    """A context in which the global generators are seeded and then drawn from. They are as before when it is left.

    Caller: a seeder, on the training thread. Seed before anything draws: NumPy's is another one inside. Contexts nest, each
    with an object of its own. What other threads draw meanwhile is lost.

    ``with kept, kept:`` enters one twice, which counts once. An interrupt may come when an ``__exit__`` begins, and so skip it:
    the second one is for that. Wherever else an interrupt comes, the generators are put back before it goes on.
    """

    __slots__ = ("_saved", "_spare")

    def __init__(self) -> None:
        self._saved: tuple[Any, Any, Any] | None = None
        self._spare: Any = None

    def __enter__(self) -> None:
        if self._saved is None:
            try:
                self._swap()
            except BaseException:
                self._put_back()
                raise

    def __exit__(self, *_: object) -> None:
        try:
            self._put_back()
        except BaseException:
            self._put_back()
            raise

    def _swap(self) -> None:
        """Save all states, and put a bit generator of ours in the place of NumPy's."""
        python: Any = PythonState() if python_is_plain() else random.getstate()
        of_torch = torch.default_generator.get_state()
        theirs = _NUMPY._bit_generator
        if type(theirs) is np.random.MT19937 and _can_swap():
            left = _left_gauss(_NUMPY)
            self._spare = _spares.pop() if _spares else np.random.MT19937(0)
            self._saved = python, of_torch, (theirs, left)
            _swap_in(self._spare)
        else:  # whichever bit generator somebody put behind it
            self._saved = python, of_torch, np.random.get_state(legacy=False)

    def _put_back(self) -> None:
        """Idempotent, and may begin anew after an exception."""
        if self._saved is None:
            return
        python, of_torch, of_numpy = self._saved
        if type(python) is PythonState:
            python.restore()
        else:
            random.setstate(python)
        torch.default_generator.set_state(of_torch)
        if type(of_numpy) is not tuple:
            np.random.set_state(of_numpy)
        else:
            theirs, left = of_numpy
            _swap_in(theirs)
            if left["has_gauss"]:
                _leave_gauss(_NUMPY, left)
        spare, self._spare = self._spare, None
        self._saved = None
        if spare is not None:
            _spares.append(spare)


class PythonState:
    """The state of Python's global generator when it was made, or of another ``random.Random``: 0.5 µs instead of 8."""

    __slots__ = ("_bytes", "_gauss", "_of")

    def __init__(self, of: Any = _PYTHON) -> None:
        self._of = of
        self._gauss = of.gauss_next
        self._bytes = ctypes.string_at(id(of) + _STATE_AT, _STATE_BYTES)

    def restore(self) -> None:
        """Put it back."""
        ctypes.memmove(id(self._of) + _STATE_AT, self._bytes, _STATE_BYTES)
        self._of.gauss_next = self._gauss


@cache
def python_is_plain() -> bool:
    """Whether a generator's words lie where CPython has them. Tried on one of our own, which has room for them."""
    if _random.Random.__basicsize__ < _STATE_AT + _STATE_BYTES or type(_PYTHON) is not random.Random:
        return False
    tried = random.Random(5)
    tried.gauss(0, 1)
    *words, index = tried.getstate()[1]
    raw = ctypes.string_at(id(tried) + _STATE_AT, _STATE_BYTES)
    if raw != b"".join(word.to_bytes(4, sys.byteorder) for word in (index, *words)):
        return False
    kept, expected = PythonState(tried), tried.getstate()
    tried.seed(6)
    kept.restore()
    return tried.getstate() == expected


class _NoState:
    """Stands in for a bit generator while only the normal number that a RandomState has in store is read or written."""

    __slots__ = ("state",)

    def __init__(self, state: dict[str, Any]) -> None:
        self.state = state


def _left_gauss(generator: Any) -> dict[str, Any]:
    """The second number of the last pair of normal ones. It is no part of the bit generator, and a swap would lose it."""
    bits = generator._bit_generator
    generator._bit_generator = _NoState({"bit_generator": "MT19937", "state": None})
    try:
        return generator.get_state(legacy=False)  # type: ignore[no-any-return]
    finally:
        generator._bit_generator = bits


def _leave_gauss(generator: Any, left: dict[str, Any]) -> None:
    bits = generator._bit_generator
    generator._bit_generator = _NoState({})
    try:
        generator.set_state(left)
    finally:
        generator._bit_generator = bits


@cache
def _can_swap() -> bool:
    """Whether this NumPy lets the generator be swapped, and the number in store be read and written. Tried on one of our own."""
    if _swap_in is None:  # NumPy before 1.24
        return False
    try:
        tried = np.random.RandomState(np.random.MT19937(1))
        tried.standard_normal()
        expected = tried.get_state(legacy=False)
        left = _left_gauss(tried)
        if not left["has_gauss"] or left["gauss"] != expected["gauss"]:
            return False
        second = tried.standard_normal()
        _leave_gauss(tried, left)
        return bool(tried.standard_normal() == second)
    except (AttributeError, TypeError, ValueError, KeyError):
        return False

"""Leaves the training loop's global generators as they were while samples are made on its thread.

Without workers, samples are seeded like everywhere else, so the global generators have to be put back after every batch.
torch's and Python's states are copied, which takes 10 µs. NumPy's would take 90: it is swapped for one of ours instead.
"""

from __future__ import annotations

import random
from functools import cache
from typing import Any

import numpy as np
import torch

_NUMPY: Any = np.random.mtrand._rand
_swap_in: Any = getattr(np.random, "set_bit_generator", None)
_spares: list[Any] = []
"""Bit generators of ours that no context uses now. Making one takes longer than a batch of numbers."""


class TrainerGenerators:
    """A context in which the global generators are seeded and then drawn from. They are as before when it is left.

    Caller: a seeder, on the training thread. Seed before anything draws: NumPy's is another one inside. Contexts nest, each
    with an object of its own. What other threads draw meanwhile is lost.
    """

    __slots__ = ("_numpy", "_python", "_spare", "_torch")

    def __enter__(self) -> None:
        self._python = random.getstate()
        self._torch = torch.default_generator.get_state()
        theirs = _NUMPY._bit_generator
        if type(theirs) is np.random.MT19937 and _can_swap():
            self._numpy: Any = theirs, _left_gauss(_NUMPY)
            self._spare: Any = _spares.pop() if _spares else np.random.MT19937(0)
            _swap_in(self._spare)
        else:  # whichever bit generator somebody put behind it
            self._spare = None
            self._numpy = np.random.get_state(legacy=False)

    def __exit__(self, *_: object) -> None:
        random.setstate(self._python)
        torch.default_generator.set_state(self._torch)
        if self._spare is None:
            np.random.set_state(self._numpy)
            return
        theirs, left = self._numpy
        _swap_in(theirs)
        if left["has_gauss"]:
            _leave_gauss(_NUMPY, left)
        _spares.append(self._spare)


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

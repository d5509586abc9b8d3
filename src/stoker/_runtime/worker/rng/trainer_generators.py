"""Leaves the training loop's global generators as they were while samples are made on its thread.

Without workers, samples are seeded like everywhere else, so the global generators have to be put back after every batch.
torch's state is copied. NumPy's would take 90 µs: it is swapped for one of ours instead. Python's words are copied as bytes.
"""

from __future__ import annotations

import random
from functools import cache
from typing import Any

import numpy as np
import torch

from stoker._runtime.worker.rng.python_state import PythonState, python_is_plain

_NUMPY: Any = np.random.mtrand._rand
_swap_in: Any = getattr(np.random, "set_bit_generator", None)
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

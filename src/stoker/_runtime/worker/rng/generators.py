"""Recognises, seeds, saves and makes generators of NumPy, torch and Python.

Seeding reuses the generator object. It takes 1.4 µs for torch.Generator, 3 for PCG64, 2 for RandomState and for
random.Random. Other bit generators take about 15 µs.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.random.bit_generator import ISpawnableSeedSequence, SeedSequence

from stoker._runtime.worker.rng.python_state import python_seeder

Seed = Callable[[int], Any]
"""Seeds one generator from a 64-bit key."""

PutBack = Callable[[], Any]
"""Restores the saved state of one generator."""

_KINDS = (np.random.Generator, np.random.RandomState, random.Random, torch.Generator)
NAMES = ("numpy", "torch", "python")
"""The kinds that ``make`` accepts."""

_MASK63 = (1 << 63) - 1
_MASK128 = (1 << 128) - 1
_INCREMENT = 0x5851F42D4C957F2D14057B7EF767814F
"""The increment of the sequence that all our PCG64 streams belong to; any odd number works."""

_SPREAD = 0x9E3779B97F4A7C15F39CC0605CEDC835
"""An odd number that spreads 64 well-mixed bits to 128."""


def is_generator(obj: object) -> bool:
    """Whether it is a generator that can be seeded: no system entropy, nothing on an accelerator."""
    kind = type(obj)
    if not issubclass(kind, _KINDS) or issubclass(kind, random.SystemRandom):
        return False
    return not isinstance(obj, torch.Generator) or obj.device.type == "cpu"


def is_global(obj: object) -> bool:
    """Whether module-level functions draw from it."""
    return obj is random._inst or obj is np.random.mtrand._rand or obj is torch.default_generator


def source(obj: Any) -> object:
    """Return the object that the numbers come from; two generators of NumPy may share it."""
    if isinstance(obj, np.random.Generator):
        return obj.bit_generator
    return obj._bit_generator if isinstance(obj, np.random.RandomState) else obj


def seeder(obj: Any) -> Seed:
    """Return a function that seeds this generator, so that all later numbers depend on the key alone."""
    if isinstance(obj, np.random.Generator):
        return _bit_seeder(obj.bit_generator)
    if isinstance(obj, np.random.RandomState):
        return _legacy_seeder(obj)
    if isinstance(obj, torch.Generator):
        return lambda key: obj.manual_seed(key & _MASK63)
    if type(obj).seed is not random.Random.seed:  # a subclass that does more
        return obj.seed  # type: ignore[no-any-return]
    return python_seeder(obj)


def keep(obj: Any) -> PutBack:
    """Save the state; return a function that restores it."""
    if isinstance(obj, np.random.Generator):
        bits: Any = obj.bit_generator
        found = bits.state
        if not _TELLS_SEQUENCE:
            return lambda: setattr(bits, "state", found)
        sequence = bits.seed_seq
        return lambda: bits.__setstate__((found, sequence))
    if isinstance(obj, torch.Generator):
        tensor = obj.get_state()
        return lambda: obj.set_state(tensor)
    if isinstance(obj, np.random.RandomState):
        legacy = obj.get_state(legacy=False)
        return lambda: obj.set_state(legacy)
    python = obj.getstate()
    return lambda: obj.setstate(python)


def make(kind: str, key: int) -> Any:
    """Make a generator, one of ``NAMES``, seeded from a 64-bit key.

    NumPy's is the one of ``default_rng``. It draws faster than Philox, is made as fast, and can be spawned from.
    """
    if kind == "numpy":
        return np.random.Generator(np.random.PCG64(key))
    if kind == "torch":
        return torch.Generator().manual_seed(key & _MASK63)
    return random.Random(key)


class KeyedSeedSequence(ISpawnableSeedSequence):
    """Gives ``Generator.spawn`` the seeds of its children: a SeedSequence of the latest key, made on request.

    The SeedSequence that a generator was made with counts its children. Their seeds would depend on how many a worker spawned
    before.
    """

    key = 0
    _made: SeedSequence | None = None

    def begin(self, key: int) -> None:
        """Use another key and count children from 0."""
        self.key, self._made = key, None

    def generate_state(self, n_words: int, dtype: Any = np.uint32) -> Any:
        return self._sequence().generate_state(n_words, dtype)

    def spawn(self, n_children: int) -> list[Any]:
        return list(self._sequence().spawn(n_children))

    def _sequence(self) -> SeedSequence:
        if self._made is None:
            self._made = SeedSequence(self.key)
        return self._made


_TELLS_SEQUENCE = type(np.random.PCG64(0).__reduce__()[-1]) is tuple
"""Whether this NumPy lets unpickling set the seed sequence of a bit generator."""


def _bit_seeder(bits: Any) -> Seed:
    if type(bits) is np.random.MT19937:
        return _legacy_seeder(np.random.RandomState(bits))
    state = _states_of(bits)
    if not _TELLS_SEQUENCE:
        return lambda key: setattr(bits, "state", state(key))
    offspring = KeyedSeedSequence()

    def seed(key: int) -> None:
        offspring.begin(key)
        bits.__setstate__((state(key), offspring))

    return seed


def _states_of(bits: Any) -> Callable[[int], Any]:
    """Return a function from a key to a value for ``bits.state``. A subclass uses the state of its NumPy base class."""
    kind = type(bits)
    if isinstance(bits, np.random.PCG64 | np.random.PCG64DXSM):
        state = {"state": 0, "inc": _INCREMENT}
        whole = {"bit_generator": kind.__name__, "state": state, "has_uint32": 0, "uinteger": 0}

        def fill(key: int) -> Any:
            state["state"] = key * _SPREAD & _MASK128
            return whole

        return fill
    base: Any = next((cls for cls in kind.__mro__ if cls.__module__.startswith("numpy.")), kind)
    if base is np.random.BitGenerator:
        base = kind  # not NumPy's at all
    return lambda key: {**base(key).state, "bit_generator": kind.__name__}


def _legacy_seeder(obj: np.random.RandomState) -> Seed:
    bits: Any = obj._bit_generator
    if type(bits) is np.random.MT19937:
        return lambda key: obj.seed(key >> 32)  # torch's, the same generator, takes the other half
    fresh = type(bits)
    return lambda key: obj.set_state(np.random.RandomState(fresh(key)).get_state(legacy=False))

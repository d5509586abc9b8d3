"""Recognises, seeds, saves and makes generators of NumPy, torch and Python.

Seeding reuses the generator object. It takes 1.4 µs for torch.Generator, 3 for PCG64, 2 for RandomState and 4.5 for
random.Random. Other bit generators take about 15 µs.
"""

from __future__ import annotations

import _random
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.random.bit_generator import ISpawnableSeedSequence, SeedSequence

Seed = Callable[[int], Any]
"""Seeds one generator from a 64-bit key."""

PutBack = Callable[[], Any]
"""Gives one generator the state back that it had."""

_KINDS = (np.random.Generator, np.random.RandomState, random.Random, torch.Generator)
NAMES = ("numpy", "torch", "python")
"""What ``make`` knows them by."""

_MASK63 = (1 << 63) - 1
_MASK128 = (1 << 128) - 1
_INCREMENT = 0x5851F42D4C957F2D14057B7EF767814F
"""Of the sequence that all our PCG64 streams are stretches of; any odd number will do."""

_SPREAD = 0x9E3779B97F4A7C15F39CC0605CEDC835
"""An odd number that takes 64 well-mixed bits to 128."""

_seed_python = _random.Random.seed


def is_generator(obj: object) -> bool:
    """Whether it is one of the kinds that are seeded: not the system's entropy, and nothing that lives on an accelerator."""
    kind = type(obj)
    if not issubclass(kind, _KINDS) or issubclass(kind, random.SystemRandom):
        return False
    return not isinstance(obj, torch.Generator) or obj.device.type == "cpu"


def is_global(obj: object) -> bool:
    """Whether it is one that module-level functions draw from."""
    return obj is random._inst or obj is np.random.mtrand._rand or obj is torch.default_generator


def source(obj: Any) -> object:
    """What the numbers come from: two of NumPy's generators may share it."""
    if isinstance(obj, np.random.Generator):
        return obj.bit_generator
    return obj._bit_generator if isinstance(obj, np.random.RandomState) else obj


def seeder(obj: Any) -> Seed:
    """How to seed this generator, so that all it gives from then on depends on the key alone."""
    if isinstance(obj, np.random.Generator):
        return _bit_seeder(obj.bit_generator)
    if isinstance(obj, np.random.RandomState):
        return _legacy_seeder(obj)
    if isinstance(obj, torch.Generator):
        return lambda key: obj.manual_seed(key & _MASK63)
    if type(obj).seed is not random.Random.seed:  # a subclass that does more
        return obj.seed  # type: ignore[no-any-return]

    def seed(key: int) -> None:
        _seed_python(obj, key)
        obj.gauss_next = None

    return seed


def keep(obj: Any) -> PutBack:
    """Remember the state; what is returned puts it back."""
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
    """A new generator, one of ``NAMES``, seeded from a 64-bit key.

    NumPy's is what ``default_rng`` gives: it draws faster than Philox, which is made no faster, and it can be spawned from.
    """
    if kind == "numpy":
        return np.random.Generator(np.random.PCG64(key))
    if kind == "torch":
        return torch.Generator().manual_seed(key & _MASK63)
    return random.Random(key)


class KeyedSeedSequence(ISpawnableSeedSequence):
    """What ``Generator.spawn`` takes its children's seeds from: a SeedSequence of the latest key, made when somebody asks.

    One that a generator was made with counts its children, and so would tell the worker that spawned more of them.
    """

    key = 0
    _made: SeedSequence | None = None

    def begin(self, key: int) -> None:
        """Another key: children are counted anew."""
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
"""Whether this NumPy lets the seed sequence of a bit generator be set, as unpickling does."""


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
    """From a key to what is to be put into ``bits.state``. A subclass is filled like the class of NumPy's that it is made of."""
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

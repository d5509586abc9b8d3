"""Notices that code draws random numbers: from ``random``, numpy, torch, ``stoker.generator()`` or generators of the dataset.

A sample that draws is never kept, not even if the numbers did not change it: later samples would get other numbers.
"""

from __future__ import annotations

import ctypes
import pickle
import random
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

from stoker._runtime.protocol.thread_context import current

_GENERATORS = (np.random.Generator, np.random.RandomState, random.Random, torch.Generator)
NAMES = ("random", "numpy.random", "torch", "stoker.generator()")


def is_generator(value: object) -> bool:
    """Whether it is a generator with a state of its own, that can be compared."""
    return (
        isinstance(value, _GENERATORS)
        and not isinstance(value, random.SystemRandom)
        and not (isinstance(value, torch.Generator) and value.device.type != "cpu")
    )


def is_global(generator: object) -> bool:
    """Whether it is one that functions such as ``random.random`` draw from."""
    python: Any = random
    numpy: Any = np.random.mtrand
    return generator is python._inst or generator is numpy._rand or generator is torch.default_generator


class DrawWatch:
    """Compares the states of the global generators, and of ``owned`` ones with their names. Takes about 20 µs a sample.

    The global ones only where no other thread draws: on the main thread of a worker process, or of a loader without workers.
    Elsewhere other threads move them, the training loop's for one.
    """

    def __init__(self, owned: Sequence[tuple[str, Any]] = ()) -> None:
        self._owned = owned

    def mark(self) -> list[Any]:
        """Return the states as they are."""
        states: list[Any]
        if threading.current_thread() is threading.main_thread():
            states = [_python_position(), _numpy_position(), _state(torch.default_generator), _asked()]
        else:
            states = [None, None, None, _asked()]
        return states + [_state(generator) for _, generator in self._owned] if self._owned else states

    def drawn(self, before: list[Any]) -> list[str]:
        """Return the names of generators that were drawn from, or seeded, since ``before``."""
        python, numpy, default, asked = before[:4]
        names = []
        if default is not None:
            if _python_position() != python:
                names.append(NAMES[0])
            if _numpy_position() != numpy:
                names.append(NAMES[1])
            if _state(torch.default_generator) != default:
                names.append(NAMES[2])
        if _asked() != asked:
            names.append(NAMES[3])
        if self._owned:
            after = [_state(generator) for _, generator in self._owned]
            names += [
                name for (name, _), old, new in zip(self._owned, before[4:], after, strict=True) if old != new
            ]
        return names


def _asked() -> int:
    """How often ``stoker.generator()`` was asked for a generator of the sample that this thread makes."""
    sample_rng = current.sample_rng
    return 0 if sample_rng is None else int(sample_rng.calls)


def _state(generator: Any) -> bytes:
    """The state of one generator, as bytes."""
    if isinstance(generator, torch.Generator):
        return generator.get_state().numpy().tobytes()
    if isinstance(generator, np.random.Generator):
        return pickle.dumps(generator.bit_generator.state)
    if isinstance(generator, np.random.RandomState):
        return pickle.dumps(generator.get_state(legacy=False))
    return pickle.dumps(generator.getstate())


def _python_position() -> Any:
    """Where Python's global generator stands. All 625 numbers would be compared for longer than they take to read."""
    _, state, gauss = random.getstate()
    return state[0], state[1], state[-1], gauss


def _numpy_position() -> Any:
    """Where numpy's global generator stands: its position and a part of its key, which change with every draw."""
    rand: Any = np.random.mtrand._rand
    bits = rand._bit_generator
    if type(bits) is not np.random.MT19937:
        return pickle.dumps(bits.state)
    address = bits.ctypes.state_address
    key = (ctypes.c_uint32 * 626).from_address(address)
    return key[0], key[1], key[624]


def reseed(seed: int, owned: Sequence[tuple[str, Any]] = ()) -> None:
    """Seed the global generators, and give owned ones another state."""
    random.seed(seed)
    np.random.seed(seed & 0xFFFFFFFF)
    torch.default_generator.manual_seed(seed)
    for _, generator in owned:
        if isinstance(generator, torch.Generator):
            generator.manual_seed(seed)
        elif isinstance(generator, np.random.Generator):
            generator.bit_generator.state = type(generator.bit_generator)(seed).state
        else:
            generator.seed(seed)


@contextmanager
def other_seed(seed: int, owned: Sequence[tuple[str, Any]] = ()) -> Iterator[None]:
    """Run a block under another seed and outside of any sample; restore all generators after it."""
    states = (random.getstate(), np.random.get_state(), torch.default_generator.get_state())
    kept = [(generator, _kept(generator)) for _, generator in owned]
    sample, current.sample_rng = current.sample_rng, None
    try:
        reseed(seed, owned)
        yield
    finally:
        random.setstate(states[0])
        np.random.set_state(states[1])
        torch.default_generator.set_state(states[2])
        for _, put_back in kept:
            put_back()
        current.sample_rng = sample


def _kept(generator: Any) -> Callable[[], Any]:
    if isinstance(generator, torch.Generator):
        tensor = generator.get_state()
        return lambda: generator.set_state(tensor)
    if isinstance(generator, np.random.Generator):
        state = generator.bit_generator.state
        return lambda: setattr(generator.bit_generator, "state", state)
    if isinstance(generator, np.random.RandomState):
        legacy = generator.get_state(legacy=False)
        return lambda: generator.set_state(legacy)
    python = generator.getstate()
    return lambda: generator.setstate(python)

"""Seeds the global generators of Python, NumPy, torch and OpenCV. Called on the thread that makes samples.

Seeding takes about 5 µs a range. It calls the generators directly, without wrappers that also look for accelerators.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

from stoker._runtime.scheduler.row_ranges import mix
from stoker._runtime.worker.rng.python_state import python_seeder

_seed_python = python_seeder()
_seed_numpy = np.random.seed
_seed_torch = torch.default_generator.manual_seed
_MASK63 = (1 << 63) - 1
_AFTER = 0xCF


def seed_all(key: int, *, torch_too: bool = True) -> None:
    """Seed the global generators of Python, NumPy and torch from one 64-bit key, and OpenCV's when it is loaded.

    All three use the same algorithm with 32-bit seeds. So each gets other bits of the key.
    """
    _seed_python(key)
    _seed_numpy(key >> 32)
    if torch_too:
        _seed_torch(key & _MASK63)
    seed_opencv(key)


def seed_opencv(key: int) -> None:
    """Seed OpenCV's generator when it is loaded. Every thread has one, and all start with the same numbers."""
    cv2 = sys.modules.get("cv2")
    if cv2 is not None and hasattr(cv2, "setRNGSeed"):
        cv2.setRNGSeed(key & 0x7FFFFFFF)


def batch_key(seed: int, rank: int, position: int) -> int:
    """Return the key that all ranges of the batch at ``position`` share."""
    return mix(seed, rank, position)


def range_key(batch: int, number: int) -> int:
    """Return the key of range ``number`` of a batch."""
    return mix(batch + number)


def sample_key(seed: int, position: int) -> int:
    """Return the key of a sample by its place in the global order; the same for every batch size and world size."""
    return mix(seed, 0x5A, position)


def seed_like_torch(base_seed: int, worker: int) -> int:
    """Seed a starting worker as torch does; return the seed that ``worker_info.seed`` shows."""
    from torch.utils.data._utils.worker import _generate_state

    seed = base_seed + worker
    random.seed(seed)
    _seed_torch(seed)  # the CPU's generator only: workers do not touch accelerators
    np.random.seed(_generate_state(base_seed, worker))  # type: ignore[no-untyped-call]
    return seed


@contextmanager
def generators_kept() -> Iterator[None]:
    """Leave the global generators as they were found: what runs inline must not move the trainer's randomness."""
    python: Any = random.getstate()
    numpy: Any = np.random.get_state(legacy=False)  # whichever bit generator somebody put behind it
    torch_state = torch.default_generator.get_state()
    try:
        yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy)
        torch.default_generator.set_state(torch_state)


def leave_opencv(key: int) -> None:
    """Reseed OpenCV after samples were made inline. Its state can be set but not read, so it cannot be restored. The training loop
    then draws numbers that depend on the batch, not on what its samples drew.
    """
    seed_opencv(mix(key, _AFTER))


def torch_seed() -> int:
    """Return the seed that torch's default generator got last."""
    return torch.default_generator.initial_seed()

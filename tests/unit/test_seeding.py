"""Seeds: one key settles all generators, keys of different places differ, and what is kept comes back."""

from __future__ import annotations

import itertools
import random
import sys
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data._utils import worker as torch_worker

from stoker._runtime.checkpoint import rng_snapshot
from stoker._runtime.scheduler.row_ranges import mix
from stoker._runtime.worker.rng import seeding


def draws() -> tuple[float, float, float, float]:
    return random.random(), random.gauss(0, 1), float(np.random.rand()), float(torch.rand(()))


@pytest.fixture(autouse=True)
def _put_back() -> Any:
    with seeding.generators_kept():
        yield


def test_one_key_settles_all_generators() -> None:
    seeding.seed_all(12345)
    first = draws()
    random.gauss(0, 1)
    assert draws() != first
    seeding.seed_all(12345)
    assert draws() == first


def test_a_pending_gauss_does_not_survive_seeding() -> None:
    """Python keeps the second of a pair; left over, it would be the first of the next range."""
    seeding.seed_all(1)
    expected = random.gauss(0, 1)
    seeding.seed_all(2)
    random.gauss(0, 1)
    seeding.seed_all(1)
    assert random.gauss(0, 1) == expected


@pytest.mark.parametrize("key", [0, 1, (1 << 31) + 5, (1 << 63) + 7, (1 << 64) - 1])
def test_any_64_bit_key_is_taken(key: int) -> None:
    seeding.seed_all(key)
    first = draws()
    seeding.seed_all(key)
    assert draws() == first


def test_torch_can_be_left_alone() -> None:
    torch.manual_seed(3)
    expected = torch.rand(2)
    torch.manual_seed(3)
    seeding.seed_all(99, torch_too=False)
    assert torch.equal(torch.rand(2), expected)


def test_opencv_is_seeded_when_it_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    monkeypatch.setitem(sys.modules, "cv2", SimpleNamespace(setRNGSeed=seen.append))
    seeding.seed_all((1 << 64) - 1)
    assert seen == [(1 << 31) - 1]


def test_keys_of_different_places_differ() -> None:
    keys = [
        seeding.range_key(seeding.batch_key(seed, rank, position), number)
        for seed, rank, position, number in itertools.product(range(4), range(4), range(20), range(8))
    ]
    keys += [seeding.sample_key(seed, position) for seed in range(4) for position in range(200)]
    assert len(set(keys)) == len(keys)
    assert all(0 <= key < 1 << 64 for key in keys)


def test_keys_stay_what_they_are() -> None:
    """Pinned: another value would change every user's random numbers between two versions."""
    assert seeding.range_key(seeding.batch_key(7, 1, 3), 2) == 3477138642074836960
    assert seeding.sample_key(7, 3) == 16292431953415898768


@pytest.mark.parametrize("worker", [0, 3])
def test_seeding_like_torch_is_like_torch(worker: int) -> None:
    assert seeding.seed_like_torch(1000, worker) == 1000 + worker
    got = draws()
    random.seed(1000 + worker)
    torch.manual_seed(1000 + worker)
    np.random.seed(torch_worker._generate_state(1000, worker))
    assert draws() == got
    assert seeding.torch_seed() == 1000 + worker


def test_generators_are_left_as_found_even_after_an_error() -> None:
    seeding.seed_all(5)
    random.gauss(0, 1)
    with seeding.generators_kept():
        expected = draws()
    with pytest.raises(KeyError), seeding.generators_kept():
        seeding.seed_all(6)
        draws()
        raise KeyError
    assert draws() == expected


@pytest.mark.parametrize("key", [5, (7 << 32) + 7, (1 << 64) - 1 - (3 << 40)])
def test_numpy_and_torch_do_not_give_the_same_numbers(key: int) -> None:
    """Both are a Mersenne twister: seeded with the same 32 bits, ``randint(256)`` of one would be that of the other."""
    seeding.seed_all(mix(key))
    assert np.random.randint(0, 256, 16).tolist() != torch.randint(0, 256, (16,)).tolist()


def test_another_bit_generator_may_stand_behind_numpys_functions() -> None:
    """``legacy=False``: asked in any other way, NumPy warns, which is an error here."""
    found = np.random.mtrand.get_bit_generator()
    np.random.mtrand.set_bit_generator(np.random.PCG64(3))
    try:
        with seeding.generators_kept():
            expected = np.random.rand(3).tolist()
        with seeding.generators_kept():
            seeding.seed_all(4)
            first = np.random.rand(3).tolist()
            seeding.seed_all(4)
            assert np.random.rand(3).tolist() == first != expected
        assert np.random.rand(3).tolist() == expected
        assert rng_snapshot.encode(rng_snapshot.capture((), [rng_snapshot.NUMPY])) == {"given": []}
    finally:
        np.random.mtrand.set_bit_generator(found)

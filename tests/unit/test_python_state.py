"""Python's generators: their words are copied and filled, with the same numbers where that takes the long way."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from stoker._runtime.worker.rng import python_state, seeding

KEYS = (0, 1, (1 << 31) + 5, (1 << 63) + 7, 0x9E3779B97F4A7C15, (1 << 64) - 1)


def numbers(generator: random.Random) -> list[Any]:
    return [
        generator.random(),
        generator.getrandbits(70),
        generator.gauss(0, 1),
        generator.sample(range(99), 5),
    ]


def test_the_words_are_copied_here() -> None:
    """Elsewhere than on CPython a state is copied as a tuple, which only takes longer."""
    assert python_state.python_is_plain()
    assert python_state.numpy_is_plain()
    generator = random.Random(3)
    generator.gauss(0, 1)
    kept, expected = python_state.PythonState(generator), generator.getstate()
    for _ in range(700):
        generator.random()
    assert generator.getstate() != expected
    kept.restore()
    assert generator.getstate() == expected


@pytest.mark.parametrize("key", KEYS)
def test_both_ways_of_seeding_give_the_same_numbers(key: int, monkeypatch: pytest.MonkeyPatch) -> None:
    quick, slow = random.Random(1), random.Random(2)
    seed_quickly = python_state.python_seeder(quick)
    monkeypatch.setattr(python_state, "numpy_is_plain", lambda: False)
    seed_slowly = python_state.python_seeder(slow)
    for _ in range(2):  # again after draws, of which one leaves a second normal number behind
        quick.gauss(0, 1)
        seed_quickly(key)
        seed_slowly(key)
        assert quick.getstate() == slow.getstate()
        assert numbers(quick) == numbers(slow)


def test_the_numbers_stay_what_they_are() -> None:
    """Pinned: other numbers would change every user's augmentation between two versions."""
    generator = random.Random(1)
    python_state.python_seeder(generator)(0x9E3779B97F4A7C15)
    assert generator.random() == 0.3602044603612914
    assert generator.getrandbits(7) == 123


def test_keys_that_differ_give_other_numbers() -> None:
    generator = random.Random(1)
    seed = python_state.python_seeder(generator)
    seen = set()
    for number in range(2000):
        seed(seeding.range_key(7, number))
        seen.add(generator.random())
    assert len(seen) == 2000


@pytest.mark.parametrize("key", [0x123456789ABCDEF0, seeding.range_key(5, 1), seeding.range_key(6, 2)])
def test_python_has_other_numbers_than_numpy_and_torch(key: int) -> None:
    """All three are a Mersenne twister: with the same 32 bits, ``random()`` of Python would be that of NumPy."""
    with seeding.generators_kept():
        seeding.seed_all(key)
        of_python = random.random()
        assert of_python != np.random.random_sample()
        words = random.getrandbits(32), int(torch.randint(1 << 32, ()))
        assert words[0] != words[1]


def test_a_subclass_is_seeded_in_place() -> None:
    class Counting(random.Random):
        calls = 0

        def random(self) -> float:
            self.calls += 1
            return super().random()

    generator, plain = Counting(1), random.Random(1)
    python_state.python_seeder(generator)(77)
    python_state.python_seeder(plain)(77)
    assert [generator.random() for _ in range(3)] == [plain.random() for _ in range(3)]
    assert generator.calls == 3


def test_threads_seed_generators_of_their_own() -> None:
    """Between filling the words and copying them, another thread may fill its own."""
    expected = {}
    for number in range(2):
        generator = random.Random()
        python_state.python_seeder(generator)(number << 16)
        expected[number] = generator.random()
    wrong: list[float] = []

    def draw(number: int) -> Callable[[], None]:
        def run() -> None:
            generator = random.Random()
            seed = python_state.python_seeder(generator)
            for _ in range(3000):
                seed(number << 16)
                if (found := generator.random()) != expected[number]:
                    wrong.append(found)

        return run

    threads = [threading.Thread(target=draw(number)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong

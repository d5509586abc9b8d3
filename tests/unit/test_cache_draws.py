"""Generators that only code leads to are watched: a draw is noticed even where it changes no sample that the proof makes."""

from __future__ import annotations

import functools
import random
import threading
from concurrent.futures import ThreadPoolExecutor
from random import random as draw_one
from typing import Any

import numpy as np
import pytest
import torch
from numpy.random import rand
from torch import default_generator

import stoker
from stoker._runtime.cache.proving.parts import parts_of
from stoker.errors import RandomSamples

module_rng = np.random.default_rng(1)


class Rows(torch.utils.data.Dataset[int]):
    def __init__(self, make: Any) -> None:
        self.make = make

    def __len__(self) -> int:
        return 40

    def __getitem__(self, index: int) -> int:
        self.make()
        return index


def in_a_closure() -> Any:
    rng = np.random.default_rng(2)
    return lambda: rng.random()


def in_a_closure_of_a_closure() -> Any:
    inner = in_a_closure()

    def outer() -> Any:
        return inner()

    return outer


shared = random.Random(3)


def by_default(rng: Any = shared) -> Any:
    return rng.random()


def of_the_module() -> Any:
    return module_rng.random()


def of_a_function_that_it_calls() -> Any:
    return of_the_module()


class Augment:
    rng = torch.Generator()

    def __call__(self) -> Any:
        return torch.rand(1, generator=self.rng)


class Calls:
    """Its method uses what only a class attribute of another class leads to."""

    def __call__(self) -> Any:
        return Augment()()


def take(rng: Any) -> Any:
    return rng.random()


WAYS = {
    "a closure": in_a_closure(),
    "a closure of a closure": in_a_closure_of_a_closure(),
    "a default value": by_default,
    "a global": of_the_module,
    "a global of a function that is called": of_a_function_that_it_calls,
    "a class attribute": Augment(),
    "a class attribute of a class that is named": Calls(),
    "an argument of a partial": functools.partial(take, np.random.default_rng(4)),
    "a bound method": np.random.default_rng(5).random,
    "a bound method of a partial": functools.partial(np.random.RandomState(6).normal, 0.0),
}


@pytest.mark.parametrize("way", WAYS)
def test_a_generator_that_code_leads_to_is_watched(way: str) -> None:
    with pytest.raises(RandomSamples, match="draws random numbers"):
        stoker.cache(Rows(WAYS[way]), "1MiB")


def test_a_cached_function_with_such_a_generator_raises() -> None:
    rng = np.random.default_rng(7)

    def decode(name: str) -> str:
        rng.random()
        return name

    with pytest.raises(RandomSamples, match=r"draws from rng of .*decode"):
        stoker.cached(decode, "1MiB")("a")


def test_generators_of_others_are_left_alone() -> None:
    def uses_nothing() -> None:
        np.zeros(1)

    assert parts_of(Rows(uses_nothing)).generators == []
    dataset = stoker.cache(Rows(uses_nothing), "1MiB")
    assert [dataset[index] for index in (3, 3)] == [3, 3]


def test_global_generators_are_not_watched_where_other_threads_draw() -> None:
    """``random`` and ``rand`` are methods of the global generators. The training loop draws from those, on a thread of its own."""
    trains = False

    def decode(name: str) -> str:
        if trains and draw_one() + rand() + float(torch.rand(1, generator=default_generator)) < 2:
            return name[::-1]
        if threading.current_thread() is not threading.main_thread():
            other = threading.Thread(target=lambda: (random.random(), rand(), torch.rand(1)))
            other.start()
            other.join()
        return name

    assert parts_of(decode).generators == []
    cached = stoker.cached(decode, "1MiB")
    with ThreadPoolExecutor(1) as pool:
        assert list(pool.map(cached, ["ab", "ab"])) == ["ab", "ab"]
    assert cached.cache_info()["entries"] == 1

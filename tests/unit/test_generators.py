"""Kinds of generators: told apart, seeded by a key alone, kept, made."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from stoker._runtime.worker.rng import generators


class Noisy(random.Random):
    """Seeds in its own way."""

    def seed(self, *args: Any, **named: Any) -> None:
        super().seed(*args, **named)
        self.extra = args


class OwnWay(np.random.PCG64):
    """Cannot be made from a seed."""

    def __init__(self) -> None:
        super().__init__(1)


class OwnOther(np.random.SFC64):
    """Likewise, of a kind without a short way."""

    def __init__(self) -> None:
        super().__init__(1)


def numpy_of(bits: Any) -> Callable[[], Any]:
    return lambda: np.random.Generator(bits())


KINDS: dict[str, Callable[[], Any]] = {
    "PCG64": np.random.default_rng,
    "PCG64DXSM": numpy_of(np.random.PCG64DXSM),
    "Philox": numpy_of(np.random.Philox),
    "SFC64": numpy_of(np.random.SFC64),
    "MT19937": numpy_of(np.random.MT19937),
    "subclass of PCG64": numpy_of(OwnWay),
    "subclass of SFC64": numpy_of(OwnOther),
    "RandomState": np.random.RandomState,
    "RandomState of PCG64": lambda: np.random.RandomState(np.random.PCG64()),
    "torch": torch.Generator,
    "python": random.Random,
    "subclass": Noisy,
}


def draw(generator: Any) -> list[float]:
    """Odd numbers of 32-bit draws and of normal ones: what is left over of a pair must not survive."""
    if isinstance(generator, torch.Generator):
        return torch.randn(5, generator=generator).tolist()
    if isinstance(generator, random.Random):
        return [generator.random(), generator.gauss(0, 1)]
    small = generator.integers if isinstance(generator, np.random.Generator) else generator.randint
    return [float(small(1 << 30)), float(generator.normal())]


@pytest.mark.parametrize("make", KINDS.values(), ids=KINDS)
@pytest.mark.parametrize("key", [0, 5, (1 << 64) - 1])
def test_all_it_gives_depends_on_the_key(make: Callable[[], Any], key: int) -> None:
    one, two = make(), make()
    assert generators.is_generator(one)
    assert not generators.is_global(one)
    draw(one)
    for each in (one, two):
        generators.seeder(each)(key)
    first = draw(one)
    assert first == draw(two)
    seed = generators.seeder(one)
    seed(key ^ 0x1_0000_0001)  # each may take one half of it only
    assert draw(one) != first
    seed(key)
    assert draw(one) == first


@pytest.mark.parametrize("make", KINDS.values(), ids=KINDS)
def test_what_was_kept_comes_back(make: Callable[[], Any]) -> None:
    one = make()
    draw(one)
    put_back = generators.keep(one)
    expected = [draw(one), draw(one)]
    generators.seeder(one)(3)
    put_back()
    assert [draw(one), draw(one)] == expected


@pytest.mark.parametrize("bits", [np.random.PCG64, np.random.PCG64DXSM, np.random.Philox, np.random.SFC64])
def test_children_belong_to_the_key(bits: Any) -> None:
    """How many were spawned before depends on the worker."""
    one, two = np.random.Generator(bits()), np.random.Generator(bits())
    one.spawn(3)
    for each in (one, two):
        generators.seeder(each)(7)
    first = [child.random() for child in (*one.spawn(2), *one.spawn(1))]
    assert first == [child.random() for child in two.spawn(3)]
    assert len(set(first)) == 3
    generators.seeder(two)(8)
    assert two.spawn(1)[0].random() not in first


@pytest.mark.parametrize("bits", [np.random.PCG64, np.random.MT19937, np.random.Philox])
def test_children_go_on_where_the_trainer_left_them(bits: Any) -> None:
    one, like_it = np.random.Generator(bits(3)), np.random.Generator(bits(3))
    assert one.spawn(1)[0].random() == like_it.spawn(1)[0].random()
    put_back = generators.keep(one)
    generators.seeder(one)(5)
    if bits is not np.random.MT19937:
        one.spawn(4)
    put_back()
    assert one.spawn(1)[0].random() == like_it.spawn(1)[0].random()


def test_seeding_goes_the_way_of_a_subclass() -> None:
    one = Noisy()
    generators.seeder(one)(9)
    assert one.extra == (9,)


def test_copies_of_global_ones_can_be_seeded_like_them() -> None:
    """Under spawn a dataset that stored one has a copy of it; under fork it has the one that ``seed_all`` seeds."""
    from stoker._runtime.worker.rng import seeding

    with seeding.generators_kept():
        seeding.seed_all((1 << 64) - 3)
        for other, shared in (
            (random.Random(), random),
            (np.random.RandomState(), np.random),
            (torch.Generator(), torch.default_generator),
        ):
            generators.seeder(other)((1 << 64) - 3)
            assert draw_like(other) == draw_like(shared)


def draw_like(generator: Any) -> float:
    if isinstance(generator, torch.Generator):
        return torch.rand((), generator=generator).item()
    draws = (
        generator.random if generator is random or isinstance(generator, random.Random) else generator.rand
    )
    return float(draws())


@pytest.mark.parametrize("other", [random.SystemRandom(), np.random.PCG64(), np.random, random, 7, None])
def test_what_is_left_alone(other: Any) -> None:
    assert not generators.is_generator(other)


def test_a_generator_on_an_accelerator_is_left_alone() -> None:
    class Elsewhere(torch.Generator):
        device = torch.device("meta")

    assert generators.is_generator(torch.Generator())
    assert not generators.is_generator(Elsewhere())


def test_the_global_ones_are_known() -> None:
    for each in (random._inst, np.random.mtrand._rand, torch.default_generator):
        assert generators.is_global(each)


def test_two_over_one_source_have_it_in_common() -> None:
    bits = np.random.MT19937()
    assert (
        generators.source(np.random.Generator(bits)) is generators.source(np.random.RandomState(bits)) is bits
    )


def test_what_is_made_stays_what_it_is() -> None:
    """Pinned: other values would change every user's random numbers between two versions."""
    assert generators.make("numpy", 7).bit_generator.random_raw() == 11530976094092348043
    assert generators.make("python", 7).getrandbits(64) == 17485029721327973432
    assert torch.randint(1 << 31, (), generator=generators.make("torch", 7)) == 976413892
    stored = np.random.default_rng()
    generators.seeder(stored)(7)
    assert stored.bit_generator.random_raw() == 6823810562895072992


def test_made_ones_can_be_spawned_from() -> None:
    left, right = generators.make("numpy", 7).spawn(2)
    assert left.random() != right.random()

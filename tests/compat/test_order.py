"""Shuffle order and generators: who draws what, when, and where torch's global generator ends."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.compat.compare import BOTH, Arguments, StokerLoader, TorchLoader, assert_same, assert_same_run
from tests.compat.samples import Augmented, Counting, Squares

WORKERS = (0, 1, 2)


@pytest.mark.parametrize("num_workers", WORKERS)
@pytest.mark.parametrize("seed", [0, 1, 123456789])
@pytest.mark.parametrize("batch_size", [None, 1, 6])
def test_shuffling_from_the_global_generator(batch_size: int | None, seed: int, num_workers: int) -> None:
    def build() -> Arguments:
        return {"dataset": Squares(14), "shuffle": True, "batch_size": batch_size, "num_workers": num_workers}

    assert_same_run(build, epochs=3, seed=seed)


@pytest.mark.parametrize("num_workers", WORKERS)
def test_shuffling_from_a_generator_of_ones_own(num_workers: int) -> None:
    ends = []

    def build() -> Arguments:
        generator = torch.Generator().manual_seed(99)
        ends.append(generator)
        return {"dataset": Squares(20), "shuffle": True, "generator": generator, "num_workers": num_workers}

    assert_same_run(build, epochs=3)
    theirs, ours = ends
    assert torch.equal(theirs.get_state(), ours.get_state())


@pytest.mark.parametrize("num_workers", WORKERS)
def test_a_generator_of_ones_own_leaves_the_global_one_alone(num_workers: int) -> None:
    for loader_class in BOTH:
        before = torch.get_rng_state()
        generator = torch.Generator().manual_seed(1)
        list(loader_class(Squares(9), shuffle=True, generator=generator, num_workers=num_workers))
        assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("num_workers", WORKERS)
@pytest.mark.parametrize("dataset", [Squares(9), Counting(9)], ids=["map", "iterable"])
def test_the_base_seed_is_drawn_even_without_shuffling(dataset: Any, num_workers: int) -> None:
    states = []
    for loader_class in BOTH:
        torch.manual_seed(4)
        before = torch.get_rng_state()
        list(loader_class(dataset, num_workers=num_workers))
        states.append(torch.get_rng_state())
        assert not torch.equal(states[-1], before)
    assert torch.equal(*states)


@pytest.mark.parametrize("num_workers", WORKERS)
def test_an_iterator_draws_its_base_seed_when_it_is_made(num_workers: int) -> None:
    """Not at the first next(): code between the two must find the generator where torch leaves it."""
    states = []
    for loader_class in BOTH:
        torch.manual_seed(4)
        iterator = iter(loader_class(Squares(9), num_workers=num_workers))
        states.append(torch.get_rng_state())
        del iterator
    assert torch.equal(*states)


@pytest.mark.parametrize("num_workers", WORKERS)
def test_draws_in_the_training_loop_do_not_disturb_the_order(num_workers: int) -> None:
    def story(loader_class: Any) -> list[Any]:
        torch.manual_seed(8)
        loader = loader_class(Squares(20), batch_size=4, shuffle=True, num_workers=num_workers)
        return [(batch, torch.rand(2)) for _ in range(2) for batch in loader]

    assert_same(*(story(loader_class) for loader_class in BOTH))


def test_construction_draws_nothing() -> None:
    for loader_class in BOTH:
        torch.manual_seed(8)
        before = torch.get_rng_state()
        loader_class(Squares(20), shuffle=True, num_workers=2, persistent_workers=True)
        assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("own_generator", [False, True])
@pytest.mark.parametrize("num_workers", [1, 2])
def test_persistent_workers_begin_with_torchs_order(num_workers: int, own_generator: bool) -> None:
    first = []
    for loader_class in BOTH:
        torch.manual_seed(21)
        generator = torch.Generator().manual_seed(2) if own_generator else None
        loader = loader_class(
            Squares(15), shuffle=True, num_workers=num_workers, persistent_workers=True, generator=generator
        )
        first.append(list(loader))
    assert_same(*first)


@pytest.mark.parametrize("own_generator", [False, True])
@pytest.mark.parametrize("num_workers", [1, 2])
def test_torchs_order_with_persistent_workers_on_request(num_workers: int, own_generator: bool) -> None:
    """torch draws a base seed at the first iter() only, so its sampler draws other numbers than ours from then on."""

    def build() -> Arguments:
        generator = torch.Generator().manual_seed(2) if own_generator else None
        arguments = {"num_workers": num_workers, "persistent_workers": True, "generator": generator}
        return {"dataset": Augmented(), "batch_size": 4, "shuffle": True, **arguments}

    assert_same_run(build, epochs=4, rng="torch")
    runs = []
    for loader, ends in (
        (TorchLoader(**build()), lambda loader: setattr(loader, "_iterator", None)),
        (StokerLoader(**build(), rng="torch"), StokerLoader.refresh),
    ):
        torch.manual_seed(4)
        runs.append([list(loader) for _ in range(2)])
        ends(loader)
        runs[-1] += [list(loader) for _ in range(2)]
    assert_same(*runs)


@pytest.mark.parametrize("own_generator", [False, True])
def test_ours_is_one_order_for_every_kind_of_worker(own_generator: bool) -> None:
    """Persistent or not, with workers or without: all epochs are torch's of non-persistent workers."""

    def epochs(loader_class: Any, **arguments: Any) -> list[Any]:
        torch.manual_seed(21)
        generator = torch.Generator().manual_seed(2) if own_generator else None
        loader = loader_class(Squares(15), batch_size=4, shuffle=True, generator=generator, **arguments)
        return [list(loader) for _ in range(3)]

    expected = epochs(TorchLoader, num_workers=2)
    for num_workers in WORKERS:
        assert_same(expected, epochs(StokerLoader, num_workers=num_workers))
    for num_workers in (1, 2):
        assert_same(expected, epochs(StokerLoader, num_workers=num_workers, persistent_workers=True))


def test_a_default_device_does_not_leak_into_the_sampler() -> None:
    """torch's own sampler fails under a default device other than the CPU; ours simply works."""
    with torch.device("meta"):
        order = [index for batch in StokerLoader(range(9), shuffle=True, collate_fn=list) for index in batch]
    assert sorted(order) == list(range(9))

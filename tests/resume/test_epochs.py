"""Epochs after one that was taken up again, and states from between two epochs."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import stoker
from tests.compat.compare import seed_everything
from tests.resume.recipes import KEYED, inline_ways, legs, recipes, thread_ways
from tests.resume.runs import (
    Leg,
    Recipe,
    Way,
    assert_batches,
    copied,
    in_legs,
    loader,
    reference,
    through_json,
    uninterrupted,
)

pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning")


@settings(max_examples=25, derandomize=True)
@given(data=st.data())
def test_epochs_after_a_resumed_one_are_those_of_the_whole_run(data: st.DataObject) -> None:
    """The loader was given a generator, which travels with the state; or nothing depends on one."""
    recipe = data.draw(recipes(KEYED, ("shuffle, generator", "elastic")))
    if recipe.order == "elastic":
        recipe = replace(recipe, rng="sample")
    run = data.draw(legs(inline_ways() | thread_ways(), len(reference(recipe))))
    whole = reference(recipe, epochs=3)
    ordered = all(leg.way.in_order for leg in run)
    assert_batches(whole, in_legs(recipe, run, epochs=3), ordered=ordered)


@pytest.mark.parametrize(("persistent", "prefetch_epochs"), [(False, False), (True, False), (True, True)])
def test_epochs_after_a_resumed_one_with_workers(persistent: bool, prefetch_epochs: bool) -> None:
    recipe = Recipe(order="shuffle, generator", length=22)
    way = Way(workers=2, method="fork", persistent=persistent, prefetch_epochs=prefetch_epochs)
    whole = reference(recipe, epochs=3)
    for cut in (0, 3, 5, 6):
        assert_batches(whole, in_legs(recipe, [Leg(way, cut), Leg(way)], epochs=3))


def test_a_sampler_that_counts_its_epochs_goes_on_counting() -> None:
    """The dataset draws nothing, so that only the order is compared."""

    def running() -> Any:
        sampler = stoker.ElasticDistributedSampler(range(30), num_replicas=2, rank=1, seed=3)
        return stoker.DataLoader(range(30), batch_size=4, sampler=sampler)  # type: ignore[arg-type]

    one = running()
    whole = [batch.tolist() for _ in range(3) for batch in one]
    other = running()
    first = [batch.tolist() for batch in other]
    iterator = iter(other)
    first.append(next(iterator).tolist())
    third = running()
    third.load_state_dict(through_json(other.state_dict()))
    assert first + [batch.tolist() for _ in range(2) for batch in third] == whole


@pytest.mark.parametrize(
    "order", ["sequential", "shuffle", "random, generator", "shuffle, generator", "buckets"]
)
@pytest.mark.parametrize("rng", ["batch", "sample"])
def test_a_state_from_between_epochs_gives_the_next_one(order: str, rng: str) -> None:
    """Also when another loader takes it up, in a process whose generators are elsewhere."""
    recipe = Recipe(order=order, rng=rng)
    seed_everything(recipe.seed)
    first = loader(recipe)
    states = [through_json(first.state_dict())]
    epochs = [[copied(batch) for batch in first]]
    torch.rand(3)
    states.append(through_json(first.state_dict()))
    epochs.append([copied(batch) for batch in first])
    for number, (state, epoch) in enumerate(zip(states, epochs, strict=True)):
        seed_everything(99 + number)
        second = loader(recipe, Way(workers=number, executor=None), salt=1)
        second.load_state_dict(state)
        assert through_json(second.state_dict()) == state
        assert_batches(epoch, list(second))


@pytest.mark.parametrize("order", ["sequential", "shuffle", "buckets"])
def test_asking_for_a_state_changes_nothing(order: str) -> None:
    """Not the epochs, and not where the trainer's generators are afterwards."""
    recipe = Recipe(order=order)
    expected = uninterrupted(recipe, Way(), epochs=2)
    ends = torch.get_rng_state()
    seed_everything(recipe.seed)
    asked = loader(recipe)
    got = []
    for _ in range(2):
        asked.state_dict()
        for batch in asked:
            got.append(copied(batch))
            asked.state_dict()
        asked.state_dict()
    assert_batches(expected, got)
    assert torch.equal(torch.get_rng_state(), ends)
    third = torch.empty((), dtype=torch.int64).random_().item()
    torch.set_rng_state(ends)
    assert asked.state_dict()["base_seed"] == third


@pytest.mark.parametrize("order", ["sequential", "shuffle", "buckets"])
def test_a_restored_world_goes_on_as_if_nothing_had_happened(order: str) -> None:
    """The trainer puts the global generators back, as for its own randomness: later epochs are right without a generator."""
    recipe = Recipe(order=order)
    whole = reference(recipe, epochs=3)
    for epochs, batches in ((0, 0), (0, 3), (0, 10), (1, None), (1, 0), (1, 4)):
        seed_everything(recipe.seed)
        first = loader(recipe)
        got = [copied(batch) for _ in range(epochs) for batch in first]
        if batches is not None:
            iterator = iter(first)
            got += [copied(next(iterator)) for _ in range(batches)]
        state, world = first.state_dict(), (torch.get_rng_state(), random.getstate(), np.random.get_state())
        seed_everything(55)
        second = loader(recipe, salt=1)
        second.load_state_dict(state)
        torch.set_rng_state(world[0])
        random.setstate(world[1])
        np.random.set_state(world[2])
        left = 3 - epochs
        got += [copied(batch) for _ in range(left) for batch in second]
        assert_batches(whole, got)


def test_a_state_of_an_earlier_version_that_drew_its_seed_still_loads() -> None:
    """Before 2026-11-18, taking a state from between two epochs drew the base seed of the next one."""
    recipe = Recipe(order="shuffle")
    whole = reference(recipe, epochs=3)
    seed_everything(recipe.seed)
    first = loader(recipe)
    got = [copied(batch) for batch in first]
    state = through_json(first.state_dict())
    assert torch.empty((), dtype=torch.int64).random_().item() == state["base_seed"]
    world = torch.get_rng_state()
    seed_everything(55)
    second = loader(recipe, salt=1)
    second.load_state_dict(state)
    torch.set_rng_state(world)
    got += [copied(batch) for _ in range(2) for batch in second]
    assert_batches(whole, got)


@pytest.mark.parametrize("cut", [(0, 3), (1, 0), (1, 3), (1, 6), (2, None)])
@pytest.mark.parametrize("ahead", [False, True])
def test_the_order_of_persistent_workers_with_torchs_streams_goes_on(
    cut: tuple[int, int | None], ahead: bool
) -> None:
    """Their later epochs draw no base seed: a state says so, although whoever loads it has to draw one."""

    def running(seed: int) -> Any:
        generator = torch.Generator().manual_seed(seed)
        lasting: dict[str, Any] = {"num_workers": 2, "persistent_workers": True, "prefetch_epochs": ahead}
        dataset: Any = range(22)
        return stoker.DataLoader(
            dataset, batch_size=4, shuffle=True, rng="torch", generator=generator, **lasting
        )

    with running(5) as loader:
        whole = [batch.tolist() for _ in range(4) for batch in loader]
    epochs, batches = cut
    with running(5) as loader:
        got = [batch.tolist() for _ in range(epochs) for batch in loader]
        if batches is not None:
            iterator = iter(loader)
            got += [next(iterator).tolist() for _ in range(batches)]
        state = through_json(loader.state_dict())
    with running(99) as loader:
        loader.load_state_dict(state)
        while len(got) < len(whole):
            got += [batch.tolist() for batch in loader]
    assert got == whole

"""Runs over map-style datasets that are cut anywhere and taken up in another way deliver what one run without workers does."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import stoker
from tests.compat.compare import seed_everything
from tests.resume.datasets import Augmented
from tests.resume.recipes import KEYED, inline_ways, legs, process_ways, recipes, thread_ways
from tests.resume.runs import Leg, Recipe, Way, assert_batches, copied, in_legs, loader, reference

pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning")


def check(recipe: Recipe, run: list[Leg], folder: Path | None = None) -> None:
    ordered = all(leg.way.in_order for leg in run)
    assert_batches(reference(recipe), in_legs(recipe, run, folder), ordered=ordered)


@settings(max_examples=80, derandomize=True)
@given(data=st.data())
def test_without_workers(data: st.DataObject) -> None:
    recipe = data.draw(recipes())
    check(recipe, data.draw(legs(inline_ways(), len(reference(recipe)))))


@settings(max_examples=30, derandomize=True)
@given(data=st.data())
def test_threads_and_none(data: st.DataObject) -> None:
    recipe = data.draw(recipes(KEYED))
    check(recipe, data.draw(legs(inline_ways() | thread_ways(), len(reference(recipe)))))


@settings(max_examples=25, derandomize=True)
@given(data=st.data())
def test_processes_that_die_and_none(data: st.DataObject) -> None:
    recipe = data.draw(recipes())
    ways = inline_ways() | process_ways(recipe.length)
    with TemporaryDirectory() as folder:
        check(recipe, data.draw(legs(ways, len(reference(recipe)))), Path(folder))


@settings(max_examples=8, derandomize=True)
@given(data=st.data())
def test_all_executors(data: st.DataObject) -> None:
    recipe = data.draw(recipes(KEYED))
    ways = inline_ways() | thread_ways() | process_ways(recipe.length)
    with TemporaryDirectory() as folder:
        check(recipe, data.draw(legs(ways, len(reference(recipe)))), Path(folder))


@settings(max_examples=25, derandomize=True)
@given(
    order=st.sampled_from(["sequential", "shuffle", "weighted", "subset", "counted", "elastic"]),
    sizes=st.lists(st.integers(1, 20), min_size=2, max_size=4),
    cuts=st.lists(st.integers(0, 3), min_size=3, max_size=3),
)
def test_by_sample_the_batch_size_may_change_on_the_way(
    order: str, sizes: list[int], cuts: list[int]
) -> None:
    """The rows are those of a run in one batch."""
    recipe = Recipe(length=66, order=order, rng="sample", batch_size=66)
    [whole] = reference(recipe)
    got: list[Any] = []
    state = None
    for number, (size, cut) in enumerate(zip(sizes, [*cuts, 99], strict=False)):
        seed_everything(recipe.seed + 100 * number)
        running = loader(replace(recipe, batch_size=size), salt=number)
        if state is not None:
            running.load_state_dict(state)
        last = number == len(sizes) - 1
        got += [copied(batch) for batch in itertools.islice(running, None if last else cut)]
        state = running.state_dict()
        if state["finished"]:
            break
    for name in ("index", "python", "numpy"):
        assert_batches([whole[name]], [torch.cat([batch[name] for batch in got])])


def test_start_methods(tmp_path: Path) -> None:
    """From a spawned pool, whose workers die, through none to one of a fork server."""
    recipe = Recipe("keyed", length=60, batch_size=5)
    run = [
        Leg(Way(workers=2, method="spawn", deaths=(0, 7)), 4),
        Leg(Way(), 3),
        Leg(Way(workers=2, method="forkserver", deaths=(30,))),
    ]
    check(recipe, run, tmp_path)


class Broken(Augmented):
    """One of its samples raises."""

    def __getitem__(self, index: int) -> Any:
        if index == 9:
            raise ValueError("nine")
        return super().__getitem__(index)


@pytest.mark.parametrize("workers", [0, 2])
def test_a_batch_that_raised_was_handed_over(workers: int) -> None:
    def running() -> Any:
        context = "fork" if workers else None
        return stoker.DataLoader(
            Broken(40), batch_size=4, num_workers=workers, multiprocessing_context=context
        )

    with running() as first:
        iterator = iter(first)
        next(iterator)
        next(iterator)
        with pytest.raises(ValueError, match="nine"):
            next(iterator)
        state = first.state_dict()
        rest = [copied(batch) for batch in iterator]
    with running() as second:
        second.load_state_dict(state)
        assert_batches(rest, [copied(batch) for batch in second])

"""The training loop's generators while samples are made on its thread: swapped or copied, and the same afterwards."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import ConcatDataset, Dataset, Subset, TensorDataset

import stoker
from stoker._runtime.worker.rng import seeding, trainer_generators
from stoker._runtime.worker.rng.trainer_generators import TrainerGenerators


def draws() -> list[Any]:
    numbers = [random.random(), random.gauss(0, 1), torch.rand(1).item()]
    return [*numbers, np.random.rand(), np.random.randn(), np.random.randint(1 << 30)]


@pytest.fixture(params=["swapped", "copied"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    if request.param == "copied":
        monkeypatch.setattr(trainer_generators, "_can_swap", lambda: False)
        monkeypatch.setattr(trainer_generators, "python_is_plain", lambda: False)
    with seeding.generators_kept():
        yield request.param


@pytest.mark.parametrize("odd", [0, 1])
def test_they_are_as_before_down_to_the_normal_number_in_store(way: str, odd: int) -> None:
    for _ in range(2):
        seeding.seed_all(5)
        for _ in range(odd):
            np.random.randn()
            random.gauss(0, 1)
        expected = draws()
        seeding.seed_all(5)
        for _ in range(odd):
            np.random.randn()
            random.gauss(0, 1)
        with TrainerGenerators():
            seeding.seed_all(6)
            draws()
        assert draws() == expected


def test_contexts_nest_and_survive_errors(way: str) -> None:
    seeding.seed_all(7)
    expected = draws()
    seeding.seed_all(7)
    with pytest.raises(KeyError), TrainerGenerators():
        seeding.seed_all(8)
        np.random.randn()
        inner = [np.random.rand(), np.random.randn()]
        seeding.seed_all(8)
        np.random.randn()
        with TrainerGenerators():
            seeding.seed_all(9)
            draws()
        assert [np.random.rand(), np.random.randn()] == inner
        raise KeyError
    assert draws() == expected


def test_numpy_can_be_swapped_here() -> None:
    """The pinned NumPy can. Where it cannot, states are copied, and this says that nobody measures the fast way."""
    assert trainer_generators._can_swap()


def test_another_bit_generator_is_copied() -> None:
    found = np.random.mtrand.get_bit_generator()
    np.random.mtrand.set_bit_generator(np.random.PCG64(3))
    try:
        first = np.random.mtrand.get_bit_generator().state
        with TrainerGenerators():
            np.random.rand(5)
        assert np.random.mtrand.get_bit_generator().state == first
    finally:
        np.random.mtrand.set_bit_generator(found)


class Drawing(Dataset[Any]):
    def __len__(self) -> int:
        return 24

    def __getitem__(self, index: int) -> list[Any]:
        return [index, *draws()]


def collected(batches: Any) -> list[Any]:
    return [torch.stack([torch.as_tensor(each, dtype=torch.float64) for each in batch]) for batch in batches]


@settings(max_examples=5, deadline=None)
@given(seed=st.integers(0, 1 << 31), between=st.integers(0, 3))
def test_the_loop_draws_what_it_draws_without_a_loader(seed: int, between: int) -> None:
    """And the batches are those of workers, whatever the loop draws between them."""
    with seeding.generators_kept():
        seeding.seed_all(seed)
        torch.empty((), dtype=torch.int64).random_()  # the base seed, as torch's loader draws it
        expected = [draws() for _ in range(3 * between)]
        seeding.seed_all(seed)
        found: list[Any] = []
        seen = []
        for batch in stoker.DataLoader(Drawing(), batch_size=8):
            seen.append(batch)
            found += [draws() for _ in range(between)]
        assert found == expected
        seeding.seed_all(seed)
        with_workers = list(stoker.DataLoader(Drawing(), batch_size=8, num_workers=2))
    for mine, theirs in zip(collected(seen), collected(with_workers), strict=True):
        assert torch.equal(mine, theirs)


class Sub(TensorDataset):
    pass


def _spec_of(dataset: Any, **arguments: Any) -> Any:
    iterator: Any = iter(stoker.DataLoader(dataset, **arguments))
    return iterator._pool.plan.spec


@pytest.mark.parametrize(
    ("dataset", "drawn"),
    [
        (range(8), False),
        (TensorDataset(torch.arange(8)), False),
        (Subset(TensorDataset(torch.arange(8)), [1, 2]), False),
        (ConcatDataset([TensorDataset(torch.arange(8)), TensorDataset(torch.arange(8))]), False),
        ([(torch.zeros(2), 1)] * 4, False),
        ([{"a": [1.0, "x"]}] * 4, False),
        (torch.zeros(4, 2), False),
        (Sub(torch.arange(8)), True),
        (Subset(Drawing(), [0]), True),
        (Drawing(), True),
        ([np.random.RandomState(0)], True),
    ],
    ids=[
        "range",
        "tensors",
        "subset",
        "concat",
        "tuples",
        "dicts",
        "tensor",
        "subclass",
        "own subset",
        "own",
        "generator",
    ],
)
def test_code_that_cannot_draw_is_recognised(dataset: Any, drawn: bool) -> None:
    from stoker._runtime.worker.rng.can_draw import can_draw

    assert can_draw(_spec_of(dataset)) is drawn


def test_a_collate_fn_can_draw() -> None:
    from stoker._runtime.worker.rng.can_draw import can_draw

    assert can_draw(_spec_of(range(8), batch_size=2, collate_fn=lambda rows: rows))
    assert not can_draw(_spec_of(range(8), batch_size=None))


def test_who_cannot_draw_leaves_the_generators_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("seeded")

    monkeypatch.setattr("stoker._runtime.worker.rng.seeder.seed_all", refuse)
    numbers: Any = range(64)
    assert len(list(stoker.DataLoader(numbers, batch_size=8))) == 8
    with pytest.raises(AssertionError, match="seeded"):
        list(stoker.DataLoader(Drawing(), batch_size=8))

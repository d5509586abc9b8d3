"""Seeds of workers as torch promises them, the recipes that rely on them, and what becomes of the parent's generators."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from typing import Any

import cv2
import numpy as np
import pytest
import torch
from torch.utils.data import Dataset, IterableDataset, get_worker_info

from stoker._runtime.worker.rng import seeding
from tests.compat.compare import BOTH, StokerLoader, TorchLoader, assert_same, seed_everything

# The number of workers is the point here, not whether this machine has as many CPUs.
pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning")

assert cv2.__name__ in sys.modules  # loaded, so that it is seeded as well


@pytest.fixture(autouse=True)
def _put_back() -> Iterator[None]:
    with seeding.generators_kept():
        yield


class Seeds(IterableDataset[Any]):
    """One row a worker: its number, its seed, and what torch said of it when ``worker_init_fn`` ran."""

    told = 0

    def __iter__(self) -> Iterator[Any]:
        info = get_worker_info()
        assert info is not None
        yield info.id, info.seed, self.told


def ask_torch(worker: int) -> None:
    info = get_worker_info()
    assert info is not None
    assert info.id == worker
    known: Any = info.dataset
    known.told = torch.initial_seed()


def seeds(loader_class: Any, seed: int, **extra: Any) -> list[list[int]]:
    generator = torch.Generator().manual_seed(seed)
    loader = loader_class(
        Seeds(), batch_size=1, num_workers=3, generator=generator, worker_init_fn=ask_torch, **extra
    )
    return [[int(value) for value in row] for epoch in range(2) for row in loader]


@pytest.mark.parametrize("rng", ["batch", "sample", "torch"])
def test_seeds_are_distinct_reproducible_and_torchs(rng: str) -> None:
    found = seeds(StokerLoader, 7, rng=rng)
    assert [row[0] for row in found] == [0, 1, 2, 0, 1, 2]
    assert [row[1] for row in found] == [row[2] for row in found]
    assert len({row[1] for row in found}) == 6
    assert found == seeds(StokerLoader, 7, rng=rng) == seeds(TorchLoader, 7)
    assert not {row[1] for row in found} & {row[1] for row in seeds(StokerLoader, 8, rng=rng)}


def test_seeds_of_worker_threads_are_the_same() -> None:
    class Asked(Seeds):
        def __iter__(self) -> Iterator[Any]:
            info = get_worker_info()
            assert info is not None
            yield info.id, info.seed

    def asked(**extra: Any) -> Any:
        torch.manual_seed(3)
        return list(StokerLoader(Asked(), batch_size=1, num_workers=2, **extra))

    assert_same(asked(), asked(executor="thread"))


class Numbers(Dataset[Any]):
    def __len__(self) -> int:
        return 24

    def __getitem__(self, index: int) -> Any:
        return index, torch.rand(()), np.random.rand(), random.random()


def seed_worker(worker_id: int) -> None:
    """The recipe of torch's notes on reproducibility."""
    worker_seed = torch.initial_seed() % 2**32
    np.random.seed(worker_seed)
    random.seed(worker_seed)


@pytest.mark.parametrize("rng", ["batch", "sample", "torch"])
def test_the_classic_recipe_works(rng: str) -> None:
    def run(num_workers: int, loader_class: Any = StokerLoader, **extra: Any) -> list[Any]:
        generator = torch.Generator().manual_seed(0)
        loader = loader_class(
            Numbers(),
            4,
            True,
            num_workers=num_workers,
            worker_init_fn=seed_worker,
            generator=generator,
            **extra,
        )
        return [list(loader) for _ in range(2)]

    found = run(2, rng=rng)
    assert_same(found, run(2, rng=rng))
    if rng == "torch":
        assert_same(run(2, TorchLoader), found)
    else:
        assert_same(run(0, rng=rng), found)
        assert_same(run(3, rng=rng), found)
    for column in (1, 2, 3):
        drawn = torch.cat([batch[column].double() for epoch in found for batch in epoch])
        assert len(drawn.unique()) == 48


def test_worker_init_fn_runs_after_seeding() -> None:
    """What it draws is what it draws under torch."""

    class Drawn(Seeds):
        def __iter__(self) -> Iterator[Any]:
            yield self.told

    def draw(worker: int) -> None:
        info = get_worker_info()
        assert info is not None
        known: Any = info.dataset
        known.told = [random.random(), float(np.random.rand()), torch.rand(()).item()]

    found = []
    for loader_class in BOTH:
        seed_everything(9)
        found.append(list(loader_class(Drawn(), batch_size=1, num_workers=2, worker_init_fn=draw)))
    assert_same(*found)


class Failing(Numbers):
    def __getitem__(self, index: int) -> Any:
        if index == 13:
            raise KeyError(index)
        return index


class Quiet(Numbers):
    def __getitem__(self, index: int) -> Any:
        return index


def left_after(loader_class: Any, dataset: Any, **arguments: Any) -> tuple[str, ...]:
    """The states of the global generators after two epochs."""
    seed_everything(4)
    random.gauss(0, 1)
    loader = loader_class(dataset, batch_size=5, **arguments)
    for _ in range(2):
        try:
            for _ in loader:
                pass
        except KeyError:
            continue
    states: list[Any] = [random.getstate(), np.random.get_state(), torch.get_rng_state()]
    states[1] = [part.tolist() if isinstance(part, np.ndarray) else part for part in states[1]]
    states[2] = states[2].tolist()
    return tuple(map(repr, states))


@pytest.mark.parametrize("dataset", [Quiet(), Failing()], ids=["quiet", "failing"])
@pytest.mark.parametrize("shuffle", [False, True])
def test_the_parents_generators_end_where_torchs_loader_leaves_them(shuffle: bool, dataset: Any) -> None:
    """torch's draws do not depend on its workers, which take their time to end after an error: it runs without them then."""
    theirs = {left_after(TorchLoader, dataset, shuffle=shuffle)}
    if isinstance(dataset, Quiet):
        theirs.add(left_after(TorchLoader, dataset, shuffle=shuffle, num_workers=2))
    ours = {
        left_after(StokerLoader, dataset, shuffle=shuffle, num_workers=num_workers, **extra)
        for num_workers in (0, 2)
        for extra in ({}, {"rng": "sample"}, {"rng": "torch"}, {"on_bad_sample": "skip"})
    }
    ours.add(left_after(StokerLoader, Numbers(), shuffle=shuffle))  # it draws, and leaves no trace of it
    assert len(theirs) == 1
    assert ours == theirs

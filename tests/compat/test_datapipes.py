"""DataPipes: shuffling, sharding over workers and seeding belong to the loader."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.utils.data import IterDataPipe, MapDataPipe
from torch.utils.data.datapipes.iter import IterableWrapper
from torch.utils.data.datapipes.map import SequenceWrapper

from tests.compat.compare import BOTH, Arguments, assert_same, assert_same_run

# The pipes deprecate parts of themselves; both loaders are handed the same ones.
pytestmark = pytest.mark.filterwarnings(
    "ignore:.*datapipe.*", "ignore:.*DataPipe.*", "ignore:Some child DataPipes.*"
)

WORKERS = (0, 1, 2)


def tenfold(value: int) -> int:
    return value * 10


def iter_pipe(*, sharded: bool = True, shuffled: bool = True) -> Any:
    pipe: Any = IterableWrapper(range(20))
    if shuffled:
        pipe = pipe.shuffle()
    if sharded:
        pipe = pipe.sharding_filter()
    return pipe.map(tenfold)


def map_pipe() -> Any:
    pipe: Any = SequenceWrapper(list(range(13)))
    return pipe.map(tenfold)


@pytest.mark.parametrize("num_workers", WORKERS)
@pytest.mark.parametrize("batch_size", [None, 3])
@pytest.mark.parametrize("shuffle", [None, False, True])
def test_iterable_pipe(shuffle: bool | None, batch_size: int | None, num_workers: int) -> None:
    def build() -> Arguments:
        return {
            "dataset": iter_pipe(),
            "shuffle": shuffle,
            "batch_size": batch_size,
            "num_workers": num_workers,
        }

    assert_same_run(build, epochs=2)


@pytest.mark.parametrize("num_workers", WORKERS)
@pytest.mark.parametrize("sharded", [False, True])
def test_sharding_decides_whether_workers_repeat(sharded: bool, num_workers: int) -> None:
    def build() -> Arguments:
        return {
            "dataset": iter_pipe(sharded=sharded, shuffled=False),
            "batch_size": 4,
            "num_workers": num_workers,
        }

    assert_same_run(build)


@pytest.mark.parametrize("num_workers", WORKERS)
def test_the_loaders_generator_seeds_the_pipe(num_workers: int) -> None:
    def build() -> Arguments:
        generator = torch.Generator().manual_seed(5)
        return {"dataset": iter_pipe(), "shuffle": True, "generator": generator, "num_workers": num_workers}

    assert_same_run(build, epochs=2)


@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("num_workers", WORKERS)
def test_map_pipe(num_workers: int, shuffle: bool) -> None:
    assert_same_run(
        lambda: {"dataset": map_pipe(), "shuffle": shuffle, "batch_size": 4, "num_workers": num_workers},
        epochs=2,
    )


@pytest.mark.parametrize("num_workers", [1, 2])
def test_persistent_workers_reshuffle_the_pipe(num_workers: int) -> None:
    """The first epoch is torch's; later ones are permutations (we draw a seed each time, torch once)."""
    first = []
    for loader_class in BOTH:
        torch.manual_seed(3)
        loader = loader_class(iter_pipe(), shuffle=True, num_workers=num_workers, persistent_workers=True)
        epochs = [[int(batch) for batch in loader] for _ in range(3)]
        assert all(sorted(epoch) == [10 * value for value in range(20)] for epoch in epochs)
        assert epochs[0] != epochs[1]
        first.append(epochs[0])
    assert_same(*first)


@pytest.mark.parametrize("num_workers", [1, 2])
def test_persistent_workers_reshuffle_the_pipe_as_torchs_do_on_request(num_workers: int) -> None:
    runs = []
    for loader_class, extra in zip(BOTH, ({}, {"rng": "torch"}), strict=True):
        torch.manual_seed(3)
        loader = loader_class(iter_pipe(), num_workers=num_workers, persistent_workers=True, **extra)
        runs.append([[int(batch) for batch in loader] for _ in range(3)])
        runs[-1].append(torch.get_rng_state().tolist())
    assert_same(*runs)


def test_the_pipe_is_reachable_on_the_loader() -> None:
    theirs, ours = (loader_class(iter_pipe()) for loader_class in BOTH)
    assert type(ours.dataset) is type(theirs.dataset)
    assert isinstance(ours.dataset, IterDataPipe)
    theirs, ours = (loader_class(map_pipe()) for loader_class in BOTH)
    assert type(ours.dataset) is type(theirs.dataset)
    assert isinstance(ours.dataset, MapDataPipe)

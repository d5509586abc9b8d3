"""Randomness inside the dataset: independent of the number of workers; torch's streams on request."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import Dataset, DistributedSampler

import stoker
from tests.compat.compare import Arguments, StokerLoader, TorchLoader, assert_same, observe, seed_everything
from tests.compat.samples import Augmented, RandomStream

SOME_WORKERS = (1, 2, 3)

# The number of workers is the point here, not whether this machine has as many CPUs.
pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning")


def run_ours(*, epochs: int = 2, **arguments: Any) -> list[Any]:
    seed_everything(17)
    loader = StokerLoader(Augmented(), **arguments)
    return [list(loader) for _ in range(epochs)]


@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("batch_size", [None, 1, 5, 20, 40])
def test_the_number_of_workers_changes_nothing(batch_size: int | None, shuffle: bool) -> None:
    expected = run_ours(batch_size=batch_size, shuffle=shuffle, num_workers=0)
    for num_workers in SOME_WORKERS:
        assert_same(expected, run_ours(batch_size=batch_size, shuffle=shuffle, num_workers=num_workers))


@pytest.mark.parametrize("num_workers", SOME_WORKERS)
def test_persistent_workers_change_nothing(num_workers: int) -> None:
    expected = run_ours(batch_size=8, shuffle=True, num_workers=0, epochs=3)
    assert_same(
        expected,
        run_ours(batch_size=8, shuffle=True, num_workers=num_workers, persistent_workers=True, epochs=3),
    )


@pytest.mark.parametrize("split_batches", [False, True])
def test_splitting_rows_over_workers_changes_nothing(split_batches: bool) -> None:
    expected = run_ours(batch_size=40, num_workers=0)
    assert_same(expected, run_ours(batch_size=40, num_workers=2, split_batches=split_batches))


def test_the_default_is_per_batch() -> None:
    assert_same(run_ours(batch_size=8, num_workers=2), run_ours(batch_size=8, num_workers=2, rng="batch"))


@pytest.mark.parametrize("num_workers", [0, 2])
def test_rows_batches_and_epochs_differ(num_workers: int) -> None:
    epochs = run_ours(batch_size=8, num_workers=num_workers)
    for name in ("python", "numpy", "torch", "normal"):
        drawn = torch.cat([batch[name].reshape(8, -1)[:, 0].double() for epoch in epochs for batch in epoch])
        assert len(drawn.unique()) == len(drawn) == 80


@pytest.mark.parametrize("num_workers", [0, 2])
def test_ranks_that_share_a_seed_draw_different_numbers(
    num_workers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def drawn(**arguments: Any) -> set[float]:
        epochs = run_ours(batch_size=8, num_workers=num_workers, **arguments)
        return {number for epoch in epochs for batch in epoch for number in batch["python"].tolist()}

    ranks = [drawn(sampler=DistributedSampler(range(80), 2, rank)) for rank in (0, 1)]  # type: ignore[arg-type]
    monkeypatch.setenv("WORLD_SIZE", "4")
    for rank in (2, 3):
        monkeypatch.setenv("RANK", str(rank))
        ranks.append(drawn())
    assert len(set.union(*ranks)) == sum(map(len, ranks)) == 4 * 80


@pytest.mark.parametrize("num_workers", [0, 1, 2])
def test_another_seed_gives_other_rows(num_workers: int) -> None:
    torch.manual_seed(1)
    one = next(iter(StokerLoader(Augmented(), batch_size=4, num_workers=num_workers)))
    torch.manual_seed(2)
    two = next(iter(StokerLoader(Augmented(), batch_size=4, num_workers=num_workers)))
    for name in ("python", "numpy", "torch"):
        assert not torch.equal(one[name], two[name])


@pytest.mark.parametrize("num_workers", [0, 2])
def test_the_parents_generators_stay_where_the_training_loop_left_them(num_workers: int) -> None:
    def draws(dataset: Any) -> list[Any]:
        seed_everything(3)
        drawn = []
        for _ in StokerLoader(dataset, batch_size=10, num_workers=num_workers):
            drawn += [torch.rand(1).item(), random.random(), np.random.rand()]
        return drawn

    assert draws(Augmented()) == draws(range(40))


def start_from_five(worker_id: int) -> None:
    torch.manual_seed(5)


def test_a_worker_init_fn_that_seeds_torch_keeps_its_stream() -> None:
    """torch is then left alone in that worker: the rows are those of that one stream."""
    loader = StokerLoader(Augmented(6), batch_size=2, num_workers=1, worker_init_fn=start_from_five)
    ours = [batch["torch"] for batch in loader]
    reference = TorchLoader(Augmented(6), batch_size=2, num_workers=1, worker_init_fn=start_from_five)
    assert_same([batch["torch"] for batch in reference], ours)


@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("batch_size", [None, 1, 7, 20])
@pytest.mark.parametrize("num_workers", [0, 1, 2, 3])
def test_torchs_streams_on_request(num_workers: int, batch_size: int | None, shuffle: bool) -> None:
    def build() -> Arguments:
        return {
            "dataset": Augmented(24),
            "batch_size": batch_size,
            "shuffle": shuffle,
            "num_workers": num_workers,
        }

    theirs = observe(TorchLoader, build, epochs=2)
    ours = observe(StokerLoader, build, epochs=2, rng="torch")
    assert ours.error is None
    assert_same(theirs.epochs, ours.epochs)
    assert torch.equal(theirs.generator_state, ours.generator_state)  # type: ignore[arg-type]


@pytest.mark.parametrize("num_workers", [0, 1, 2])
@pytest.mark.parametrize("batch_size", [None, 2])
def test_torchs_streams_for_iterable_datasets(batch_size: int | None, num_workers: int) -> None:
    def build() -> Arguments:
        return {"dataset": RandomStream(), "batch_size": batch_size, "num_workers": num_workers}

    theirs = observe(TorchLoader, build, epochs=2)
    ours = observe(StokerLoader, build, epochs=2, rng="torch")
    assert ours.error is None
    assert_same(theirs.epochs, ours.epochs)


@pytest.mark.parametrize("rng", ["batch", "torch"])
@pytest.mark.parametrize("num_workers", [0, 2])
def test_a_random_stream_can_be_repeated(num_workers: int, rng: str) -> None:
    def run() -> list[Any]:
        seed_everything(12)
        return list(StokerLoader(RandomStream(), batch_size=2, num_workers=num_workers, rng=rng))

    assert_same(run(), run())


class Keyed(Dataset[float]):
    """Samples that draw from the generator that belongs to them."""

    def __len__(self) -> int:
        return 3

    def __getitem__(self, index: int) -> float:
        return float(stoker.generator().random())


def test_torchs_streams_continue_in_persistent_workers() -> None:
    runs = []
    for loader_class, extra in ((TorchLoader, {}), (StokerLoader, {"rng": "torch"})):
        seed_everything(6)
        loader: Any = loader_class(Augmented(), batch_size=4, num_workers=2, persistent_workers=True, **extra)
        runs.append([list(loader) for _ in range(3)])
    assert_same(*runs)


def test_keyed_generators_differ_in_epochs_that_draw_no_base_seed() -> None:
    loader: Any = StokerLoader(Keyed(), num_workers=1, persistent_workers=True, rng="torch")
    epochs = [[batch.item() for batch in loader] for _ in range(3)]
    assert len({number for epoch in epochs for number in epoch}) == 3 * len(loader.dataset)

"""Workers come and go in the middle of an epoch, and die there: not one bit of what is delivered changes."""

from __future__ import annotations

import os
import random
import signal
from typing import Any

import pytest
import torch
from torch.utils.data import RandomSampler, get_worker_info

import stoker
from stoker._runtime.protocol.status_page import PID
from tests.compat.compare import assert_same, seed_everything
from tests.conformance.datasets import Mixture

ROWS = 230
BATCH = 10
BATCHES = ROWS // BATCH
EPOCHS = 2
MOST = 4


def loader_of(dataset: Any, **options: Any) -> Any:
    sampler = RandomSampler(dataset, generator=torch.Generator().manual_seed(11))
    return stoker.DataLoader(dataset, BATCH, sampler=sampler, restarts=20, **options)


def expected(*, noise: bool, epochs: int = EPOCHS, rows: int = ROWS) -> list[list[Any]]:
    seed_everything(3)
    loader = loader_of(Mixture(rows, noise=noise))
    return [list(loader) for _ in range(epochs)]


def resized(
    loader: Any, script: random.Random, *, kills: bool, most: int = MOST, pause: int = 0
) -> list[Any]:
    """One epoch, with other workers after every few batches; ``pause`` is after how many it is left and a state resumed."""
    found = []
    iterator = iter(loader)
    while (batch := next(iterator, None)) is not None:
        found.append(batch)
        if script.random() < 0.4:
            iterator._iteration.resize(script.randint(1, most))
        if kills and script.random() < 0.15:
            pids = [handle.pid for handle in iterator._workers if handle.is_alive()]
            if pids:
                os.kill(script.choice(pids), signal.SIGKILL)
        if len(found) == pause:
            state = loader.state_dict()
            del iterator
            loader.load_state_dict(state)
            iterator = iter(loader)
    return found


# Forked workers start in milliseconds, others do not: one short epoch each shows what their start adds.
PLANS: list[dict[str, Any]] = [
    {"multiprocessing_context": "fork", "persistent_workers": True},
    {"multiprocessing_context": "fork", "split_batches": False, "prefetch_factor": 3},
    {"multiprocessing_context": "fork", "persistent_workers": True, "prefetch_epochs": True},
    {"multiprocessing_context": "forkserver", "persistent_workers": True},
    {"multiprocessing_context": "spawn", "persistent_workers": True},
    {"executor": "thread"},
    {"executor": "thread", "persistent_workers": True},
]


@pytest.mark.parametrize("plan", PLANS, ids=lambda plan: "-".join(str(value) for value in plan.values()))
@pytest.mark.parametrize("kills", [False, True])
def test_batches_do_not_depend_on_when_workers_come_and_go(plan: dict[str, Any], kills: bool) -> None:
    threads = plan.get("executor") == "thread"
    forked = plan.get("multiprocessing_context") == "fork"
    if kills and not forked:
        return  # threads do not die alone, and what a death adds does not depend on how a worker started
    epochs, most, rows = (EPOCHS, MOST, ROWS) if forked or threads else (1, 3, 60)
    script = random.Random(5 + kills if rows == ROWS else 51)  # the latter: to 3, 1 and 2 workers
    seed_everything(3)
    with loader_of(Mixture(rows, noise=not threads), num_workers=2, **plan) as loader:
        found = [resized(loader, script, kills=kills, most=most) for _ in range(epochs)]
        assert_same(expected(noise=not threads, epochs=epochs, rows=rows), found)
        if not kills:
            assert loader.stats()["worker_deaths"] == 0


def test_a_state_is_resumed_by_other_workers_which_are_resized_too() -> None:
    script = random.Random(9)
    seed_everything(3)
    with loader_of(Mixture(ROWS, noise=True), num_workers=3, persistent_workers=True) as loader:
        found = [resized(loader, script, kills=True, pause=7 + epoch) for epoch in range(EPOCHS)]
    assert_same(expected(noise=True), found)


class Whoami:
    """Samples tell which worker made them, and how many it was told there are."""

    def __len__(self) -> int:
        return 200

    def __getitem__(self, index: int) -> tuple[int, int]:
        info = get_worker_info()
        assert info is not None
        return info.id, info.num_workers


@pytest.mark.parametrize("executor", ["process", "thread"])
def test_who_left_is_no_loss_and_ids_are_given_again(executor: Any) -> None:
    dataset: Any = Whoami()
    with stoker.DataLoader(dataset, 1, num_workers=1, persistent_workers=True, executor=executor) as loader:
        iterator: Any = iter(loader)
        iterator._iteration.resize(3)
        seen = {tuple(map(int, next(iterator))) for _ in range(101)}
        assert seen <= {(0, 1), (1, 2), (2, 3)}  # an id is below the number, whoever came later
        pool = iterator._pool
        assert (len(iterator._workers), pool.workers, pool.attribution.workers) == (3, 3, 3)
        iterator._iteration.resize(1)
        assert sum(1 for _ in iterator) == 99
        while len(pool._workers) > 1:  # an epoch hears of those who left, as soon as they have
            assert sum(1 for _ in loader) == 200
        assert sum(pool.executor._status.row(worker)[PID] != 0 for worker in range(4)) == 1
        stats = loader.stats()
        assert stats["worker_deaths"] == 0
        assert not [each for each in stats["record"]["loaders"][0]["events"] if each["kind"] == "worker_died"]
        del iterator, pool


class Attributed:
    """A dataset whose samples are an attribute of it."""

    def __init__(self) -> None:
        self.value = 1

    def __len__(self) -> int:
        return 60

    def __getitem__(self, index: int) -> int:
        return self.value


def test_a_worker_that_is_forked_late_has_the_dataset_of_the_epochs_beginning() -> None:
    dataset: Any = Attributed()
    with stoker.DataLoader(
        dataset, 1, num_workers=1, persistent_workers=True, multiprocessing_context="fork", prefetch_factor=1
    ) as loader:
        iterator: Any = iter(loader)
        next(iterator)
        dataset.value = 2
        iterator._iteration.resize(4)
        assert {int(batch) for batch in iterator} == {1}
        assert {int(batch) for batch in loader} == {2}
        del iterator


def test_streams_keep_their_workers() -> None:
    class Numbers(torch.utils.data.IterableDataset[int]):
        def __iter__(self) -> Any:
            info = get_worker_info()
            assert info is not None
            return iter(range(info.id, 20, info.num_workers))

    with stoker.DataLoader(Numbers(), 2, num_workers=2) as loader:
        iterator: Any = iter(loader)
        first = next(iterator)
        assert iterator._iteration.resize(4) == 2
        rest = [first, *iterator]
        assert sorted(int(each) for batch in rest for each in batch) == list(range(20))
        assert len(iterator._workers) == 2
        del iterator


def test_an_exception_from_outside_leaves_no_worker_that_nobody_started(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As Ctrl-C, or what a signal handler raises, between two workers that are to come."""
    dataset: Any = Whoami()
    with stoker.DataLoader(dataset, 1, num_workers=1, persistent_workers=True) as loader:
        iterator: Any = iter(loader)
        next(iterator)
        with monkeypatch.context() as patch:
            patch.setattr(iterator._pool, "spawn", lambda worker: signal.raise_signal(signal.SIGINT))
            with pytest.raises(KeyboardInterrupt):
                iterator._iteration.resize(3)
        del iterator
        iterator = iter(loader)
        next(iterator)
        iterator._iteration.resize(1)
        assert sum(1 for _ in iterator) == 199
        del iterator

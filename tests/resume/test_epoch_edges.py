"""``prefetch_epochs``: the next epoch is under way before this one is over, and nothing else changes."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch.utils.data import Dataset, DistributedSampler

from stoker import DataLoader, ElasticDistributedSampler, generator

SIZE, BATCHES = 23, 6
WORKERS = {"num_workers": 2, "persistent_workers": True, "prefetch_epochs": True}

pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning")


class Drawn(Dataset[torch.Tensor]):
    """Samples that tell where they come from, what they drew, and what the dataset's attribute was."""

    def __init__(self) -> None:
        self.phase = 0

    def __len__(self) -> int:
        return SIZE

    def __getitem__(self, index: int) -> torch.Tensor:
        drawn = [random.random(), torch.rand(()).item(), generator().random()]
        return torch.tensor([index, self.phase, *drawn], dtype=torch.float64)


def seeded(seed: int = 3) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def epochs(
    count: int, before: Any = lambda loader, epoch: None, **arguments: Any
) -> list[list[torch.Tensor]]:
    with DataLoader(Drawn(), batch_size=4, generator=seeded(), **arguments) as loader:
        found = []
        for epoch in range(count):
            before(loader, epoch)
            found.append(list(loader))
        return found


def assert_same(expected: list[list[torch.Tensor]], found: list[list[torch.Tensor]]) -> None:
    assert [len(epoch) for epoch in found] == [len(epoch) for epoch in expected]
    for one, other in zip(expected, found, strict=True):
        for batch, again in zip(one, other, strict=True):
            assert torch.equal(batch, again)


def indices(batches: list[torch.Tensor]) -> list[int]:
    return sorted(int(index) for batch in batches for index in batch[:, 0])


@pytest.mark.parametrize(
    "arguments",
    [{"shuffle": True}, {"shuffle": True, "rng": "sample"}, {"drop_last": True}, {"prefetch_factor": 8}],
)
def test_epochs_are_those_of_a_loader_without(arguments: dict[str, Any]) -> None:
    expected = epochs(4, **{**arguments, "prefetch_factor": None})
    assert_same(expected, epochs(4, **arguments, **WORKERS))


def test_under_threads_too() -> None:
    expected = epochs(3, shuffle=True)
    found = epochs(3, shuffle=True, executor="thread", **WORKERS)
    columns = [
        0,
        1,
        4,
    ]  # what came from stoker.generator(), not from generators that threads share with the trainer
    picked = [[[batch[:, columns] for batch in epoch] for epoch in each] for each in (expected, found)]
    assert_same(*picked)


def opened(loader: Any) -> bool:
    return loader._prefetched is not None


def test_the_next_epoch_is_under_way_before_this_one_is_over() -> None:
    with DataLoader(Drawn(), batch_size=4, **WORKERS) as loader:  # type: ignore[arg-type]
        iterator = iter(loader)
        for _ in range(BATCHES - 1):
            next(iterator)
        assert opened(loader)
        ahead = loader._prefetched
        assert ahead is not None
        assert len(list(iterator)) == 1
        assert iter(loader) is ahead.iterator


def test_what_changes_on_the_dataset_between_epochs_is_seen() -> None:
    def change(loader: Any, epoch: int) -> None:
        loader.dataset.phase = epoch

    expected = epochs(3, change, shuffle=True)
    assert [int(epoch[0][0, 1]) for epoch in expected] == [0, 1, 2]
    assert_same(expected, epochs(3, change, shuffle=True, **WORKERS))


def ranked(kind: Callable[..., Any], told: int, **arguments: Any) -> list[list[torch.Tensor]]:
    """``set_epoch`` is called before so many epochs."""
    dataset = Drawn()
    sampler = kind(dataset, 2, 1)
    with DataLoader(dataset, batch_size=4, sampler=sampler, generator=seeded(), **arguments) as loader:
        found = []
        for epoch in range(3):
            if epoch < told:
                sampler.set_epoch(epoch)
            found.append(list(loader))
        return found


@pytest.mark.parametrize(
    ("kind", "told", "warned"),
    [(DistributedSampler, 3, 1), *((ElasticDistributedSampler, told, 0) for told in (0, 2, 3))],
)
def test_set_epoch_between_epochs_takes_effect(
    kind: Callable[..., Any], told: int, warned: int, caplog: pytest.LogCaptureFixture
) -> None:
    """A sampler that counts has opened that epoch already; it must not take the call for the one after it."""
    expected = ranked(kind, told)
    assert_same(expected, ranked(kind, told, **WORKERS))
    assert len({str(epoch[0][:, 0]) for epoch in expected}) == 3
    assert sum("set_epoch() came after" in record.getMessage() for record in caplog.records) == warned


def test_in_any_order_epochs_stay_apart() -> None:
    with DataLoader(Drawn(), batch_size=4, shuffle=True, in_order=False, **WORKERS) as loader:  # type: ignore[arg-type]
        for _ in range(6):
            assert indices(list(loader)) == list(range(SIZE))


@pytest.mark.parametrize("taken", [1, BATCHES - 1, BATCHES])
def test_states_go_on_elsewhere(taken: int) -> None:
    """In the middle, when the next epoch has been opened, and between two epochs."""
    with DataLoader(Drawn(), batch_size=4, shuffle=True, generator=seeded(), **WORKERS) as loader:  # type: ignore[arg-type]
        list(loader)
        iterator = iter(loader)
        for _ in range(taken):
            next(iterator)
        first: list[Any] = []
        if taken == BATCHES:
            assert list(iterator) == []
            state = json.loads(json.dumps(loader.state_dict()))
        else:
            state = json.loads(json.dumps(loader.state_dict()))
            first = [list(iterator)]
        expected = [*first, list(loader), list(loader)]
    other = DataLoader(Drawn(), batch_size=4, shuffle=True, generator=seeded(99))
    other.load_state_dict(state)
    assert_same(expected, [list(other) for _ in expected])


def test_a_state_that_is_loaded_meanwhile_wins() -> None:
    with DataLoader(Drawn(), batch_size=4, shuffle=True, generator=seeded(), **WORKERS) as loader:  # type: ignore[arg-type]
        iterator = iter(loader)
        next(iterator)
        state = loader.state_dict()
        expected = list(iterator)
        assert opened(loader)
        loader.load_state_dict(state)
        assert_same([expected], [list(loader)])
        assert len(list(loader)) == BATCHES


def test_an_epoch_that_is_left_early_leaves_nothing_behind() -> None:
    with DataLoader(Drawn(), batch_size=4, **WORKERS) as loader:  # type: ignore[arg-type]
        for taken in (1, BATCHES - 1):
            iterator = iter(loader)
            for _ in range(taken):
                next(iterator)
            del iterator
            assert indices(list(loader)) == list(range(SIZE))


def test_two_iterators_at_once_are_independent() -> None:
    with DataLoader(Drawn(), batch_size=4, **WORKERS) as loader:  # type: ignore[arg-type]
        one = iter(loader)
        for _ in range(BATCHES - 1):
            next(one)
        other = iter(loader)
        assert len(list(one)) == 1
        assert indices(list(other)) == list(range(SIZE))
        assert indices(list(loader)) == list(range(SIZE))


@pytest.mark.parametrize("end", ["refresh", "close"])
def test_refresh_and_close_in_between(end: str) -> None:
    with DataLoader(Drawn(), batch_size=4, **WORKERS) as loader:  # type: ignore[arg-type]
        list(loader)
        assert opened(loader)
        pids = [worker.pid for worker in loader._iterator._workers]  # type: ignore[union-attr]
        getattr(loader, end)()
        assert indices(list(loader)) == list(range(SIZE))
        assert not set(pids) & {worker.pid for worker in loader._iterator._workers}  # type: ignore[union-attr]


class Failing:
    """A sampler whose second epoch raises, when it is opened or after some indices."""

    def __init__(self, after: int) -> None:
        self.after = after
        self.opened = 0

    def __len__(self) -> int:
        return SIZE

    def __iter__(self) -> Iterator[int]:
        self.opened += 1
        if self.opened > 1 and self.after == 0:
            raise KeyError("second epoch")
        return self._indices(self.opened)

    def _indices(self, opened: int) -> Iterator[int]:
        for index in range(SIZE):
            if opened > 1 and index == self.after:
                raise KeyError("second epoch")
            yield index


@pytest.mark.parametrize("after", [0, 4, 8])
def test_an_error_of_the_next_epoch_is_raised_in_it(after: int) -> None:
    sampler = Failing(after)
    with DataLoader(Drawn(), batch_size=4, sampler=sampler, **WORKERS) as loader:  # type: ignore[arg-type]
        assert len(list(loader)) == BATCHES
        taken: list[torch.Tensor] = []
        with pytest.raises(KeyError, match="second epoch"):
            taken.extend(loader)
        assert len(taken) == after // 4
        assert sampler.opened >= 2


def test_without_workers_nothing_is_opened_ahead() -> None:
    loader = DataLoader(Drawn(), batch_size=4, prefetch_epochs=True)
    assert len(list(loader)) == BATCHES
    assert not opened(loader)


def test_a_loader_that_is_dropped_ends_its_workers() -> None:
    loader = DataLoader(Drawn(), batch_size=4, **WORKERS)  # type: ignore[arg-type]
    list(loader)
    assert opened(loader)
    workers = list(loader._iterator._workers)  # type: ignore[union-attr]
    del loader
    for worker in workers:
        worker.join(10)
        assert not worker.is_alive()


def test_an_iterator_outlives_its_loader() -> None:
    iterator = iter(DataLoader(Drawn(), batch_size=4, **WORKERS))  # type: ignore[arg-type]
    assert indices(list(iterator)) == list(range(SIZE))

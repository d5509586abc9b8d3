"""Datasets that keep the place they were loaded with, as Hugging Face's do: only the epoch that was taken up begins there."""

from __future__ import annotations

import itertools
import logging
import random
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch.utils.data import IterableDataset

import stoker
from tests.compat.compare import seed_everything
from tests.resume.runs import through_json
from tests.resume.streams import share

LENGTH, SIZE = 48, 4
BATCHES = LENGTH // SIZE
WAYS = [
    {},
    {"num_workers": 2, "multiprocessing_context": "fork"},
    {"num_workers": 2, "multiprocessing_context": "fork", "persistent_workers": True},
]

pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning")


class Keeping(IterableDataset[Any]):
    """Begins every epoch at the place that was loaded. Its state is that of the last epoch until it gives a sample."""

    def __init__(self) -> None:
        self.start = 0
        self.now: dict[str, int] | None = None

    def __iter__(self) -> Iterator[Any]:
        first, step = share()
        for done in range(self.start, LENGTH // step):
            self.now = {"done": done + 1}
            yield torch.tensor([first + done * step, random.randrange(1000)])

    def state_dict(self) -> dict[str, int] | None:
        return self.now

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.start = state["done"]


class Wrapping(IterableDataset[Any]):
    """The place is kept by a dataset inside this one."""

    def __init__(self) -> None:
        self.inner = Keeping()

    def __iter__(self) -> Iterator[Any]:
        return iter(self.inner)

    def state_dict(self) -> Any:
        return self.inner.state_dict()

    def load_state_dict(self, state: Any) -> None:
        self.inner.load_state_dict(state)


class Buried(Keeping):
    """The place is kept where nobody looks."""

    def __init__(self) -> None:
        super().__init__()
        self.places = [0]

    def __iter__(self) -> Iterator[Any]:
        self.start = self.places[0]
        return super().__iter__()

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.places[0] = state["done"]


def running(kind: type[IterableDataset[Any]] = Keeping, **how: Any) -> Any:
    return stoker.DataLoader(kind(), batch_size=SIZE, **how)


def epoch(loader: Any) -> list[Any]:
    return [batch.tolist() for batch in loader]


def taken_up(state: Any, kind: type[IterableDataset[Any]], epochs: int, **how: Any) -> list[list[Any]]:
    """The next epochs of another loader, with the generators of the first."""
    with running(kind, **how) as loader:
        loader.load_state_dict(through_json(state))
        return [epoch(loader) for _ in range(epochs)]


@pytest.mark.parametrize("how", WAYS)
@pytest.mark.parametrize("kind", [Keeping, Wrapping])
@pytest.mark.parametrize("taken", [0, 1, 5, BATCHES])
def test_epochs_after_the_one_that_was_taken_up_are_whole(
    taken: int, kind: type[IterableDataset[Any]], how: dict[str, Any]
) -> None:
    """And equal to those of a run that was not stopped, random numbers included."""
    seed_everything(7)
    with running(kind, **how) as loader:
        iterator = iter(loader)
        list(itertools.islice(iterator, taken))
        state, world = loader.state_dict(), torch.get_rng_state()
        expected = [[batch.tolist() for batch in iterator], epoch(loader), epoch(loader)]
    assert [len(each) for each in expected] == [BATCHES - taken, BATCHES, BATCHES]
    seed_everything(8)
    torch.set_rng_state(world)
    assert taken_up(state, kind, 3, **how) == expected


@pytest.mark.parametrize("how", WAYS)
@pytest.mark.parametrize("epochs", [1, 2])
def test_a_state_from_between_epochs_gives_whole_ones(epochs: int, how: dict[str, Any]) -> None:
    with running(**how) as loader:
        for _ in range(epochs):
            epoch(loader)
        state = loader.state_dict()
    assert [len(each) for each in taken_up(state, Keeping, 3, **how)] == [BATCHES] * 3


@pytest.mark.parametrize("how", WAYS)
@pytest.mark.parametrize("taken", [0, 1])
def test_a_state_from_the_beginning_of_a_later_epoch_loses_nothing(taken: int, how: dict[str, Any]) -> None:
    """A stream that has given nothing yet still has the state of the epoch before."""
    with running(**how) as loader:
        epoch(loader)
        iterator = iter(loader)
        first = [next(iterator)[:, 0].tolist() for _ in range(taken)]
        state = loader.state_dict()
    rest, following = taken_up(state, Keeping, 2, **how)
    values = itertools.chain(*first, (value for batch in rest for value, _ in batch))
    assert sorted(values) == list(range(LENGTH))
    assert len(following) == BATCHES


def test_a_loader_that_loads_its_own_states_again_and_again() -> None:
    loader = running()
    iterator = iter(loader)
    states = []
    for _ in range(4):
        next(iterator)
        states.append(loader.state_dict())
    for state in states:
        loader.load_state_dict(state)
        next(iter(loader))
    loader.load_state_dict(states[1])
    assert [len(epoch(loader)) for _ in range(3)] == [BATCHES - 2, BATCHES, BATCHES]
    assert loader.dataset.start == 0


def test_bad_samples_keep_their_rows() -> None:
    class Some(Keeping):
        def __iter__(self) -> Iterator[Any]:
            for sample in super().__iter__():
                yield None if sample[0] % 10 == 9 else sample

    seed_everything(7)
    loader = running(Some, on_bad_sample="skip")
    iterator = iter(loader)
    next(iterator), next(iterator)
    state, world = loader.state_dict(), torch.get_rng_state()
    expected = [[batch.tolist() for batch in iterator], epoch(loader)]
    torch.set_rng_state(world)
    assert taken_up(state, Some, 2, on_bad_sample="skip") == expected


def test_a_place_that_cannot_be_undone_is_told(caplog: pytest.LogCaptureFixture) -> None:
    loader = running(Buried)
    iterator = iter(loader)
    for _ in range(5):
        next(iterator)
    loader.load_state_dict(loader.state_dict())
    with caplog.at_level(logging.WARNING, "stoker"):
        assert [len(epoch(loader)) for _ in range(3)] == [7, 7, 7]
    assert [record.getMessage()[:48] for record in caplog.records] == [
        "Buried begins at the state that was loaded into "
    ]


class Shards(IterableDataset[Any]):
    """Its own state, which does not move with its samples, is not the place: its iterator has that."""

    def __init__(self) -> None:
        self.shard = 0

    def __iter__(self) -> Iterator[Any]:
        return Places(self.shard)

    def state_dict(self) -> dict[str, int]:
        return {"shard": self.shard}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.shard = state["shard"]


class Places:
    def __init__(self, shard: int) -> None:
        self.shard = shard
        self.place = 0

    def __iter__(self) -> Places:
        return self

    def __next__(self) -> Any:
        if self.place == 12:
            raise StopIteration
        self.place += 1
        return self.shard * 100 + self.place

    def state_dict(self) -> dict[str, int]:
        return {"place": self.place}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.place = state["place"]


@pytest.mark.parametrize("taken", [0, 1, 2])
def test_what_else_was_loaded_stays(taken: int) -> None:
    loader = running(Shards)
    loader.dataset.shard = 5
    iterator = iter(loader)
    list(itertools.islice(iterator, taken))
    state = loader.state_dict()
    other = running(Shards)
    other.load_state_dict(state)
    assert [[batch.tolist() for batch in other] for _ in range(3)] == [
        [[500 + batch * 4 + row for row in (1, 2, 3, 4)] for batch in range(first, 3)]
        for first in (taken, 0, 0)
    ]

"""The loader's place: nothing yet, loaded, under way. Without workers: they have no part in it."""

from __future__ import annotations

import copy
import itertools
from typing import Any

import pytest
import torch
from torch.utils.data import Dataset

import stoker


class Stateful(Dataset[int]):
    """A map-style dataset with a state, which it hands out alive."""

    def __init__(self) -> None:
        self.live: dict[str, Any] = {"seen": []}

    def __len__(self) -> int:
        return 9

    def __getitem__(self, index: int) -> int:
        return index

    def state_dict(self) -> dict[str, Any]:
        return self.live

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.live = state


def shuffled(**arguments: Any) -> Any:
    return stoker.DataLoader(range(9), batch_size=2, shuffle=True, **arguments)  # type: ignore[arg-type]


def epoch(loader: Any) -> list[Any]:
    return [batch.tolist() for batch in loader]


def test_a_state_gives_the_epoch_that_would_begin_now() -> None:
    torch.manual_seed(3)
    loader, other = shuffled(), shuffled()
    state = loader.state_dict()
    assert (state["batches"], state["finished"]) == (0, True)
    assert loader.state_dict() == state
    expected = epoch(loader)
    torch.manual_seed(8)
    other.load_state_dict(state)
    assert epoch(other) == expected


def test_taking_a_state_draws_nothing_and_settles_nothing() -> None:
    """Frameworks take states when they wrap a loader: the weights that are drawn next, and the order, stay torch's."""

    def run(loader: Any, *, asks: bool) -> list[Any]:
        torch.manual_seed(3)
        seen: list[Any] = []
        for _ in range(3):
            if asks:
                loader.state_dict()
            seen += [torch.rand(2).tolist(), epoch(loader)]
            if asks:
                loader.state_dict()
        return [*seen, torch.get_rng_state().tolist()]

    expected = run(torch.utils.data.DataLoader(range(9), batch_size=2, shuffle=True), asks=False)  # type: ignore[arg-type]
    assert run(shuffled(), asks=False) == expected
    assert run(shuffled(), asks=True) == expected


def test_a_state_is_taken_before_the_sampler_has_its_generator() -> None:
    """Accelerate wraps a loader, which takes a state, and then gives its sampler a generator."""

    def run(loader: Any) -> list[Any]:
        torch.manual_seed(3)
        if isinstance(loader, stoker.DataLoader):
            loader.state_dict()
        loader.sampler.generator = torch.Generator().manual_seed(4)
        return [epoch(loader), epoch(loader)]

    expected = run(torch.utils.data.DataLoader(range(9), batch_size=2, shuffle=True))  # type: ignore[arg-type]
    assert run(shuffled()) == expected
    loaded = shuffled()
    loaded.load_state_dict(shuffled().state_dict())
    assert run(loaded) == expected


@pytest.mark.parametrize("taken", range(1, 6))
def test_a_state_goes_on_and_is_the_same_at_the_same_place(taken: int) -> None:
    loader = shuffled()
    iterator = iter(loader)
    list(itertools.islice(iterator, taken))
    state = loader.state_dict()
    other = shuffled()
    other.load_state_dict(state)
    assert other.state_dict() == state
    again = iter(other)
    if taken < 5:
        assert other.state_dict() == state
        for one, two in itertools.zip_longest(iterator, again):
            assert one.tolist() == two.tolist()
            assert loader.state_dict() == other.state_dict()
    else:
        assert list(again) == []
        assert len(epoch(other)) == 5


def test_the_state_outlives_its_iterator() -> None:
    loader = shuffled()
    for _ in loader:
        break
    assert (loader.state_dict()["batches"], loader.state_dict()["samples"]) == (1, 2)
    assert sum(map(len, epoch(loader))) == 9
    assert loader.state_dict()["finished"]


def test_the_iterator_that_was_begun_last_counts() -> None:
    loader = shuffled()
    one, other = iter(loader), iter(loader)
    list(one)
    assert not loader.state_dict()["finished"]
    next(other)
    assert loader.state_dict()["batches"] == 1


def test_loading_replaces_what_was_loaded_and_does_not_touch_an_iterator_in_use() -> None:
    loader = shuffled()
    iterator = iter(loader)
    next(iterator)
    first = loader.state_dict()
    next(iterator)
    second = loader.state_dict()
    rest = [batch.tolist() for batch in itertools.islice(iterator, 2)]
    loader.load_state_dict(first)
    loader.load_state_dict({})
    loader.load_state_dict(second)
    rest += [batch.tolist() for batch in iterator]
    assert loader.state_dict() == second
    assert epoch(loader) == rest
    loader.load_state_dict(second)
    next(iter(loader))
    loader.load_state_dict(second)
    assert epoch(loader) == rest


def test_a_generator_travels_and_is_set_when_the_epoch_begins() -> None:
    loader = shuffled(generator=torch.Generator().manual_seed(5))
    epoch(loader)
    iterator = iter(loader)
    next(iterator)
    state = loader.state_dict()
    expected = [[batch.tolist() for batch in iterator], epoch(loader), epoch(loader)]
    generator = torch.Generator().manual_seed(77)
    other = shuffled(generator=generator)
    other.load_state_dict(state)
    assert generator.initial_seed() == 77
    assert [epoch(other) for _ in range(3)] == expected


def test_a_finished_state_does_not_need_the_same_generators() -> None:
    loader = shuffled(generator=torch.Generator().manual_seed(5))
    epoch(loader)
    other = shuffled()
    other.load_state_dict(loader.state_dict())
    assert sorted(itertools.chain(*epoch(other))) == list(range(9))


def test_a_datasets_state_is_copied_both_ways() -> None:
    dataset = Stateful()
    loader = stoker.DataLoader(dataset, batch_size=2)
    next(iter(loader))
    state = loader.state_dict()
    dataset.live["seen"].append(1)
    assert list(state["dataset_state"]) == [{"seen": []}]
    other = Stateful()
    resumed = stoker.DataLoader(other, batch_size=2)
    resumed.load_state_dict(state)
    for _ in range(2):
        kept = copy.deepcopy(state)
        next(iter(resumed))
        other.live["seen"].append(2)
        assert state == kept


def test_a_dataset_that_is_a_class_has_no_state() -> None:
    """Accelerate's tests give a loader a class as its dataset. The class has the methods, for its instances."""
    loader: Any = stoker.DataLoader(Stateful)  # type: ignore[arg-type]
    assert list(loader.state_dict()["dataset_state"]) == [None]


def order_of(kind: str) -> dict[str, Any]:
    """A loader's arguments, for every way in which progress is counted."""
    if kind == "stream":
        return {"dataset": Counted(9), "batch_size": 2}
    if kind == "two streams":
        return {"dataset": Counted(9), "batch_size": 2, "num_workers": 2, "executor": "thread"}
    if kind == "any order":
        return {
            "dataset": range(9),
            "batch_size": 2,
            "num_workers": 1,
            "executor": "thread",
            "in_order": False,
        }
    return {"dataset": range(9), "batch_size": 2, "shuffle": kind == "shuffled"}


class Counted(torch.utils.data.IterableDataset[int]):
    """Its iterator knows its place."""

    def __init__(self, length: int) -> None:
        self.length = length

    def __iter__(self) -> Any:
        return Places(self.length)


class Places:
    def __init__(self, length: int) -> None:
        info = torch.utils.data.get_worker_info()
        self.place, self.step = (0, 1) if info is None else (info.id, info.num_workers)
        self.length = length

    def __iter__(self) -> Any:
        return self

    def __next__(self) -> int:
        if self.place >= self.length:
            raise StopIteration
        self.place += self.step
        return self.place - self.step

    def state_dict(self) -> dict[str, int]:
        return {"place": self.place}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.place = state["place"]


def without_ends(state: dict[str, Any]) -> dict[str, Any]:
    """That a stream has ended may become known with a batch of another one."""
    return {**state, "streams": [{**each, "ended": None} for each in state["streams"] or ()]}


@pytest.mark.parametrize("kind", ["stream", "two streams", "any order", "shuffled", "sequential"])
@pytest.mark.parametrize("every", [1, 2])
def test_a_batch_that_was_read_ahead_does_not_count(kind: str, every: int) -> None:
    """At every place, the state without the last batch is the state that was taken before it."""
    torch.manual_seed(3)
    with stoker.DataLoader(**order_of(kind), snapshot_every_n_steps=every) as loader:
        iterator = iter(loader)
        before = loader.state_dict()
        assert loader.state_dict(read_ahead=1) == before
        taken = 0
        for _ in iterator:
            taken += 1
            now = loader.state_dict()
            assert without_ends(loader.state_dict(read_ahead=1)) == without_ends(before)
            assert loader.state_dict()["batches"] == now["batches"] == taken
            before = now
        assert taken >= 5
        assert loader.state_dict(read_ahead=1) == loader.state_dict()
        with pytest.raises(ValueError, match="read_ahead is 0 or 1"):
            loader.state_dict(read_ahead=2)


@pytest.mark.parametrize("kind", ["stream", "two streams", "shuffled"])
def test_a_loop_that_reads_one_ahead_resumes_without_a_loss(kind: str) -> None:
    with stoker.DataLoader(**order_of(kind)) as loader:
        iterator = iter(loader)
        trained = [next(iterator).tolist(), next(iterator).tolist()]
        next(iterator)
        state = loader.state_dict(read_ahead=1)
    with stoker.DataLoader(**order_of(kind)) as other:
        other.load_state_dict(state)
        trained += epoch(other)
    assert sorted(itertools.chain(*trained)) == list(range(9))

"""States that are damaged, foreign or of another loader: refused with words, and nothing of them is done."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch.utils.data import IterableDataset, Sampler

import stoker
from tests.compat.compare import seed_everything
from tests.unit.test_resume import VALUES

SIZE = 20


class Cursor:
    """Counts to the end, and says where it is."""

    def __init__(self) -> None:
        self.at = 0

    def __iter__(self) -> Iterator[int]:
        while self.at < SIZE:
            self.at += 1
            yield self.at - 1
        self.at = 0

    def state_dict(self) -> dict[str, int]:
        return {"at": self.at}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.at = state["at"]


class Stream(Cursor, IterableDataset[int]):
    """As a dataset."""


class Stateless(IterableDataset[int]):
    def __iter__(self) -> Iterator[int]:
        return iter(range(SIZE))


class Counted(Cursor, Sampler[int]):
    """As a sampler."""

    def __len__(self) -> int:
        return SIZE


def plain(**arguments: Any) -> Any:
    return stoker.DataLoader(range(SIZE), batch_size=3, **arguments)  # type: ignore[arg-type]


def elastic() -> Any:
    return plain(sampler=stoker.ElasticDistributedSampler(range(SIZE), num_replicas=2, rank=1))


LOADERS: dict[str, Callable[[], Any]] = {
    "shuffle": lambda: plain(shuffle=True),
    "generator": lambda: plain(shuffle=True, generator=torch.Generator().manual_seed(3)),
    "stateful": lambda: plain(sampler=Counted()),
    "elastic": elastic,
    "stream": lambda: stoker.DataLoader(Stream(), batch_size=3),
}


def state_of(kind: str, taken: int | None) -> dict[str, Any]:
    seed_everything(5)
    loader = LOADERS[kind]()
    if taken is None:
        list(loader)
    else:
        iterator = iter(loader)
        for _ in range(taken):
            next(iterator)
    state: dict[str, Any] = loader.state_dict()
    return state


def epoch(loader: Any) -> list[list[int]]:
    return [batch.tolist() for batch in loader]


def rows(loader: Any) -> list[int]:
    return [row for batch in loader for row in batch.tolist()]


@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_a_damaged_state_changes_nothing(data: st.DataObject) -> None:
    """An earlier one stays loaded, and without one the loader is as it was."""
    kind = data.draw(st.sampled_from(sorted(LOADERS)))
    state = state_of(kind, data.draw(st.sampled_from([0, 2, None])))
    names = sorted(set(state) - {"sampler_state", "dataset_state"})
    damaged = copy.deepcopy(state)
    for name in data.draw(st.lists(st.sampled_from(names), min_size=1, max_size=3, unique=True)):
        damaged[name] = data.draw(VALUES)
    seed_everything(9)
    expected = epoch(LOADERS[kind]())
    seed_everything(9)
    loader = LOADERS[kind]()
    try:
        loader.load_state_dict(damaged)
    except ValueError:
        pass
    else:
        epoch(loader)
        return
    loader.load_state_dict(state)
    with pytest.raises(ValueError):
        loader.load_state_dict(damaged)
    assert loader.state_dict() == state
    seed_everything(9)
    loader = LOADERS[kind]()
    with pytest.raises(ValueError):
        loader.load_state_dict(damaged)
    assert epoch(loader) == expected


@pytest.mark.parametrize("foreign", [None, [], "state", 3, {"model": {}}, {"_snapshot": {}}])
def test_foreign_things_are_refused(foreign: Any) -> None:
    with pytest.raises(ValueError, match="state"):
        plain().load_state_dict(foreign)


def test_states_of_other_loaders_say_what_differs() -> None:
    state = state_of("shuffle", 2)
    with pytest.raises(ValueError, match="its dataset had 20 samples, this one has 7 samples"):
        stoker.DataLoader(range(7), batch_size=3, shuffle=True).load_state_dict(state)  # type: ignore[arg-type]
    with pytest.raises(
        ValueError, match=r"its samplers were .*RandomSampler, here they are .*SequentialSampler"
    ):
        plain().load_state_dict(state)
    with pytest.raises(ValueError, match=r"saved with 0 generator\(s\)"):
        plain(shuffle=True, generator=torch.Generator()).load_state_dict(state)
    with pytest.raises(ValueError, match="saved over a map-style dataset"):
        LOADERS["stream"]().load_state_dict(state)
    with pytest.raises(ValueError, match=r"its dataset had a state .*and this one has no load_state_dict"):
        stoker.DataLoader(Stateless(), batch_size=3).load_state_dict(state_of("stream", 2))


def test_streams_need_as_many_workers_also_when_they_are_changed_later() -> None:
    loader = LOADERS["stream"]()
    state = state_of("stream", 2)
    loader.load_state_dict(state)
    loader.num_workers, loader.prefetch_factor = 2, 2
    with pytest.raises(ValueError, match=r"does not fit this loader any more: it has 1 stream\(s\)"):
        iter(loader)
    loader.num_workers, loader.prefetch_factor = 0, None
    assert loader.state_dict() == state
    assert rows(loader) == list(range(6, SIZE))


def test_the_state_of_a_dataset_that_has_none_now_is_not_needed_for_a_new_epoch() -> None:
    loader = stoker.DataLoader(Stateless(), batch_size=3)
    loader.load_state_dict(state_of("stream", None))
    assert rows(loader) == list(range(SIZE))


@pytest.mark.parametrize("kind", LOADERS)
def test_states_have_nothing_in_common_with_the_loader(kind: str) -> None:
    """Whatever is done to a dict after it was taken or loaded."""

    def ruin(part: Any) -> None:
        for value in list(part.values() if isinstance(part, dict) else part):
            if isinstance(value, dict | list):
                ruin(value)
        part.clear()

    state = state_of(kind, 2)
    loader = LOADERS[kind]()
    given_ = copy.deepcopy(state)
    loader.load_state_dict(given_)
    ruin(given_)
    ruin(loader.state_dict())
    assert loader.state_dict() == state
    iterator = iter(loader)
    for _ in range(2):
        ruin(loader.state_dict())
        again = loader.state_dict()
        other = LOADERS[kind]()
        other.load_state_dict(again)
        rest = epoch(other)
        assert rest
        first = next(iterator).tolist()
        assert first == rest[0]


def test_a_loaded_state_travels_with_a_copy_of_the_loader() -> None:
    state = state_of("shuffle", 2)
    loader = LOADERS["shuffle"]()
    loader.load_state_dict(state)
    expected = epoch(copy.copy(loader))
    for other in (copy.deepcopy(loader), pickle.loads(pickle.dumps(loader)), loader):
        assert other.state_dict() == state
        assert epoch(other) == expected


@pytest.mark.parametrize("size", [3, 4, 20])
def test_the_end_of_a_stream_is_no_damage(size: int) -> None:
    """It is found by one pull more than there are batches, where the last of them is whole."""
    loader = stoker.DataLoader(Stream(), batch_size=size)
    for _ in loader:
        state = loader.state_dict()
    other = stoker.DataLoader(Stream(), batch_size=size)
    other.load_state_dict(state)
    assert epoch(other) == []
    other.load_state_dict(loader.state_dict())
    assert rows(other) == list(range(SIZE))


CONTRADICTIONS: dict[str, tuple[dict[str, Any], str]] = {
    "more batches than samples": ({"batches": 19, "samples": 6}, "19 'batches' cannot have 6 'samples'"),
    "batches without samples": ({"batches": 2, "samples": 0}, "2 'batches' cannot have 0 'samples'"),
    "samples without batches": ({"batches": 0, "samples": 6}, "0 'batches' cannot have 6 'samples'"),
    "more than there are": ({"batches": 2000, "samples": 6000}, "of the 20 that its sampler had"),
    "ahead of the end": ({"ahead": [1 << 40]}, "of the 20 that its sampler had"),
    "ahead twice": ({"ahead": [4, 4]}, "'ahead' names a batch twice"),
    "finished and under way": ({"finished": True}, "is 'finished', and 2 'batches' of the next one"),
    "a state from beyond": ({"sampler_at": 3}, "'sampler_at' lies beyond 'batches': 3 and 2"),
}


@pytest.mark.parametrize("name", CONTRADICTIONS)
def test_a_state_that_contradicts_itself_is_refused(name: str) -> None:
    """It once loaded in silence, and the epoch that followed had other samples, or none."""
    changed, words = CONTRADICTIONS[name]
    state = {**state_of("shuffle", 2), **changed}
    loader = LOADERS["shuffle"]()
    before = loader.state_dict()
    with pytest.raises(ValueError, match=f"this state is damaged: .*{words}"):
        loader.load_state_dict(state)
    assert loader.state_dict() == before


@pytest.mark.parametrize(
    ("changed", "words"),
    [({"turn": 1}, "'turn' is 1, and it has 1 'streams'"), ({"ahead": [4]}, "belongs to map-style datasets")],
)
def test_a_streams_state_that_contradicts_itself_is_refused(changed: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        LOADERS["stream"]().load_state_dict({**state_of("stream", 2), **changed})


def test_an_epoch_that_went_on_in_other_batches_is_no_contradiction() -> None:
    """Its batches then are neither as many nor as large as the last size says."""
    state = state_of("shuffle", 2)
    for size in (1, 7, 2, 20):
        dataset: Any = range(SIZE)
        loader = stoker.DataLoader(dataset, batch_size=size, shuffle=True)
        loader.load_state_dict(state)
        next(iter(loader))
        state = loader.state_dict()
    assert (state["batches"], state["samples"]) == (6, SIZE)
    loader.load_state_dict(state)
    assert epoch(loader) == []

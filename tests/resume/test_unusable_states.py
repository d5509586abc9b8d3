"""States of streams that cannot be loaded, or read on from: the stream is read from its beginning, or the error is the user's."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch.utils.data import IterableDataset

import stoker
from stoker._runtime.worker.stream import loses_samples
from tests.compat.compare import seed_everything
from tests.resume.runs import through_json
from tests.resume.streams import share

LENGTH, SIZE, TAKEN = 48, 4, 5
WAYS = [
    {},
    {"num_workers": 2, "multiprocessing_context": "fork"},
    {"num_workers": 2, "multiprocessing_context": "fork", "persistent_workers": True},
    {"num_workers": 1, "multiprocessing_context": "fork", "snapshot_every_n_steps": 3},
]

pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning")


class Told(IterableDataset[Any]):
    """Says where it is, and can go on from there: the others here cannot."""

    def __init__(self) -> None:
        self.done = 0

    def __iter__(self) -> Iterator[Any]:
        first, step = share()
        while first + self.done * step < LENGTH:
            self.done += 1
            yield first + (self.done - 1) * step + torch.rand(1)
        self.done = 0

    def state_dict(self) -> Any:
        return {"done": self.done}

    def load_state_dict(self, state: Any) -> None:
        self.done = state["done"]


class FailsToLoad(Told):
    """It has changed something by then."""

    def load_state_dict(self, state: Any) -> None:
        super().load_state_dict(state)
        raise IndexError("of another version")


class FailsToGoOn(Told):
    """Loading works."""

    loaded = False

    def __iter__(self) -> Iterator[Any]:
        if self.loaded and self.done:
            self.done += 2
            raise IndexError("of another version")
        yield from super().__iter__()

    def load_state_dict(self, state: Any) -> None:
        super().load_state_dict(state)
        self.loaded = True


class EndsAfterFailing(FailsToGoOn):
    """Its iterator is no generator: where bad samples are skipped, its error alone would look like one."""

    def __iter__(self) -> Iterator[Any]:
        return itertools.chain(super().__iter__())


class Iterates(Told):
    """Its iterator has the state."""

    state_dict: Any = None

    def __iter__(self) -> Iterator[Any]:
        return Place(super().__iter__())


class Place:
    def __init__(self, source: Iterator[Any]) -> None:
        self.source, self.done = source, 0

    def __iter__(self) -> Place:
        return self

    def __next__(self) -> Any:
        sample = next(self.source)
        self.done += 1
        return sample

    def state_dict(self) -> Any:
        return {"done": self.done}

    def load_state_dict(self, state: Any) -> None:
        raise IndexError("of another version")


def running(kind: type[IterableDataset[Any]], **how: Any) -> Any:
    return stoker.DataLoader(kind(), batch_size=SIZE, **how)


def cut(kind: type[IterableDataset[Any]], **how: Any) -> tuple[Any, torch.Tensor, list[Any]]:
    """A state in mid-epoch, torch's generator then, and the rest of the epoch with the one after it."""
    seed_everything(7)
    with running(kind, **how) as loader:
        iterator = iter(loader)
        list(itertools.islice(iterator, TAKEN))
        state, world = through_json(loader.state_dict()), torch.get_rng_state()
        return state, world, [[batch.tolist() for batch in each] for each in (iterator, loader)]


def told_of_states(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [line for line in caplog.messages if "that was loaded" in line]


@pytest.mark.parametrize("skips", [False, True])
@pytest.mark.parametrize("how", WAYS)
@pytest.mark.parametrize("kind", [FailsToLoad, FailsToGoOn, EndsAfterFailing, Iterates])
def test_the_stream_is_read_from_its_beginning(
    kind: type[Told], how: dict[str, Any], skips: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """Random numbers included. One line for each stream says why."""
    if skips:
        how = how | {"on_bad_sample": "skip"}
    state, world, expected = cut(kind, **how)
    seed_everything(8)
    with running(kind, **how) as loader:
        loader.load_state_dict(state)
        torch.set_rng_state(world)
        with caplog.at_level(logging.WARNING, "stoker"):
            found = [[batch.tolist() for batch in loader] for _ in range(2)]
    assert found == expected
    told = told_of_states(caplog)
    assert len(told) == how.get("num_workers", 1)
    assert all(f"state of {kind.__name__} that was loaded: " in line for line in told)
    assert all("IndexError" in line and "of another version" in line for line in told)


class Buried(FailsToGoOn):
    """What it loads lies where nobody can set it back."""

    def __init__(self) -> None:
        self.places = [0]

    done = property(
        lambda self: self.places[0],
        lambda self, done: self.places.__setitem__(0, done),
    )


class Divides(FailsToGoOn):
    """A state may be a share of the rest, which does not begin where the epoch does."""

    def __stoker_reshard__(self, states: list[Any], num_workers: int) -> list[Any]:
        return states


@pytest.mark.parametrize("kind", [Buried, Divides])
def test_an_error_is_raised_where_other_samples_would_come(kind: type[Told]) -> None:
    state, _, _ = cut(kind)
    loader = running(kind)
    loader.load_state_dict(state)
    with pytest.raises(IndexError, match="of another version"):
        next(iter(loader))


def test_a_state_from_between_epochs_that_cannot_be_loaded_raises() -> None:
    """It is not a place in an epoch: nothing says what else it holds."""
    with running(FailsToLoad, num_workers=1, persistent_workers=True) as loader:
        list(loader)
        state = through_json(loader.state_dict())
    with running(FailsToLoad, num_workers=1, persistent_workers=True) as other:
        other.load_state_dict(state)
        with pytest.raises(IndexError, match="of another version"):
            list(other)


class Broken(Told):
    """Its 21st sample raises, whoever reads it."""

    def __iter__(self) -> Iterator[Any]:
        for sample in super().__iter__():
            if int(sample) == SIZE * TAKEN:
                raise KeyError("sample 20")
            yield sample


def test_a_sample_that_raises_after_the_place_still_does() -> None:
    seed_everything(7)
    loader = running(Broken)
    iterator = iter(loader)
    list(itertools.islice(iterator, TAKEN))
    other = running(Broken)
    other.load_state_dict(through_json(loader.state_dict()))
    with pytest.raises(KeyError, match="sample 20"):
        next(iter(other))


class Step:
    """As a step of a Hugging Face dataset."""

    def __init__(self, state: Any, *, source: Any = None, sources: Any = None, buffer: bool = False) -> None:
        self._state_dict = state
        if source is not None:
            self.ex_iterable = source
        if sources is not None:
            self.ex_iterables = sources
        if buffer:
            self.buffer_size = 4


class Hub:
    def __init__(self, step: Any) -> None:
        self._ex_iterable = step


def test_which_datasets_lose_samples() -> None:
    state: dict[str, Any] = {}
    files = Step(state)
    lossy = Step(state, source=files, buffer=True)
    assert loses_samples(Hub(lossy))
    assert loses_samples(Hub(Step({}, source=Step({}, sources=[files, Step({}, source=lossy)]))))
    assert loses_samples(Hub(Step(None, source=Step(None), buffer=True)))
    assert not loses_samples(Hub(Step({"buffer": []}, source=files, buffer=True)))  # it keeps its buffer
    assert not loses_samples(Hub(Step(state, source=files)))
    assert not loses_samples(Hub(files))
    assert not loses_samples(Told())
    turning = Step({})
    turning.ex_iterable = turning
    assert not loses_samples(Hub(turning))

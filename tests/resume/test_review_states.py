"""Corners where a state was once wrong: samplers, bad samples and batch sizes, each cut at every batch."""

from __future__ import annotations

import functools
import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch.utils.data import BatchSampler, Dataset, RandomSampler, Sampler

import stoker
from tests.compat.compare import seed_everything
from tests.resume.runs import through_json

SIZE = 26
BAD = frozenset({3, 4, 11, 12, 13, 14, 25})


class Drawn(Dataset[torch.Tensor]):
    """Samples that draw; some are bad."""

    def __init__(self, bad: frozenset[int] = frozenset()) -> None:
        self.bad = bad

    def __len__(self) -> int:
        return SIZE

    def __getitem__(self, index: Any) -> torch.Tensor:
        if isinstance(
            index, list
        ):  # without automatic batching the sampler may give the keys of a whole batch
            return torch.stack([self[each] for each in index if each not in self.bad])
        if int(index) in self.bad:
            raise ValueError("bad")
        return torch.tensor([int(index), random.randrange(1 << 30), int(torch.randint(1 << 30, ()))])


class Uneven(Sampler[list[int]]):
    """A batch sampler that draws when it is first pulled."""

    def __iter__(self) -> Iterator[list[int]]:
        order, size = torch.randperm(SIZE).tolist(), 1
        while order:
            yield order[:size]
            order, size = order[size:], size % 4 + 1


class Backwards(RandomSampler):
    """A user's sampler without a state, inside torch's BatchSampler."""

    def __iter__(self) -> Iterator[int]:
        yield from reversed(list(super().__iter__()))


class Unsized(Drawn):
    def __len__(self) -> int:
        raise RuntimeError("nobody knows")


def loader(**arguments: Any) -> Any:
    return stoker.DataLoader(arguments.pop("dataset", Drawn()), **arguments)


CHOSEN: dict[str, Callable[[], dict[str, Any]]] = {
    "batches": lambda: {"batch_size": 4, "shuffle": True},
    "uneven": lambda: {"batch_sampler": Uneven()},
    "torch's": lambda: {"batch_sampler": BatchSampler(RandomSampler(range(SIZE)), 3, False)},
    "single": lambda: {"batch_size": None, "shuffle": True},
    "lists of keys": lambda: {
        "batch_size": None,
        "sampler": BatchSampler(RandomSampler(range(SIZE)), 4, False),
    },
}


def faulty(rng: str, mode: str, chosen: str) -> Any:
    return loader(dataset=Drawn(BAD), rng=rng, on_bad_sample=mode, **CHOSEN[chosen]())


CASES: dict[str, Callable[[], Any]] = {
    "backwards": lambda: loader(batch_size=4, sampler=Backwards(range(SIZE))),
    "uneven": lambda: loader(batch_sampler=Uneven()),
    "no length": lambda: loader(dataset=Unsized(), batch_sampler=[[1, 2], [3], [4, 5]]),
    **{
        f"{rng}, {mode}, {chosen}": functools.partial(faulty, rng, mode, chosen)
        for rng in ("batch", "sample")
        for mode in ("skip", "replace")
        for chosen in CHOSEN
    },
}


@pytest.mark.parametrize("case", CASES)
def test_cut_at_every_batch(case: str) -> None:
    seed_everything(3)
    whole = [batch.tolist() for batch in CASES[case]()]
    for taken in range(len(whole) + 1):
        seed_everything(3)
        first = CASES[case]()
        iterator = iter(first)
        got = [next(iterator).tolist() for _ in range(taken)]
        state = through_json(first.state_dict())
        seed_everything(99)
        second = CASES[case]()
        second.load_state_dict(state)
        assert got + [batch.tolist() for batch in second] == whole, taken


@pytest.mark.parametrize("mode", ["raise", "replace"])
@pytest.mark.parametrize("given", [False, True])
def test_other_batch_sizes_lose_nothing(mode: str, given: bool) -> None:
    """Three sizes, one after the other, of the loader or of torch's BatchSampler that it was given."""

    def sized(size: int) -> Any:
        chosen: dict[str, Any] = {"batch_size": size, "shuffle": True}
        if given:
            chosen = {"batch_sampler": BatchSampler(RandomSampler(range(SIZE)), size, False)}
        bad = BAD if mode == "replace" else frozenset()
        return loader(dataset=Drawn(bad), rng="sample", on_bad_sample=mode, **chosen)

    seed_everything(3)
    whole = [row for batch in sized(4) for row in batch.tolist()]
    for cuts in ((1, 1), (3, 2), (2, 0), (5, 1)):
        seed_everything(3)
        got: list[Any] = []
        state: dict[str, Any] = {}
        for size, taken in zip((4, 5, 3), (*cuts, 100), strict=True):
            running = sized(size)
            running.load_state_dict(state)
            for _, batch in zip(range(taken), running, strict=False):
                got += batch.tolist()
            state = through_json(running.state_dict())
        assert len(got) == len(whole)
        if mode == "raise":
            assert got == whole


class Interrupting(Drawn):
    """Ctrl-C comes once, while a sample is read."""

    def __init__(self) -> None:
        super().__init__()
        self.waiting = True

    def __getitem__(self, index: int) -> torch.Tensor:
        if index == 9 and self.waiting:
            self.waiting = False
            raise KeyboardInterrupt
        return super().__getitem__(index)


@pytest.mark.parametrize("goes_on", [False, True])
def test_a_state_saved_on_ctrl_c_has_not_lost_the_batch_that_was_being_made(goes_on: bool) -> None:
    """Whoever goes on with the same iterator has lost it, and the state then says so."""
    running = loader(dataset=Interrupting(), batch_size=4)
    iterator = iter(running)
    got: list[list[int]] = []
    with pytest.raises(KeyboardInterrupt):
        got.extend(batch[:, 0].tolist() for batch in iterator)
    if goes_on:
        got.append(next(iterator)[:, 0].tolist())
    again = loader(batch_size=4)
    again.load_state_dict(running.state_dict())
    rows = [int(row) for batch in got for row in batch] + [int(row) for batch in again for row in batch[:, 0]]
    assert rows == [row for row in range(SIZE) if not goes_on or not 8 <= row < 12]


def test_drawing_between_iter_and_the_first_batch_is_remembered_over_several_states() -> None:
    """By the trainer, or by another loader with the same generator: the order is drawn when the first batch is asked for."""
    shared = torch.Generator().manual_seed(5)
    for given in (None, shared):
        seed_everything(3)
        first = loader(batch_size=4, shuffle=True, generator=given)
        iterator = iter(first)
        torch.rand(3)
        torch.rand(3, generator=given)
        next(iterator)
        state = first.state_dict()
        rest = [batch.tolist() for batch in iterator]
        for taken in range(1, 5):
            seed_everything(99 + taken)
            again = loader(batch_size=4, shuffle=True, generator=given)
            again.load_state_dict(state)
            assert [next(iter_).tolist() for iter_ in [iter(again)]] == rest[taken - 1 : taken]
            state = through_json(again.state_dict())


def test_lengths_are_asked_for_once_an_epoch() -> None:
    class Slow(Drawn):
        asked = 0

        def __len__(self) -> int:
            Slow.asked += 1
            return SIZE

    running = loader(dataset=Slow(), batch_size=4)
    iterator = iter(running)
    for _ in range(2):
        next(iterator)
        running.state_dict()
    before = Slow.asked
    for _ in range(3):
        running.state_dict()
    assert Slow.asked == before


def test_an_elastic_sampler_behind_another_has_its_epoch_before_it_is_pulled() -> None:
    def keyed() -> Any:
        inner = stoker.ElasticDistributedSampler(range(SIZE), num_replicas=2, rank=1)
        return loader(batch_size=None, sampler=BatchSampler(inner, 4, False))

    first = keyed()
    for _ in range(3):
        iterator = iter(first)
        again = keyed()
        again.load_state_dict(first.state_dict())
        expected = [batch[:, 0].tolist() for batch in iterator]
        assert [batch[:, 0].tolist() for batch in again] == expected

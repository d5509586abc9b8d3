"""Samplers brought to a place: by their own state where they have one, else by passing over."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch.utils.data import BatchSampler, RandomSampler, Sampler, SequentialSampler

from stoker._runtime.checkpoint import sampler_position
from stoker._runtime.checkpoint.sampler_position import IndexSource
from stoker._runtime.checkpoint.state_format import SavedState
from tests.unit.test_resume import MAP

SIZE = 23


class Counted(Sampler[int]):
    """With a state of its own, which it hands out alive."""

    def __init__(self, *, fails: bool = False) -> None:
        self.live = {"i": 0}
        self.fails = fails

    def __iter__(self) -> Iterator[int]:
        while self.live["i"] < SIZE:
            self.live["i"] += 1
            yield self.live["i"] - 1
        self.live["i"] = 0

    def state_dict(self) -> dict[str, int]:
        if self.fails:
            raise NotImplementedError
        return self.live

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.live = dict(state)


class Put(Counted):
    """Like torchdata's StatefulDistributedSampler it keeps where it was put until it is read."""

    put = 0

    def __iter__(self) -> Iterator[int]:
        first, self.put = self.put, 0
        for index in range(first, SIZE):
            self.live["i"] = index + 1
            yield index

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.put = state["i"]


class Walk:
    def __init__(self) -> None:
        self.at = 0

    def __iter__(self) -> Walk:
        return self

    def __next__(self) -> int:
        if self.at == SIZE:
            raise StopIteration
        self.at += 1
        return self.at - 1

    def state_dict(self) -> dict[str, int]:
        return {"at": self.at}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.at = state["at"]


class Walked(Sampler[int]):
    """With a stateful iterator."""

    def __iter__(self) -> Iterator[int]:
        return Walk()


class Chunked(Sampler[list[int]]):
    """A batch sampler with a state of its own."""

    def __init__(self) -> None:
        self.done = 0

    def __iter__(self) -> Iterator[list[int]]:
        begin, self.done = self.done, 0
        for start in range(begin * 4, SIZE, 4):
            self.done = start // 4 + 1
            yield list(range(start, min(SIZE, start + 4)))
        self.done = 0

    def state_dict(self) -> dict[str, int]:
        return {"done": self.done}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.done = state["done"]


class Replayed(Sampler[list[int]]):
    """A batch sampler that is its own iterator; ``iter()`` starts it anew."""

    def __iter__(self) -> Replayed:
        self.rest = iter(batched(SequentialSampler(range(SIZE))))
        return self

    def __next__(self) -> list[int]:
        return next(self.rest)


class Own(Sampler[int]):
    """The same for single indices, inside torch's BatchSampler. torch reads it to its end if that drops the last batch."""

    def __iter__(self) -> Own:
        self.rest = iter(range(SIZE))
        return self

    def __next__(self) -> int:
        return next(self.rest)


def opened(sampler: Any, every: int = 1) -> IndexSource:
    return IndexSource(sampler, iter(sampler), every=every, plain=sampler_position.is_plain(sampler))


def pull(from_: IndexSource, count: int) -> tuple[list[Any], tuple[int, bytes] | None]:
    """Some batches, and the newest snapshot with its number."""
    batches, snapshot = [], None
    for number, batch in enumerate(itertools.islice(from_.iterator, count)):
        batches.append(batch)
        said = from_.after() if from_.after is not None else None
        if said is not None:
            snapshot = (number + 1, said)
    return batches, snapshot


def saved_after(from_: IndexSource, batches: list[Any], snapshot: tuple[int, bytes] | None) -> SavedState:
    samples = sum(map(len, batches))
    state, at = from_.state(len(batches), samples, snapshot)
    return replace(MAP, batches=len(batches), samples=samples, ahead=(), sampler_state=state, sampler_at=at)


def batched(sampler: Any, drop_last: bool = False) -> BatchSampler:
    return BatchSampler(sampler, 4, drop_last)


KINDS: dict[str, Any] = {
    "sequential": lambda: batched(SequentialSampler(range(SIZE))),
    "drop_last": lambda: batched(SequentialSampler(range(SIZE)), drop_last=True),
    "list": lambda: [list(range(start, min(SIZE, start + 4))) for start in range(0, SIZE, 4)],
    "counted": lambda: batched(Counted()),
    "put": lambda: batched(Put()),
    "walked": lambda: batched(Walked()),
    "chunked": Chunked,
    "replayed": Replayed,
    "own": lambda: batched(Own(), drop_last=True),
    "failing": lambda: batched(Counted(fails=True)),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("every", [1, 3, 1000])
def test_a_sampler_goes_on_from_any_batch(kind: str, every: int) -> None:
    whole = pull(opened(KINDS[kind]()), 100)[0]
    assert len(whole) == (5 if kind in ("drop_last", "own") else 6)
    for taken in range(len(whole) + 1):
        first = opened(KINDS[kind](), every)
        batches, snapshot = pull(first, taken)
        saved = saved_after(first, batches, snapshot)
        sampler = KINDS[kind]()
        sampler_position.check(sampler, saved)
        sampler_position.prepare(sampler, saved)
        second = opened(sampler, every)
        second.seek(saved)
        assert pull(second, 100)[0] == whole[taken:], taken
        assert pull(opened(sampler), 100)[0] == whole, taken


def test_snapshots_fall_on_the_same_batches_after_a_seek() -> None:
    first = opened(batched(Counted()), 3)
    batches, snapshot = pull(first, 4)
    assert snapshot is not None
    assert snapshot[0] == 3
    saved = saved_after(first, batches, snapshot)
    assert (saved.sampler_state, saved.sampler_at) == ({"sampler": {"i": 12}}, 3)
    assert IndexSource.kept(saved) == snapshot
    second_sampler = batched(Counted())
    sampler_position.prepare(second_sampler, saved)
    second = opened(second_sampler, 3)
    second.seek(saved)
    assert second.after is not None
    said = [second.after() is not None for _ in second.iterator]
    assert said == [False, True]


def test_a_sampler_whose_state_fails_is_passed_over_instead(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "stoker"):
        failing = opened(batched(Counted(fails=True)))
        batches, snapshot = pull(failing, 3)
    assert (len(batches), snapshot) == (3, None)
    assert [record.getMessage().split(" (")[0] for record in caplog.records] == [
        "the sampler's state_dict() cannot be saved"
    ]


def test_damaged_states_of_samplers_are_refused() -> None:
    damaged: list[Any] = [5, "x", [], {"sampler": {}, "more": 1}]
    for state in damaged:
        with pytest.raises(ValueError, match="'sampler_state' should hold"):
            sampler_position.check(batched(Counted()), replace(MAP, sampler_state=state))
    with pytest.raises(ValueError, match="SequentialSampler has no load_state_dict"):
        sampler_position.check(KINDS["sequential"](), replace(MAP, sampler_state={"sampler": {"i": 3}}))
    sampler = batched(Counted())
    with pytest.raises(ValueError, match="generator has no load_state_dict"):
        opened(sampler).seek(replace(MAP, sampler_state={"iterator": {"i": 3}}))


def test_torchs_samplers_are_plain_and_subclasses_are_not() -> None:
    class Mine(RandomSampler):
        pass

    assert sampler_position.is_plain(batched(RandomSampler(range(3))))
    assert not sampler_position.is_plain(batched(Mine(range(3))))
    assert not sampler_position.is_plain([[1]])


def test_a_first_batch_pulled_early_comes_first() -> None:
    torch.manual_seed(3)
    begun = opened(batched(RandomSampler(range(SIZE))))
    begun.begin()
    stood = torch.get_rng_state()
    rows = [index for batch in begun.iterator for index in batch]
    assert torch.equal(stood, torch.get_rng_state())
    assert sorted(rows) == list(range(SIZE))

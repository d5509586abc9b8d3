"""An epoch begun on some ranks and finished on others, through the loader: all combinations in one process, without groups."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import BatchSampler, DistributedSampler, RandomSampler

from stoker import DataLoader, ElasticDistributedSampler
from tests.e2e.ranked import Augmented, Row, loader, rows, whole


def play(team: list[Any], batches: int | None) -> tuple[list[Row], list[Any]]:
    """Let every rank take so many batches; returns the rows in the order of places, and the states of the ranks."""
    given_rows: list[list[Row]] = []
    for member in team:
        taken = [row for batch in itertools.islice(member, batches) for row in rows(batch)]
        given_rows.append(taken)
    dealt = [row for step in zip(*given_rows, strict=True) for row in step]
    return dealt, [member.state_dict() for member in team]


LEGS = st.lists(st.tuples(st.integers(1, 4), st.integers(0, 5), st.integers(1, 5)), min_size=1, max_size=4)


@settings(max_examples=60)
@given(
    length=st.integers(1, 60),
    legs=LEGS,
    last=st.integers(1, 4),
    drop_last=st.booleans(),
    weighted=st.booleans(),
    own=st.booleans(),
)
def test_any_legs_make_the_uninterrupted_epoch(
    length: int, legs: list[Any], last: int, drop_last: bool, weighted: bool, own: bool
) -> None:
    """Batch size and number of ranks change from leg to leg; rank 0's state is loaded, or each rank's own where there is one."""
    chosen: dict[str, Any] = {"weights": [1 + place % 3 for place in range(length)]} if weighted else {}
    expected = whole(length, sampler=chosen)
    states: list[Any] = []
    seen: list[Row] = []
    for replicas, batches, batch_size in [*legs, (last, None, 4)]:
        team = []
        for rank in range(replicas):
            member = loader(
                length, replicas, rank, batch_size=batch_size, sampler={"drop_last": drop_last, **chosen}
            )
            if states:
                member.load_state_dict(
                    json.loads(json.dumps(states[rank if own and rank < len(states) else 0]))
                )
            team.append(member)
        if states and states[0]["finished"]:
            break
        dealt, states = play(team, batches)
        seen += dealt
    if drop_last:
        assert seen == expected[: len(seen)]
        assert length - len(seen) < 4
    else:
        assert seen[:length] == expected
        padding = [row[0] for row in seen[length:]]
        assert padding == [row[0] for row in itertools.islice(itertools.cycle(expected), len(padding))]


def epochs(member: Any, count: int) -> list[list[Row]]:
    return [[row for batch in member for row in rows(batch)] for _ in range(count)]


@pytest.mark.parametrize("batch_size", [4, None])
def test_epochs_after_a_resumed_one_are_those_of_the_uninterrupted_run(batch_size: int | None) -> None:
    """Without set_epoch and without a generator: orders and random numbers come from the sampler's seed and its count."""
    uninterrupted = epochs(loader(22, 1, 0, batch_size=batch_size), 4)
    assert uninterrupted == [whole(22, epoch) for epoch in range(4)]
    first = loader(22, 1, 0, batch_size=batch_size)
    assert epochs(first, 1) == uninterrupted[:1]
    taken, states = play([first], 3)
    again = loader(22, 1, 0, batch_size=batch_size, num_workers=2, executor="thread")
    again.load_state_dict(states[0])
    assert [row[0] for row in taken] == [row[0] for row in uninterrupted[1][: len(taken)]]
    rest = epochs(again, 3)
    indices = [[row[0] for row in epoch] for epoch in rest]
    assert indices == [
        [row[0] for row in epoch] for epoch in (uninterrupted[1][len(taken) :], *uninterrupted[2:])
    ]


@pytest.mark.parametrize("batch_size", [None, 4])
def test_two_loaders_over_one_sampler(batch_size: int | None) -> None:
    """Both are opened before one is pulled. Each has its own epoch, with its own numbers, and its state says which."""
    one = loader(30, 1, 0, batch_size=batch_size)
    two: Any = DataLoader(one.dataset, batch_size, sampler=one.sampler, rng="sample")
    expected = epochs(loader(30, 1, 0, batch_size=batch_size), 2)
    together = list(zip(one, two, strict=True))
    assert [
        [row for batch in side for row in rows(batch)] for side in zip(*together, strict=True)
    ] == expected
    halves = list(itertools.islice(zip(one, two, strict=True), 3))
    later = epochs(loader(30, 1, 0, batch_size=batch_size), 4)
    for number, member in enumerate((one, two)):
        other = loader(30, 1, 0, batch_size=batch_size)
        other.load_state_dict(member.state_dict())
        begun = [row for pair in halves for row in rows(pair[number])]
        assert begun + epochs(other, 1)[0] == later[2 + number]


def test_the_end_of_an_epoch() -> None:
    """After the last batch nothing is left of it, after its end was told the next one begins; the loader's drop_last or not."""
    for drop_last in (False, True):
        train = loader(22, 1, 0, drop_last=drop_last)
        running = iter(train)
        for _ in range(len(train)):
            next(running)
        last = train.state_dict()
        assert next(running, None) is None
        end = train.state_dict()
        for state, lengths in ((last, [0, 22]), (end, [22, 22])):
            again = loader(22, 1, 0)
            again.load_state_dict(state)
            found = epochs(again, 2)
            # Samples that the loader left out with a batch that was not full come, where batches may be so.
            assert [len(epoch) for epoch in found][1] == lengths[1]
            assert len(found[0]) == lengths[0] + (2 if drop_last and lengths[0] == 0 else 0)
            assert found[1] == whole(22, 1 if state is last else 2)


def test_set_epoch_before_or_after_loading() -> None:
    train = loader(20, 2, 0)
    train.sampler.set_epoch(5)  # type: ignore[attr-defined]
    taken, states = play([train], 1)
    assert taken == whole(20, 5)[::2][:4]
    for before in (True, False):
        again = loader(20, 2, 0)
        if before:
            again.sampler.set_epoch(5)  # type: ignore[attr-defined]
        again.load_state_dict(states[0])
        if not before:
            again.sampler.set_epoch(5)  # type: ignore[attr-defined]
        assert epochs(again, 2) == [whole(20, 5)[::2][4:], whole(20, 6)[::2]]
    for chosen, following in ((None, 6), (9, 9)):
        again = loader(20, 2, 0)
        again.load_state_dict(states[0])
        list(again)
        end = again.state_dict()
        other = loader(20, 2, 0)
        other.load_state_dict(end)
        if chosen is not None:
            other.sampler.set_epoch(chosen)  # type: ignore[attr-defined]
        assert epochs(other, 2) == [whole(20, following)[::2], whole(20, following + 1)[::2]]


def test_another_samplers_state_is_refused_when_it_is_loaded() -> None:
    state = play([loader(20, 2, 0)], 2)[1][0]
    for wrong, message in (
        (loader(20, 2, 0, sampler={"seed": 4}), "seed was 3 and is 4"),
        (loader(20, 2, 0, sampler={"shuffle": False}), "shuffle was True and is False"),
        (loader(20, 2, 0, sampler={"subset": range(20)}), "a subset of 20"),
        (loader(21, 2, 0), "20.*21"),
    ):
        with pytest.raises(ValueError, match=message):
            wrong.load_state_dict(state)
        assert sum(len(batch) for batch in wrong) == len(wrong.sampler)  # type: ignore[arg-type]


class Paired(BatchSampler):
    """A batch sampler of the user's own around the sampler."""

    def __iter__(self) -> Any:
        pairs = iter(self.sampler)
        while pair := list(itertools.islice(pairs, 2)):
            yield pair


def test_a_batch_sampler_of_the_users_own() -> None:
    def build(replicas: int = 2) -> Any:
        data = Augmented(20)
        sampler = ElasticDistributedSampler(data, replicas, 1, seed=3)
        return DataLoader(data, batch_sampler=Paired(sampler, 2, False), rng="sample")

    train = build()
    assert epochs(train, 2) == [whole(20, epoch)[1::2] for epoch in range(2)]
    taken, states = play([train], 2)
    assert taken == whole(20, 2)[1::2][:4]
    again = build()
    again.load_state_dict(states[0])
    assert epochs(again, 2) == [whole(20, 2)[1::2][4:], whole(20, 3)[1::2]]
    with pytest.raises(ValueError, match="divided the data by 2 ranks, this one by 3: run as many ranks"):
        build(3).load_state_dict(states[0])


class Dealt:
    """Gives every second batch of a batch sampler, as Accelerate does on two ranks."""

    def __init__(self, batch_sampler: Any) -> None:
        self.batch_sampler = batch_sampler

    def __iter__(self) -> Any:
        return itertools.islice(self.batch_sampler, 0, None, 2)


@pytest.mark.parametrize("kind", ["elastic", "distributed", "random"])
def test_a_sampler_inside_a_batch_sampler_inside_another(kind: str) -> None:
    """Its epoch, or the generator it was given, are part of the state wherever it lies."""

    def team(seed: int) -> tuple[Any, Any]:
        data = Augmented(40)
        sampler: Any
        if kind == "random":
            sampler = RandomSampler(data, generator=torch.Generator().manual_seed(seed))
        else:
            sampler = (ElasticDistributedSampler if kind == "elastic" else DistributedSampler)(data, 1, 0)
        dealt: Any = Dealt(BatchSampler(sampler, 4, False))
        return sampler, DataLoader(data, batch_sampler=dealt, rng="sample")

    sampler, first = team(seed=1)
    epochs(first, 2)
    if kind == "distributed":
        sampler.set_epoch(2)
    running = iter(first)
    for _ in range(2):
        next(running)
    state = json.loads(json.dumps(first.state_dict()))
    expected = [row for batch in running for row in rows(batch)]
    _, other = team(seed=2)
    other.load_state_dict(state)
    assert epochs(other, 1) == [expected]


def test_what_was_handed_over_out_of_order_belongs_to_its_rank() -> None:
    state = play([loader(40, 2, 0, in_order=False)], 3)[1][0]
    early = {**state, "ahead": [4], "receipt": (None,)}
    same = loader(40, 2, 0)
    same.load_state_dict(early)
    assert epochs(same, 1) == [[*whole(40)[::2][12:16]]]
    for rank, replicas in ((1, 2), (0, 3)):
        other = loader(40, replicas, rank)
        other.load_state_dict(state)
        with pytest.raises(
            ValueError, match=f"on rank 0 of 2, and this is rank {rank} of {replicas}: load on every rank"
        ):
            other.load_state_dict(early)


def test_torchs_own_sampler_goes_on_with_as_many_ranks() -> None:
    def build(replicas: int, rank: int) -> Any:
        data = Augmented(30)
        sampler: Any = DistributedSampler(data, replicas, rank, seed=3)
        return DataLoader(data, batch_size=4, sampler=sampler, rng="sample", generator=torch.Generator())

    train = build(2, 1)
    train.sampler.set_epoch(6)
    uninterrupted = epochs(train, 1)[0]
    train = build(2, 1)
    train.sampler.set_epoch(6)
    taken, states = play([train], 2)
    again = build(2, 1)
    again.sampler.set_epoch(6)
    again.load_state_dict(states[0])
    assert taken + epochs(again, 1)[0] == uninterrupted
    with pytest.raises(ValueError, match=r"by 2 ranks, this one by 3.*stoker\.ElasticDistributedSampler"):
        build(3, 1).load_state_dict(states[0])

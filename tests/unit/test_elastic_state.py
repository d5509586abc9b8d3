"""The elastic sampler's state: any number of ranks goes on from it, and what does not belong to it is refused whole."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker import ElasticDistributedSampler
from stoker._runtime.scheduler.row_ranges import mix


def sampler(length: int, replicas: int = 1, rank: int = 0, **more: Any) -> ElasticDistributedSampler:
    return ElasticDistributedSampler(range(length), replicas, rank, **more)


def team(length: int, replicas: int, **more: Any) -> list[ElasticDistributedSampler]:
    return [sampler(length, replicas, rank, **more) for rank in range(replicas)]


def play(members: list[ElasticDistributedSampler], steps: int | None = None) -> list[int]:
    """Let all ranks take as many samples, and return them in the order of their places."""
    iterators = [itertools.islice(member, steps) for member in members]
    return [index for step in zip(*iterators, strict=True) for index in step]


LEGS = st.lists(st.tuples(st.integers(1, 7), st.integers(0, 40)), min_size=1, max_size=5)


@given(
    length=st.integers(1, 150),
    legs=LEGS,
    last=st.integers(1, 7),
    drop_last=st.booleans(),
    weighted=st.booleans(),
)
def test_an_epoch_in_legs_of_any_size(
    length: int, legs: list[tuple[int, int]], last: int, drop_last: bool, weighted: bool
) -> None:
    more: dict[str, Any] = {"seed": 9, "drop_last": drop_last}
    if weighted:
        more["weights"] = range(1, length + 1)
    whole = list(sampler(length, seed=9, weights=more.get("weights")))
    state: dict[str, Any] | None = None
    seen: list[int] = []
    for replicas, steps in [*legs, (last, None)]:
        members = team(length, replicas, **more)
        for member in members:
            if state is not None:
                member.load_state_dict(json.loads(json.dumps(state)))
        if state is not None and state["consumed"] == length:
            break
        seen += play(members, steps)
        states = [member.state_dict() for member in members]
        assert states.count(states[0]) == replicas
        state = states[0]
    assert state is not None
    assert state["consumed"] == length
    assert state["epoch"] == 0
    if drop_last:
        assert seen == whole[: len(seen)]
        assert length - len(seen) < 7
    else:
        assert seen[:length] == whole
        assert seen[length:] == list(itertools.islice(itertools.cycle(whole), len(seen) - length))


def test_eight_ranks_then_six() -> None:
    members = team(1200, 8)
    seen = play(members, 75)
    state = members[3].state_dict()
    assert state["consumed"] == 600
    others = team(1200, 6)
    for other in others:
        other.load_state_dict(state)
    seen += play(others)
    assert Counter(seen) == Counter(range(1200))


def test_a_finished_state_begins_the_next_epoch() -> None:
    chosen = sampler(10, 3, 0, drop_last=True)
    list(chosen)
    state = chosen.state_dict()
    assert (state["epoch"], state["consumed"]) == (0, 10)
    other = sampler(10, 2, 1)
    other.load_state_dict(state)
    assert other.epoch == 1
    fresh = sampler(10, 2, 1)
    fresh.set_epoch(1)
    assert list(other) == list(fresh)


def test_a_loader_knows_itself_when_an_epoch_ended() -> None:
    """After the last batch and before the end was told, nothing is left of the epoch; then comes the next."""
    saved = {**sampler(20).state_dict(), "epoch": 3, "consumed": 20}
    chosen = sampler(20, 2, 1)
    chosen.__stoker_load__(saved)
    assert chosen.state_dict() == saved
    assert list(chosen) == []
    assert chosen.epoch == 3
    assert chosen.__stoker_state__(0) == saved
    assert len(list(chosen)) == 10
    assert chosen.epoch == 4


def test_the_state_before_during_and_after() -> None:
    chosen = sampler(100, 2, 0)
    assert (chosen.state_dict()["epoch"], chosen.state_dict()["consumed"]) == (0, 0)
    running = iter(chosen)
    assert chosen.state_dict()["consumed"] == 0
    for taken in range(1, 51):
        next(running)
        assert chosen.state_dict()["consumed"] == 2 * taken
    assert next(running, None) is None
    assert (chosen.state_dict()["epoch"], chosen.state_dict()["consumed"]) == (0, 100)
    iter(chosen)
    assert (chosen.state_dict()["epoch"], chosen.state_dict()["consumed"]) == (1, 0)
    chosen.set_epoch(7)
    assert (chosen.state_dict()["epoch"], chosen.state_dict()["consumed"]) == (7, 0)


def test_what_a_loader_handed_over_counts_not_what_it_pulled() -> None:
    chosen = sampler(100, 2, 1)
    assert chosen.__stoker_state__(0)["consumed"] == 0
    list(chosen)
    consumed = [chosen.__stoker_state__(taken)["consumed"] for taken in (0, 1, 49, 50, 51)]
    assert consumed == [0, 2, 98, 100, 100]
    chosen.set_epoch(5)  # while the loader still hands over epoch 0
    assert chosen.__stoker_state__(10) == {**chosen.state_dict(), "epoch": 0, "consumed": 20}


def test_loaders_may_have_several_iterations_of_one_sampler() -> None:
    chosen = sampler(100, 3, 1, drop_last=True)
    next(iter(chosen))
    first = chosen.__stoker_state__(0)
    chosen.load_state_dict({**first, "epoch": 4, "consumed": 40})
    iter(chosen)
    second = chosen.__stoker_state__(0)
    for opening, epoch, taken, consumed in (
        (first, 0, 0, 0),
        (second, 4, 0, 40),
        (first, 0, 32, 96),
        (first, 0, 33, 100),
        (second, 4, 19, 97),
        (second, 4, 20, 100),
    ):
        state = chosen.__stoker_state__(taken, opening)
        assert (state["epoch"], state["consumed"]) == (epoch, consumed)


def test_set_epoch_after_loading() -> None:
    """The usual loop sets the epoch it resumes: that goes on. Another epoch begins at its beginning."""
    saved = {**sampler(20).state_dict(), "epoch": 3, "consumed": 12}
    for epoch, count in ((3, 8), (4, 20)):
        chosen = sampler(20)
        chosen.load_state_dict(saved)
        assert chosen.state_dict() == saved
        chosen.set_epoch(epoch)
        assert len(list(chosen)) == count
        assert chosen.epoch == epoch
        assert len(list(chosen)) == 20
        assert chosen.epoch == epoch + 1


def test_places_are_those_of_the_whole_order() -> None:
    state = {**sampler(20).state_dict(), "epoch": 2, "consumed": 12}
    members = team(20, 2, seed=0)
    for rank, member in enumerate(members):
        member.load_state_dict(state)
        running = iter(member)
        for _ in range(2):  # before and after the first index is asked for
            assert (member.first_place, member.num_replicas) == (12 + rank, 2)
            assert member.place_seed == mix(0, 2)
            assert member.epoch == 2
            next(running)
        iter(member)
        assert member.first_place == rank
        assert member.place_seed == mix(0, 3)
        assert member.epoch == 3


SAVED = {**sampler(100, seed=5).state_dict(), "epoch": 2, "consumed": 40}
STRANGERS: dict[str, tuple[ElasticDistributedSampler, str]] = {
    "length": (
        sampler(90, seed=5),
        "the length of the dataset was 100 and is 90.*give it the dataset it had",
    ),
    "seed": (sampler(100, seed=6), "seed was 5 and is 6.*pass seed=5.*set_epoch\\(3\\)"),
    "shuffle": (sampler(100, seed=5, shuffle=False), "shuffle was True and is False.*pass shuffle=True"),
    "subset": (
        sampler(200, seed=5, subset=range(100)),
        "was the whole dataset of 100 and is a subset of 100",
    ),
    "weights": (sampler(100, seed=5, weights=[1] * 100), "and is 100 weights.*the subset or weights it had"),
    "two things": (sampler(90, seed=6), "dataset was 100 and is 90; seed was 5 and is 6"),
}


@pytest.mark.parametrize("case", STRANGERS.values(), ids=STRANGERS)
def test_another_samplers_state_says_what_differs(case: tuple[ElasticDistributedSampler, str]) -> None:
    refuses(case[0], SAVED, case[1])


def test_states_of_subsets_and_weights() -> None:
    short = sampler(100, subset=range(50)).state_dict()
    refuses(sampler(100, subset=range(40)), short, "the length of the subset was 50 and is 40")
    even = sampler(5, weights=[1] * 5, num_samples=10).state_dict()
    refuses(sampler(5, weights=[2] * 5, num_samples=10), even, "the checksum of the weights was")
    refuses(sampler(5, weights=[1] * 5), even, "num_samples was 10 and is 5.*pass num_samples=10")
    sampler(5, weights=(1.0,) * 5, num_samples=10).load_state_dict(even)


FOREIGN: dict[str, tuple[Any, str]] = {
    "no dict": ([1, 2], "is a dict, but got list"),
    "nothing": (None, "is a dict, but got NoneType"),
    "empty": ({}, "this is no state of stoker.ElasticDistributedSampler"),
    "torchdata's": (
        {"yielded": 7, "sampler_iter_state": None},
        "it has keys \\['sampler_iter_state', 'yielded'\\]",
    ),
    "another kind": ({**SAVED, "kind": "other"}, "it has 'other'"),
    "version": ({**SAVED, "version": 2}, "has version 2 and this stoker reads version 1"),
    "no version": ({key: value for key, value in SAVED.items() if key != "version"}, "has version None"),
    "truncated": ({"kind": SAVED["kind"], "version": 1, "epoch": 3}, "not whole: consumed, length, seed"),
    "text": (
        {**SAVED, "consumed": "40"},
        "consumed in the sampler's state should be of type int, but is '40'",
    ),
    "bool": ({**SAVED, "epoch": True}, "epoch in the sampler's state should be of type int, but is True"),
    "negative": ({**SAVED, "consumed": -1}, "should not be negative, but is -1"),
    "at odds": ({**SAVED, "length": 300, "consumed": 200}, "at odds with itself: 300 of 100 samples"),
    "too much": ({**SAVED, "consumed": 101}, "has 101 of 100 samples consumed"),
}


@pytest.mark.parametrize("case", FOREIGN.values(), ids=FOREIGN)
def test_a_foreign_or_broken_state_is_refused(case: tuple[Any, str]) -> None:
    refuses(sampler(100, seed=5), case[0], case[1])


def refuses(chosen: ElasticDistributedSampler, state: Any, message: str) -> None:
    """It raises, and is as it was before."""
    running = iter(chosen)
    next(running)
    before = chosen.state_dict()
    with pytest.raises(ValueError, match=message):
        chosen.load_state_dict(state)
    assert chosen.state_dict() == before
    assert len(list(running)) + 1 == len(chosen)


def test_a_dataset_that_grew_after_loading_is_refused_when_it_matters() -> None:
    data = [0] * 10
    chosen = ElasticDistributedSampler(data, 1, 0)
    state = {**chosen.state_dict(), "consumed": 4}
    chosen.load_state_dict(state)
    data.append(0)
    with pytest.raises(ValueError, match="the length of the dataset was 10 and is 11"):
        iter(chosen)
    data.pop()
    assert len(list(chosen)) == 6
    data.append(0)
    assert len(list(chosen)) == 11


def test_a_state_is_small_and_does_not_grow() -> None:
    chosen = sampler(10**12, 8, 0)
    running = iter(chosen)
    sizes = set()
    for _ in range(3):
        next(running)
        sizes.add(len(json.dumps(chosen.state_dict())))
    assert max(sizes) < 300

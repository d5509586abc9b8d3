"""The elastic sampler: torch's by type and arguments, one order per epoch for any number of ranks."""

from __future__ import annotations

import copy
import itertools
import math
import pickle
import sys
from collections import Counter
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import DistributedSampler, Subset

import stoker
from stoker import ElasticDistributedSampler
from stoker._runtime.plan import selection
from stoker._runtime.plan.elastic_sampler import resolve_ranks

BILLION = 10**9


class Sized:
    """A dataset of which only the length is asked."""

    def __init__(self, length: int) -> None:
        self.length = length

    def __len__(self) -> int:
        return self.length


def sampler(length: int, replicas: int = 1, rank: int = 0, **more: Any) -> ElasticDistributedSampler:
    return ElasticDistributedSampler(Sized(length), replicas, rank, **more)


def ranks(length: int, replicas: int, **more: Any) -> list[list[int]]:
    return [list(sampler(length, replicas, rank, **more)) for rank in range(replicas)]


def interleaved(shares: list[list[int]]) -> list[int]:
    return [index for step in zip(*shares, strict=True) for index in step]


def test_it_is_torchs_sampler_by_type_and_by_its_first_arguments() -> None:
    ours = ElasticDistributedSampler([0] * 10, 3, 1, False, 7, True)
    theirs: Any = DistributedSampler([0] * 10, 3, 1, False, 7, True)  # type: ignore[arg-type]
    assert isinstance(ours, DistributedSampler)
    names = ("num_replicas", "rank", "epoch", "drop_last", "shuffle", "seed", "num_samples", "total_size")
    assert [getattr(ours, name) for name in names] == [getattr(theirs, name) for name in names]
    assert list(ours) == list(theirs)
    assert len(ours) == len(theirs)


@given(length=st.integers(0, 60), replicas=st.integers(1, 9), drop_last=st.booleans())
def test_without_shuffling_it_says_what_torch_says(length: int, replicas: int, drop_last: bool) -> None:
    for rank in range(replicas):
        ours = sampler(length, replicas, rank, shuffle=False, drop_last=drop_last)
        theirs: Any = DistributedSampler(range(length), replicas, rank, False, 0, drop_last)  # type: ignore[arg-type]
        assert len(ours) == len(theirs)
        if length:  # torch fails on an empty one with padding
            assert list(ours) == list(theirs)


@given(length=st.integers(1, 200), replicas=st.integers(1, 9), drop_last=st.booleans(), seed=st.integers())
def test_ranks_share_one_order_equally(length: int, replicas: int, drop_last: bool, seed: int) -> None:
    alone = list(sampler(length, seed=seed))
    assert sorted(alone) == list(range(length))
    order = interleaved(ranks(length, replicas, drop_last=drop_last, seed=seed))
    if drop_last:
        assert order == alone[: length // replicas * replicas]
    else:
        padded = math.ceil(length / replicas) * replicas
        assert order == list(itertools.islice(itertools.cycle(alone), padded))


def test_it_yields_plain_ints() -> None:
    for given_subset in (None, np.arange(10), torch.arange(10), list(range(10)), range(10)):
        assert {type(index) for index in sampler(10, subset=given_subset)} == {int}


def test_every_iteration_is_the_next_epoch() -> None:
    chosen = sampler(50)
    orders = [list(chosen) for _ in range(4)]
    assert chosen.epoch == 3
    assert len({tuple(order) for order in orders}) == 4
    again = sampler(50)
    for epoch in (3, 0, 2):
        again.set_epoch(epoch)
        assert again.epoch == epoch
        assert list(again) == orders[epoch]
    assert list(again) == orders[3]
    again.epoch = 1  # as some frameworks do
    assert list(again) == orders[1]


def test_without_shuffling_all_epochs_are_the_same() -> None:
    chosen = sampler(5, shuffle=False)
    assert list(chosen) == list(chosen) == [0, 1, 2, 3, 4]


def test_iterators_are_independent() -> None:
    chosen = sampler(300)
    first, second = iter(chosen), iter(chosen)
    mixed = [(next(first), next(second)) for _ in range(300)]
    alone = sampler(300)
    assert [a for a, _ in mixed] == list(alone)
    assert [b for _, b in mixed] == list(alone)


def test_an_iterator_that_nobody_pulls_is_no_epoch() -> None:
    """torch's loader with workers and without batches opens its sampler twice."""
    chosen = sampler(300)
    iter(chosen)
    assert list(chosen) == list(sampler(300))
    assert chosen.epoch == 0


def test_the_dataset_may_grow_between_epochs() -> None:
    data = [0] * 10
    chosen = ElasticDistributedSampler(data, 2, 0)
    assert len(list(chosen)) == len(chosen) == 5
    data += [0] * 10
    assert len(list(chosen)) == len(chosen) == 10


def test_a_subset_is_kept_as_it_is_and_shuffled() -> None:
    for subset in ([7, 3, 9, 11], np.array([7, 3, 9, 11]), torch.tensor([7, 3, 9, 11]), (7, 3, 9, 11)):
        chosen = sampler(20, subset=subset)
        assert sorted(chosen) == [3, 7, 9, 11]
        assert chosen._selection._subset is subset
        assert list(sampler(20, subset=subset, shuffle=False)) == [7, 3, 9, 11]
    assert interleaved(ranks(20, 2, subset=range(4, 20, 4), shuffle=False)) == [4, 8, 12, 16]
    assert sorted(ElasticDistributedSampler(Subset([0] * 9, [3, 4]), 1, 0)) == [0, 1]  # type: ignore[arg-type]


def test_a_subset_from_a_table_goes_by_place_not_by_label() -> None:
    column = pd.Series([7, 3, 9], index=[2, 0, 1])
    assert list(sampler(20, subset=column, shuffle=False)) == [7, 3, 9]
    assert list(sampler(20, subset=stoker.share(np.array([7, 3, 9])), shuffle=False)) == [7, 3, 9]


WRONG_SUBSETS: dict[str, tuple[Any, str]] = {
    "mask": (np.array([True, False]), "it is a mask: use np.flatnonzero"),
    "floats": (torch.tensor([0.5, 1]), "should hold integers, but its dtype is float32"),
    "two dimensions": (np.zeros((2, 3), dtype=int), r"has shape \(2, 3\)"),
    "iterator": (iter([1]), "should be a sequence of indices, but got list_iterator"),
}


@pytest.mark.parametrize("case", WRONG_SUBSETS.values(), ids=WRONG_SUBSETS)
def test_a_wrong_subset_is_named(case: tuple[Any, str]) -> None:
    with pytest.raises((TypeError, ValueError), match=case[1]):
        sampler(10, subset=case[0])


def test_weights_draw_in_proportion_and_never_what_has_none() -> None:
    weights = [0.0, 1.0, 0.0, 3.0, 0.0]
    draws = 20_000
    for given_weights in (weights, np.array(weights, dtype=np.float32), torch.tensor(weights)):
        found = Counter(sampler(5, weights=given_weights, num_samples=draws))
        assert set(found) == {1, 3}
        assert abs(found[3] - 0.75 * draws) < 6 * (draws * 0.75 * 0.25) ** 0.5


def test_the_least_and_the_greatest_draw(monkeypatch: pytest.MonkeyPatch) -> None:
    """Elements without weight at either end are not met by a draw at the very edge."""
    chosen = sampler(5, weights=[0, 0, 0.1, 0.3, 0])
    for word, index in ((0, 2), (2**64 - 1, 3)):
        monkeypatch.setattr(selection, "hashed", lambda words, key: np.full_like(words, word))
        assert list(chosen) == [index] * 5


def test_weighted_draws_do_not_depend_on_ranks() -> None:
    more: dict[str, Any] = {"weights": range(10), "num_samples": 600, "seed": 4}
    alone = list(sampler(10, **more))
    assert interleaved(ranks(10, 3, **more)) == interleaved(ranks(10, 2, **more)) == alone
    assert list(sampler(10, **{**more, "seed": 5})) != alone
    assert len(list(sampler(10, weights=range(10)))) == 10
    subset = [100 + place for place in range(10)]
    assert list(sampler(200, subset=subset, **more)) == [100 + place for place in alone]


WRONG_WEIGHTS: dict[str, tuple[Any, str]] = {
    "negative": ([1, 2, -3, 4, -5], r"non-negative, but weights\[2\] is -3.0, and 1 more like it"),
    "not a number": ([1, 2, 3, float("nan"), 5], r"finite, but weights\[3\] is nan"),
    "infinite": (torch.tensor([1, float("inf"), 1, 1, 1]), r"finite, but weights\[1\] is inf"),
    "nothing": ([0, 0, 0, 0, 0], "sum above 0"),
    "two dimensions": (np.ones((5, 1)), r"shape \(5, 1\)"),
    "another length": ([1, 2, 3], "one number for each of the 5 elements of the dataset, but there are 3"),
    "words": (["a", "b", "c", "d", "e"], "sequence of numbers"),
    "too much": ([sys.float_info.max] * 5, "scale them down"),
    "too little": ([5e-324] * 5, "scale them up"),
}


@pytest.mark.parametrize("case", WRONG_WEIGHTS.values(), ids=WRONG_WEIGHTS)
def test_wrong_weights_are_named(case: tuple[Any, str]) -> None:
    with pytest.raises((TypeError, ValueError), match=case[1]):
        sampler(5, weights=case[0])


def test_arguments_that_exclude_each_other() -> None:
    with pytest.raises(ValueError, match="shuffle=False excludes"):
        sampler(5, weights=[1] * 5, shuffle=False)
    with pytest.raises(ValueError, match="there are no weights"):
        sampler(5, num_samples=3)
    for wrong in (0, -1, True, 2.0):
        with pytest.raises(ValueError, match="positive integer"):
            sampler(5, weights=[1] * 5, num_samples=wrong)


def test_ranks_come_from_the_arguments_the_environment_or_nowhere() -> None:
    torchrun = {"WORLD_SIZE": "6", "RANK": "4"}
    assert resolve_ranks(None, None, {}) == (1, 0)
    assert resolve_ranks(None, None, {"RANK": "3"}) == (1, 0)
    assert resolve_ranks(None, None, torchrun) == (6, 4)
    assert resolve_ranks(8, None, torchrun) == (8, 4)
    assert resolve_ranks(None, 1, torchrun) == (6, 1)
    assert resolve_ranks(2, 1, torchrun) == (2, 1)
    with pytest.raises(ValueError, match=r"Invalid rank 4, rank should be in the interval \[0, 1\]"):
        resolve_ranks(2, None, torchrun)
    with pytest.raises(ValueError, match="Invalid rank -1"):
        resolve_ranks(2, -1, {})
    with pytest.raises(ValueError, match="num_replicas should be a positive integer"):
        resolve_ranks(0, 0, {})
    with pytest.raises(ValueError, match="RANK in the environment should be a number, but is ''"):
        resolve_ranks(None, None, {"WORLD_SIZE": "2"})


def test_torchruns_environment_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "1")
    chosen = ElasticDistributedSampler(range(10), shuffle=False)
    assert list(chosen) == [1, 3, 5, 7, 9]


def test_copies_go_on_by_themselves() -> None:
    chosen = sampler(1000, 3, 2, subset=list(range(1000)))
    running = iter(chosen)
    for _ in range(100):
        next(running)
    for copied in (copy.deepcopy(chosen), pickle.loads(pickle.dumps(chosen)), copy.copy(chosen)):
        assert copied.state_dict() == chosen.state_dict()
        assert copied.state_dict()["consumed"] == 300
        assert list(copied) == list(pickle.loads(pickle.dumps(chosen)))
        assert chosen.epoch == 0


def test_a_billion_samples() -> None:
    """Row 49. Only what is asked for is computed: the first and the last come at once, and ranks do not meet."""
    chosen = sampler(BILLION, 8, 5)
    first = list(itertools.islice(chosen, 100))
    assert len(set(first)) == 100
    assert len(chosen) == BILLION // 8
    ends = []
    state = {**chosen.state_dict(), "consumed": 999_999_990, "epoch": 3}
    for rank in range(5):
        resumed = sampler(BILLION, 5, rank)
        resumed.load_state_dict(state)
        ends += list(resumed)
    assert len(set(ends)) == len(ends) == 10
    order = chosen._selection.order(BILLION, 0, 3, True)
    assert sorted(order(np.arange(999_999_990, BILLION, dtype=np.uint64))) == sorted(ends)

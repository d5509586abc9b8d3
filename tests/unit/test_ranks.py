"""Ranks: who says which one this is, in what order, and where its samples lie."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from torch.utils.data import BatchSampler, DistributedSampler, SequentialSampler

from stoker import ElasticDistributedSampler
from stoker._runtime.plan.ranks import places, rank_of, seed_of
from stoker._runtime.scheduler.row_ranges import mix

PLAIN = SequentialSampler(range(4))


def group(rank: int, *, initialized: bool = True) -> Any:
    return SimpleNamespace(
        is_available=lambda: True, is_initialized=lambda: initialized, get_rank=lambda: rank
    )


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RANK", raising=False)
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    monkeypatch.setitem(sys.modules, "torch.distributed", group(0, initialized=False))


def sharded(rank: int, replicas: int = 4) -> Any:
    return DistributedSampler(range(40), replicas, rank)  # type: ignore[arg-type]


def test_alone_there_is_rank_0() -> None:
    assert rank_of(PLAIN) == rank_of(None) == 0
    assert places(PLAIN) == places(None) == (0, 1)


def test_the_process_group_comes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch.distributed", group(2))
    monkeypatch.setenv("WORLD_SIZE", "8")
    monkeypatch.setenv("RANK", "5")
    assert rank_of(sharded(3)) == 2


def test_then_the_sampler_also_inside_batch_samplers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "8")
    monkeypatch.setenv("RANK", "5")
    inside = BatchSampler(sharded(3), 2, False)
    wrapped = SimpleNamespace(batch_sampler=inside)
    assert rank_of(sharded(3)) == rank_of(inside) == rank_of(wrapped) == 3
    assert places(sharded(3)) == places(inside) == places(wrapped) == (3, 4)


def test_then_the_environment_of_a_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "5")
    assert rank_of(PLAIN) == 0  # of one, or of an unknown number
    monkeypatch.setenv("WORLD_SIZE", "8")
    assert rank_of(PLAIN) == 5
    assert places(PLAIN) == (0, 1)
    monkeypatch.setenv("RANK", "head")
    assert rank_of(PLAIN) == 0


def test_without_the_module_nobody_imports_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "torch.distributed")
    assert rank_of(sharded(1)) == 1
    assert "torch.distributed" not in sys.modules


def test_numbers_of_numpy_are_ranks_too() -> None:
    taken = np.arange(4)
    assert places(DistributedSampler(range(40), taken[3], taken[1])) == (1, 3)  # type: ignore[arg-type]
    elastic = ElasticDistributedSampler(range(40), taken[3], taken[1])
    assert places(elastic) == (1, 3)
    assert type(elastic.state_dict()["consumed"]) is int
    with pytest.raises(TypeError):
        ElasticDistributedSampler(range(40), 2.0, 1)  # type: ignore[arg-type]


def test_an_elastic_sampler_says_where_it_begins() -> None:
    elastic = SimpleNamespace(rank=1, num_replicas=3, first_place=70)
    assert places(elastic) == (70, 3)
    assert places(SimpleNamespace(sampler=elastic)) == (70, 3)


def test_other_things_of_these_names_are_no_ranks() -> None:
    assert rank_of(SimpleNamespace(rank="first", num_replicas=3)) == 0
    assert rank_of(SimpleNamespace(rank=1)) == 0
    endless = SimpleNamespace()
    endless.sampler = endless
    assert places(endless) == (0, 1)


def test_an_elastic_sampler_has_one_seed_for_all_ranks() -> None:
    for rank in range(2):
        sampler = ElasticDistributedSampler(range(10), 2, rank, seed=5)
        sampler.set_epoch(3)
        for outer in (sampler, BatchSampler(sampler, 2, False)):
            assert seed_of(outer, 77) == mix(5, 3)
            assert places(outer) == (rank, 2)
    assert seed_of(DistributedSampler(range(10), 2, 1), 77) == seed_of(None, 77) == 77  # type: ignore[arg-type]


def test_ranks_that_the_sampler_knows_nothing_of_have_seeds_of_their_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """They count the same places: with one seed they would share augmentations. Accelerate deals out batches this way."""
    alone = ElasticDistributedSampler(range(10), 1, 0, seed=5)
    seeds = {seed_of(PLAIN, 77), seed_of(alone, 77)}
    assert seeds == {77, mix(5, 0)}
    for rank in (1, 2):
        monkeypatch.setitem(sys.modules, "torch.distributed", group(rank))
        seeds |= {seed_of(PLAIN, 77), seed_of(SimpleNamespace(batch_sampler=alone), 77)}
        assert seed_of(sharded(rank), 77) == 77  # places differ
    assert len(seeds) == 6

"""Finds this process's rank, and where its samples lie in the global order. Imports no module of torch."""

from __future__ import annotations

import os
import sys
from numbers import Integral
from typing import Any

from stoker._runtime.plan.nested_samplers import layers
from stoker._runtime.scheduler.row_ranges import mix


def rank_of(sampler: Any) -> int:
    """The rank that random numbers are keyed to (``rng="batch"``): ranks that share a seed must not share augmentations.

    That of the process group, else the sampler's own, else the one that a launcher put into the environment.
    """
    distributed = sys.modules.get("torch.distributed")
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        return int(distributed.get_rank())
    ranked = _ranked(sampler)
    if ranked is not None:
        return int(ranked.rank)
    if _number("WORLD_SIZE") > 1:
        return _number("RANK")
    return 0


def world_size_of(sampler: Any) -> int:
    """The number of ranks, found where ``rank_of`` finds the rank."""
    distributed = sys.modules.get("torch.distributed")
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        return int(distributed.get_world_size())
    ranked = _ranked(sampler)
    return int(ranked.num_replicas) if ranked is not None else max(1, _number("WORLD_SIZE"))


def places(sampler: Any) -> tuple[int, int]:
    """(first place, stride): sample number n of this rank is number ``first + n * stride`` of the global order.

    Only a sampler knows that there is one. ``first_place`` is where the current iteration of an ElasticDistributedSampler begins.
    """
    ranked = _ranked(sampler)
    if ranked is None:
        return 0, 1
    first = getattr(ranked, "first_place", None)
    return int(ranked.rank if first is None else first), int(ranked.num_replicas)


def seed_of(sampler: Any, base_seed: int) -> int:
    """What random numbers by place are keyed to (``rng="sample"``): the sampler's own, if it has one that all ranks share.

    Where the sampler knows no ranks, those there are count the same places: their seeds have to tell them apart.
    """
    ranked = _ranked(sampler)
    own = getattr(ranked, "place_seed", None)
    seed = base_seed if own is None else int(own)
    rank = rank_of(sampler) if ranked is None or ranked.num_replicas == 1 else 0
    return mix(seed, rank) if rank else seed


def keys(sampler: Any, base_seed: int) -> tuple[int, int, int]:
    """What random numbers by place are keyed to: first place, stride and seed of an iteration that the sampler has begun."""
    return (*places(sampler), seed_of(sampler, base_seed))


def _ranked(sampler: Any) -> Any:
    """The sampler, or the one inside it, that deals samples out to ranks; None when there is none."""
    for part in layers(sampler):
        if _is_count(part, "rank") and _is_count(part, "num_replicas"):
            return part
    return None


def _is_count(sampler: Any, name: str) -> bool:
    return isinstance(getattr(sampler, name, None), Integral)


def _number(variable: str) -> int:
    try:
        return int(os.environ.get(variable, ""))
    except ValueError:
        return 0

"""Opens the receipt of an iteration: the facts about its loader, samplers and rank."""

from __future__ import annotations

import os
import time
import weakref
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from torch.utils.data import BatchSampler, RandomSampler, SequentialSampler, WeightedRandomSampler

from stoker._receipt.data_receipt import DataReceipt, ReceiptFacts
from stoker._receipt.receipt_writer import ReceiptWriter
from stoker._record.dataset_identity import dataset_key
from stoker._runtime.checkpoint.epoch_start import EpochStart, is_iterable
from stoker._runtime.plan import ranks
from stoker._runtime.plan.nested_samplers import layers

_DIVIDERS = ("num_replicas", "num_processes")
"""Attributes by which samplers say among how many ranks they divide: torch's and ours, and Accelerate's."""


def make_receipt_writer(
    loader: Any, epoch_start: EpochStart, name: str, loader_id: int, first: int
) -> ReceiptWriter:
    """The writer of an iteration of this loader, whose first batch has number ``first``.

    It keeps neither the loader nor, where they can be referred to weakly, the dataset and the samplers: a dataset may keep an error
    whose traceback leads back to the loader, and the recorder, which has the writer, would then outlive them all.
    """
    sampler, streams = loader._index_sampler, is_iterable(loader)
    facts = ReceiptFacts(
        name=name,
        kind="iterable" if streams else "map",
        rank=ranks.rank_of(sampler),
        world_size=ranks.world_size_of(sampler),
        batch_size=loader.batch_size,
        drop_last=bool(loader.drop_last),
        rng=loader.rng,
        pid=os.getpid(),
        loader=loader_id,
        began_unix_ns=time.time_ns(),
    )
    receipt = DataReceipt(
        id=int.from_bytes(os.urandom(8)),
        facts=facts,
        epoch=0,
        seed=epoch_start.base_seed,
        sampler_epoch=epoch_start.source.epoch,
        first=first,
    )
    describe = partial(_described, facts, _weakly(loader.dataset), _weakly(None if streams else sampler))
    return ReceiptWriter(receipt, describe, batched=bool(loader._auto_collation), streams=streams)


def _weakly(thing: Any) -> Callable[[], Any]:
    """A function that returns it; or None, once nobody else has it."""
    try:
        return weakref.ref(thing)
    except TypeError:  # a list, a range, None
        return lambda: thing


def _described(
    facts: ReceiptFacts, dataset_of: Callable[[], Any], sampler_of: Callable[[], Any]
) -> ReceiptFacts:
    dataset, sampler = dataset_of(), sampler_of()
    if dataset is None:
        return facts  # the loader is gone, and nobody asked before
    parts = list(layers(sampler))
    inner = parts[1] if len(parts) > 1 and type(sampler) is BatchSampler else sampler
    batch_size, drop_last = facts.batch_size, facts.drop_last
    for part in parts:
        if type(part) is BatchSampler:
            batch_size, drop_last = part.batch_size, bool(part.drop_last)
    kind = type(dataset)
    return replace(
        facts,
        dataset=f"{kind.__module__}.{kind.__qualname__}",
        length=None if facts.kind == "iterable" else _length(dataset),
        identity=dataset_key(dataset),
        samplers=tuple(f"{type(part).__module__}.{type(part).__qualname__}" for part in parts),
        divided_by=tuple(_divides_by(part) for part in parts),
        sampler_length=None if sampler is None else _length(inner),
        shuffles=_shuffles(parts),
        replacement=any(
            isinstance(part, WeightedRandomSampler) or getattr(part, "replacement", False) is True
            for part in parts
        ),
        batch_size=batch_size,
        drop_last=drop_last,
    )


def _divides_by(sampler: Any) -> int:
    for name in _DIVIDERS:
        found = getattr(sampler, name, None)
        if isinstance(found, int) and not isinstance(found, bool) and found > 0:
            return found
    return 0


def _shuffles(parts: list[Any]) -> bool | None:
    """Whether each epoch should have an order of its own; None where the samplers do not say."""
    for part in parts:
        if isinstance(part, SequentialSampler):
            return False
        if isinstance(part, RandomSampler):
            return True
        said = getattr(part, "shuffle", None)
        if isinstance(said, bool):
            return said
    return None


def _length(sized: Any) -> int | None:
    try:
        return len(sized)
    except Exception:  # it has none, whatever it raises to say so
        return None

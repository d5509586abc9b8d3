"""Looks at what the sampler gives, for a while, in forks: generators of the training process stay where they are."""

from __future__ import annotations

import os
from collections.abc import Iterator
from copy import copy
from itertools import islice
from time import monotonic
from typing import Any

from torch.utils.data import (
    BatchSampler,
    DistributedSampler,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
)

from stoker._tools.doctor.facts import Missing
from stoker._tools.doctor.facts.sampler import OutOfRangeIndex, SamplerFacts
from stoker._tools.doctor.instruments import ranks
from stoker._tools.doctor.instruments.fork_workers import answers
from stoker._tools.probes.target import length_of
from stoker._tools.sandbox.child import NoAnswer
from stoker._tools.sandbox.subject import Subject

_SOFT_S = 0.4
_HARD_S = 3.0
_MOST_INDICES = 200_000
_LOOK_EVERY = 256
_HEAD = 64
"""Indices by which two orders are compared."""


def probe(subject: Subject) -> SamplerFacts | Missing:
    """``Missing`` where nothing draws indices: streams, and datasets without a loader."""
    if isinstance(subject.dataset, IterableDataset):
        return Missing("a stream has no sampler")
    own = _own(subject)
    try:
        length = (
            len(subject.dataset)
            if own is None or _is_plain(own, subject.dataset)
            else length_of(subject.dataset)
        )
    except Exception as error:
        said = f"{type(error).__name__}: {error}"
        return SamplerFacts(
            "SequentialSampler" if own is None else type(own).__name__, 0, None, error=f"len(dataset): {said}"
        )
    if own is None and length:
        return Missing("there is no sampler")
    if own is None:
        return SamplerFacts("SequentialSampler", 0, 0, empty=True)
    if _is_plain(own, subject.dataset):
        return SamplerFacts(type(own).__name__, 0, length, empty=not length, repeats=_is_shuffled(own))
    (found,) = answers([lambda: _look(subject, own, length)], _HARD_S)
    if isinstance(found, NoAnswer):
        return Missing(f"the sampler could not be read: {found.reason}")
    assert isinstance(found, SamplerFacts)
    return found


def _own(subject: Subject) -> Any:
    """The user's batch sampler, else the sampler."""
    of_loader, arguments = subject.loader, subject.arguments
    # Not by their truth: an empty sampler is false, and one may raise when it is asked for its length.
    batches = _first(arguments.get("batch_sampler"), getattr(of_loader, "batch_sampler", None))
    if batches is not None and type(batches) is not BatchSampler:
        return batches
    return _first(
        arguments.get("sampler"), getattr(of_loader, "sampler", None), getattr(batches, "sampler", None)
    )


def _first(*given: Any) -> Any:
    return next((each for each in given if each is not None), None)


def _is_plain(own: Any, dataset: Any) -> bool:
    """torch's own, over this dataset: its indices are in range and every rank gets as many."""
    if type(own) in (RandomSampler, SequentialSampler):
        return own.data_source is dataset
    return type(own) is DistributedSampler and own.dataset is dataset


def _look(subject: Subject, own: Any, length: int | None) -> SamplerFacts:
    seen, outsiders, first, error = 0, 0, None, ""
    deadline = monotonic() + _SOFT_S
    one_shot = hasattr(own, "__next__")
    try:
        for index in islice(_indices(iter(own)), _MOST_INDICES):
            if length is not None and isinstance(index, int) and not -length <= index < length:
                outsiders += 1
                first = first or (index, seen)
            seen += 1
            if seen % _LOOK_EVERY == 0 and monotonic() > deadline:
                break
    except Exception as caught:
        error = f"{type(caught).__name__}: {caught}"
    outside = None if first is None else OutOfRangeIndex(*first, _asked(subject.dataset, first[0]))
    world, by_rank = (1, ()) if one_shot or error else _by_rank(subject, own)
    return SamplerFacts(
        name=type(own).__name__,
        seen=seen,
        length=length,
        outside=outside,
        outsiders=outsiders,
        one_shot=one_shot,
        empty=seen == 0 and not error,
        error=error,
        repeats=not one_shot and not error and _repeats(own),
        world=world,
        ranks=by_rank,
    )


def _is_shuffled(own: Any) -> bool:
    return isinstance(own, DistributedSampler) and own.shuffle


def _repeats(own: Any) -> bool:
    """Tried out: the same order twice, and another one after ``set_epoch``."""
    if isinstance(own, DistributedSampler) and type(own).__iter__ is DistributedSampler.__iter__:
        return own.shuffle
    inner: Any = own if hasattr(own, "set_epoch") else getattr(own, "sampler", None)
    if not callable(getattr(inner, "set_epoch", None)):
        return False

    def head() -> list[Any]:
        return list(islice(_indices(iter(own)), _HEAD))

    first, second = head(), head()
    inner.set_epoch(int(getattr(inner, "epoch", 0)) + 1)
    return first == second and head() != first


def _indices(given: Iterator[Any]) -> Iterator[Any]:
    """Return the indices; of a batch sampler those of its batches."""
    for each in given:
        if isinstance(each, list | tuple):
            yield from each
        else:
            yield each


def _asked(dataset: Any, index: int) -> str:
    try:
        dataset[index]
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""


def _by_rank(subject: Subject, own: Any) -> tuple[int, tuple[tuple[int, int], ...]]:
    """Batches of the first and of the last rank, for a sampler that is not torch's and knows its rank."""
    known = type(own).__module__.startswith(("torch.", "stoker."))
    world, _ = (1, False) if known else ranks.world_of(os.environ if ranks.asks(own) else {}, own)
    if world < 2:
        return 1, ()
    found = []
    for rank in (0, world - 1):
        mine = copy(own)
        ranks.pretend(mine, rank, world)
        count = _count(mine)
        if count is None:
            return world, ()
        found.append((rank, _batches(subject, mine, count)))
    return world, tuple(found)


def _count(sampler: Any) -> int | None:
    """How many it gives, by going through it: ``len`` is what samplers get wrong. None when that takes too long."""
    deadline = monotonic() + _SOFT_S
    count = 0
    for _ in sampler:
        count += 1
        if count % _LOOK_EVERY == 0 and monotonic() > deadline:
            return None
    return count


def _batches(subject: Subject, own: Any, count: int) -> int:
    size: int | None = subject.arguments.get("batch_size") or getattr(subject.loader, "batch_size", None)
    if size is None or own is subject.arguments.get("batch_sampler"):
        return count
    return count // size if subject.arguments.get("drop_last") else -(-count // size)

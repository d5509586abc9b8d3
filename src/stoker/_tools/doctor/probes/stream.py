"""Reads a stream as the workers of torch's loader would, each in a fork of its own, and once without workers.

Items are compared by a digest of their content. A stream without end is read for a while; one that waits is interrupted.
"""

from __future__ import annotations

import os
from array import array
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from torch.utils.data import IterableDataset

from stoker._tools.doctor.facts import Missing
from stoker._tools.doctor.facts.stream import BrokenItem, StreamFacts, StreamReading
from stoker._tools.doctor.instruments import ranks
from stoker._tools.doctor.instruments.fork_workers import Enough, answers, become_worker, soft_limit
from stoker._tools.probes.digest import digest
from stoker._tools.probes.target import length_of
from stoker._tools.sandbox.child import NoAnswer
from stoker._tools.sandbox.subject import Subject
from stoker._tools.sandbox.target import text_of

_SOFT_S = 0.7
_HARD_S = 3.0
_MOST_ITEMS = 20_000
_MOST_WORKERS = 8
_BASE_SEED = 0x5EED
_APART = 1 << 20
"""Between the base seeds of two ranks: each draws its own."""


@dataclass(frozen=True, slots=True)
class _Read:
    """What one fork tells."""

    digests: array[int]
    ended: bool
    broken: BrokenItem | None = None

    @property
    def reading(self) -> StreamReading:
        return StreamReading(len(self.digests), self.ended)


def probe(subject: Subject) -> StreamFacts | Missing:
    """``Missing`` for a map-style dataset, and for one that cannot be opened."""
    if not isinstance(subject.dataset, IterableDataset):
        return Missing("the dataset is not iterable-style")
    workers = min(_MOST_WORKERS, max(2, int(subject.arguments.get("num_workers") or 0)))
    jobs = [partial(_read, subject.dataset)]
    jobs += [partial(_work, subject, number, workers) for number in range(workers)]
    found = answers(jobs, _HARD_S)
    lost = next((each for each in found if isinstance(each, NoAnswer)), None)
    if lost is not None:
        return Missing(f"the stream could not be read: {lost.reason}")
    alone, *by_worker = found
    repeated, example = _repeated(alone.digests, [each.digests for each in by_worker])
    read = StreamFacts(
        workers=tuple(each.reading for each in by_worker),
        alone=alone.reading,
        repeated=repeated,
        alike=_alike([each.digests for each in by_worker]),
        example=example,
        declared=length_of(subject.dataset),
        broken=alone.broken,
    )
    return _with_ranks(read, subject)


def _work(subject: Subject, worker: int, workers: int, base_seed: int = _BASE_SEED) -> _Read:
    init = subject.arguments.get("worker_init_fn")
    return _read(become_worker(subject.dataset, worker, workers, base_seed, init))


def _read(dataset: Any) -> _Read:
    """In a fork: items until the end, a failure, or until it is enough."""
    digests = array("Q")
    ended, broken = False, None
    try:
        with soft_limit(_SOFT_S):
            iterator = iter(dataset)
            while len(digests) < _MOST_ITEMS:
                try:
                    digests.append(digest(next(iterator)))
                except StopIteration:
                    ended = True
                    break
                except Exception as error:
                    after = _after(iterator)
                    broken = BrokenItem(len(digests), type(error).__name__, text_of(error)[:300], after)
                    break
    except Enough:
        pass
    return _Read(digests, ended, broken)


def _after(iterator: Any) -> str:
    """What comes after an item that raised."""
    try:
        next(iterator)
    except StopIteration:
        return "ended"
    except Exception:
        return "raised"
    return "went on"


def _repeated(
    alone: Sequence[int], by_worker: Sequence[Sequence[int]]
) -> tuple[int, tuple[int, int, int, int] | None]:
    """How many items came from a second worker. Only items that a reader saw once at most can be told apart from each other."""
    own = {item for item, count in Counter(alone).items() if count > 1}
    for items in by_worker:
        own.update(item for item, count in Counter(items).items() if count > 1)
    first: dict[int, tuple[int, int]] = {}
    repeated, example = 0, None
    for worker, items in enumerate(by_worker):
        for number, item in enumerate(items):
            if item in own:
                continue
            before = first.setdefault(item, (worker, number))
            if before[0] != worker:
                repeated += 1
                example = example or (*before, worker, number)
    return repeated, example


def _alike(by_worker: Sequence[Sequence[int]]) -> bool:
    shortest = min(len(items) for items in by_worker)
    head = list(by_worker[0][:shortest])
    return len(set(head)) > 1 and all(list(items[:shortest]) == head for items in by_worker)


def _same(one: list[int], other: list[int]) -> bool:
    """Whether two ranks read the same, in whatever order: most of what can be told apart came from both."""
    repeated, _ = _repeated((), (one, other))
    return repeated > min(len(one), len(other)) / 2 or _alike([one, other])


def _with_ranks(stream: StreamFacts, subject: Subject) -> StreamFacts:
    """The first and the last rank's items too, when there are ranks, or when the dataset asks which one it is."""
    world, told = ranks.world_of(os.environ, subject.dataset)
    if world < 2:
        return stream
    workers = len(stream.workers)

    def work(rank: int, worker: int) -> _Read:
        ranks.pretend(subject.dataset, rank, world)
        return _work(subject, worker, workers, _BASE_SEED + _APART * rank)

    turns = [(rank, worker) for rank in (0, world - 1) for worker in range(workers)]
    found = answers([partial(work, *turn) for turn in turns], _HARD_S)
    if any(isinstance(each, NoAnswer) for each in found):
        return stream
    first, last = found[:workers], found[workers:]
    return replace(
        stream,
        world=world,
        world_known=told,
        ranks_alike=_same(*([item for each in reads for item in each.digests] for reads in (first, last))),
        ranks=tuple(
            (rank, tuple(len(each.digests) for each in reads))
            for rank, reads in ((0, first), (world - 1, last))
        )
        if all(each.ended for each in found)
        else (),
    )

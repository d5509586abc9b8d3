"""Forks a worker from a probe's process, sets it up as torch does, and measures it from inside.

What is fetched and in which order is settled before the fork. A trial lasts as long as its function lets it; it dies with the
probe.
"""

from __future__ import annotations

import gc
import random
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Any, TypeVar

from stoker._tools.doctor.probes import FactUnavailable
from stoker._tools.sandbox.child import NoAnswer, run
from stoker._tools.sandbox.subject import Subject

T = TypeVar("T")


class TrialFailed(FactUnavailable):
    """The worker raised or died before it had an answer. The text says how."""


def rows_per_batch(subject: Subject) -> int:
    """The loader's batch size; that of its first batch under a batch sampler of the user's; 1 without batching."""
    given = subject.arguments.get("batch_size")
    if isinstance(given, int) and given > 0:
        return given
    batches = subject.arguments.get("batch_sampler")
    if batches is None:
        return 1
    first = next(iter(batches), None)
    return max(1, len(first)) if isinstance(first, Sequence) else 1


def spread(subject: Subject, count: int) -> list[Any]:
    """Indices from everywhere in the dataset, in a random order that is always the same. Of a stream: so many numbers.

    A sampler of the user's decides instead, when there is one: only it knows what may be asked for.
    """
    if subject.is_stream:
        return list(range(count))
    sampler = subject.arguments.get("sampler")
    if sampler is not None and not _indexes_all(sampler):
        return list(islice(subject.indices(), count))
    length = len(subject.dataset)
    count = min(count, length)
    places = [place * length // count for place in range(count)]
    random.Random(0).shuffle(places)
    return [place for place in places if place not in subject.avoid]


def _indexes_all(sampler: Any) -> bool:
    from torch.utils.data import DistributedSampler, RandomSampler, SequentialSampler

    return isinstance(sampler, RandomSampler | SequentialSampler | DistributedSampler)


def fetcher(subject: Subject) -> Callable[[Sequence[Any]], list[Any]]:
    """Samples for indices, as torch fetches them; of a stream the next ones, as many as there are indices.

    Those that cannot be made are left out: other probes tell of them.
    """
    dataset = subject.dataset
    many = getattr(dataset, "__getitems__", None)
    stream: Iterator[Any] = iter(dataset) if subject.is_stream else iter(())

    def fetch(indices: Sequence[Any]) -> list[Any]:
        if subject.is_stream:
            return list(islice(stream, len(indices)))
        if many:
            subject.touch(_number(indices[0]))
            try:
                return list(many(list(indices)))
            except Exception:
                return []
        found = []
        for index in indices:
            subject.touch(_number(index))
            try:
                found.append(dataset[index])
            except Exception:
                continue
        return found

    return fetch


def _number(index: Any) -> int:
    return index if isinstance(index, int) else -1


def in_worker(subject: Subject, function: Callable[[], T]) -> T:
    """What ``function`` returns in a forked worker, after ``worker_init_fn``. Raises TrialFailed when there is no answer."""

    def work() -> T:
        _as_torch_does(subject)
        return function()

    [answer] = run([work])
    if not isinstance(answer, NoAnswer):
        made: T = answer
        return made
    if answer.raised:
        raise TrialFailed(f"in a worker: {answer.reason}")
    code = "" if answer.exit_code is None else f" with code {answer.exit_code}"
    raise TrialFailed(f"a worker on trial ended{code}")


def _as_torch_does(subject: Subject) -> None:
    """What ``torch.utils.data._utils.worker._worker_loop`` does before the first index."""
    import torch
    from torch.utils.data._utils import worker

    if not any(kind.__module__ == "stoker.loader" for kind in type(subject.loader).__mro__):
        gc.unfreeze()  # the probe's process keeps its objects from collections; torch's workers do not
    torch.set_num_threads(1)
    seed = 0
    random.seed(seed)
    torch.manual_seed(seed)
    workers = max(1, int(subject.arguments.get("num_workers") or 1))
    worker._worker_info = worker.WorkerInfo(id=0, num_workers=workers, seed=seed, dataset=subject.dataset)
    init = subject.arguments.get("worker_init_fn")
    if init is not None:
        init(0)

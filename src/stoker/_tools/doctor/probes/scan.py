"""Scans the dataset, ``collate_fn`` and ``worker_init_fn`` of a subject. Runs no code of theirs but what pickling runs."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import context
from typing import Any

from torch.utils.data import (
    BatchSampler,
    DistributedSampler,
    RandomSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)

from stoker._host.memory_available import Gauge
from stoker._pickling.spec_pickle import FdRecorder, collector_paused
from stoker._tools.doctor.facts.scan import ScanFacts
from stoker._tools.doctor.scanning import pickle_cost
from stoker._tools.doctor.scanning.scan_summary import summarise
from stoker._tools.doctor.scanning.source import preloads
from stoker._tools.doctor.scanning.walk import Walk
from stoker._tools.sandbox.subject import Subject

_context: Any = context
_ARGUMENTS = ("collate_fn", "worker_init_fn")


def probe(subject: Subject) -> ScanFacts:
    """What the dataset holds. Takes about 10 ms, a second for tens of millions of items."""
    start = time.perf_counter()
    roots = [("dataset", subject.dataset)]
    roots += [
        (name, subject.arguments[name]) for name in _ARGUMENTS if subject.arguments.get(name) is not None
    ]
    with _spawning(), collector_paused():
        walk = Walk(roots)
        trial = pickle_cost.attempt(walk, tuple(root for _, root in roots))
    return summarise(
        walk,
        trial,
        preloads=preloads(subject.dataset),
        listed_indices=_listed(subject),
        room_bytes=Gauge().read().available_bytes,
        scan_s=time.perf_counter() - start,
    )


def _listed(subject: Subject) -> int | None:
    """How many indices torch's own samplers list, told by the objects: none is iterated."""
    batch_sampler: Any = subject.arguments.get("batch_sampler")
    sampler: Any = getattr(batch_sampler, "sampler", None) if type(batch_sampler) is BatchSampler else None
    sampler = subject.arguments.get("sampler") if sampler is None else sampler
    try:
        if type(sampler) is RandomSampler:
            return None if sampler.replacement else max(sampler.num_samples, len(sampler.data_source))
        if type(sampler) is DistributedSampler:
            return int(sampler.total_size)
        if type(sampler) in (SubsetRandomSampler, WeightedRandomSampler):
            return len(sampler)
    except Exception:  # the length of a dataset is the user's code
        return None
    return None


@contextmanager
def _spawning() -> Iterator[None]:
    """multiprocessing's locks and queues let themselves be pickled for a process that is being started, and for nobody else."""
    recorder = FdRecorder()
    previous = _context.get_spawning_popen()
    _context.set_spawning_popen(recorder)
    try:
        yield
    finally:
        _context.set_spawning_popen(previous)
        recorder.close()

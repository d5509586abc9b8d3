"""Measures whether threads help: the same samples, made by one thread and by two. Finds what forbids them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from torch.utils.data import default_collate, default_convert

from stoker._runtime.executors.kept_memory import KeptMemory
from stoker._runtime.executors.process.start_method import live_hazards
from stoker._runtime.worker.process.process_setup import single_thread
from stoker._tools.sandbox.child import run
from stoker._tools.sandbox.subject import Subject

_ROUNDS = 3
_LEAST_S = 0.002
"""The shortest round: starting two threads takes a part of a millisecond."""
_BATCHES = 3
_PATIENCE = 6.0
"""The child is given up after so many times the planned time."""


def threads_gain(subject: Subject, indices: Sequence[Any], sample_s: float, seconds: float) -> float | None:
    """How much faster two threads are (g); None if unknown: streams, slow samples, samples that raise, hazards.

    It runs in a fork, so that a dataset that two threads break does no harm.
    """
    if subject.is_stream or not indices or not hasattr(subject.dataset, "__getitem__") or live_hazards():
        return None
    each_s = seconds / (2 * _ROUNDS)
    count = int(each_s / max(sample_s, 1e-7))
    count = min(max(count, 2), 4096)
    if count * sample_s * 2 * _ROUNDS > 2 * seconds:
        return None
    some = [indices[at % len(indices)] for at in range(count)]
    [found] = run([lambda: _gain(subject, some)], _PATIENCE * seconds + 1.0)
    return found if isinstance(found, float) else None


def keeps_batches(subject: Subject, indices: Sequence[Any], rows: int, seconds: float) -> bool:
    """Whether ``collate_fn`` keeps the memory of its batches for later ones. True where that cannot be found out."""
    collate_fn = subject.arguments.get("collate_fn")
    if collate_fn in (None, default_collate, default_convert) or subject.is_stream:
        return False
    if not indices or not hasattr(subject.dataset, "__getitem__") or live_hazards():
        return True
    [found] = run([lambda: _keeps(subject, collate_fn, indices, rows)], _PATIENCE * seconds + 1.0)
    return found is not False


def _keeps(subject: Subject, collate_fn: Callable[[Any], Any], indices: Sequence[Any], rows: int) -> bool:
    single_thread()
    _one_worker(subject)
    kept_memory, dataset = KeptMemory(collate_fn), subject.dataset
    batched = (
        subject.arguments.get("batch_size", 1) is not None
        or subject.arguments.get("batch_sampler") is not None
    )
    for first in range(0, _BATCHES * rows, rows):
        some = [indices[at % len(indices)] for at in range(first, first + rows)]
        box = [kept_memory([dataset[index] for index in some] if batched else dataset[some[0]])]
        kept_memory.settle(box)
        kept_memory.release()
    return kept_memory.found


def _gain(subject: Subject, indices: Sequence[Any]) -> float | None:
    single_thread()
    _one_worker(subject)
    dataset = subject.dataset
    failed: list[BaseException] = []

    def make(some: Sequence[Any]) -> None:
        try:
            for index in some:
                dataset[index]
        except BaseException as error:
            failed.append(error)

    def together(some: Sequence[Any]) -> float:
        pair = [threading.Thread(target=make, args=(some[half::2],), daemon=True) for half in (0, 1)]
        began = time.perf_counter()
        for each in pair:
            each.start()
        for each in pair:
            each.join()
        return time.perf_counter() - began

    together(indices[:4])
    alone_s, both_s = [], []
    for _ in range(_ROUNDS):
        began = time.perf_counter()
        make(indices)
        alone_s.append(time.perf_counter() - began)
        both_s.append(together(indices))
    if failed or min(alone_s) < _LEAST_S:
        return None
    return min(alone_s) / max(min(both_s), 1e-9)


def _one_worker(subject: Subject) -> None:
    """Set the worker info and call ``worker_init_fn``, as in an only worker."""
    from torch.utils.data._utils import worker

    worker._worker_info = worker.WorkerInfo(id=0, num_workers=1, seed=0, dataset=subject.dataset)
    init = subject.arguments.get("worker_init_fn")
    if init is not None:
        init(0)

"""Imitates torch's workers: forks the process that has the dataset. Each fork answers once and ends."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from types import FrameType
from typing import Any

import torch
from torch.utils.data import IterDataPipe

from stoker._runtime.worker.context import set_process_info
from stoker._runtime.worker.rng.seeding import seed_like_torch
from stoker._tools.sandbox.child import run


class Enough(BaseException):
    """The time of a fork is up: raised in whatever it does, so that it can tell how far it came."""


def answers(jobs: Sequence[Callable[[], Any]], within_s: float) -> list[Any]:
    """What each job returns in a quiet fork of its own, all at the same time; ``NoAnswer`` where there is none."""
    return run([partial(_single_threaded, each) for each in jobs], within_s, quiet=True)


def _single_threaded(job: Callable[[], Any]) -> Any:
    torch.set_num_threads(1)
    return job()


@contextmanager
def soft_limit(seconds: float) -> Iterator[None]:
    """In a fork: raises ``Enough`` after so long, also out of a call that waits."""

    def strike(number: int, frame: FrameType | None) -> None:
        raise Enough

    signal.signal(signal.SIGALRM, strike)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def become_worker(
    dataset: Any, worker: int, workers: int, base_seed: int, init: Callable[[int], Any] | None
) -> Any:
    """In a fork: what torch's loader does in a worker before the first sample. Returns the dataset as the worker has it."""
    seed = seed_like_torch(base_seed, worker)
    if isinstance(dataset, IterDataPipe):
        dataset = _prepared(dataset, worker, workers, base_seed)
    set_process_info(worker, workers, seed, dataset)
    if init is not None:
        init(worker)
    return dataset


def _prepared(pipe: Any, worker: int, workers: int, base_seed: int) -> Any:
    """DataPipes are shared out among ranks and workers, and given one seed, by the loader itself."""
    from torch import distributed
    from torch.utils.data.graph_settings import apply_random_seed, apply_sharding

    grouped = distributed.is_available() and distributed.is_initialized()
    world, rank = (distributed.get_world_size(), distributed.get_rank()) if grouped else (1, 0)
    apply_sharding(pipe, workers * world, worker * world + rank)
    return apply_random_seed(pipe, torch.Generator().manual_seed(base_seed))

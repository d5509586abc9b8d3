"""Describes what a worker needs to make batches: the same for every executor, fixed for the life of a pool."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from stoker._pickling.attributes import Path

RngMode = Literal["batch", "sample", "torch"]
BadSampleMode = Literal["raise", "skip", "replace"]


class GeneratorPath(NamedTuple):
    """Where a generator lies on the dataset, and the number that tells its stream from those of others."""

    path: Path
    number: int


@dataclass(frozen=True, slots=True)
class WorkerSpec:
    """The user's side of a worker and how to treat it.

    ``auto_collation`` is torch's word for "a batch of samples is collated"; without it one sample is converted.
    ``own_collate`` tells that ``collate_fn`` is torch's ``default_collate``, the only one whose rows may be split.
    ``collate_map`` holds what the user added to torch's collate map in the parent, for workers that do not inherit it.
    Rows of a batch lie ``stride`` places apart in the global order (``rng="sample"``). ``stored`` is where the parent found
    generators on the dataset.
    """

    dataset: Any
    iterable: bool
    auto_collation: bool
    collate_fn: Callable[[Any], Any]
    drop_last: bool
    worker_init_fn: Callable[[int], Any] | None
    num_workers: int
    rng: RngMode
    rank: int
    own_collate: bool
    collate_map: dict[Any, Any] | None = None
    on_bad_sample: BadSampleMode = "raise"
    stride: int = 1
    stored: tuple[GeneratorPath, ...] = ()
    snapshot_every: int = 1
    """How many batches of a stream lie between two states of it that the parent hears of."""
    metered: bool = True
    """Whether the worker measures where its time goes."""
    threads: int = 1
    """How many threads of a worker process fetch rows of a batch at once."""
    warns_of_shared_rng: bool = False
    """Whether to say that rows draw from generators which these threads share."""


class Resume(NamedTuple):
    """Where a stream stood after ``pulled`` batches: the pickled states of the dataset and of its iterator, None without one.

    ``fresh`` tells that the iterator is to begin anew, with the dataset as it was then; ``ended`` that the stream has no more. A
    dataset that is its own iterator has one state, the iterator's.
    """

    epoch: int
    pulled: int
    dataset: bytes | None
    iterator: bytes | None
    fresh: bool = False
    ended: bool = False


class BatchOrder(NamedTuple):
    """A task as the worker sees it: plain values, whatever executor brought it."""

    epoch: int
    seq: int
    position: int
    attempt: int
    part: int
    parts: int
    start: int
    stop: int
    rows: int
    seed: int
    pipe_seed: int
    pull: int
    indices: Any
    excluded: tuple[int, ...] = ()
    spares: tuple[Any, ...] = ()

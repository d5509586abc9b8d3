"""Describes what a worker needs to make batches: the same for every executor, fixed for the life of a pool."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from stoker._pickling.attributes import Path

RngMode = Literal["batch", "sample", "torch"]
BadSampleMode = Literal["raise", "skip", "replace"]


class GeneratorPath(NamedTuple):
    """The path to a generator on the dataset, and the number of its stream."""

    path: Path
    number: int


@dataclass(frozen=True, slots=True)
class WorkerSpec:
    """The user's objects that a worker needs, and how to use them.

    ``auto_collation`` is torch's word for collating a batch of samples; without it one sample is converted. ``own_collate``
    says that ``collate_fn`` is torch's ``default_collate``, the only one whose rows may be split. ``collate_map`` holds the
    user's additions to torch's collate map, for workers that do not inherit it. Rows of a batch lie ``stride`` places apart in
    the global order (``rng="sample"``). ``stored`` lists generators that the parent found on the dataset.
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
    """How many batches of a stream lie between two states that are sent to the parent."""
    metered: bool = True
    """Whether the worker measures its own time."""
    threads: int = 1
    """How many threads of a worker process fetch rows of one batch."""
    warns_of_shared_rng: bool = False
    """Whether to warn about rows that draw from generators which these threads share."""


class Resume(NamedTuple):
    """The state of a stream after ``pulled`` batches: pickled states of the dataset and of its iterator; None without one.

    ``fresh`` asks for a new iterator over the dataset in this state. ``ended`` says that the stream has no more batches.
    ``at_start``: the state is from the beginning of an epoch. A dataset that is its own iterator has one state, the iterator's.
    """

    epoch: int
    pulled: int
    dataset: bytes | None
    iterator: bytes | None
    fresh: bool = False
    ended: bool = False
    at_start: bool = False


def is_stateful(part: Any) -> bool:
    """Whether something has torchdata's two methods. A class has them for its instances only."""
    if isinstance(part, type):
        return False
    return callable(getattr(part, "state_dict", None)) and callable(getattr(part, "load_state_dict", None))


class BatchOrder(NamedTuple):
    """A task as plain values, the same for every executor."""

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

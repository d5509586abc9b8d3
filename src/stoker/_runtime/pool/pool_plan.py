"""What a pool is built from: the dataset's spec, and the kind and number of workers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from stoker._pickling.spec_pickle import SpecPickle
from stoker._runtime.protocol.worker_spec import WorkerSpec
from stoker.arguments import ExecutorKind


@dataclass(frozen=True, slots=True)
class PoolPlan:
    """How to build a pool. ``context`` is a multiprocessing context, for processes only; ``packed_spec`` is the pickled spec.

    ``workers`` is their number at first. With ``grows`` there may be more later.
    """

    spec: WorkerSpec
    kind: ExecutorKind
    workers: int
    bound: bool
    context: Any = None
    budget_bytes: int | None = None
    packed_spec: SpecPickle | None = None
    grows: bool = False
    backend: Any = None
    """The object that was passed as ``executor``; None for a name."""

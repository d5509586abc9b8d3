"""``stoker.generator()``: random numbers that depend on the sample only, not on who makes it, where or when.

batch maker: begin(order) ─► row, pull, collation …         costs nothing until a dataset asks
dataset: generator() ─► SampleRng of this thread ─► key of the current row ─► generator, the same object until the next row
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from operator import length_hint
from typing import Any, Literal, overload

import numpy as np
import torch

from stoker._runtime.protocol.status_page import ROW
from stoker._runtime.protocol.thread_context import current
from stoker._runtime.protocol.worker_spec import BatchOrder, WorkerSpec
from stoker._runtime.scheduler.row_ranges import mix
from stoker._runtime.worker.rng import generators

_TOGETHER = -1
_COLLATION = -2

# One per kind of key, so that keys of different kinds never meet.
_OF_ROW = 0xA1
_OF_PLACE = 0xA2
_OF_BATCH = 0xA3
_OF_STREAM = 0xA4


class SampleRng:
    """Knows what a batch maker is making, and gives generators for it on the same thread. The maker sets the attributes.

    ``here`` is the page that the maker writes its row to. ``row`` is set where that page shows something else, as for a
    replacement of a bad sample. ``pulled`` counts the batches of a stream.
    """

    __slots__ = (
        "_at",
        "_left",
        "_made",
        "_rows",
        "_spec",
        "_worker",
        "calls",
        "collating",
        "here",
        "order",
        "pulled",
        "row",
    )

    def __init__(self, spec: WorkerSpec, worker: int, here: Any) -> None:
        self._spec = spec
        self._worker = worker
        self._at: int | None = None
        self._left: Iterator[Any] | None = None
        """Rows fetched in one go: the indices that are still to come, of this many rows."""
        self._rows = 0
        self._made: dict[str, Any] = {}
        self.here = here
        self.order: BatchOrder | None = None
        self.row: int | None = None
        self.pulled = 0
        self.calls = 0
        """How often somebody asked for a generator."""
        self.collating = False

    def begin(self, order: BatchOrder) -> None:
        """Start an order, perhaps not for the first time."""
        self.order = order
        self.row = None
        self.collating = False
        self._at = self._left = None

    def end(self) -> None:
        """End the order and keep nothing of it."""
        self.order = self._left = None
        if self._made:
            self._made = {}

    def at_row(self, row: int | None) -> None:
        """Note which row is fetched; None for all rows at once."""
        self.row = _TOGETHER if row is None else row
        self._at = None

    def in_one_go(self, left: Iterator[Any], rows: int) -> None:
        """Note that nobody will say which row is fetched: the iterator of their indices tells."""
        self._left, self._rows = left, rows

    def at_pull(self, pulled: int) -> None:
        """Note which batch of a stream is pulled; 0 is the opening of the stream."""
        self.pulled = pulled
        self._at = None

    def generator(self, kind: str) -> Any:
        """Return the generator of the current row, batch or collation. Until the next row it is the same object."""
        self.calls += 1
        at = self._now()
        if at != self._at:
            self._at = at
            self._made = {}
        found = self._made.get(kind)
        if found is None:
            found = self._made[kind] = generators.make(kind, self._key(at))
        return found

    def _now(self) -> int:
        if self.collating:
            return _COLLATION
        if self._spec.iterable:
            return _TOGETHER
        if self._left is not None:
            return self._rows - length_hint(self._left) - 1
        row: int = self.here[ROW] if self.row is None else self.row
        return row if row >= 0 else _TOGETHER

    def _key(self, at: int) -> int:
        order, spec = self.order, self._spec
        assert order is not None
        if spec.iterable:
            return mix(order.seed, _OF_STREAM, spec.rank, self._worker, self.pulled, at)
        by_sample = spec.rng == "sample"
        if at >= 0 and by_sample:
            return mix(order.seed, _OF_PLACE, order.position + at * spec.stride)
        rank = 0 if by_sample else spec.rank  # a place in the global order belongs to one rank only
        return mix(order.seed, _OF_ROW if at >= 0 else _OF_BATCH, rank, order.position, at)


@overload
def generator(kind: Literal["numpy"] = "numpy") -> np.random.Generator: ...
@overload
def generator(kind: Literal["torch"]) -> torch.Generator: ...
@overload
def generator(kind: Literal["python"]) -> random.Random: ...
def generator(kind: str = "numpy") -> Any:
    """A generator keyed to the sample that is being made: call it in ``__getitem__``, in a transform, or in ``collate_fn``.

    Its numbers are the same for every ``num_workers``, executor (threads included), split, restart and resume. Calls for one
    sample give one object, so that draws go on. In ``collate_fn`` and ``__getitems__`` it is keyed to the batch, in an iterable
    dataset to the batch of its stream. Ask for it in every sample; one that is kept is not seeded again.

    Outside of any sample (``dataset[0]`` at the prompt, a thread that a dataset started) every call draws one number from torch's
    default generator and gives a new generator seeded with it: ``torch.manual_seed`` makes that repeatable.

    Args:
        kind: "numpy" (``np.random.Generator``), "torch" (``torch.Generator``) or "python" (``random.Random``).
    """
    if kind not in generators.NAMES:
        raise ValueError(f'kind must be "numpy", "torch" or "python", not {kind!r}')
    sample_rng = current.sample_rng
    if sample_rng is not None:
        return sample_rng.generator(kind)
    return generators.make(kind, _drawn())


def _drawn() -> int:
    number = torch.empty((), dtype=torch.int64, device="cpu").random_(generator=torch.default_generator)
    return int(number.item())


def _forget() -> None:
    """Drop the keys in a process that a dataset forked: several children would use the same ones."""
    current.sample_rng = None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)

"""Turns what a sampler yields into tickets. User code (samplers) may raise here, never in the core."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from stoker._core import messages as m
from stoker._core.grid import row_ranges
from stoker._core.types import Ticket


class Planner:
    """Pulls the sampler, one ticket at a time, on the thread that iterates.

    ``batched`` tells that the sampler yields the indices of a whole batch. ``splittable`` allows tickets to be cut at row
    ranges. ``by_sample`` makes positions count samples instead of batches (``rng="sample"``).
    """

    def __init__(
        self,
        sampler: Iterator[Any],
        *,
        epoch: int,
        seed: int,
        batched: bool,
        splittable: bool,
        by_sample: bool,
    ) -> None:
        self._sampler = sampler
        self._epoch = epoch
        self._seed = seed
        self._batched = batched
        self._splittable = splittable
        self._by_sample = by_sample
        self._seq = 0
        self._samples = 0
        self.error: BaseException | None = None
        """What the sampler raised. It is due when everything planned before it has been delivered."""

    def plan(self) -> m.Planned | m.PlanEnded:
        """The next ticket, or the end when the sampler is exhausted or broken."""
        try:
            indices = next(self._sampler)
            if self._batched and not hasattr(indices, "__len__") and hasattr(indices, "__iter__"):
                indices = list(indices)  # the sampler's code still: it may raise
        except StopIteration:
            return m.PlanEnded()
        except Exception as error:
            self.error = error
            return m.PlanEnded()
        rows = 0
        ranges: tuple[tuple[int, int], ...] = ()
        if self._batched:
            rows = _rows_of(indices)
            if self._splittable and type(indices) in (list, tuple):
                ranges = row_ranges(rows)
        seq = self._seq
        position = self._samples if self._by_sample else seq
        self._seq = seq + 1
        self._samples += rows if self._batched else 1
        return m.Planned(Ticket(self._epoch, seq, position, indices, self._seed, rows), ranges)


def _rows_of(indices: Any) -> int:
    """How many rows a batch has; 0 for what is no batch at all, of which its worker complains in its turn, as torch's does."""
    try:
        return len(indices)
    except TypeError:
        return 0

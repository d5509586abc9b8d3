"""Turns what a sampler yields into tickets. User code (samplers) may raise here, never in the core."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterator
from typing import Any

from stoker._core import messages as m
from stoker._core.grid import row_ranges
from stoker._core.types import Ticket

_SPARES = 8
"""How many indices a ticket carries that may stand in for a bad sample when its own range has no good one."""


class Planner:
    """Pulls the sampler, one ticket at a time, on the thread that iterates.

    ``batched`` tells that the sampler yields the indices of a whole batch. ``splittable`` allows tickets to be cut at row
    ranges. ``by_sample`` makes positions count samples instead of batches (``rng="sample"``). ``spares`` asks for indices that
    may stand in for bad ones: those planned last, and for the first ticket those of the second. ``killers`` are indices
    known to kill workers; their rows are planned as excluded.
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
        spares: bool = False,
        killers: Collection[Any] = (),
    ) -> None:
        self._sampler = sampler
        self._epoch = epoch
        self._seed = seed
        self._batched = batched
        self._splittable = splittable
        self._by_sample = by_sample
        self._seq = 0
        self._samples = 0
        self._spares: deque[Any] | None = deque(maxlen=_SPARES) if spares else None
        self._ahead: list[Any] = []
        self._late_error: Exception | None = None
        self._killers = killers
        self.error: BaseException | None = None
        """What the sampler raised. It is due when everything planned before it has been delivered."""

    def plan(self) -> m.Planned | m.PlanEnded:
        """The next ticket, or the end when the sampler is exhausted or broken."""
        try:
            indices = self._ahead.pop() if self._ahead else self._pull()
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
        ticket = Ticket(self._epoch, seq, position, indices, self._seed, rows)
        if (self._killers or self._spares is not None) and (rows or not self._batched):
            ticket = self._provide(ticket, self._listed(indices))
        return m.Planned(ticket, ranges)

    def _pull(self) -> Any:
        if self._late_error is not None:
            raise self._late_error
        indices = next(self._sampler)
        if self._batched and not hasattr(indices, "__len__") and hasattr(indices, "__iter__"):
            indices = list(indices)  # the sampler's code still: it may raise
        return indices

    def _provide(self, ticket: Ticket, listed: list[Any]) -> Ticket:
        """Add to a ticket what is known of killers, and spares from before it, whatever the number of workers."""
        excluded = tuple(row for row, index in enumerate(listed) if _contains(self._killers, index))
        spares: tuple[Any, ...] = ()
        if self._spares is not None:
            if ticket.seq == 0:
                self._look_ahead()
            known = self._spares if ticket.seq else (self._listed(self._ahead[0]) if self._ahead else ())
            spares = tuple(index for index in known if not _contains(self._killers, index))[:_SPARES]
            self._spares.extendleft(listed)
        return ticket._replace(excluded=excluded, spares=spares)

    def _look_ahead(self) -> None:
        """Have the second ticket's indices. What goes wrong now goes wrong again when they are due."""
        try:
            self._ahead.append(self._pull())
        except StopIteration:
            return
        except Exception as error:
            self._late_error = error

    def _listed(self, indices: Any) -> list[Any]:
        return list(indices) if self._batched else [indices]


def _contains(killers: Collection[Any], index: Any) -> bool:
    try:
        return index in killers
    except TypeError:  # an index that cannot be hashed
        return False


def _rows_of(indices: Any) -> int:
    """How many rows a batch has; 0 for what is no batch at all, of which its worker complains in its turn, as torch's does."""
    try:
        return len(indices)
    except TypeError:
        return 0

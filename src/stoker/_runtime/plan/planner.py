"""Turns what a sampler yields into tickets. User code (samplers) may raise here, never in the core."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from stoker._runtime.scheduler import messages as m
from stoker._runtime.scheduler.row_ranges import row_ranges
from stoker._runtime.scheduler.types import Ticket
from stoker._runtime.worker.bad_samples import key_of

SPARES = 8
"""How many indices a ticket carries that may stand in for a bad sample when its own range has no good one."""


def _nobody(number: int, samples: int) -> None:
    return None


@dataclass(frozen=True, slots=True)
class PlanStart:
    """Where in an epoch planning begins: ``batches`` and ``samples`` lie before it. Batches in ``done`` are passed over.

    ``passed(number, samples)`` hears of each of them, with the samples up to its end. ``before`` is what the sampler gave last
    before that place: it may stand in for bad samples.
    """

    batches: int = 0
    samples: int = 0
    done: frozenset[int] = frozenset()
    passed: Callable[[int, int], None] = _nobody
    before: Sequence[Any] = ()


BEGIN = PlanStart()
"""The beginning of an epoch."""


class Planner:
    """Pulls the sampler, one ticket at a time, on the thread that iterates.

    ``batched`` tells that the sampler yields the indices of a whole batch. ``splittable`` allows tickets to be cut at row
    ranges. ``places`` makes positions count samples instead of batches (``rng="sample"``): it is asked once, when the sampler has
    been pulled and so opened, for the place of the epoch's first sample, the distance to the next one, and the seed.

    ``spares`` asks for indices that may stand in for bad ones: those planned last, and for the first tickets also those that come
    next. ``killers`` are the keys (``key_of``) of indices known to kill workers; their rows are planned as excluded. ``begin``
    says where in the epoch the sampler stands. ``after`` is called after every pull, for the ticket's ``plan_state``. ``seq`` is
    the first ticket's number.
    """

    def __init__(
        self,
        sampler: Iterator[Any],
        *,
        epoch: int,
        seed: int,
        batched: bool,
        splittable: bool,
        places: Callable[[], tuple[int, int, int]] | None = None,
        spares: bool = False,
        killers: Collection[Any] = (),
        begin: PlanStart = BEGIN,
        after: Callable[[], object] | None = None,
        seq: int = 0,
    ) -> None:
        self._sampler = sampler
        self._epoch = epoch
        self._seed = seed
        self._batched = batched
        self._splittable = splittable
        self._places = places
        self._by_sample = places is not None
        self._first_place, self._stride = 0, 1
        self._seq = seq
        self._number = begin.batches
        self._samples = begin.samples
        self._done = begin.done
        self._passed = begin.passed
        self._after = after
        self._states: deque[object] = deque()
        self._spares: deque[Any] | None = deque(maxlen=SPARES) if spares else None
        self._ahead: deque[Any] = deque()
        self._exhausted = False
        self._late_error: Exception | None = None
        self._killers = killers
        if self._spares is not None:
            for indices in begin.before:
                self._spares.extendleft(self._listed(indices))
        self.error: BaseException | None = None
        """What the sampler raised. It is due when everything planned before it has been delivered."""

    def take_error(self) -> BaseException | None:
        """The sampler's exception, once: the caller raises it."""
        error, self.error = self.error, None
        return error

    def plan(self) -> m.Planned | m.PlanEnded:
        """The next ticket, or the end when the sampler is exhausted or broken."""
        while True:
            try:
                if self._spares is not None:
                    self._look_ahead(self._spares)
                indices = self._ahead.popleft() if self._ahead else self._pull()
            except StopIteration:
                return m.PlanEnded()
            except Exception as error:
                self.error = error
                return m.PlanEnded()
            rows = _rows_of(indices) if self._batched else 0
            number, sample = self._number, self._samples
            self._number = number + 1
            self._samples = sample + (rows if self._batched else 1)
            plan_state = self._states.popleft() if self._after is not None else None
            if not self._done or number not in self._done:
                break
            self._pass(indices, number)
        ranges: tuple[tuple[int, int], ...] = ()
        if self._splittable and rows and type(indices) in (list, tuple):
            ranges = row_ranges(rows)
        if self._places is not None:
            self._first_place, self._stride, self._seed = self._places()
            self._places = None
        position = self._first_place + sample * self._stride if self._by_sample else number
        ticket = Ticket(
            self._epoch, self._seq, position, indices, self._seed, rows, plan_state, number=number, sample=sample
        )  # fmt: skip
        self._seq += 1
        if (self._killers or self._spares is not None) and (rows or not self._batched):
            ticket = self._provide(ticket)
        return m.Planned(ticket, ranges)

    def _pass(self, indices: Any, number: int) -> None:
        """A batch that was handed over before: its indices may still stand in for others."""
        if self._spares is not None:
            self._spares.extendleft(self._listed(indices))
        self._passed(number, self._samples)

    def _pull(self) -> Any:
        if self._late_error is not None:
            raise self._late_error
        if self._exhausted:
            raise StopIteration
        indices = next(self._sampler)
        if self._batched and not hasattr(indices, "__len__") and hasattr(indices, "__iter__"):
            indices = list(indices)  # the sampler's code still: it may raise
        if self._after is not None:
            self._states.append(self._after())
        return indices

    def _provide(self, ticket: Ticket) -> Ticket:
        """Add to a ticket what is known of killers, and spares from around it, whatever the number of workers."""
        listed = self._listed(ticket.indices)
        excluded = tuple(row for row, index in enumerate(listed) if self._kills(index))
        spares: list[Any] = []
        if self._spares is not None:
            spares += self._spares
            for later in self._ahead:
                spares += self._listed(later)
            self._spares.extendleft(listed)
        kept = (index for index in spares[:SPARES] if not self._kills(index))
        return ticket._replace(excluded=excluded, spares=tuple(kept))

    def _look_ahead(self, before: Collection[Any]) -> None:
        """Have the next ticket's indices, and as many after them as it lacks spares. What goes wrong is due in its turn."""
        ahead = self._ahead
        while len(ahead) < 1 + SPARES and not self._exhausted and self._late_error is None:
            known = sum(len(self._listed(later)) for later in itertools.islice(ahead, 1, None))
            if ahead and len(before) + known >= SPARES:
                return
            try:
                ahead.append(self._pull())
            except StopIteration:
                self._exhausted = True
            except Exception as error:
                self._late_error = error

    def _listed(self, indices: Any) -> list[Any]:
        """A ticket's indices one by one; none for what is no batch."""
        if not self._batched:
            return [indices]
        return list(indices) if _rows_of(indices) else []

    def _kills(self, index: Any) -> bool:
        return bool(self._killers) and key_of(index) in self._killers


def _rows_of(indices: Any) -> int:
    """How many rows a batch has; 0 for what is no batch at all, of which its worker complains in its turn, as torch's does."""
    try:
        return len(indices)
    except TypeError:
        return 0

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
from stoker.errors import Interrupted

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
        self._cut_short = False
        """Whether the sampler was interrupted, and has not given anything since."""
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
        # An interrupt may come wherever something is called. What was pulled stays in ``_ahead`` until its ticket is whole;
        # the lines that count it call nothing, and neither does whoever gets the ticket, before it is in other hands.
        ahead = self._ahead
        while True:
            try:
                if self._spares is not None:
                    self._look_ahead(self._spares)
                if not ahead:
                    self._pull()
                if self._after is not None:
                    self._keep_states()
            except StopIteration:
                return m.PlanEnded()
            except Exception as error:
                self.error = error
                return m.PlanEnded()
            indices = ahead[0]
            rows = _rows_of(indices) if self._batched else 0
            number, sample = self._number, self._samples
            samples = sample + (rows if self._batched else 1)
            plan_state = None if self._after is None else self._states[0]
            if not self._done or number not in self._done:
                break
            spares = self._pass(indices, number, samples)
            self._number, self._samples, self._spares = number + 1, samples, spares
            del ahead[0]
            if self._after is not None:
                del self._states[0]
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
        kept = self._spares
        if (self._killers or kept is not None) and (rows or not self._batched):
            ticket, kept = self._provide(ticket)
        planned = m.Planned(ticket, ranges)
        self._seq, self._number, self._samples, self._spares = self._seq + 1, number + 1, samples, kept
        del ahead[0]
        if self._after is not None:
            del self._states[0]
        return planned

    def _pass(self, indices: Any, number: int, samples: int) -> deque[Any] | None:
        """A batch that was handed over before: its indices may still stand in for others. Returns the spares with them."""
        spares = self._spares
        if spares is not None:
            spares = spares.copy()
            spares.extendleft(self._listed(indices))
        self._passed(number, samples)
        return spares

    def _pull(self) -> None:
        """Have the next indices in ``_ahead``. Raises StopIteration at the end, and what the sampler raises."""
        if self._late_error is not None:
            raise self._late_error
        if self._exhausted:
            raise StopIteration
        if self._after is not None:
            self._keep_states()
        ahead = self._ahead
        before = len(ahead)
        # One call pulls and keeps: no interrupt comes between the two.
        try:
            ahead.extend(itertools.islice(self._sampler, 1))
        except Exception:
            raise
        except BaseException:
            # An interrupt in the sampler's code ends a generator, which does not say why.
            self._cut_short = True
            raise
        if len(ahead) == before:
            if self._cut_short:
                raise Interrupted(
                    "an earlier exception (Ctrl-C or a signal handler) interrupted the sampler, which gives nothing any more, so "
                    "batches would be missing: call iter(loader) again"
                )
            raise StopIteration
        self._cut_short = False
        indices = ahead[-1]
        if self._batched and not hasattr(indices, "__len__") and hasattr(indices, "__iter__"):
            try:
                ahead[-1] = list(indices)  # the sampler's code still: it may raise
            except BaseException:
                del ahead[-1]
                raise
        self._keep_states()

    def _keep_states(self) -> None:
        """Ask for the state after each pull, before the next one."""
        if self._after is not None:
            while len(self._states) < len(self._ahead):
                self._states.append(self._after())

    def _provide(self, ticket: Ticket) -> tuple[Ticket, deque[Any] | None]:
        """Add to a ticket what is known of killers, and spares from around it, whatever the number of workers.

        Returns the ticket, and the spares for the next one.
        """
        listed = self._listed(ticket.indices)
        excluded = tuple(row for row, index in enumerate(listed) if self._kills(index))
        spares: list[Any] = []
        left = self._spares
        if left is not None:
            spares += left
            for later in itertools.islice(self._ahead, 1, None):
                spares += self._listed(later)
            left = left.copy()
            left.extendleft(listed)
        kept = (index for index in spares[:SPARES] if not self._kills(index))
        return ticket._replace(excluded=excluded, spares=tuple(kept)), left

    def _look_ahead(self, before: Collection[Any]) -> None:
        """Have the next ticket's indices, and as many after them as it lacks spares. What goes wrong is due in its turn."""
        ahead = self._ahead
        while len(ahead) < 1 + SPARES and not self._exhausted and self._late_error is None:
            known = sum(len(self._listed(later)) for later in itertools.islice(ahead, 1, None))
            if ahead and len(before) + known >= SPARES:
                return
            try:
                self._pull()
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

"""Blame: every nanosecond of the consumer's wait goes to a stage, a worker and a cause. Pure: columns in, sums out.

A wait is the time from ``asked`` to ``got``. It is laid over the moments of the ticket that was waited for:

    ──── dispatched ──── received ──── fetched ──── collated ──── sent ──── got
    plan      │   queue     │   fetch     │  collate   │ hand_over │  wake

- In a worker's hands it is that worker's, and divides by readings of its CPU time into compute (on a CPU), starved (in the run
  queue) and io (off the CPU). Without readings it is unknown.
- While a later batch had been sent already and a worker had nothing to do, order held that batch back: head_of_line. Not so while
  all workers were at work, or saturated as a rule: then there was too little of everything, and order cost nothing.
- In the queue, it goes to what the worker that took the ticket in the end was doing until then: the critical path. A worker that
  had never had a task was starting. What is left is a free worker that had not woken up yet.
- What the first task of a worker took beyond several times the usual is start-up.
- Before it was sent out, and from ``got`` on, it is the parent's.

Parts of a ticket that was split count by the one that was sent last.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from stoker._record.schema import STEP_COLUMNS

Array = np.ndarray[Any, np.dtype[Any]]
Sums = dict[tuple[str, int, str], float]
"""Nanoseconds by (stage, worker, cause)."""

PARENT = -1
SATURATED = 0.85
"""Workers that are busy for more of the time than this have none to spare."""

FIRST_TIMES = 4
"""The first task of a worker may take this many times the usual before the rest counts as its start."""

QUICK_WAKE_NS = 200_000
"""A free worker takes a task within this time, unless it finds no CPU."""

_BEHIND = 4
"""How many earlier tasks of a worker are looked at for one wait; what is left of it then is ``queue``."""

_AT = {name: place for place, name in enumerate(STEP_COLUMNS)}
_MOMENTS = [_AT[name] for name in ("received_ns", "fetched_ns", "collated_ns", "sent_ns")]
_READINGS = [_AT[name] for name in ("cpu_ns", "runq_ns", "metered_ns")]
_STAGES = ("fetch", "collate", "hand_over")
_CAUSES = ("compute", "starved", "io", "unknown")
_NEVER = np.inf
_MOST = 1e19


class Tasks(NamedTuple):
    """Tasks as arrays, one place each in the last axis.

    ``moments``: received, fetched, collated, sent. ``shares``: compute, starved, io, unknown; they add up to 1.
    """

    worker: Array
    moments: Array
    shares: Array

    def take(self, places: Any) -> Tasks:
        """Return the tasks at these places."""
        return Tasks(self.worker[places], self.moments[:, places], self.shares[:, places])


@dataclass(slots=True)
class Attribution:
    """Folds the rows of one pool. It remembers each worker's last tasks, and so who is new. One thread at a time."""

    workers: int = 1
    """How many there are: how busy they were is judged by it."""
    inline: bool = False
    """Whether the consumer makes the batches itself. Then no worker starts and no task queues."""
    usual_ns: float = 0.0
    """How long a task takes as a rule; 0 before that is known."""
    tail: Tasks | None = None
    remote_from: int | None = None
    """The first worker that runs on another host; None if there is none."""

    def resize(self, workers: int) -> None:
        """Take over another number of workers."""
        self.workers = workers

    def copy(self) -> Attribution:
        """Return a copy, to fold rows without a change here."""
        return Attribution(self.workers, self.inline, self.usual_ns, self.tail, self.remote_from)

    def knows(self, rows: Array) -> bool:
        """Whether all workers of these rows had tasks before."""
        return self.tail is not None and bool(
            np.isin(np.unique(rows[:, _AT["worker"]]), self.tail.worker).all()
        )

    def fold(self, rows: Array) -> tuple[Sums, Array]:
        """Return the sums of these rows (STEP_COLUMNS, in order of delivery), and the time that each row's task is to blame for."""
        sums: Sums = defaultdict(float)
        blamed = np.zeros(len(rows))
        if not len(rows):
            return sums, blamed
        columns = np.ascontiguousarray(rows.T, dtype=float)
        tasks, before = self._with_tail(columns)
        old = len(tasks.worker) - len(rows)
        sent = tasks.moments[3, old:]
        steps = _last_parts(rows, sent)
        asked, got, planned, given = columns[:4, steps]
        sums["plan", PARENT, "parent"] += float((planned - got).sum())
        sums["open", PARENT, "parent"] += float((given - planned).sum())
        self._learn(tasks, before)
        waiting = np.flatnonzero(got > asked)
        if len(waiting):
            later: Any = _NEVER
            if not self._saturated(tasks.moments, before, old):
                later = _first_sent_later(sent[steps])[waiting]
                held_ns = (np.maximum(asked[waiting], np.minimum(later, _MOST)) + sent[steps[waiting]]) / 2
                later = np.where(_at_work(tasks, held_ns) < self.workers, later, _NEVER)
            at = steps[waiting]
            division = _Division(tasks, before, old + at, asked[waiting], got[waiting], later, sums)
            division.divide(columns[_AT["dispatched_ns"], at], self)
            blamed[at] = division.charged
        self._remember(tasks, before)
        return sums, blamed

    def _with_tail(self, columns: Array) -> tuple[Tasks, Array]:
        """The tasks of these columns behind those remembered, and for each the place of the one before it on its worker, or -1."""
        moments = columns[_MOMENTS]
        moments[3] = np.maximum(moments[3], moments[0])
        # A moment that was not measured is that of the next one; they never run backwards.
        for place in (2, 1):
            missing = moments[place] < moments[0]
            following = moments[place + 1]
            moments[place] = np.where(missing, following, np.minimum(moments[place], following))
        worker = columns[_AT["worker"]].astype(int)
        shares = _shares(*columns[_READINGS])
        tail = self.tail
        if tail is not None:
            worker = np.concatenate([tail.worker, worker])
            moments = np.concatenate([tail.moments, moments], axis=1)
            shares = np.concatenate([tail.shares, shares], axis=1)
        order = np.lexsort((moments[0], worker))
        same = worker[order[1:]] == worker[order[:-1]]
        before = np.full(len(worker), -1)
        before[order[1:][same]] = order[:-1][same]
        _borrow(shares, order, worker)
        return Tasks(worker, moments, shares), before

    def _learn(self, tasks: Tasks, before: Array) -> None:
        took = (tasks.moments[3] - tasks.moments[0])[before >= 0]
        if len(took) >= 4:
            self.usual_ns = float(np.partition(took, len(took) // 2)[len(took) // 2])

    def _saturated(self, moments: Array, before: Array, old: int) -> bool:
        if self.inline:
            return True
        # A worker of torch's hands one batch over while it makes the next: that time counts once.
        free = np.where(before >= 0, moments[3, before], 0.0)[old:]
        received, sent = moments[0, old:], moments[3, old:]
        busy = float(np.maximum(sent - np.maximum(received, free), 0.0).sum())
        span = float(sent.max() - received.min())
        return busy >= SATURATED * span * max(1, self.workers)

    def _remember(self, tasks: Tasks, before: Array) -> None:
        """Keep the last tasks of every worker."""
        last = np.ones(len(before), dtype=bool)
        last[before[before >= 0]] = False
        place = np.flatnonzero(last)
        kept = last.copy()
        for _ in range(_BEHIND - 1):
            place = before[place]
            place = place[place >= 0]
            kept[place] = True
        self.tail = tasks.take(kept)


@dataclass(slots=True)
class _Division:
    """Some waits of one fold: ``at`` are the tasks waited for, ``later`` when the first batch behind each was sent."""

    tasks: Tasks
    before: Array
    at: Array
    asked: Array
    got: Array
    later: Any
    sums: Sums
    charged: Array = field(init=False)

    def divide(self, dispatched: Array, attribution: Attribution) -> None:
        asked, got, sums = self.asked, self.got, self.sums
        worker, received, sent = self.tasks.worker[self.at], *self.tasks.moments[[0, 3]][:, self.at]
        known = received > 0
        if not known.all():
            sums["queue", PARENT, "unknown"] += float((got - asked)[~known].sum())
            received, sent = np.where(known, received, asked), np.where(known, sent, asked)
            asked = np.where(known, asked, got)
        woken = _overlap(asked, got, sent, _NEVER)
        if attribution.remote_from is not None:
            away = worker >= attribution.remote_from
            _add(sums, "network", worker, "io", np.where(away, woken, 0.0))
            woken = woken[~away]
        sums["wake", PARENT, "parent"] += float(woken.sum())
        first = (self.before[self.at] < 0) & (not attribution.inline)
        begin = received
        if attribution.usual_ns and first.any():
            begin = np.where(first, np.maximum(received, sent - FIRST_TIMES * attribution.usual_ns), received)
        self.charged = self._charge(np.maximum(asked, begin), got, self.at, self.later)
        out = np.where(dispatched > 0, np.minimum(dispatched, received), -_NEVER)
        sums["plan", PARENT, "parent"] += float(_overlap(asked, got, -_NEVER, out).sum())
        low, high = np.maximum(asked, out), np.minimum(got, begin)
        queued = np.flatnonzero(high > low)
        if len(queued):
            self._queued(low[queued], high[queued], queued, worker[queued], first[queued], attribution)

    def _queued(
        self, low: Array, high: Array, which: Array, worker: Array, first: Array, attribution: Attribution
    ) -> None:
        """Charge the time before a worker took the task to what that worker did then, task by task backwards."""
        left = high - low
        if first.any():
            _add(self.sums, "start", worker, "start_up", np.where(first, left, 0.0))
            left = np.where(first, 0.0, left)
        later: Any = self.later if np.isscalar(self.later) else self.later[which]
        place = self.before[self.at[which]]
        for _ in range(_BEHIND):
            busy = np.flatnonzero((place >= 0) & (left > 0))
            if not len(busy):
                break
            behind = later if np.isscalar(later) else later[busy]
            left[busy] -= self._charge(low[busy], high[busy], place[busy], behind)
            # The time before a task belongs to the task before it.
            high[busy] = np.minimum(high[busy], self.tasks.moments[0, place[busy]])
            place = np.where(place >= 0, self.before[place], -1)
        if attribution.inline:
            self.sums["plan", PARENT, "parent"] += float(left.sum())
            return
        late = np.clip(left - QUICK_WAKE_NS, 0.0, None)
        _add(self.sums, "queue", worker, "starved", late)
        _add(self.sums, "queue", worker, "parent", left - late)

    def _charge(self, low: Array, high: Array, place: Array, later: Any) -> Array:
        """Charge these tasks with what they took of the time between ``low`` and ``high``. Return how much that is for each."""
        moments, shares = self.tasks.moments[:, place], self.tasks.shares[:, place]
        worker = self.tasks.worker[place] - PARENT  # the parent's is the first
        free = _overlap(low, np.minimum(high, later), moments[:-1], moments[1:])
        total: Array = free.sum(axis=0)
        self._put(worker, free[:, None, :] * shares, _CAUSES)
        if not np.isscalar(later):
            held = _overlap(np.maximum(low, later), high, moments[:-1], moments[1:])
            total += held.sum(axis=0)
            self._put(worker, held[:, None, :], ("head_of_line",))
        return total

    def _put(self, worker: Array, values: Array, causes: tuple[str, ...]) -> None:
        """Add values by stage, cause and task to the sums, with one count for all of them."""
        kinds, workers = len(_STAGES) * len(causes), int(worker.max()) + 1
        cell = (np.arange(kinds) * workers)[:, None] + worker
        found = np.bincount(cell.ravel(), values.ravel(), kinds * workers)
        for place in np.flatnonzero(found).tolist():
            kind, number = divmod(place, workers)
            stage, cause = divmod(kind, len(causes))
            self.sums[_STAGES[stage], number + PARENT, causes[cause]] += float(found[place])


def _overlap(low: Any, high: Any, begin: Any, end: Any) -> Array:
    """How much of [low, high] lies in [begin, end]."""
    inside: Array = np.maximum(np.minimum(high, end) - np.maximum(low, begin), 0.0)
    return inside


def _add(sums: Sums, stage: str, worker: Array, cause: str, values: Array) -> None:
    by_worker = np.bincount(worker - PARENT, values)  # the parent's is the first
    for place in np.flatnonzero(by_worker).tolist():
        sums[stage, place + PARENT, cause] += float(by_worker[place])


def _last_parts(rows: Array, sent: Array) -> Array:
    """Return one row per step. A split ticket counts by the part that was sent last."""
    if not rows[:, _AT["part"]].any():
        return np.arange(len(rows))
    ticket = rows[:, [_AT["epoch"], _AT["seq"]]]
    new = np.concatenate([[True], (ticket[1:] != ticket[:-1]).any(axis=1)])
    number = np.cumsum(new) - 1
    order = np.lexsort((sent, number))
    last = np.concatenate([number[order][1:] != number[order][:-1], [True]])
    found: Array = order[last]
    return found


def _first_sent_later(sent: Array) -> Array:
    """By step, when the first of all batches behind it was sent."""
    later = np.full(len(sent), _NEVER)
    if len(sent) > 1:
        later[:-1] = np.minimum.accumulate(sent[::-1])[::-1][1:]
    return later


def _at_work(tasks: Tasks, moments_ns: Array) -> Array:
    """How many tasks were in workers' hands at these moments."""
    began = np.searchsorted(np.sort(tasks.moments[0]), moments_ns, "right")
    found: Array = began - np.searchsorted(np.sort(tasks.moments[3]), moments_ns, "right")
    return found


def _shares(cpu: Array, runq: Array, metered: Array) -> Array:
    """Return how time at work divides; zeros where there was no reading."""
    read = metered > 0
    whole = np.where(read, np.maximum(metered, cpu + runq), 1.0)
    on, waiting = cpu / whole, runq / whole
    shares: Array = np.stack([on, waiting, np.maximum(1.0 - on - waiting, 0.0), np.zeros(len(cpu))])
    shares[:, ~read] = 0.0
    return shares


def _borrow(shares: Array, order: Array, worker: Array) -> None:
    """Give a task without a reading the next reading of its worker, which covers it, or else the one before."""
    have = (shares.sum(axis=0) > 0)[order]
    if have.all():
        return
    count = len(order)
    place = np.arange(count)
    following = np.minimum.accumulate(np.where(have, place, count)[::-1])[::-1]
    earlier = np.maximum.accumulate(np.where(have, place, -1))
    sorted_worker = worker[order]
    for source, exists in ((following, following < count), (earlier, earlier >= 0)):
        wanted = np.flatnonzero(~have & exists)
        wanted = wanted[sorted_worker[source[wanted]] == sorted_worker[wanted]]
        shares[:, order[wanted]] = shares[:, order[source[wanted]]]
        have[wanted] = True
    shares[3, order[~have]] = 1.0

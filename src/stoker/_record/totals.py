"""Keeps a loader's running sums: step rows go in; totals, blame, workers and curves come out. Pure."""

from __future__ import annotations

import copy
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from stoker._record.attribution import Array, Attribution, Sums
from stoker._record.schema import (
    STEP_COLUMNS,
    Blame,
    Concurrency,
    Period,
    SlowestSample,
    Totals,
    WorkerRecord,
)
from stoker._record.step_buffer import QuickSteps

KEPT_FIRST = 512
KEPT_LAST = 4096
"""Rows of steps that are kept: the first ones of a run, and the last ones."""

KEPT_SLOW = 16
IDLE_NS = 10_000_000_000
"""A gap between two batches longer than this is no step of training."""

_BREAKS = 4096
"""Moments that are kept of those that no step goes across: more than the rows that wait to be counted."""
_PERIODS = 240
_AT = {name: place for place, name in enumerate(STEP_COLUMNS)}
_SPANS = ("cpu_ns", "runq_ns", "metered_ns", "slow_ns")
_MOMENTS = [place for name, place in _AT.items() if name.endswith("_ns") and name not in _SPANS]


@dataclass(slots=True)
class RunningTotals:
    """The sums of one loader. Its owner holds a lock while it changes them."""

    began_ns: int
    totals: Totals = field(default_factory=Totals)
    sums: Sums = field(default_factory=lambda: defaultdict(float))
    workers: dict[int, WorkerRecord] = field(default_factory=dict)
    concurrency: dict[int, list[int]] = field(default_factory=dict)
    slowest: list[SlowestSample] = field(default_factory=list)
    periods: list[Period] = field(default_factory=list)
    first_rows: Array = field(default_factory=lambda: np.zeros((0, len(STEP_COLUMNS)), np.int64))
    last_rows: list[Array] = field(default_factory=list)
    until: dict[int, int] = field(default_factory=dict)
    """By worker, when the last of its batches was sent."""
    dropped: int = 0
    added: int = 0
    """Rows so far, kept or not."""
    quick: int = 0
    """Steps so far that got no row."""
    usual: Sums = field(default_factory=dict)
    """How the wait of the rows folded last divides; shares, their sum is 1."""
    usual_depth: float = 0.0
    usual_work: dict[int, tuple[float, ...]] = field(default_factory=dict)
    """Of the rows folded last, by step: batches that were ready, and what each worker did."""
    breaks: list[int] = field(default_factory=list)
    """When the consumer called ``iter()``, or asked for a batch and none came: what lies around that is not one step.

    Epochs do not tell: pools count theirs from the beginning, and each epoch may have a pool of its own.
    """

    def copy(self) -> RunningTotals:
        """A copy to add pending rows to. It shares arrays, periods and histograms, which are never changed in place."""
        return RunningTotals(
            self.began_ns,
            copy.copy(self.totals),
            defaultdict(float, self.sums),
            {number: copy.copy(each) for number, each in self.workers.items()},
            {number: list(each) for number, each in self.concurrency.items()},
            [copy.copy(each) for each in self.slowest],
            list(self.periods),
            self.first_rows,
            list(self.last_rows),
            dict(self.until),
            self.dropped,
            self.added,
            self.quick,
            self.usual,
            self.usual_depth,
            self.usual_work,
            list(self.breaks),
        )

    def opened(self, began_ns: int, ended_ns: int) -> None:
        """Count one call of ``iter()`` as a wait."""
        totals = self.totals
        self._break(began_ns)
        totals.epochs += 1
        totals.open_ns += ended_ns - began_ns
        totals.wait_ns += ended_ns - began_ns
        totals.wall_ns = max(totals.wall_ns, ended_ns - self.began_ns)
        self.sums["start", -1, "start_up"] += ended_ns - began_ns

    def stopped(self, began_ns: int, ended_ns: int, stage: str, cause: str, given_ns: int = 0) -> None:
        """Count a wait that brought no batch: the end of an epoch, or an error. ``given_ns``: when the last batch came."""
        totals = self.totals
        if given_ns:
            self._left(given_ns, began_ns)
        if stage == "start":
            totals.open_ns += ended_ns - began_ns
        totals.wait_ns += ended_ns - began_ns
        totals.wall_ns = max(totals.wall_ns, ended_ns - self.began_ns)
        self.sums[stage, -1, cause] += ended_ns - began_ns

    def _left(self, given_ns: int, asked_ns: int) -> None:
        """Count the training loop's work on the last batch as a step, too."""
        # Known: the step was counted before, or another iteration began meanwhile.
        known = bool(self.breaks) and self.breaks[-1] >= given_ns
        self._break(asked_ns)
        if not known and asked_ns > given_ns:
            if asked_ns - given_ns <= IDLE_NS:
                self.totals.step_ns += asked_ns - given_ns
            else:
                self.totals.idle_ns += asked_ns - given_ns

    def _break(self, at_ns: int) -> None:
        self.breaks.append(at_ns)
        if len(self.breaks) > 2 * _BREAKS:
            del self.breaks[:_BREAKS]

    def skim(self, rows: Array, last: tuple[int, int], apart_ns: int) -> tuple[int, int]:
        """Count rows of a very fast loader. Their wait is divided like that of the rows folded last.

        The stages of ``apart_ns`` of it are known already.
        """
        steps, wait_ns, step_ns = self._count(rows, last)
        sums = {key: share * max(0, wait_ns - apart_ns) for key, share in self.usual.items()}
        for key, ns in sums.items():
            self.sums[key] += ns
        self.sums["open", -1, "parent"] += min(apart_ns, wait_ns)  # from which it is taken
        self.totals.estimated_steps += len(steps)
        self._by_worker(rows)
        return self._close(rows, steps, wait_ns, step_ns, sums, last)

    def count_quick(self, quick: QuickSteps, last: tuple[int, int]) -> tuple[int, int]:
        """Count steps that got no row. Their waits are known; all else is taken from the rows folded last."""
        waits_ns = np.array(quick.waits_ns, np.int64)
        count = len(waits_ns)
        if not count:
            return last
        totals, wait_ns = self.totals, int(waits_ns.sum())
        step_ns = max(0, quick.given_ns - last[1] - wait_ns)
        sums: Sums = {key: share * wait_ns for key, share in self.usual.items()}
        for key, ns in (sums or {("open", -1, "parent"): float(wait_ns)}).items():
            self.sums[key] += ns
        totals.steps += count
        totals.estimated_steps += count
        totals.rows += quick.rows
        if quick.nbytes or totals.bytes is not None:
            totals.bytes = (totals.bytes or 0) + quick.nbytes
        totals.wait_ns += wait_ns
        totals.step_ns += step_ns
        totals.ready += quick.ready
        totals.depth += round(self.usual_depth * count)
        totals.wall_ns = max(totals.wall_ns, quick.given_ns - self.began_ns)
        totals.wait_histogram = _counted(totals.wait_histogram, waits_ns)
        for number, work in self.usual_work.items():
            self._credit(number, [count * each for each in work])
        began_ns = last[1] - self.began_ns
        self._add_period(began_ns, quick.given_ns - self.began_ns, count, wait_ns, step_ns, sums)
        self.quick += count
        self.dropped += count
        return last[0], quick.given_ns

    def split_open_stage(self, pin_ns: int, record_ns: int, copy_ns: int = 0) -> None:
        """Move time from the stage ``open`` to ``pin`` (copying into pinned memory), ``copy`` (to the device) and ``record``."""
        self.sums["open", -1, "parent"] -= pin_ns + record_ns + copy_ns
        if copy_ns:
            self.sums["copy", -1, "parent"] += copy_ns
        self.sums["pin", -1, "parent"] += pin_ns
        self.sums["record", -1, "parent"] += record_ns

    def add(self, rows: Array, attribution: Attribution, last: tuple[int, int]) -> tuple[int, int]:
        """Add rows of one step buffer, and return the epoch and moment of the last batch in them.

        ``last`` is the same of the batch before them.
        """
        if not len(rows):
            return last
        sums, blamed = attribution.fold(rows)
        for key, ns in sums.items():
            self.sums[key] += ns
        whole = sum(sums.values())
        if whole > 0:
            self.usual = {key: ns / whole for key, ns in sums.items()}
        steps, wait_ns, step_ns = self._count(rows, last)
        self._by_worker(rows)
        self._by_concurrency(rows)
        self._slow(rows, blamed)
        return self._close(rows, steps, wait_ns, step_ns, sums, last)

    def _close(
        self, rows: Array, steps: Array, wait_ns: int, step_ns: int, sums: Sums, last: tuple[int, int]
    ) -> tuple[int, int]:
        self._curve(steps, wait_ns, step_ns, sums)
        self._keep(rows)
        self.added += len(rows)
        if not len(steps):
            return last
        return int(steps[-1, _AT["epoch"]]), int(steps[-1, _AT["given_ns"]])

    def totals_with(self, rows: Array, last: tuple[int, int]) -> Totals:
        """The totals including these rows, which are held back until later rows arrive. Changes nothing."""
        ahead = RunningTotals(self.began_ns, copy.copy(self.totals), breaks=self.breaks)
        if len(rows):
            ahead._count(rows, last)
        return ahead.totals

    def _count(self, rows: Array, last: tuple[int, int]) -> tuple[Array, int, int]:
        """Add to the totals; returns the rows that are steps, and how long they waited and took."""
        totals = self.totals
        steps = rows[rows[:, _AT["part"]] == 0]
        asked, got, given, sent = (
            steps[:, _AT[name]] for name in ("asked_ns", "got_ns", "given_ns", "sent_ns")
        )
        epochs = np.concatenate([[last[0]], steps[:, _AT["epoch"]]])
        before = np.concatenate([[last[1]], given[:-1]])
        breaks = np.sort(np.array(self.breaks, np.int64))
        whole = np.searchsorted(breaks, before) == np.searchsorted(breaks, asked, "right")
        # Between two epochs the training loop does something else.
        gaps = (asked - before)[whole & (epochs[1:] == epochs[:-1])]
        step_ns = int(gaps[gaps <= IDLE_NS].sum())
        wait_ns, idle_ns = int((given - asked).sum()), int(gaps.sum()) - step_ns
        totals.steps += len(steps)
        totals.rows += int(rows[:, _AT["rows"]].sum())
        nbytes = int(steps[:, _AT["batch_bytes"]].sum())
        if nbytes or totals.bytes is not None:
            totals.bytes = (totals.bytes or 0) + nbytes
        totals.wait_ns += wait_ns
        totals.step_ns += step_ns
        totals.idle_ns += idle_ns
        totals.ready += int(((steps[:, _AT["ready"]] > 0) | ((sent > 0) & (sent <= asked))).sum())
        depth = int(steps[:, _AT["depth"]].sum())
        totals.depth += depth
        if len(steps):
            self.usual_depth = depth / len(steps)
        if totals.first_batch_ns is None and len(given):
            totals.first_batch_ns = int(given[0]) - self.began_ns
        if len(given):
            totals.wall_ns = max(totals.wall_ns, int(given[-1]) - self.began_ns)
        waited = (got > asked) & (sent > 0)
        totals.wake_ns = _counted(totals.wake_ns, (got - np.maximum(sent, asked))[waited])
        totals.wait_histogram = _counted(totals.wait_histogram, given - asked)
        return steps, wait_ns, step_ns

    def worker(self, number: int) -> WorkerRecord:
        """Return one worker's sums."""
        found = self.workers.get(number)
        if found is None:
            found = self.workers[number] = WorkerRecord(number)
        return found

    def _by_worker(self, rows: Array) -> None:
        numbers = rows[:, _AT["worker"]]
        cpu, runq, metered = (rows[:, _AT[name]] for name in ("cpu_ns", "runq_ns", "metered_ns"))
        busy = self._busy(rows)
        off = np.maximum(metered - cpu - runq, 0)
        lowest = int(numbers.min())
        columns = (np.ones(len(rows)), rows[:, _AT["rows"]], busy, metered, cpu, runq, off)
        by_worker = [np.bincount(numbers - lowest, column) for column in columns]
        steps = max(1, int((rows[:, _AT["part"]] == 0).sum()))
        self.usual_work = {}
        for place in np.flatnonzero(by_worker[0]).tolist():
            work = [float(column[place]) for column in by_worker]
            self._credit(place + lowest, work)
            self.usual_work[place + lowest] = tuple(each / steps for each in work)

    def _credit(self, number: int, work: list[float]) -> None:
        """Add to a worker's sums: tasks, rows, and its time busy, metered, on a CPU, in the run queue and off."""
        one = self.worker(number)
        tasks, made, busy_ns, metered_ns, cpu_ns, runq_ns, off_ns = (int(each) for each in work)
        one.tasks += tasks
        one.rows += made
        one.busy_ns += busy_ns
        one.metered_ns += metered_ns
        one.cpu_ns += cpu_ns
        one.runq_ns += runq_ns
        one.off_ns += off_ns

    def _busy(self, rows: Array) -> Array:
        """Return by row how long its worker worked on it alone: torch's workers hand one batch over while they make the next."""
        worker, received, sent = (rows[:, _AT[name]] for name in ("worker", "received_ns", "sent_ns"))
        # All workers at once, because there may be hundreds of them: each one's times are lifted above those of the one before.
        order = np.lexsort((received, worker))
        by_worker, begins, ends = worker[order], received[order], sent[order]
        new = np.diff(by_worker, prepend=by_worker[0]) != 0
        firsts = np.concatenate([[0], np.flatnonzero(new)])
        numbers = by_worker[firsts].tolist()
        earliest = int(min(received.min(), sent.min()))
        known = np.array([max(self.until.get(number, 0), earliest) for number in numbers])
        lift = np.cumsum(new) * (int(max(ends.max(), known.max())) - earliest + 1)
        until = np.empty_like(ends)
        until[1:] = ends[:-1]
        until[firsts] = known
        until = np.maximum.accumulate(until - earliest + lift) - lift + earliest
        lasts = np.append(firsts[1:] - 1, len(order) - 1)
        self.until.update(zip(numbers, np.maximum(until, ends)[lasts].tolist(), strict=True))
        busy = np.empty_like(ends)
        busy[order] = np.maximum(ends - np.maximum(begins, until), 0)
        return busy

    def _by_concurrency(self, rows: Array) -> None:
        """Sum CPU time per row by the number of tasks in progress, for tasks with a reading of their own."""
        received, sent = rows[:, _AT["received_ns"]], rows[:, _AT["sent_ns"]]
        metered = rows[:, _AT["metered_ns"]]
        own = (metered > 0) & (metered <= (sent - received) * 11 // 10)
        if not own.any():
            return
        middle = (received[own] + sent[own]) // 2
        busy = np.searchsorted(np.sort(received), middle, "right") - np.searchsorted(
            np.sort(sent), middle, "right"
        )
        made = np.bincount(busy, rows[own, _AT["rows"]])
        cpu = np.bincount(busy, rows[own, _AT["cpu_ns"]])
        for count in np.flatnonzero(made).tolist():
            sums = self.concurrency.setdefault(count, [0, 0])
            sums[0] += int(made[count])
            sums[1] += int(cpu[count])

    def _slow(self, rows: Array, blamed: Array) -> None:
        if not self.slowest or not blamed.any():
            return
        waiting = {(each.epoch, each.seq, each.row): each for each in self.slowest}
        keys = rows[:, [_AT["epoch"], _AT["seq"], _AT["slow_row"]]]
        for place in np.flatnonzero(blamed).tolist():
            slow = waiting.get(tuple(keys[place].tolist()))
            if slow is not None:
                took = int(rows[place, _AT["sent_ns"]] - rows[place, _AT["received_ns"]])
                slow.blamed_ns += int(blamed[place] * min(1.0, slow.ns / max(took, 1)))

    def note_slow(self, slow: SlowestSample) -> int:
        """Keep a sample if it is one of the slowest. Return how slow the next one has to be."""
        for known in self.slowest:
            if slow.index is not None and known.index == slow.index:
                if slow.ns > known.ns:
                    known.ns, known.worker, known.epoch, known.seq, known.row = (
                        slow.ns, slow.worker, slow.epoch, slow.seq, slow.row,
                    )  # fmt: skip
                break
        else:
            self.slowest.append(slow)
        self.slowest.sort(key=lambda each: -each.ns)
        del self.slowest[KEPT_SLOW:]
        return self.slowest[-1].ns if len(self.slowest) == KEPT_SLOW else 0

    def _curve(self, steps: Array, wait_ns: int, step_ns: int, sums: Sums) -> None:
        if not len(steps):
            return
        began_ns, ended_ns = (
            int(steps[place, _AT[name]]) - self.began_ns
            for place, name in ((0, "asked_ns"), (-1, "given_ns"))
        )
        self._add_period(began_ns, ended_ns, len(steps), wait_ns, step_ns, sums)

    def _add_period(
        self, began_ns: int, ended_ns: int, steps: int, wait_ns: int, step_ns: int, sums: Sums
    ) -> None:
        causes: dict[str, int] = defaultdict(int)
        for (_, _, cause), ns in sums.items():
            causes[cause] += int(ns)
        self.periods.append(Period(began_ns, ended_ns, steps, wait_ns, step_ns, dict(causes)))
        if len(self.periods) > _PERIODS:
            self.periods = _fewer(self.periods)

    def _keep(self, rows: Array) -> None:
        room = KEPT_FIRST - len(self.first_rows)
        if room > 0:
            self.first_rows = np.concatenate([self.first_rows, rows[:room]])
            rows = rows[room:]
        if len(rows):
            self.last_rows.append(rows)
        kept = sum(len(each) for each in self.last_rows)
        while self.last_rows and kept - len(self.last_rows[0]) >= KEPT_LAST:
            gone = self.last_rows.pop(0)
            kept -= len(gone)
            self.dropped += len(gone)

    def rows(self) -> Array:
        """Return the slow samples that are kept."""
        return np.concatenate([self.first_rows, *self.last_rows])

    def blame(self) -> list[Blame]:
        """Return the sums, largest first, rounded so that they add up to the wait."""
        found = [
            Blame(stage, worker, cause, round(ns))
            for (stage, worker, cause), ns in self.sums.items()
            if round(ns)
        ]
        return sorted(found, key=lambda each: -each.ns)

    def by_concurrency(self) -> list[Concurrency]:
        return [
            Concurrency(count, rows, cpu_ns) for count, (rows, cpu_ns) in sorted(self.concurrency.items())
        ]


def table(rows: Array, began_ns: int) -> dict[str, list[int]]:
    """Return rows as the record's columns, whose times count from ``began_ns``."""
    shifted = rows.copy()
    for place in _MOMENTS:
        column = shifted[:, place]
        shifted[:, place] = np.where(column > 0, column - began_ns, 0)
    return {name: shifted[:, place].tolist() for name, place in _AT.items()}


def named(row: Array) -> dict[str, int]:
    """One row of steps, by the names of its columns."""
    return dict(zip(STEP_COLUMNS, row.tolist(), strict=True))


def _counted(histogram: list[int], values_ns: Array) -> list[int]:
    """Add to a histogram: entry n counts values below 2**n microseconds and not below half of that."""
    if not len(values_ns):
        return histogram
    _, exponents = np.frexp(np.maximum(values_ns, 0) // 1000)
    found = np.bincount(exponents, minlength=len(histogram))
    for place, count in enumerate(histogram):
        found[place] += count
    counted: list[int] = found.tolist()
    return counted


def _fewer(periods: list[Period]) -> list[Period]:
    """Half as many or less, of about equal length: neighbours together are never longer than a share of the run.

    Merging all by twos would leave one stretch for all but the last minutes of a day.
    """
    longest_ns = (periods[-1].ended_ns - periods[0].began_ns) * 4 // _PERIODS
    found = periods[:1]
    for each in periods[1:]:
        if each.ended_ns - found[-1].began_ns <= longest_ns:
            found[-1] = _joined(found[-1], each)
        else:
            found.append(each)
    if len(found) < len(periods):
        return found
    return [
        _joined(*periods[at : at + 2]) if at + 1 < len(periods) else periods[at]
        for at in range(0, len(periods), 2)
    ]


def _joined(first: Period, second: Period) -> Period:
    causes: dict[str, Any] = dict(first.causes)
    for cause, ns in second.causes.items():
        causes[cause] = causes.get(cause, 0) + ns
    return Period(
        first.began_ns,
        second.ended_ns,
        first.steps + second.steps,
        first.wait_ns + second.wait_ns,
        first.step_ns + second.step_ns,
        causes,
    )

"""Sums rows of the recorder's step buffer into one Observation for the policy. Pure.

A segment begins after a batch; ``anchor_ns`` is the time of its hand-over. It may continue in a later epoch: the time between
epochs is no step. A step that takes more than ten seconds without its wait does not count: it was an evaluation or a debugger.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from stoker._record.attribution import Array
from stoker._record.schema import STEP_COLUMNS
from stoker._record.totals import IDLE_NS
from stoker._runtime.autoscale.types import SAMPLED, Observation

_AT = {name: place for place, name in enumerate(STEP_COLUMNS)}


@dataclass(slots=True)
class ObservationSums:
    """Sums over steps. ``work_ns`` is the time in which workers made batches; ``metered_ns`` of it has CPU readings."""

    steps: int = 0
    wall_ns: int = 0
    wait_ns: int = 0
    waits: int = 0
    blocked: int = 0
    gap_ns: int = 0
    work_ns: int = 0
    cpu_ns: int = 0
    runq_ns: int = 0
    metered_ns: int = 0
    nbytes: int = 0
    rows: int = 0
    batch_ns: list[int] = field(default_factory=list)

    def add(self, rows: Array, anchor_ns: int) -> int:
        """Add the rows of one epoch in delivery order, beginning after the anchor. Returns the next anchor."""
        if not len(rows):
            return anchor_ns
        steps = rows[rows[:, _AT["part"]] == 0]
        asked, got, given, sent = (
            steps[:, _AT[name]] for name in ("asked_ns", "got_ns", "given_ns", "sent_ns")
        )
        before = np.concatenate([[anchor_ns], given[:-1]])
        gaps = asked - before
        counts = gaps <= IDLE_NS
        waited = (got > asked) & ~((sent > 0) & (sent <= asked))
        later = np.full(len(steps), np.iinfo(np.int64).max)
        later[:-1] = np.minimum.accumulate(sent[::-1])[::-1][1:]
        held_up = waited & ((steps[:, _AT["depth"]] > 0) | ((later > 0) & (later < (asked + got) // 2)))
        self.steps += int(counts.sum())
        self.wall_ns += int((given - before)[counts].sum())
        self.wait_ns += int((given - asked)[counts].sum())
        self.waits += int(waited[counts].sum())
        self.blocked += int(held_up[counts].sum())
        self.gap_ns = max(self.gap_ns, int(gaps[counts].max(initial=0)))
        self.nbytes += int(steps[:, _AT["batch_bytes"]].sum())
        self._work(rows)
        return int(given[-1])

    def _work(self, rows: Array) -> None:
        took = np.maximum(rows[:, _AT["sent_ns"]] - rows[:, _AT["received_ns"]], 0)
        self.rows += int(rows[:, _AT["rows"]].sum())
        self.work_ns += int(took.sum())
        self.cpu_ns += int(rows[:, _AT["cpu_ns"]].sum())
        self.runq_ns += int(rows[:, _AT["runq_ns"]].sum())
        self.metered_ns += int(rows[:, _AT["metered_ns"]].sum())
        number = np.cumsum(rows[:, _AT["part"]] == 0) - 1  # the parts of a split batch follow its first part
        whole = np.bincount(np.maximum(number, 0), took)
        self.batch_ns = [*self.batch_ns, *whole.astype(np.int64).tolist()][-SAMPLED:]

    def observation(self, workers: int, window: int, **known: object) -> Observation:
        """The observation for the policy. ``known`` has the values that rows do not contain."""
        steps = max(1, self.steps)
        each_ns = self.work_ns / steps
        shares = (0.0, 0.0, 0.0)
        if self.metered_ns:
            whole = max(self.metered_ns, self.cpu_ns + self.runq_ns)
            on, queued = self.cpu_ns / whole, self.runq_ns / whole
            shares = (on, max(0.0, 1 - on - queued), queued)
        busy = min(1.0, self.work_ns / (workers * self.wall_ns)) if workers and self.wall_ns else None
        return Observation(
            steps=self.steps,
            wall_ns=self.wall_ns,
            wait_ns=self.wait_ns,
            workers=workers,
            window=window,
            busy=busy,
            waits=self.waits,
            blocked=self.blocked,
            cpu_ns=shares[0] * each_ns,
            off_ns=shares[1] * each_ns,
            runq_ns=shares[2] * each_ns,
            batch_ns=tuple(self.batch_ns),
            batch_bytes=self.nbytes // steps,
            rows=max(1, self.rows // steps),
            gap_ns=self.gap_ns,
            **known,  # type: ignore[arg-type]
        )

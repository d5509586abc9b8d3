"""Reads the step table row by row, for drawing: batches with their parts, their moments brought into order.

A table comes from a file, which anybody may have written: what is in it may be in any disorder, and what comes out is not.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from stoker._record.schema import STEP_COLUMNS, LoaderRecord
from stoker.errors import RecordError


@dataclass(slots=True)
class BatchPart:
    """Rows of a batch that one worker made. Moments never go back; 0: not measured."""

    part: int
    attempt: int
    worker: int
    rows: int
    received_ns: int
    fetched_ns: int
    collated_ns: int
    sent_ns: int
    cpu_ns: int
    runq_ns: int
    metered_ns: int
    slow_row: int
    slow_ns: int

    @property
    def measured(self) -> bool:
        """Whether it is known from when to when the worker was at it."""
        return self.received_ns > 0 and self.sent_ns > 0

    def stages(self) -> Iterator[tuple[str, int, int]]:
        """Stages of which both ends are known, in order."""
        ends = (self.received_ns, self.fetched_ns, self.collated_ns, self.sent_ns)
        for name, began_ns, ended_ns in zip(("fetch", "collate", "hand_over"), ends, ends[1:], strict=False):
            if began_ns and ended_ns:
                yield name, began_ns, ended_ns


@dataclass(slots=True)
class Batch:
    """One call of ``next()`` and the batch that it gave. asked <= got <= planned <= given."""

    asked_ns: int
    got_ns: int
    planned_ns: int
    given_ns: int
    epoch: int
    seq: int
    rows: int
    ready: bool
    """Whether it was made before it was asked for, as ``Totals.ready`` counts them."""
    depth: int
    undelivered_bytes: int
    batch_bytes: int
    parts: list[BatchPart] = field(default_factory=list)
    goes_on: bool = False
    """Whether the next batch of the table followed this one in the run, within one epoch."""

    @property
    def last_part(self) -> BatchPart | None:
        """The one that was made last: the batch was not whole before."""
        known = [each for each in self.parts if each.measured]
        return max(known, key=lambda each: each.sent_ns) if known else None

    @property
    def made_ns(self) -> int:
        """When it was whole; 0: not measured."""
        last = self.last_part
        return last.sent_ns if last is not None else 0


def batches(loader: LoaderRecord) -> Iterator[Batch]:
    """In the order in which they were handed over. Raises RecordError for a table that holds something else than numbers."""
    columns = loader.steps
    for name, column in columns.items():
        if not all(type(value) is int for value in column):
            raise RecordError(
                f"this run record is damaged: {name} of its steps holds something other than whole numbers"
            )
    count = len(next(iter(columns.values()), ()))
    nothing = [0] * count
    batch: Batch | None = None
    seen: set[int] = set()
    for values in zip(*(columns.get(name, nothing) for name in STEP_COLUMNS), strict=True):
        row = dict(zip(STEP_COLUMNS, values, strict=True))
        if row["part"] > 0 and batch is not None:
            batch.parts.append(_part(row))
            batch.rows += row["rows"]
            batch.batch_bytes += row["batch_bytes"]
            continue
        if batch is not None:
            # Pools count their epochs from the beginning: a number that was there before begins another one, too.
            same = row["epoch"] == batch.epoch and row["seq"] not in seen
            batch.goes_on = same and (loader.steps_dropped == 0 or row["seq"] == batch.seq + 1)
            if not same:
                seen.clear()
            yield batch
        batch = _batch(row)
        seen.add(batch.seq)
    if batch is not None:
        yield batch


def _batch(row: dict[str, int]) -> Batch:
    got_ns = max(row["asked_ns"], row["got_ns"])
    planned_ns = max(got_ns, row["planned_ns"])
    ready = row["ready"] > 0 or 0 < row["sent_ns"] <= row["asked_ns"]
    return Batch(
        row["asked_ns"], got_ns, planned_ns, max(planned_ns, row["given_ns"]), row["epoch"], row["seq"], row["rows"],
        ready, row["depth"], row["undelivered_bytes"], row["batch_bytes"], [_part(row)],
    )  # fmt: skip


def _part(row: dict[str, int]) -> BatchPart:
    moments: list[int] = []
    latest_ns = 0
    for name in ("received_ns", "fetched_ns", "collated_ns", "sent_ns"):
        latest_ns = max(latest_ns, row[name])
        moments.append(latest_ns if row[name] > 0 else 0)
    received_ns, fetched_ns, collated_ns, sent_ns = moments
    return BatchPart(
        row["part"], row["attempt"], row["worker"], row["rows"], received_ns, fetched_ns, collated_ns, sent_ns,
        row["cpu_ns"], row["runq_ns"], row["metered_ns"], row["slow_row"], row["slow_ns"],
    )  # fmt: skip

"""Reads the engine's own record of the batches that it made."""

from __future__ import annotations

from dataclasses import dataclass

_SAMPLE = 512
"""The most batch times that are reported."""


@dataclass(frozen=True, slots=True)
class MadeBatch:
    """One batch, or one worker's part of it. Times are in nanoseconds, without the run queue."""

    seq: int
    rows: int
    fetch_ns: int
    collate_ns: int
    handover_ns: int
    cpu_ns: int
    """CPU time of fetch and collation."""
    slow_ns: int = 0
    """Time of the slowest row; 0 if rows were not timed."""
    queued_ns: int = 0
    """Time on the run queue, which the other values leave out."""

    @property
    def batch_ns(self) -> int:
        return self.fetch_ns + self.collate_ns


def made_batches(steps: dict[str, list[int]]) -> list[MadeBatch]:
    """The batches in a record's table. Quick batches share a CPU reading, which is divided by their times."""
    names = (
        "seq", "rows", "received_ns", "fetched_ns", "collated_ns", "sent_ns", "cpu_ns", "runq_ns", "metered_ns",
    )  # fmt: skip
    table = list(zip(*(steps.get(name, ()) for name in names), strict=True))
    slowest = steps.get("slow_ns") or [0] * len(table)
    shares = _shares([row[6:9] for row in table])
    found = []
    for (seq, rows, received, fetched, collated, sent, *_), (cpu, runq), slow in zip(
        table, shares, slowest, strict=True
    ):
        if not received or not sent:
            continue
        fetched = fetched or sent
        collated = collated or fetched
        own = 1.0 - runq
        making_ns = int((collated - received) * own)
        found.append(
            MadeBatch(
                seq=seq,
                rows=rows,
                fetch_ns=making_ns - int((collated - fetched) * own),
                collate_ns=int((collated - fetched) * own),
                handover_ns=int((sent - collated) * own),
                cpu_ns=min(making_ns, int((collated - received) * cpu)),
                slow_ns=min(making_ns, slow),
                queued_ns=collated - received - making_ns,
            )
        )
    return found


def _shares(readings: list[tuple[int, ...]]) -> list[tuple[float, float]]:
    """The shares of the busy time on a CPU and on the run queue, for every row, from the reading that covers it."""
    found: list[tuple[float, float]] = []
    for at, (cpu_ns, runq_ns, metered_ns) in enumerate(readings):
        if metered_ns:
            found += [(cpu_ns / metered_ns, runq_ns / metered_ns)] * (at + 1 - len(found))
    whole_ns = sum(each[2] for each in readings)
    if whole_ns:  # the last rows have no reading of their own
        usual = tuple(sum(each[place] for each in readings) / whole_ns for place in (0, 1))
        found += [(usual[0], usual[1])] * (len(readings) - len(found))
    return found or [(1.0, 0.0)] * len(readings)


def made_since(
    steps: dict[str, list[int]], since_ns: int, workers: int, *, resumed_ns: int = 0
) -> tuple[tuple[int, ...], float | None]:
    """From a record's table: some batch times, with the parts of a batch added up, and the busy share of so many workers.

    Only batches that were asked for since then count. Those that workers began before ``resumed_ns`` were paused, and do not
    count.
    """
    found: dict[tuple[int, int], int] = {}
    began_ns = ended_ns = 0
    names = ("epoch", "seq", "asked_ns", "given_ns", "received_ns", "sent_ns")
    for epoch, seq, asked, given, received, sent in zip(
        *(steps.get(name, ()) for name in names), strict=True
    ):
        if asked < since_ns or received < resumed_ns or not received or not sent:
            continue
        found[epoch, seq] = found.get((epoch, seq), 0) + sent - received
        began_ns, ended_ns = began_ns or asked, given
    if not found:
        return (), None
    each = tuple(found.values())
    every = -(-len(each) // _SAMPLE)
    wall_ns = ended_ns - began_ns
    return each[::every], min(1.0, sum(each) / (workers * wall_ns)) if wall_ns > 0 else None

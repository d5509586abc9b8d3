"""Lays out part of a run as bars on lanes: the training loop, the workers, and the batches that lay ready. Pure."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from stoker._record.schema import LoaderRecord
from stoker._tools.report.trace.steps import Batch, BatchPart, batches

LOOP = "training loop"
OWN = "the loop itself"
READY = "ready"
_MOST_BARS = 400
_BEFORE, _AFTER = 10, 22
"""Batches around the one that was waited for longest."""
_AHEAD = 64
"""Batches after these, which workers may have made in the same time."""
_MOST_READY = 8
"""Lanes for batches that lie ready: deeper ones are counted, not drawn."""
_LONG_GAP_NS = 10_000_000_000
"""A longer pause between two batches is no step (Totals.idle_ns)."""


@dataclass(frozen=True, slots=True)
class Bar:
    """What somebody did from one moment to another, and for which batch."""

    lane: str
    doing: str
    began_ns: int
    ended_ns: int
    batch: Batch
    part: BatchPart | None = None


@dataclass(frozen=True, slots=True)
class ReadyBatch:
    """A batch that was made and not taken yet: until ``free_ns`` one before it was not made, then it could have been taken."""

    made_ns: int
    free_ns: int
    taken_ns: int
    batch: Batch

    @property
    def held_ns(self) -> int:
        return self.free_ns - self.made_ns

    @property
    def ahead_ns(self) -> int:
        return self.taken_ns - self.free_ns


@dataclass(frozen=True, slots=True)
class Stretch:
    """Bars that lie within a time, and the lanes in the order of a page. ``worst`` is the batch that was waited for longest."""

    bars: tuple[Bar, ...]
    lain: tuple[ReadyBatch, ...]
    """All of its time, also beyond the lanes that are drawn."""
    lanes: tuple[str, ...]
    began_ns: int
    ended_ns: int
    worst: Batch
    batches: int
    measured: bool
    """Whether it is known when workers were at it."""
    hidden: int
    """Batches that lay ready beyond the lanes there are."""


def numbered(loader: LoaderRecord) -> list[Batch]:
    """The batches of a loader, with epochs counted on: pools that are made anew count theirs from the beginning.

    Raises RecordError for a table that is damaged.
    """
    found = list(batches(loader))
    epochs = [found[0].epoch] if found else []
    for before, after in itertools.pairwise(found):
        more = 0 if before.goes_on else max(1, after.epoch - before.epoch)
        if after.epoch == before.epoch and loader.steps_dropped and after.seq > before.seq:
            more = 0  # some of the same epoch are left out
        epochs.append(epochs[-1] + more)
    for batch, epoch in zip(found, epochs, strict=True):
        batch.epoch = epoch
    return found


def around_worst(found: Sequence[Batch]) -> Stretch | None:
    """The batches around the longest wait that did not begin an epoch, within that epoch; None without batches."""
    if not found:
        return None
    later = [
        number
        for number, (before, after) in enumerate(itertools.pairwise(found), 1)
        if after.epoch == before.epoch
    ]
    middle = max(
        later or range(len(found)), key=lambda number: found[number].given_ns - found[number].asked_ns
    )
    first, last = middle, middle
    while first > 0 and middle - first < _BEFORE and found[first - 1].goes_on:
        first -= 1
    while last + 1 < len(found) and last - middle < _AFTER and found[last].goes_on:
        last += 1
    while last > first and sum(2 + 4 * len(each.parts) for each in found[first : last + 1]) > _MOST_BARS:
        first, last = (first + 1, last) if last == middle else (first, last - 1)
    ahead = last + 1
    while ahead < len(found) and ahead - last <= _AHEAD and found[ahead - 1].goes_on:
        ahead += 1
    return _drawn(found[first : last + 1], found[last + 1 : ahead], found[middle])


def _drawn(shown: Sequence[Batch], ahead: Sequence[Batch], worst: Batch) -> Stretch:
    """``ahead``: batches that were taken later, and perhaps made meanwhile."""
    began_ns = shown[0].asked_ns
    loop = [bar for batch, after in itertools.zip_longest(shown, shown[1:]) for bar in _loop(batch, after)]
    ended_ns = max(bar.ended_ns for bar in loop)
    made = [*shown, *ahead]
    workers = [bar for batch in made for part in batch.parts for bar in _worker(batch, part)]
    lain = [each for each in _lain(made) if each.made_ns < ended_ns and each.taken_ns > began_ns]
    ready, hidden = _ready(lain)
    bars = [
        replace(each, began_ns=max(began_ns, each.began_ns), ended_ns=min(ended_ns, each.ended_ns))
        for each in (*loop, *workers, *ready)
        if each.ended_ns > began_ns and each.began_ns < ended_ns and each.ended_ns > each.began_ns
    ][: 2 * _MOST_BARS]
    numbers = sorted({each.part.worker for each in bars if each.part is not None})
    waiting = sorted({each.lane for each in bars if each.lane.startswith(READY)})
    lanes = (LOOP, *dict.fromkeys(map(_lane, numbers)), *waiting)
    return Stretch(
        tuple(bars), tuple(lain), lanes, began_ns, ended_ns, worst, len(shown), bool(workers), hidden
    )


def _loop(batch: Batch, after: Batch | None) -> Iterator[Bar]:
    yield Bar(LOOP, "waiting for data", batch.asked_ns, batch.given_ns, batch)
    if after is not None and batch.goes_on and 0 < after.asked_ns - batch.given_ns < _LONG_GAP_NS:
        yield Bar(LOOP, "training", batch.given_ns, after.asked_ns, batch)


def _worker(batch: Batch, part: BatchPart) -> Iterator[Bar]:
    """Without workers it is the loop that makes batches, while it waits."""
    if not part.measured:
        return
    stages = list(part.stages()) or [("fetch", part.received_ns, part.sent_ns)]
    for stage, began_ns, ended_ns in stages:
        yield Bar(_lane(part.worker), stage.replace("_", "-"), began_ns, ended_ns, batch, part)


def _lane(worker: int) -> str:
    return f"worker {worker}" if worker >= 0 else OWN


def _lain(shown: Sequence[Batch]) -> Iterator[ReadyBatch]:
    """From the moment a batch was made until it was taken: held back while one before it was not made, then ahead of time."""
    earlier_ns, epoch = 0, None
    for batch in shown:
        if batch.epoch != epoch:
            earlier_ns, epoch = 0, batch.epoch
        made_ns, taken_ns = batch.made_ns, batch.got_ns
        if made_ns and taken_ns > made_ns and any(part.worker >= 0 for part in batch.parts):
            yield ReadyBatch(made_ns, min(taken_ns, max(made_ns, earlier_ns)), taken_ns, batch)
        earlier_ns = max(earlier_ns, made_ns)


def _ready(lain: Sequence[ReadyBatch]) -> tuple[list[Bar], int]:
    """Bars on as many lanes as there are, and how many batches have none."""
    bars: list[Bar] = []
    hidden = 0
    for lane, each in _lanes(lain):
        if lane >= _MOST_READY:
            hidden += 1
            continue
        name = f"{READY} {lane + 1}"
        bars.append(Bar(name, "ready, held by order", each.made_ns, each.free_ns, each.batch))
        bars.append(Bar(name, "ready ahead of time", each.free_ns, each.taken_ns, each.batch))
    return bars, hidden


def _lanes(lain: Sequence[ReadyBatch]) -> Iterator[tuple[int, ReadyBatch]]:
    """Each on the first lane that is free then."""
    taken: list[tuple[int, int]] = []
    free: list[int] = []
    count = 0
    for each in sorted(lain, key=lambda each: each.made_ns):
        while taken and taken[0][0] <= each.made_ns:
            heapq.heappush(free, heapq.heappop(taken)[1])
        if not free:
            heapq.heappush(free, count)
            count += 1
        lane = heapq.heappop(free)
        heapq.heappush(taken, (each.taken_ns, lane))
        yield lane, each

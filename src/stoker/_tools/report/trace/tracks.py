"""Draws the tracks of one loader from its step table.

    main loop      next 12 (wait: queue, fetch, collate, hand_over, wake; plan; open), step 12, next 13, …
    events         counters, and what happened
    reorder 0..k   batch 12 from the moment it was made until the loop took it
    worker 0..n    batch 12 (fetch, collate, hand_over)

Arrows lead from a batch in its worker through the reorder buffer to its step. Batches wait in the reorder buffer side by side,
so it has lanes: as many tracks as ever waited together. Two iterators at once over one loader give their workers and the main loop
lanes as well.
"""

from __future__ import annotations

import heapq
import itertools
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from stoker._record.schema import LoaderRecord
from stoker._tools.report.trace import chrome
from stoker._tools.report.trace.chrome import Event, TraceSpan, Track
from stoker._tools.report.trace.steps import Batch, BatchPart, batches

_LONG_GAP_NS = 10_000_000_000
"""A longer pause between two batches is no step (Totals.idle_ns)."""
_STALL_STEPS = 32
"""The stall counter is over so many steps."""


@dataclass(slots=True)
class Group:
    """The tracks of one loader. ``stamp`` turns its moments into the numbers of the file."""

    loader: LoaderRecord
    pid: int
    order: int
    stamp: Callable[[int], float]
    tracks: int = 0
    arrows: int = 0
    loop: list[TraceSpan] = field(default_factory=list)
    reorder: list[TraceSpan] = field(default_factory=list)
    workers: dict[int, list[TraceSpan]] = field(default_factory=lambda: defaultdict(list))

    def events(self) -> Iterator[Event]:
        found = list(batches(self.loader))
        self.arrows = self.pid * 1_000_000
        for batch, following in itertools.zip_longest(found, found[1:]):
            self._add(batch, following)
        name = f"stoker: {self.loader.name}" + (f" ({self.loader.site})" if self.loader.site else "")
        yield from chrome.name_process(self.pid, name, self.order)
        loop = self._lanes("main loop", self.loop)
        happened = Track(self.pid, self.pid + self.tracks, self.stamp)
        self.tracks += 1
        reorder = self._lanes("reorder", self.reorder, numbered=True)
        workers = [self._lanes(f"worker {worker}", spans) for worker, spans in sorted(self.workers.items())]
        # Against the order on the screen: readers take events of one moment as they stand in the file, and an arrow has to
        # leave its worker before it comes to the loop.
        for lanes in (*workers, reorder, loop):
            for place, label, spans in lanes:
                yield from chrome.name_track(place, label, place.tid - self.pid)
                yield from chrome.events(spans, place)
        yield from chrome.name_track(happened, "events", happened.tid - self.pid)
        yield from _happenings(self.loader, found, happened)

    def _lanes(
        self, name: str, spans: Sequence[TraceSpan], *, numbered: bool = False
    ) -> list[tuple[Track, str, list[TraceSpan]]]:
        """Tracks for these spans, each with its name: more than one when they overlap."""
        made = []
        for lane, held in enumerate(chrome.lanes(spans)):
            label = f"{name} {lane}" if numbered else name if lane == 0 else f"{name}, beside it {lane}"
            made.append((Track(self.pid, self.pid + self.tracks, self.stamp), label, held))
            self.tracks += 1
        return made

    def _add(self, batch: Batch, following: Batch | None) -> None:
        call = _call(batch)
        self.loop.append(call)
        # A batch that no step is known for: what the call did after it had come.
        target = next((each for each in call.parts if each.began_ns >= batch.got_ns), None)
        if (
            batch.goes_on
            and following is not None
            and 0 <= following.asked_ns - batch.given_ns <= _LONG_GAP_NS
        ):
            target = TraceSpan(f"step {batch.seq}", batch.given_ns, following.asked_ns, {"seq": batch.seq})
            self.loop.append(target)
        waited = None
        if batch.made_ns and batch.made_ns <= batch.got_ns:
            args = {"seq": batch.seq, "bytes": batch.batch_bytes}
            waited = TraceSpan(f"batch {batch.seq}", batch.made_ns, batch.got_ns, args)
        for part in batch.parts:
            if part.worker < 0 or not part.measured:
                continue  # made in the loop itself: its wait tells
            span = _made(batch, part)
            self.workers[part.worker].append(span)
            if waited is not None:
                self.arrows += 1
                (span.parts[-1] if span.parts else span).flows.append(("s", self.arrows))
                waited.flows.append(("t" if target else "f", self.arrows))
                if target:
                    target.flows.append(("f", self.arrows))
        if waited is not None and waited.flows:
            self.reorder.append(waited)


def _happenings(loader: LoaderRecord, found: Sequence[Batch], place: Track) -> Iterator[Event]:
    """Counters and events of the group, in order of time."""
    events = [(each.at_ns, each.kind, each.reason) for each in loader.events]
    if loader.steps_dropped:
        reason = f"{loader.steps_dropped} steps of a long run are not in its record"
        events.append((_hole_ns(found), "steps left out", reason))
    instants = (
        chrome.instant(kind, {"reason": reason}, place, at_ns) for at_ns, kind, reason in sorted(events)
    )
    yield from heapq.merge(instants, _counters(found, place), key=lambda event: event["ts"])


def _counters(found: Sequence[Batch], place: Track) -> Iterator[Event]:
    last: deque[tuple[int, int]] = deque(maxlen=_STALL_STEPS)
    for batch in sorted(found, key=lambda each: each.asked_ns):
        last.append((batch.asked_ns, batch.given_ns - batch.asked_ns))
        wall_ns = batch.given_ns - last[0][0]
        stall = min(1.0, sum(wait_ns for _, wait_ns in last) / wall_ns) if wall_ns > 0 else 0.0
        yield chrome.counter("depth", "batches", batch.depth, place, batch.asked_ns)
        yield chrome.counter("undelivered", "bytes", batch.undelivered_bytes, place, batch.asked_ns)
        yield chrome.counter("stall", "percent", round(100 * stall, 2), place, batch.asked_ns)


def _hole_ns(found: Sequence[Batch]) -> int:
    """The end of the batch after which steps were left out: the longest pause that no step fills."""
    pauses = [
        (following.asked_ns - batch.given_ns, batch.given_ns)
        for batch, following in itertools.pairwise(found)
        if not batch.goes_on
    ]
    return max(pauses, default=(0, 0))[1]


def _call(batch: Batch) -> TraceSpan:
    """One call of ``next()``."""
    args: dict[str, Any] = {
        "epoch": batch.epoch, "seq": batch.seq, "rows": batch.rows, "bytes": batch.batch_bytes, "ready": batch.ready,
    }  # fmt: skip
    call = TraceSpan(f"next {batch.seq}", batch.asked_ns, batch.given_ns, args)
    wait = TraceSpan("wait", batch.asked_ns, batch.got_ns, parts=_wait_stages(batch))
    plan = TraceSpan("plan", batch.got_ns, batch.planned_ns)
    opened = TraceSpan("open", batch.planned_ns, batch.given_ns)
    call.parts = [each for each in (wait, plan, opened) if each.ended_ns > each.began_ns]
    return call


def _wait_stages(batch: Batch) -> list[TraceSpan]:
    """What the batch went through while the loop waited: of its parts, the one that was made last."""
    part = batch.last_part
    if part is None or part.sent_ns <= batch.asked_ns:
        return []
    stages = [("queue", 0, part.received_ns), *part.stages(), ("wake", part.sent_ns, batch.got_ns)]
    clipped = [
        TraceSpan(name, max(began_ns, batch.asked_ns), min(ended_ns, batch.got_ns))
        for name, began_ns, ended_ns in stages
    ]
    return [each for each in clipped if each.ended_ns > each.began_ns]


def _made(batch: Batch, part: BatchPart) -> TraceSpan:
    """One batch, or part of one, in a worker."""
    args: dict[str, Any] = {"epoch": batch.epoch, "seq": batch.seq, "rows": part.rows}
    if part.part or len(batch.parts) > 1:
        args["part"] = part.part
    if part.attempt:
        args["attempt"] = part.attempt
    if part.slow_row >= 0:
        args |= {"slow_row": part.slow_row, "slow_row_ms": part.slow_ns / 1e6}
    if part.metered_ns:
        args |= {"cpu_ms": part.cpu_ns / 1e6, "run_queue_ms": part.runq_ns / 1e6}
    stages = [TraceSpan(*each) for each in part.stages() if each[2] > each[1]]
    return TraceSpan(f"batch {batch.seq}", part.received_ns, part.sent_ns, args, stages)

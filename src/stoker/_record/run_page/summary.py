"""Builds the summary on a run page: sums over the run and over its last seconds, small enough to be written often.

Shares are left to readers: stall = ``wait_ns`` / (``wait_ns`` + ``step_ns``), ready = ``ready`` / ``steps``, rate = ``steps`` /
``ns``, and a worker's cpu, run-queue and off-cpu shares are those of their sum. What was not measured is None, never 0.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import TypedDict

from stoker._record.schema import Blame, CacheUse, Event, LoaderRecord, SlowestSample

RECENT_NS = 10_000_000_000
"""What counts as recent."""

_MARK_NS = 1_000_000_000
_SHOWN = 5
_TEXT = 200


class Sums(TypedDict):
    """Over the run, or over the last seconds of it. ``ns`` is how long that was."""

    ns: int
    steps: int
    rows: int
    wait_ns: int
    step_ns: int
    ready: int
    busy_ns: int | None
    """Of all workers together: at work. ``cpu_ns`` + ``runq_ns`` + ``off_ns`` is the part of it that there are readings of."""
    cpu_ns: int | None
    runq_ns: int | None
    off_ns: int | None
    causes: dict[str, int]
    """Of ``wait_ns``, by cause (``record.CAUSES``)."""


class CacheSums(TypedDict):
    """What sample caches did over the run (``record.CacheUse``)."""

    hits: int
    misses: int
    hit_bytes: int
    stored_bytes: int
    saved_ns: int
    passed: int


class LastEvent(TypedDict):
    """The last event."""

    at_ns: int
    kind: str
    reason: str


class SlowSample(TypedDict):
    """One of the slowest samples. ``index`` is the dataset's: an int, a text, or None where it is not known."""

    index: int | str | None
    ns: int
    worker: int
    blamed_ns: int


class Blamed(TypedDict):
    """One of the largest parts of the wait. ``worker`` is -1 for the parent."""

    stage: str
    worker: int
    cause: str
    ns: int


class Summary(TypedDict):
    """The JSON of a run page. Moments (``at_ns``) are readings of the monotonic clock."""

    at_ns: int
    name: str
    engine: str
    executor: str
    dataset: str
    site: str | None
    sampler: str
    rank: int
    world_size: int
    workers: int
    window: int | None
    depth: int | None
    """Batches made and not taken when the last one was asked for."""
    undelivered_bytes: int | None
    epochs: int
    first_batch_ns: int | None
    whole: Sums
    recent: Sums
    blame: list[Blamed]
    restarts: int
    stalls: int
    bad_samples: int
    slowest: list[SlowSample]
    event: LastEvent | None
    cache: CacheSums | None


class RecentSums:
    """Remembers sums for ten seconds, to tell what was added to them since. One per loader, on the thread that iterates."""

    def __init__(self) -> None:
        self._marks: deque[tuple[int, Sums]] = deque()

    def of(self, at_ns: int, whole: Sums) -> Sums:
        """What was added within the last ten seconds; the whole, as long as there is nothing older to compare with."""
        marks = self._marks
        while len(marks) > 1 and at_ns - marks[1][0] >= RECENT_NS:
            marks.popleft()
        since = added(whole, marks[0][1]) if marks else whole
        if not marks or at_ns - marks[-1][0] >= _MARK_NS:
            marks.append((at_ns, whole))
        return since


def added(now: Sums, before: Sums) -> Sums:
    """The difference of two sums of one loader."""
    return Sums(
        ns=now["ns"] - before["ns"],
        steps=now["steps"] - before["steps"],
        rows=now["rows"] - before["rows"],
        wait_ns=now["wait_ns"] - before["wait_ns"],
        step_ns=now["step_ns"] - before["step_ns"],
        ready=now["ready"] - before["ready"],
        busy_ns=_less(now["busy_ns"], before["busy_ns"]),
        cpu_ns=_less(now["cpu_ns"], before["cpu_ns"]),
        runq_ns=_less(now["runq_ns"], before["runq_ns"]),
        off_ns=_less(now["off_ns"], before["off_ns"]),
        causes=_added_causes(now["causes"], before["causes"]),
    )


def _added_causes(now: dict[str, int], before: dict[str, int]) -> dict[str, int]:
    """The same for causes. What was unknown may be known by now: a cause that lost some gives it to those that gained."""
    added = {name: now.get(name, 0) - before.get(name, 0) for name in now | before}
    gained = sum(ns for ns in added.values() if ns > 0)
    part = max(0, sum(added.values())) / gained if gained else 0.0
    return {name: round(ns * part) for name, ns in added.items() if ns > 0 and part}


def summary_of(
    loader: LoaderRecord,
    recently: RecentSums,
    *,
    at_ns: int,
    workers: int,
    began_ns: int = 0,
    depth: int | None = None,
    undelivered_bytes: int | None = None,
    rank: int = 0,
    world_size: int = 1,
) -> Summary:
    """The summary of a loader's record, whose steps and periods may be left out. Its moments count from ``began_ns``."""
    totals = loader.totals
    whole = sums_of(loader)
    last = loader.events[-1] if loader.events else None
    return Summary(
        at_ns=at_ns,
        name=loader.name[:_TEXT],
        engine=loader.engine,
        executor=loader.executor,
        dataset=loader.dataset[:_TEXT],
        site=None if loader.site is None else loader.site[-_TEXT:],
        sampler=str(loader.options["sampler"].value)[:_TEXT] if "sampler" in loader.options else "",
        rank=rank,
        world_size=world_size,
        workers=workers,
        window=totals.window,
        depth=depth,
        undelivered_bytes=undelivered_bytes,
        epochs=totals.epochs,
        first_batch_ns=totals.first_batch_ns,
        whole=whole,
        recent=recently.of(at_ns, whole),
        blame=_largest(loader.blame),
        restarts=totals.worker_deaths,
        stalls=totals.stalls,
        bad_samples=totals.bad_samples,
        slowest=[_slow(each) for each in sorted(loader.slowest, key=lambda slow: -slow.ns)[:_SHOWN]],
        event=None if last is None else _happened(last, began_ns),
        cache=None if loader.cache is None else _cached(loader.cache),
    )


def _less(now: int | None, before: int | None) -> int | None:
    return None if now is None else now - (before or 0)


def with_event(summary: Summary, event: Event, counts: Mapping[str, int], began_ns: int) -> Summary:
    """The same, after something happened. ``counts`` are by their names in ``Totals``."""
    changed = summary.copy()
    changed["event"] = _happened(event, began_ns)
    changed["restarts"] = counts.get("worker_deaths", summary["restarts"])
    changed["stalls"] = counts.get("stalls", summary["stalls"])
    changed["bad_samples"] = counts.get("bad_samples", summary["bad_samples"])
    return changed


def sums_of(loader: LoaderRecord) -> Sums:
    """The sums of a record over the whole run."""
    totals, causes = loader.totals, dict[str, int]()
    for each in loader.blame:
        causes[each.cause] = causes.get(each.cause, 0) + each.ns
    workers = [worker for worker in loader.workers if worker.worker >= 0]
    metered = [worker for worker in loader.workers if worker.metered_ns]
    return Sums(
        ns=totals.wall_ns,
        steps=totals.steps,
        rows=totals.rows,
        wait_ns=totals.wait_ns,
        step_ns=totals.step_ns,
        ready=totals.ready,
        busy_ns=sum(worker.busy_ns for worker in workers) if workers else None,
        cpu_ns=sum(worker.cpu_ns for worker in metered) if metered else None,
        runq_ns=sum(worker.runq_ns for worker in metered) if metered else None,
        off_ns=sum(worker.off_ns for worker in metered) if metered else None,
        causes=causes,
    )


def _largest(blame: Sequence[Blame]) -> list[Blamed]:
    largest = sorted(blame, key=lambda each: -each.ns)[:_SHOWN]
    return [Blamed(stage=each.stage, worker=each.worker, cause=each.cause, ns=each.ns) for each in largest]


def _cached(use: CacheUse) -> CacheSums:
    return CacheSums(
        hits=use.hits,
        misses=use.misses,
        hit_bytes=use.hit_bytes,
        stored_bytes=use.stored_bytes,
        saved_ns=use.saved_ns,
        passed=use.passed,
    )


def _slow(slow: SlowestSample) -> SlowSample:
    index = slow.index
    if index is not None and type(index) is not int:
        index = (index if type(index) is str else repr(index))[:_TEXT]
    return SlowSample(index=index, ns=slow.ns, worker=slow.worker, blamed_ns=slow.blamed_ns)


def _happened(event: Event, began_ns: int) -> LastEvent:
    return LastEvent(at_ns=event.at_ns + began_ns, kind=event.kind, reason=event.reason[: 2 * _TEXT])

"""Divides the time of a profiled run: per device, into parts that add up to the wall time. Pure.

A gap is a stretch in which a device had nothing to do. When its next work had been launched before the gap began, the device
was not waiting for the host (turnaround). Otherwise the gap is the host's, and goes, in this order, to the loader's ``__next__``
(data), to a call that had waited for the device and so let it run dry (sync), to operations and launches on the host (launch),
or to what the profiler does not see: Python and other libraries (host).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields

import numpy as np
import numpy.typing as npt

from stoker._tools.report.profiler import memory
from stoker._tools.report.profiler.intervals import Intervals, union
from stoker._tools.report.profiler.memory import MemoryGrowth
from stoker._tools.report.profiler.timeline import (
    COMM,
    COMPUTE,
    COPY_PAGEABLE,
    COPY_PINNED,
    Column,
    Rows,
    Timeline,
)

_FEWEST_STEPS = 4


@dataclass(slots=True)
class Parts:
    """Nanoseconds of one device's wall, or of several together; without devices, of the training loop's."""

    compute_ns: int = 0
    """Kernels; without devices, operations."""
    comm_ns: int = 0
    """NCCL and nothing else."""
    copy_ns: int = 0
    """Copies from the host while no kernel ran."""
    other_ns: int = 0
    """Other copies and fills, alone."""
    turnaround_ns: int = 0
    data_ns: int = 0
    sync_ns: int = 0
    launch_ns: int = 0
    host_ns: int = 0

    @property
    def wall_ns(self) -> int:
        """Return the sum of all parts."""
        return sum(getattr(self, each.name) for each in fields(self))

    def add(self, other: Parts) -> None:
        """Together from now on."""
        for each in fields(self):
            setattr(self, each.name, getattr(self, each.name) + getattr(other, each.name))


@dataclass(slots=True)
class RankAnalysis:
    """One rank: one file, or several that its process wrote one after the other."""

    rank: int | None
    files: list[str]
    on_device: bool
    parts: Parts = field(default_factory=Parts)
    devices: int = 0
    steps: int = 0
    step_ns: int | None = None
    """The median of the steps; None: the trace has none."""
    calls: int = 0
    """Of the loader's ``__next__``."""
    call_ns: int = 0
    usual_call_ns: int | None = None
    """The median."""
    first_call_ns: int = 0
    """The longest first call of a file."""
    iterators: list[str] = field(default_factory=list)
    elsewhere: bool = False
    """Whether the loader is called by another thread than those that launch work."""
    kernels: int = 0
    kernel_ns: int | None = None
    """The median."""
    launch_call_ns: int | None = None
    """The median of launches while the device had nothing to do: others may wait for room in its queue."""
    slow_launch_ns: int | None = None
    """Nine of ten of these launches are faster."""
    uneven: float | None = None
    """Share of the time in operations that goes beyond the fastest tenth of the same operation in other steps; without
    devices only."""
    threads: float | None = None
    """How many threads were at operations on average while one was."""
    pageable_bytes: int = 0
    pinned_bytes: int = 0
    growths: list[MemoryGrowth] = field(default_factory=list)
    comm: Column = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    """How long each of NCCL's kernels took."""
    notes: list[str] = field(default_factory=list)

    @property
    def hidden_ns(self) -> int:
        """In ``__next__`` while the device had work."""
        return max(0, self.call_ns - self.parts.data_ns) if self.on_device else 0


def analyse(timelines: Sequence[Timeline]) -> RankAnalysis:
    """One rank's traces. Those of them that have nothing to judge count for nothing."""
    found = RankAnalysis(
        rank=next((each.rank for each in timelines if each.rank is not None), None),
        files=[each.path.name for each in timelines],
        on_device=any(len(each.device) for each in timelines),
        notes=[note for each in timelines for note in each.notes],
    )
    lengths: list[Column] = []
    calls: list[Column] = []
    kernels: list[Column] = []
    launches: list[Column] = []
    comm: list[Column] = []
    for timeline in timelines:
        window = _window(timeline)
        if window is None or (found.on_device and not len(timeline.device)):
            continue
        host = _HostWindow(timeline, *window)
        if found.on_device:
            _add_devices(found, timeline, host, kernels, launches, comm)
        else:
            _add_loop(found, host)
        calls.append(_add_calls(found, timeline, host))
        lengths.append(timeline.steps.ended - timeline.steps.began)
        found.growths += memory.growths(timeline, *window)
        if not found.on_device:  # there, operations also wait for the device
            found.uneven = _larger(found.uneven, _unevenness(timeline, host))
        found.threads = _larger(found.threads, _threads(timeline, host))
        found.pageable_bytes += timeline.copied_bytes[COPY_PAGEABLE]
        found.pinned_bytes += timeline.copied_bytes[COPY_PINNED]
    found.steps = sum(map(len, lengths))
    found.step_ns = _median(lengths)
    found.usual_call_ns = _median(calls)
    found.kernels, found.kernel_ns = sum(map(len, kernels)), _median(kernels)
    found.launch_call_ns, found.slow_launch_ns = _median(launches), _median(launches, 0.9)
    found.comm = np.concatenate([found.comm, *comm])
    return found


class _HostWindow:
    """What the host did in the window of a trace."""

    def __init__(self, timeline: Timeline, began_ns: int, ended_ns: int) -> None:
        self.began_ns, self.ended_ns = began_ns, ended_ns
        launching = np.unique(timeline.runtime.where[timeline.launches])
        labels = timeline.labels
        own = np.isin(labels.where, launching)
        self.elsewhere = bool(len(launching) and len(labels) and not own.any())
        if own.any():
            labels = labels.chosen(own)  # a loader that some thread calls ahead of time holds nobody up
        self.labels = labels
        self.next = self.within(labels)
        self.waits = self.within(timeline.waits)
        both = [timeline.operations, timeline.runtime]
        main = launching if len(launching) else np.union1d(timeline.steps.where, labels.where)
        if len(main):
            both = [each.chosen(np.isin(each.where, main)) for each in both]
        self.busy = self.within(both[0]) | self.within(both[1])

    def within(self, rows: Rows) -> Intervals:
        """Together, as far as they lie in the window."""
        return union(rows.began, rows.ended).within(self.began_ns, self.ended_ns)


def _window(timeline: Timeline) -> tuple[int, int] | None:
    """From the first profiled step to the end of the last; without steps, all that there is."""
    kinds = (
        [timeline.steps]
        if len(timeline.steps)
        else [timeline.device, timeline.runtime, timeline.operations, timeline.labels]
    )
    kinds = [each for each in kinds if len(each)]
    if not kinds:
        return None
    began_ns = min(int(each.began.min()) for each in kinds)
    ended_ns = max(int(each.ended.max()) for each in kinds)
    return (began_ns, ended_ns) if ended_ns > began_ns else None


def _add_devices(
    found: RankAnalysis, timeline: Timeline, host: _HostWindow,
    kernels: list[Column], launches: list[Column], comm: list[Column],
) -> None:  # fmt: skip
    rows = timeline.device
    numbers = np.unique(rows.where)
    for number in numbers:
        own = rows.chosen(rows.where == number)
        parts, idle = _device(own, timeline, host)
        found.parts.add(parts)
        kernels.append((own.ended - own.began)[own.what == COMPUTE])
        calls = timeline.runtime.chosen(timeline.launches)
        calls = calls.chosen(idle.hold(calls.began))
        launches.append(calls.ended - calls.began)
    shared = rows.chosen(rows.what == COMM)
    order = np.argsort(shared.began, kind="stable")
    comm.append((shared.ended - shared.began)[order])
    found.devices = max(found.devices, len(numbers))


def _device(rows: Rows, timeline: Timeline, host: _HostWindow) -> tuple[Parts, Intervals]:
    """The parts of one device's wall, and the gaps that are the host's."""
    busy = host.within(rows)
    compute = host.within(rows.chosen(rows.what == COMPUTE))
    comm = host.within(rows.chosen(rows.what == COMM))
    copies = host.within(rows.chosen((rows.what == COPY_PAGEABLE) | (rows.what == COPY_PINNED)))
    worked = compute | comm
    gaps = busy.gaps(host.began_ns, host.ended_ns)
    queued = _queued(gaps, rows, timeline.runtime)
    ours = gaps.chosen(~queued)
    left = ours - host.next
    dry = ours.chosen(host.waits.hold(ours.began))
    working = left - dry
    launch = working & host.busy
    parts = Parts(
        compute_ns=compute.total_ns,
        comm_ns=(comm - compute).total_ns,
        copy_ns=(copies - worked).total_ns,
        other_ns=(busy - (worked | copies)).total_ns,
        turnaround_ns=gaps.chosen(queued).total_ns,
        data_ns=(ours & host.next).total_ns,
        sync_ns=(left & dry).total_ns,
        launch_ns=launch.total_ns,
        host_ns=(working - launch).total_ns,
    )
    return parts, ours


def _queued(gaps: Intervals, rows: Rows, runtime: Rows) -> npt.NDArray[np.bool_]:
    """For each gap whether the work that ends it had been launched before the gap began."""
    nobody = np.zeros(len(gaps), dtype=bool)
    known = runtime.link >= 0
    if not len(gaps) or not len(rows) or not known.any():
        return nobody
    calls = np.argsort(runtime.link[known], kind="stable")
    links, called = runtime.link[known][calls], runtime.ended[known][calls]
    order = np.argsort(rows.began, kind="stable")
    began, link = rows.began[order], rows.link[order]
    ends = np.searchsorted(began, gaps.ended)
    follows = np.minimum(ends, len(began) - 1)
    place = np.minimum(np.searchsorted(links, link[follows]), len(links) - 1)
    linked = (ends < len(began)) & (link[follows] >= 0) & (links[place] == link[follows])
    found: npt.NDArray[np.bool_] = linked & (called[place] <= gaps.began)
    return found


def _add_loop(found: RankAnalysis, host: _HostWindow) -> None:
    """Without devices: the loop's own time. What it does for the loader, operations included, is the loader's."""
    operations = host.busy - host.next
    data_ns, compute_ns = host.next.total_ns, operations.total_ns
    rest_ns = host.ended_ns - host.began_ns - data_ns - compute_ns
    found.parts.add(Parts(compute_ns=compute_ns, data_ns=data_ns, host_ns=rest_ns))


def _add_calls(found: RankAnalysis, timeline: Timeline, host: _HostWindow) -> Column:
    """How long each took."""
    inside = (host.labels.began < host.ended_ns) & (host.labels.ended > host.began_ns)
    labels = host.labels.chosen(inside)
    found.elsewhere = found.elsewhere or host.elsewhere
    found.iterators += [each for each in timeline.iterators if each not in found.iterators]
    if len(labels):
        first = int(np.argmin(labels.began))
        found.first_call_ns = max(found.first_call_ns, int(labels.ended[first] - labels.began[first]))
    found.calls += len(labels)
    found.call_ns += host.next.total_ns
    return labels.ended - labels.began


def _unevenness(timeline: Timeline, host: _HostWindow) -> float | None:
    """The same operation of every step, compared over steps. None: steps are too few, or differ in what they do.

    The first step, which warms up, and the slowest of the others, which may have met anything, are left out.
    """
    rows, steps = timeline.operations, timeline.steps
    if len(steps) < _FEWEST_STEPS + 2 or not len(rows):
        return None
    outside = ~host.next.hold(rows.began)
    order = np.argsort(rows.began[outside], kind="stable")
    began, ended = rows.began[outside][order], rows.ended[outside][order]
    borders = np.append(np.sort(steps.began), steps.ended.max())
    places = np.searchsorted(began, borders)[1:]
    counts = np.diff(places)
    usual = int(np.median(counts))
    same = places[:-1][counts == usual]
    if usual == 0 or len(same) <= _FEWEST_STEPS:
        return None
    took = np.stack([(ended - began)[place : place + usual] for place in same])
    took = np.delete(took, took.sum(axis=1).argmax(), axis=0)
    whole = took.mean(axis=0).sum()
    return float(1 - np.quantile(took, 0.1, axis=0).sum() / whole) if whole else None


def _threads(timeline: Timeline, host: _HostWindow) -> float | None:
    rows = timeline.operations
    anyone = host.within(rows).total_ns
    if not anyone:
        return None
    order = np.argsort(rows.where, kind="stable")
    borders = np.flatnonzero(np.diff(rows.where[order])) + 1
    each_ns = 0
    for places in np.split(order, borders):
        each_ns += union(rows.began[places], rows.ended[places]).within(host.began_ns, host.ended_ns).total_ns
    return each_ns / anyone


def _median(columns: Sequence[Column], quantile: float = 0.5) -> int | None:
    together = np.concatenate([*columns]) if columns else np.zeros(0, dtype=np.int64)
    return int(np.quantile(together, quantile)) if len(together) else None


def _larger(one: float | None, other: float | None) -> float | None:
    return one if other is None else other if one is None else max(one, other)

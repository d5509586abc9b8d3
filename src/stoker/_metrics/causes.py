"""From the blame of one loader to its cause: the sums, what has to be called by another name, who took the CPU, how bad it is.

Blame says what a worker did while the consumer waited: on the CPU, waiting for one, or neither. That settles most; the rest
needs facts of the whole run, and is settled here. Pure: one record in, one frozen answer out, with every number it went by.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from stoker._metrics.contention import MORE_THAN_ONE, Evidence, active_threads, culprit
from stoker._metrics.record import CAUSES, STAGES, Concurrency, LoaderRecord, Machine, WorkerRecord

NOT_DATA = 0.02
"""Below this share of the time the loader is not the problem: a training step varies by as much."""
MODERATE = 0.05
HIGH = 0.20
"""The cuts of TensorFlow's profiler for an input-bound step."""
STARVED = {"quota": 0.20, "own": 0.35, "neighbours": 0.50}
"""Run-queue share of the time that workers wanted a CPU, beyond which they are starved, by who had it. A quota that throttles is
named at once: more workers would make it worse. As many workers as CPUs, beside the training loop, take turns a little by
themselves. Neighbours come and go: they are named when they cost more than the computing itself."""
CROWDED = 0.20
"""The same share, from which on it is worth a word beside another cause."""
ONE_START = 0.20
"""What else there is has to be this much of the waiting to be named before a start that is paid once."""
LATE_WAKE_US = 2000.0
"""Median lateness of the consumer's wake-ups beyond which somebody holds the interpreter: its switch interval is 5 ms, and
an idle one is woken within 0.2 ms."""
OFF_FOR_GIL = 0.30
"""Share of a thread's time off the CPU that makes late wake-ups the GIL's: a single thread that computes is never off it."""
HELD = 0.5
"""CPU time of threads that are off the CPU as well, over the time of the run, beyond which the training loop's own Python waits
for them too: all of them together can use one CPU."""
BANDWIDTH = 1.3
"""CPU time per row with many workers at work over that with few: honest compute stays below 1.1."""
_LEAST_ROWS = 32
_LEAST_CPU_NS = 50_000_000
"""Rows and CPU time on either side of that ratio: below it the clocks' grain and first touches decide."""
STORAGE = 0.20
"""Share of the waiting off the CPU during which the kernel counted I/O wait, that makes it storage at least in part."""

_ON_CPU = ("compute", "starved", "bandwidth", "gil")
"""Causes of work that wanted a CPU: they are weighed together against the others, and told apart after that."""


@dataclass(frozen=True, slots=True)
class Part:
    """Some of the wait: the stage it was spent in, and the cause after all has been settled."""

    stage: str
    cause: str
    ns: int


@dataclass(frozen=True, slots=True)
class Causes:
    """What one loader's waiting came from. ``parts`` add up to ``wait_ns``.

    ``stall`` is the share of the time that the training loop waited and nothing hid it; None: there is no time to share.
    ``culprit`` says who had the CPU when ``cause`` is "starved". ``missing`` names what was not measured and would have helped.
    """

    wait_ns: int
    step_ns: int
    hidden_ns: int | None
    stall: float | None
    severity: str
    """none, low, moderate, high."""
    cause: str | None
    culprit: str | None
    parts: tuple[Part, ...]
    evidence: tuple[Evidence, ...]
    missing: tuple[str, ...]

    @property
    def exposed_ns(self) -> int:
        """The waiting that cost time."""
        return self.wait_ns - (self.hidden_ns or 0)

    def share(self, *causes: str) -> float:
        """Of the wait, what these causes have."""
        return sum(each.ns for each in self.parts if each.cause in causes) / max(1, self.wait_ns)

    def told(self, code: str) -> Evidence | None:
        """The evidence of that name, if there is any."""
        return next((each for each in self.evidence if each.code == code), None)

    def stages(self, cause: str) -> dict[str, int]:
        """Nanoseconds by stage, largest first."""
        found: dict[str, int] = {}
        for each in self.parts:
            if each.cause == cause:
                found[each.stage] = found.get(each.stage, 0) + each.ns
        return dict(sorted(found.items(), key=lambda item: -item[1]))


def settle(loader: LoaderRecord, machine: Machine) -> Causes:
    """The one entry. Any thread; nothing is read but the arguments."""
    totals = loader.totals
    evidence: list[Evidence] = []
    missing: list[str] = []
    sums = _sums(loader)
    sums = _gil(sums, loader, machine, evidence)
    sums = _own_threads(sums, loader, evidence)
    sums = _bandwidth(sums, loader, machine, evidence, missing)
    sums = _starved_parent(sums, loader, evidence)
    taker = culprit(loader, machine, evidence, missing) if _of(sums, "starved") else None
    starved = _is_starved(sums, taker, evidence)
    if starved:
        # The consumer was woken late for the same want of a CPU.
        sums = _moved(sums, "parent", "starved", stages=("wake",))
    cause = _leading(_without_start(sums, loader), starved=starved) or _leading(sums, starved=starved)
    hidden_ns = None if totals.hidden_ns is None else min(totals.hidden_ns, totals.wait_ns)
    if cause == "io":
        _storage(loader, evidence, missing)
    if cause == "unknown":
        missing.append("the workers' CPU times: without them nobody can tell waiting from computing")
    if hidden_ns is None and machine.accelerators:
        missing.append("whether the accelerator was idle meanwhile: all waiting is counted as lost")
    time_ns = totals.wait_ns + totals.step_ns
    stall = (totals.wait_ns - (hidden_ns or 0)) / time_ns if time_ns else None
    parts = [Part(stage, each, ns) for (stage, each), ns in sums.items() if ns]
    found = Causes(
        wait_ns=sum(part.ns for part in parts),
        step_ns=totals.step_ns,
        hidden_ns=hidden_ns,
        stall=stall,
        severity="none",
        cause=cause,
        culprit=taker if cause == "starved" else None,
        parts=tuple(sorted(parts, key=lambda part: -part.ns)),
        evidence=tuple(evidence),
        missing=tuple(missing),
    )
    return replace(found, severity=_severity(found, once=totals.epochs <= 1))


def median_us(histogram: list[int]) -> float | None:
    """The median of a histogram by powers of two (bucket i: below 2^i µs), as the middle of its bucket; None when it is empty."""
    left = sum(histogram) / 2
    for place, count in enumerate(histogram):
        left -= count
        if count and left <= 0:
            return 0.75 * 2.0**place
    return None


Sums = dict[tuple[str, str], int]
"""Nanoseconds by (stage, cause)."""


def _sums(loader: LoaderRecord) -> Sums:
    sums: Sums = {}
    for each in loader.blame:
        key = (each.stage, each.cause)
        sums[key] = sums.get(key, 0) + each.ns
    left_ns = loader.totals.wait_ns - sum(sums.values())
    if left_ns > 0:
        sums["other", "unknown"] = sums.get(("other", "unknown"), 0) + left_ns
    return sums


def _of(sums: Sums, *causes: str) -> int:
    return sum(ns for (_, cause), ns in sums.items() if cause in causes)


def _moved(sums: Sums, cause: str, to: str, *, stages: Iterable[str] = STAGES) -> Sums:
    """The same time under another cause."""
    moved: Sums = {}
    for (stage, each), ns in sums.items():
        key = (stage, to if each == cause and stage in stages else each)
        moved[key] = moved.get(key, 0) + ns
    return moved


def _gil(sums: Sums, loader: LoaderRecord, machine: Machine, evidence: list[Evidence]) -> Sums:
    """Threads that are off the CPU while wake-ups come late wait for the interpreter, and not for I/O."""
    if loader.executor != "thread" or machine.gil is False:
        return sums
    late_us = median_us(loader.totals.wake_ns)
    off = _off_share(loader.workers)
    if off is None or off <= OFF_FOR_GIL:
        return sums
    held = sum(each.cpu_ns for each in loader.workers) / max(1, loader.load.wall_ns)
    if held > HELD:
        text = f"its threads compute {held:.0%} of the time and are off the CPU {off:.0%} of theirs"
        evidence.append(Evidence("gil_held", held, HELD, text))
    if late_us is None or late_us <= LATE_WAKE_US:
        return sums
    text = f"the training loop hears of a batch {late_us / 1000:.1f} ms late (median; beyond 2 ms somebody holds the GIL)"
    evidence.append(Evidence("late_wake_us", late_us, LATE_WAKE_US, text))
    text = f"threads are off the CPU {off:.0%} of their time"
    evidence.append(Evidence("off_share", off, OFF_FOR_GIL, text))
    return _moved(_moved(sums, "io", "gil"), "parent", "gil", stages=("wake",))


def _own_threads(sums: Sums, loader: LoaderRecord, evidence: list[Evidence]) -> Sums:
    """A worker that computes with several threads is off the CPU while it waits for the last of them: that is no I/O."""
    busy_ns = sum(each.busy_ns for each in loader.workers)
    if not busy_ns or loader.executor != "process":
        return sums
    threads = sum(active_threads(each) * each.busy_ns for each in loader.workers) / busy_ns
    if threads < MORE_THAN_ONE:
        return sums
    text = f"a worker computes with {threads:.1f} threads at once"
    evidence.append(Evidence("threads_per_worker", threads, MORE_THAN_ONE, text))
    return _moved(sums, "io", "compute")


def _off_share(workers: list[WorkerRecord]) -> float | None:
    metered_ns = sum(each.metered_ns for each in workers)
    return sum(each.off_ns for each in workers) / metered_ns if metered_ns else None


def _bandwidth(
    sums: Sums, loader: LoaderRecord, machine: Machine, evidence: list[Evidence], missing: list[str]
) -> Sums:
    """Compute that costs more CPU per row the more workers are at it waits for memory."""
    if not _of(sums, "compute") or len(loader.workers) < 2:
        return sums
    pair = _low_and_high(loader.concurrency, machine.usable)
    if pair is None:
        if 2 * _of(sums, "compute") > sum(sums.values()):
            missing.append(
                "CPU per row with few and with many workers: compute and memory bandwidth not separated"
            )
        return sums
    low, high = pair
    ratio = (high.cpu_ns / high.rows) / (low.cpu_ns / low.rows)
    text = f"a row costs {ratio:.2f} × as much CPU with {high.workers} workers at work as with {low.workers}"
    text += f" (memory bandwidth from {BANDWIDTH} on)"
    evidence.append(Evidence("cpu_per_row_ratio", ratio, BANDWIDTH, text))
    return _moved(sums, "compute", "bandwidth") if ratio > BANDWIDTH else sums


def _low_and_high(
    concurrency: list[Concurrency], usable: int | None
) -> tuple[Concurrency, Concurrency] | None:
    """Few and many workers at work, with enough rows each, and as many CPUs as workers: more would share them."""
    enough = sorted(
        (
            each
            for each in concurrency
            if each.rows >= _LEAST_ROWS
            and each.cpu_ns >= _LEAST_CPU_NS
            and (usable is None or each.workers <= usable)
        ),
        key=lambda each: each.workers,
    )
    if len(enough) < 2 or enough[-1].workers < 2 * enough[0].workers:
        return None
    return enough[0], enough[-1]


def _starved_parent(sums: Sums, loader: LoaderRecord, evidence: list[Evidence]) -> Sums:
    """The training process wants a CPU as well: of its time, what its thread spent in the run queue is not its own doing."""
    load = loader.load
    if load.loop_cpu_ns is None or load.loop_runq_ns is None or not _of(sums, "parent"):
        return sums
    share = load.loop_runq_ns / max(1, load.loop_runq_ns + load.loop_cpu_ns)
    if share <= CROWDED:
        return sums
    text = f"the training loop itself wanted a CPU and waited for one {share:.0%} of that time"
    evidence.append(Evidence("loop_runq_share", share, CROWDED, text))
    divided: Sums = {}
    for (stage, cause), ns in sums.items():
        lost_ns = int(ns * share) if cause == "parent" else 0
        for key, part_ns in (((stage, cause), ns - lost_ns), ((stage, "starved"), lost_ns)):
            divided[key] = divided.get(key, 0) + part_ns
    return divided


def _is_starved(sums: Sums, taker: str | None, evidence: list[Evidence]) -> bool:
    """Whether waiting for a CPU, and not computing, is what to name."""
    wanted_ns = _of(sums, *_ON_CPU)
    if not wanted_ns:
        return False
    share = _of(sums, "starved") / wanted_ns
    limit = STARVED.get(taker or "", STARVED["neighbours"])
    text = f"workers that wanted a CPU waited for one {share:.0%} of that time (starved from {limit:.0%} on)"
    evidence.append(Evidence("runq_share", share, limit, text))
    return share > limit


def _without_start(sums: Sums, loader: LoaderRecord) -> Sums:
    """A start that is paid once is what to name only when all is well after it: most runs are longer than what was recorded."""
    totals = loader.totals
    wait_ns = sum(sums.values())
    steady_ns = wait_ns - _of(sums, "start_up")
    stalled = steady_ns >= MODERATE * (steady_ns + totals.step_ns) and steady_ns >= ONE_START * wait_ns
    if totals.epochs > 1 or not stalled:
        return sums
    return {key: ns for key, ns in sums.items() if key[1] != "start_up"}


def _leading(sums: Sums, *, starved: bool) -> str | None:
    """The cause with most of the wait. Those of work on the CPU count together: starved or not, it is the same work."""
    weights = {cause: _of(sums, cause) for cause in CAUSES if cause not in _ON_CPU}
    on_cpu_ns = _of(sums, *_ON_CPU)
    best = max(weights, key=weights.__getitem__)
    if weights[best] > on_cpu_ns:
        return best
    if not on_cpu_ns:
        return None
    if _of(sums, "gil") > OFF_FOR_GIL * on_cpu_ns:
        return "gil"
    if starved:
        return "starved"
    return "bandwidth" if _of(sums, "bandwidth") > _of(sums, "compute") else "compute"


def _storage(loader: LoaderRecord, evidence: list[Evidence], missing: list[str]) -> None:
    """What kind of waiting it was, as far as counters tell."""
    missing.append(
        "cold against warm reads: storage, network, a lock and a sleep look alike to the scheduler"
    )
    load = loader.load
    if load.iowait_ns is None or not load.wall_ns:
        missing.append("the machine's I/O wait")
        return
    share = load.iowait_ns / load.wall_ns
    text = f"the kernel counted I/O wait {share:.0%} of the time: "
    text += (
        "local storage is part of it" if share > STORAGE else "no local disk, but network, a lock or a sleep"
    )
    evidence.append(Evidence("iowait_share", share, STORAGE, text))


def _severity(causes: Causes, *, once: bool) -> str:
    """none, low, moderate, high. A start that is paid ``once`` and all there is counts only where it is much of the run."""
    stall = causes.stall or 0.0
    start = stall * causes.share("start_up")
    steady = (stall - start) / (1 - start) if start < 1 else 0.0
    if stall < NOT_DATA or (once and steady < NOT_DATA and stall < HIGH):
        return "none"
    return "low" if stall < MODERATE else "moderate" if stall < HIGH else "high"

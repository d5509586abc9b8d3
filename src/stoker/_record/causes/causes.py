"""Derives the cause of one loader's waits from its blame: sums, reclassification, CPU contention, severity.

Blame says what a worker did while the consumer waited: on the CPU, waiting for one, or neither. That settles most; the rest
needs facts of the whole run, and is settled here. Pure: one record in, one frozen answer out, with every number it went by.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from stoker._record.causes import reclassify
from stoker._record.causes.contention import Measurement, culprit
from stoker._record.causes.reclassify import Sums, moved, total
from stoker._record.causes.thresholds import (
    HIGH,
    LEAST_FOREIGN,
    LEAST_LOOKS,
    LOCKED,
    MODERATE,
    NOT_DATA,
    OFF_FOR_GIL,
    ONE_START,
    STARVED,
    STORAGE,
)
from stoker._record.schema import CAUSES, LoaderRecord, Machine

_ON_CPU = ("compute", "starved", "bandwidth", "gil")
"""Causes of work that wanted a CPU: they are weighed together against the others, and told apart after that."""


@dataclass(frozen=True, slots=True)
class CauseShare:
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
    parts: tuple[CauseShare, ...]
    evidence: tuple[Measurement, ...]
    missing: tuple[str, ...]

    @property
    def exposed_ns(self) -> int:
        """The waiting that cost time, and was not for this record."""
        record_ns = sum(each.ns for each in self.parts if each.stage == "record")
        return max(0, self.wait_ns - (self.hidden_ns or 0) - record_ns)

    def share(self, *causes: str) -> float:
        """Return the share of these causes in the wait that is judged, without recording."""
        judged = [each for each in self.parts if each.stage != "record"]
        return sum(each.ns for each in judged if each.cause in causes) / max(
            1, sum(each.ns for each in judged)
        )

    def measurement(self, code: str) -> Measurement | None:
        """The evidence of that name, if there is any."""
        return next((each for each in self.evidence if each.code == code), None)

    def stages(self, cause: str) -> dict[str, int]:
        """Nanoseconds by stage, largest first."""
        found: dict[str, int] = {}
        for each in self.parts:
            if each.cause == cause:
                found[each.stage] = found.get(each.stage, 0) + each.ns
        return dict(sorted(found.items(), key=lambda item: -item[1]))


def find_causes(loader: LoaderRecord, machine: Machine) -> Causes:
    """The one entry. Any thread; nothing is read but the arguments."""
    totals = loader.totals
    evidence: list[Measurement] = []
    missing: list[str] = []
    sums = reclassify.sums_of(loader)
    sums = reclassify.gil(sums, loader, machine, evidence)
    sums = reclassify.helpers(sums, loader, evidence)
    sums = reclassify.own_threads(sums, loader, evidence)
    sums = reclassify.slow_samples(sums, loader, evidence)
    reclassify.slow_worker(sums, loader, evidence)
    sums = reclassify.bandwidth(sums, loader, machine, evidence, missing)
    sums = reclassify.starved_parent(sums, loader, evidence)
    taker = culprit(loader, machine, evidence, missing) if total(sums, "starved") else None
    starved = _is_starved(sums, taker, evidence)
    if starved:
        # The consumer was woken late for the same want of a CPU.
        sums = moved(sums, "parent", "starved", stages=("wake",))
    cause = _leading(_without_start(_without_recording(sums), loader), starved=starved) or _leading(
        sums, starved=starved
    )
    hidden_ns = None if totals.hidden_ns is None else min(totals.hidden_ns, totals.wait_ns)
    if cause == "io":
        _storage(loader, evidence, missing)
    if cause == "unknown":
        missing.append("the workers' CPU times, so waiting and computing look the same")
    if hidden_ns is None and machine.accelerators:
        missing.append("whether the accelerator was idle, so all waiting counts as lost")
    time_ns = totals.wait_ns + totals.step_ns
    record_ns = sum(ns for (stage, _), ns in sums.items() if stage == "record")
    stall = max(0, totals.wait_ns - (hidden_ns or 0) - record_ns) / time_ns if time_ns else None
    parts = [CauseShare(stage, each, ns) for (stage, each), ns in sums.items() if ns]
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
    return replace(found, severity=_severity(found, record_ns, once=totals.epochs <= 1))


def _is_starved(sums: Sums, taker: str | None, evidence: list[Measurement]) -> bool:
    """Whether waiting for a CPU, and not computing, is what to name."""
    wanted_ns = total(sums, *_ON_CPU)
    if not wanted_ns:
        return False
    share = total(sums, "starved") / wanted_ns
    limit = STARVED.get(taker or "", STARVED["neighbours"])
    text = f"work that was ready to run waited for a CPU {share:.0%} of that time (above {limit:.0%} it counts as starved)"
    evidence.append(Measurement("runq_share", share, limit, text))
    foreign = next((each.value for each in evidence if each.code == "foreign_cpus"), None)
    nobody = taker == "neighbours" and foreign is not None and foreign < LEAST_FOREIGN
    return share > limit and not nobody


def _without_recording(sums: Sums) -> Sums:
    """Remove the cost of recording, which is no cause: without a record it is gone."""
    return {key: ns for key, ns in sums.items() if key[0] != "record"}


def _without_start(sums: Sums, loader: LoaderRecord) -> Sums:
    """A start that is paid once is what to name only when all is well after it: most runs are longer than what was recorded."""
    totals = loader.totals
    wait_ns = sum(sums.values())
    steady_ns = wait_ns - total(sums, "start_up")
    stalled = steady_ns >= MODERATE * (steady_ns + totals.step_ns) and steady_ns >= ONE_START * wait_ns
    if totals.epochs > 1 or not stalled:
        return sums
    return {key: ns for key, ns in sums.items() if key[1] != "start_up"}


def _leading(sums: Sums, *, starved: bool) -> str | None:
    """The cause with most of the wait. Those of work on the CPU count together: starved or not, it is the same work."""
    weights = {cause: total(sums, cause) for cause in CAUSES if cause not in _ON_CPU}
    on_cpu_ns = total(sums, *_ON_CPU)
    best = max(weights, key=weights.__getitem__)
    if weights[best] > on_cpu_ns:
        return best
    if not on_cpu_ns:
        return None
    if total(sums, "gil") > OFF_FOR_GIL * on_cpu_ns:
        return "gil"
    if starved:
        return "starved"
    return "bandwidth" if total(sums, "bandwidth") > total(sums, "compute") else "compute"


def _storage(loader: LoaderRecord, evidence: list[Measurement], missing: list[str]) -> None:
    """What kind of waiting it was, as far as counters and looks tell."""
    looks = sum(each.looks for each in loader.workers)
    share = sum(each.locked_looks for each in loader.workers) / looks if looks >= LEAST_LOOKS else 0.0
    if share > LOCKED:
        text = f"in {share:.0%} of {looks} looks a worker slept until another process gave up a lock (from {LOCKED:.0%})"
        evidence.append(Measurement("lock_share", share, LOCKED, text))
        return
    missing.append("cold and warm reads, so storage, network and a sleep look the same")
    load = loader.load
    if load.iowait_ns is None or not load.wall_ns:
        missing.append("the machine's I/O wait")
        return
    share = load.iowait_ns / load.wall_ns
    text = f"the kernel counted I/O wait {share:.0%} of the time: "
    text += (
        "local storage is part of it" if share > STORAGE else "no local disk, but network, a lock or a sleep"
    )
    evidence.append(Measurement("iowait_share", share, STORAGE, text))


def _severity(causes: Causes, record_ns: int, *, once: bool) -> str:
    """none, low, moderate, high. A start that is paid ``once`` and all there is counts only where it is much of the run.

    Recording also delays what is around it, about as much as it takes itself: a small wait that it explains is no problem.
    """
    stall = causes.stall or 0.0
    if stall < MODERATE and stall - record_ns / max(1, causes.wait_ns + causes.step_ns) < NOT_DATA:
        return "none"
    start = stall * causes.share("start_up")
    steady = (stall - start) / (1 - start) if start < 1 else 0.0
    if stall < NOT_DATA or (once and steady < NOT_DATA and stall < HIGH):
        return "none"
    return "low" if stall < MODERATE else "moderate" if stall < HIGH else "high"

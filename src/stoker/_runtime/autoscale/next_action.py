"""What to try next, by what a window shows. Pure, and without memory: the policy keeps that.

the loop waits ─┬─ workers are busy ──────────────────────► more of them, as far as CPUs, memory and demand go
                ├─ they idle, and a later batch is ready ─► batches in parts, a deeper window
                └─ they idle, and none is ready ──────────► nothing: the training process or I/O is what limits
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from stoker._runtime.autoscale.conditions import Conditions
from stoker._runtime.autoscale.trial import GAIN
from stoker._runtime.autoscale.types import AutoscaleAction, AutoscaleBounds, Observation
from stoker._runtime.autoscale.worker_bounds import WorkerCeiling, ceiling, demand_of, knee, needed, work_of
from stoker._runtime.simulation.replay import SimulationResult

CALM_REPLAYED = 0.01
"""Fewer workers are tried when the replay says that the loop would wait less than this share of its time."""

BUSY = 0.85
"""Workers that are busy less than this are not what is missing."""

BLOCKED = 0.5
"""A later batch was ready in this share of the waits: it is the head of the line that everybody waits for."""

FEW_WAITS = 0.01
"""When no more steps than this have to wait for a batch to be made, what ``next()`` takes is not for want of workers."""

JUMP = 16
"""In the opening the count goes straight to what is needed up to here, or to three times what it is."""

STRIDE = 2
"""By how many it grows later on, at most."""

OVERFULL = 1.5
OVER = 2
QUEUED = 0.3
"""Workers beyond the CPUs by half, and by two at least, that wait for one a third of the time are in each other's way."""

THROTTLED = 0.05
"""Share of throttled periods from which on the quota is what to name."""


class RejectedCount(NamedTuple):
    """A count that did not pay, under which circumstances, and how often it was tried."""

    workers: int
    context: Conditions
    times: int
    harmful: bool
    """It made the step longer; otherwise it only did not make it shorter."""


class NextAction(NamedTuple):
    """One decision. ``refuted`` has what is known not to pay under the circumstances of ``seen``, by kind of action."""

    seen: Observation
    bounds: AutoscaleBounds
    refuted: Mapping[str, RejectedCount]
    opening: bool
    oracle: Callable[..., SimulationResult]

    @property
    def fed(self) -> bool:
        """Whether batches are there when they are asked for."""
        seen = self.seen
        return bool(seen.workers) and seen.waits <= FEW_WAITS * seen.steps and not self._blocked

    @property
    def _blocked(self) -> bool:
        return self.seen.blocked >= BLOCKED * max(1, self.seen.waits)

    def relieve(self) -> AutoscaleAction | None:
        """The loop waits: what could help, or why nothing does."""
        seen, blocked = self.seen, self._blocked
        if self.fed:
            text = f"the loop spends {seen.stall:.1%} of the time in next(), but only {seen.waits / seen.steps:.1%} of the batches"
            return self._hold(
                f"{text} were not ready: the training process limits, not the number of workers", "parent"
            )
        at_work = not blocked if seen.busy is None else seen.busy >= BUSY
        if at_work or not seen.workers:
            return self._grow()
        return self._unblock(blocked=blocked)

    def spare(self) -> AutoscaleAction | None:
        """Nobody waits: fewer workers, if the replay says that nobody would."""
        seen, have = self.seen, self.seen.workers
        refuted = self.refuted.get("shrink")
        for fewer in sorted({have - max(1, have // 4), have - 1}):
            if fewer < self.bounds.least or (refuted is not None and fewer <= refuted.workers):
                continue
            window = max(1, round(seen.window * fewer / have))
            stall = self._replayed(fewer, window).stall
            if stall < CALM_REPLAYED:
                text = f"the loop waits {seen.stall:.2%} of the time, {self._busy}, and with {fewer} it would wait {stall:.2%}"
                return self._action("shrink", fewer, text, "spare", window=window)
        return None

    def _goal(self) -> tuple[int, WorkerCeiling]:
        """To how many workers to go next, and what stands above it."""
        have = self.seen.workers
        limit = ceiling(self.seen, self.bounds)
        refuted = self.refuted.get("grow")
        if refuted is not None and refuted.workers <= limit.workers:
            limit = WorkerCeiling(
                refuted.workers - 1, "more were tried and the step did not become shorter", "tried"
            )
        stride = max(3 * have, JUMP) if self.opening else have + STRIDE
        goal = int(min(max(needed(self.seen), have + 1), stride, limit.workers))
        if refuted is not None and refuted.harmful:
            goal = min(goal, have + max(1, (refuted.workers - have) // 2))
        return goal, limit

    def _grow(self) -> AutoscaleAction | None:
        seen = self.seen
        goal, limit = self._goal()
        if goal <= seen.workers:
            text = f"the loop waits {seen.stall:.1%} of the time, but at most {max(limit.workers, 1)} workers: {limit.reason}"
            return self._crowded() or self._hold(text, limit.code)
        text = f"the loop waits {seen.stall:.1%} of the time and {self._busy}: "
        text += f"a batch takes {seen.making_ns / 1e6:.3g} ms to make, a step {seen.step_ns / 1e6:.3g} ms"
        need = needed(seen)
        enough = f"; {need:.0f} should do" if seen.workers < need <= goal else ""
        return self._action("grow", goal, text + enough, "demand")

    def _crowded(self) -> AutoscaleAction | None:
        """Workers that wait for CPUs which other workers have: fewer do as much and leave the training process its own."""
        seen = self.seen
        fill = max(self.bounds.least, knee(seen, self.bounds).workers)
        queued = seen.runq_ns / max(1.0, seen.making_ns + seen.runq_ns)
        refuted = self.refuted.get("shrink")
        known = refuted is not None and fill <= refuted.workers
        if seen.workers < max(OVERFULL * fill, fill + OVER) or queued < QUEUED or known:
            return None
        text = f"{seen.workers} workers wait {queued:.0%} of their time for a CPU, and {fill} would fill those that there are"
        return self._action("shrink", fill, text, "crowded")

    def _unblock(self, *, blocked: bool) -> AutoscaleAction | None:
        """Workers idle although the loop waits."""
        seen, have = self.seen, self.seen.workers
        text = f"the loop waits {seen.stall:.1%} of the time, {self._busy}, and "
        text += "a later batch was ready" if blocked else "no batch was ready"
        may_split = self.bounds.may_split and not seen.split and seen.rows > 1 and "split" not in self.refuted
        if blocked and may_split:
            text += ": batches that hold up others are made by several workers"
            return self._action("split", have, text, "blocked", window=seen.window, split=True)
        crew, depth = self._deeper() if blocked else (have, min(self.bounds.window_most, 2 * seen.window))
        if crew > have:
            text += ": more workers and more batches in the making"
            return self._action("grow", crew, text, "blocked", window=depth)
        if depth > seen.window and (blocked or "deepen" not in self.refuted):
            return self._action("deepen", have, f"{text}: room for more batches", "blocked", window=depth)
        if blocked:
            return self._hold(f"{text}: more workers would not help", "blocked")
        text += ": what limits is not the number of workers but the training process, or I/O"
        return self._hold(text, "idle")

    def _deeper(self) -> tuple[int, int]:
        """Workers and window with which batches that take long hold up others least, by the replay."""
        have, window = self.seen.workers, self.seen.window
        goal, _ = self._goal()
        more = goal > have and needed(self.seen) > have
        options = [(have, window)]
        for crew in [have, goal] if more else [have]:
            depth = max(1, round(window * crew / have))
            if crew > have:
                options.append((crew, depth))
            elif "deepen" in self.refuted:
                continue
            while depth < self.bounds.window_most:
                depth = min(self.bounds.window_most, 2 * depth)
                options.append((crew, depth))
        intervals = [self._replayed(*each).interval_ns for each in options]
        least = min(intervals)
        if least > (1 - GAIN) * intervals[0]:
            return have, window
        return next(each for each, ns in zip(options, intervals, strict=True) if ns <= (1 + GAIN) * least)

    def _replayed(self, workers: int, window: int) -> SimulationResult:
        cpus = max(1.0, self.bounds.cpus - (self.seen.foreign_cpus or 0.0))
        work, demand = work_of(self.seen), demand_of(self.seen)
        return self.oracle(work, demand, workers=workers, window=window, cpus=cpus, split=self.seen.split)

    def _action(
        self, kind: str, workers: int, reason: str, code: str, *, window: int = 0, split: bool | None = None
    ) -> AutoscaleAction:
        window = window or max(1, round(self.seen.window * workers / max(1, self.seen.workers)))
        return AutoscaleAction(
            kind, workers, window, reason, self.seen.split if split is None else split, code
        )

    def _hold(self, reason: str, code: str) -> AutoscaleAction:
        seen = self.seen
        if seen.throttled > THROTTLED:
            throttled = f"the cgroup was throttled in {seen.throttled:.0%} of its periods"
            reason = f"the loop waits {seen.stall:.1%} of the time, and {throttled}"
            reason, code = f"{reason}: the quota limits, not the number of workers", "throttled"
        return self._action("hold", seen.workers, reason, code, window=seen.window)

    @property
    def _busy(self) -> str:
        count = f"{self.seen.workers} worker{'s' * (self.seen.workers != 1)}"
        return f"{count} at work" if self.seen.busy is None else f"{count} {self.seen.busy:.0%} busy"

"""Chooses the next action from one observation. Pure and stateless: the policy keeps the state.

the loop waits ─┬─ workers are busy ────────────────────────► more workers, within CPUs, memory and demand
                ├─ workers idle, and a later batch is ready ─► split batches, a deeper window
                └─ workers idle, and no batch is ready ──────► nothing: the training process or I/O is the limit
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
"""Fewer workers are tried if the replay predicts that the loop waits less than this share of its time."""

BUSY = 0.85
"""If workers are busy for less than this share, more workers do not help."""

BLOCKED = 0.5
"""If a later batch was ready in this share of the waits, the head of the line is the limit."""

FEW_WAITS = 0.01
"""If no larger share of steps waits for a batch, the time in ``next()`` is not caused by too few workers."""

JUMP = 16
"""During ramp-up the number grows at once to the needed number, up to this or to three times the current number."""

STRIDE = 2
"""Later it grows by at most this number."""

OVERFULL = 1.5
OVER = 2
QUEUED = 0.3
"""Workers hinder each other if there are half as many again as CPUs, at least two more, and they queue a third of the time."""

THROTTLED = 0.05
"""From this share of throttled periods on, the quota is named as the limit."""


class RejectedCount(NamedTuple):
    """A number of workers that did not help, the conditions then, and how often it was tried."""

    workers: int
    conditions: Conditions
    times: int
    harmful: bool
    """True: the step became longer. False: it only did not become shorter."""


class NextAction(NamedTuple):
    """One decision. ``rejected`` has, by kind of action, what did not help under the conditions of ``seen``."""

    seen: Observation
    bounds: AutoscaleBounds
    rejected: Mapping[str, RejectedCount]
    ramping_up: bool
    oracle: Callable[..., SimulationResult]

    @property
    def supplied(self) -> bool:
        """Whether batches are ready when the loop asks for them."""
        seen = self.seen
        return bool(seen.workers) and seen.waits <= FEW_WAITS * seen.steps and not self._blocked

    @property
    def _blocked(self) -> bool:
        return self.seen.blocked >= BLOCKED * max(1, self.seen.waits)

    def reduce_wait(self) -> AutoscaleAction | None:
        """The loop waits: the action that could help, or a "hold" with the reason why none does."""
        seen, blocked = self.seen, self._blocked
        if self.supplied:
            text = f"the loop spends {seen.stall:.1%} of the time in next(), but only {seen.waits / seen.steps:.1%} of the batches"
            return self._hold(
                f"{text} were not ready: the training process limits, not the number of workers", "parent"
            )
        at_work = not blocked if seen.busy is None else seen.busy >= BUSY
        if at_work or not seen.workers:
            return self._grow()
        return self._unblock(blocked=blocked)

    def free_workers(self) -> AutoscaleAction | None:
        """The loop does not wait: fewer workers, if the replay predicts that it still would not."""
        seen, have = self.seen, self.seen.workers
        rejected = self.rejected.get("shrink")
        for fewer in sorted({have - max(1, have // 4), have - 1}):
            if fewer < self.bounds.least or (rejected is not None and fewer <= rejected.workers):
                continue
            window = max(1, round(seen.window * fewer / have))
            stall = self._replayed(fewer, window).stall
            if stall < CALM_REPLAYED:
                text = f"the loop waits {seen.stall:.2%} of the time, {self._busy}, and with {fewer} it would wait {stall:.2%}"
                return self._action("shrink", fewer, text, "spare", window=window)
        return None

    def _goal(self) -> tuple[int, WorkerCeiling]:
        """The next number of workers, and the limit above it."""
        have = self.seen.workers
        limit = ceiling(self.seen, self.bounds)
        rejected = self.rejected.get("grow")
        if rejected is not None and rejected.workers <= limit.workers:
            limit = WorkerCeiling(
                rejected.workers - 1, "more were tried and the step did not become shorter", "tried"
            )
        stride = max(3 * have, JUMP) if self.ramping_up else have + STRIDE
        goal = int(min(max(needed(self.seen), have + 1), stride, limit.workers))
        if rejected is not None and rejected.harmful:
            goal = min(goal, have + max(1, (rejected.workers - have) // 2))
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
        """Fewer workers, if they queue for CPUs that other workers use. Fewer do as much and leave the training process its CPU."""
        seen = self.seen
        fill = max(self.bounds.least, knee(seen, self.bounds).workers)
        queued = seen.runq_ns / max(1.0, seen.making_ns + seen.runq_ns)
        rejected = self.rejected.get("shrink")
        known = rejected is not None and fill <= rejected.workers
        if seen.workers < max(OVERFULL * fill, fill + OVER) or queued < QUEUED or known:
            return None
        text = f"{seen.workers} workers wait {queued:.0%} of their time for a CPU, and {fill} would fill those that there are"
        return self._action("shrink", fill, text, "crowded")

    def _unblock(self, *, blocked: bool) -> AutoscaleAction | None:
        """The action for workers that are idle although the loop waits."""
        seen, have = self.seen, self.seen.workers
        text = f"the loop waits {seen.stall:.1%} of the time, {self._busy}, and "
        text += "a later batch was ready" if blocked else "no batch was ready"
        may_split = (
            self.bounds.may_split and not seen.split and seen.rows > 1 and "split" not in self.rejected
        )
        if blocked and may_split:
            text += ": batches that hold up others are made by several workers"
            return self._action("split", have, text, "blocked", window=seen.window, split=True)
        count, depth = self._deeper() if blocked else (have, min(self.bounds.window_most, 2 * seen.window))
        if count > have:
            text += ": more workers and more batches in the making"
            return self._action("grow", count, text, "blocked", window=depth)
        if depth > seen.window and (blocked or "deepen" not in self.rejected):
            return self._action("deepen", have, f"{text}: room for more batches", "blocked", window=depth)
        if blocked:
            return self._hold(f"{text}: more workers would not help", "blocked")
        text += ": what limits is not the number of workers but the training process, or I/O"
        return self._hold(text, "idle")

    def _deeper(self) -> tuple[int, int]:
        """The number of workers and the window with the shortest predicted interval, so that slow batches hold up others least."""
        have, window = self.seen.workers, self.seen.window
        goal, _ = self._goal()
        more = goal > have and needed(self.seen) > have
        options = [(have, window)]
        for count in [have, goal] if more else [have]:
            depth = max(1, round(window * count / have))
            if count > have:
                options.append((count, depth))
            elif "deepen" in self.rejected:
                continue
            while depth < self.bounds.window_most:
                depth = min(self.bounds.window_most, 2 * depth)
                options.append((count, depth))
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

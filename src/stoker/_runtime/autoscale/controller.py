"""Runs the autoscale policy of a loader with ``num_workers="auto"`` and carries out its actions.

    next() ── due? ──► new rows of the recorder ──► Observation ──► (RankConsensus) ──► AutoscalePolicy ──► Iteration.resize
                                                                                              └──► log, record, stats()

It works between two batches, on the thread that iterates. Each batch costs it one reading of the clock. Its state lasts over all
epochs, and it holds no reference to an iteration. If it raises, it is switched off: the workers stay as they are and training
goes on.
"""

from __future__ import annotations

import logging
import os
import time
import weakref
from collections import Counter
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from stoker._host.cpus import cpus
from stoker._record.instruments import is_ours
from stoker._record.recorder import Recorder
from stoker._record.schema import STEP_COLUMNS, Option
from stoker._runtime.autoscale.host_load import HostLoad
from stoker._runtime.autoscale.initial_workers import InitialWorkers, most_workers
from stoker._runtime.autoscale.observations import ObservationSums
from stoker._runtime.autoscale.policy import AutoscalePolicy
from stoker._runtime.autoscale.ranks.rank_consensus import RankConsensus
from stoker._runtime.autoscale.types import AutoscaleAction, AutoscaleBounds, Observation
from stoker._runtime.executors.process import start_method
from stoker._runtime.protocol.status_page import MAX_WORKERS
from stoker.arguments import Auto, LeftOpen, executor_kind

if TYPE_CHECKING:
    from stoker._runtime.engine.iteration import Iteration
    from stoker._runtime.pool.loader_stats import LoaderStats

PAUSE_NS = 250_000_000
"""The pause between two looks when there are too few steps for an observation."""

SETTLE_NS = 60_000_000_000
"""After this time the controller no longer waits for workers to start or to leave."""

_KEPT = 200
"""The number of actions that ``stats()`` keeps."""
MOST_REMOTE = 256
"""The most workers on other hosts that a loader starts by itself."""

_NEVER = 1 << 62
_PART = STEP_COLUMNS.index("part")
_ASKED = STEP_COLUMNS.index("asked_ns")
_GIVEN = STEP_COLUMNS.index("given_ns")
_log = logging.getLogger("stoker")
_clock = time.monotonic_ns
_same_data: Counter[str] = Counter()
"""The number of loaders so far in this process, by the data that they load. It is the same in all ranks."""


class AutoscaleController:
    """One per loader, held by a weak reference. The thread that iterates uses it; any thread may call ``stats``."""

    def __init__(self, loader: Any, begun: InitialWorkers, stats: LoaderStats, recorder: Recorder) -> None:
        found = cpus()
        limit, why = most_workers(found)
        self.recorder = recorder
        self.due_ns = _NEVER
        """The time of the next look."""
        self.pending: int | None = None
        """The number of workers for the next epoch, if this epoch's number cannot change."""
        self._loader = weakref.ref(loader)
        self._stats = stats
        self._begun = begun
        self._began_ns = _clock()
        bounds = AutoscaleBounds(min(limit, MAX_WORKERS), why, cpus=found.usable, cpus_reason=found.reason)
        if executor_kind(loader.executor).remote:
            bounds = _remote_bounds()
        self._policy = AutoscalePolicy(bounds)
        self._host_load = HostLoad(found)
        self._consensus = _join_ranks(loader) if found.ranks > 1 else None
        if self._consensus is not None:
            weakref.finalize(loader, self._consensus.close)
        self._followed = 0
        self._attached: weakref.ref[Iteration] | None = None
        self._fixed = False
        self._settling_ns = 0
        self._sums = ObservationSums()
        self._skip = self._anchor_ns = self._since_ns = self._segment_ns = self._observed_ns = (
            self._batches
        ) = 0
        self._observations = self._worker_count = 0
        self._actions: list[dict[str, Any]] = []
        self._held: str | None = None
        self._last = begun.reason
        self.unplugged: str | None = None

    # Iterations

    def attach(self, iteration: Iteration, *, fixed: bool) -> bool:
        """Control this iteration; False while another one is controlled. ``fixed``: its number of workers stays until its end."""
        other = self._attached() if self._attached is not None else None
        if self.unplugged is not None or (other is not None and not other.over):
            return False
        self._attached, self._fixed = weakref.ref(iteration), fixed
        self._settling_ns = 0
        if self.pending is None or not fixed:
            self._go_on(iteration)
        return True

    def detach(self, iteration: Iteration) -> None:
        """The iteration is over. Its observation continues in the next one, because epochs may be short."""
        if self._attached is None or self._attached() is not iteration:
            return
        self._attached = None
        if self.due_ns != _NEVER:
            self._guarded(self._finish_segment)
        self.due_ns = _NEVER

    def _finish_segment(self) -> None:
        if not self._settling_ns:
            self._gather()
            self._observed_ns += _clock() - self._segment_ns

    def look(self, iteration: Iteration) -> None:
        """Observe and decide, if enough was seen. Called before a batch is asked for, when ``due_ns`` has passed."""
        self._guarded(lambda: self._look(iteration))

    def at_edge(self) -> int | None:
        """Before an epoch begins: its number of workers, if another pool has to be started for it."""
        pending, self.pending = self.pending, None
        if pending is not None:
            self.recorder.resized(Option(pending, f"auto: {self._last}"), 0)
        return pending

    # Watching

    def _go_on(self, iteration: Iteration, *, anew: bool = False) -> None:
        """Begin a segment of the observation. The first batches are skipped: they were made under other conditions."""
        now_ns = _clock()
        if anew or not self._sums.steps or iteration.workers != self._worker_count:
            self._sums, self._observed_ns = ObservationSums(), 0
            self._host_load.begin()
        self._worker_count = iteration.workers
        self._skip, self._anchor_ns = max(1, self._worker_count), 0
        self._since_ns = self._segment_ns = now_ns
        self._batches = self._stats.batches
        self._due(now_ns)

    def _due(self, now_ns: int, *, again: bool = False) -> None:
        whole_ns = int(self._policy.period.seconds * 1e9)
        self.due_ns = now_ns + (
            min(PAUSE_NS, whole_ns // 8) if again else max(0, whole_ns - self._observed_ns)
        )

    def _look(self, iteration: Iteration) -> None:
        now_ns, loader = _clock(), self._loader()
        if iteration.over or (loader is not None and not isinstance(loader.num_workers, Auto)):
            self.due_ns = _NEVER  # the loader's owner may have set the number of workers meanwhile
            return
        if self._settling_ns:
            iteration.listen()
            if not iteration.settled and now_ns < self._settling_ns + SETTLE_NS:
                self._due(now_ns, again=True)
                return
            self._settling_ns = 0
            self._go_on(iteration, anew=True)
            return
        period = self._policy.period
        made = self._stats.batches - self._batches - self._skip + self._sums.steps
        if made < period.steps or self._observed_ns + now_ns - self._segment_ns < period.seconds * 1e9:
            self._due(now_ns, again=True)
            return
        self._gather()
        if self._sums.steps < period.steps:
            self._due(now_ns, again=True)
            return
        sums, self._sums = self._sums, ObservationSums()
        around = self._host_load.known(sums.wall_ns, sums.cpu_ns, iteration.pool._workers)
        observation = sums.observation(iteration.workers, iteration.window, split=iteration.splits, **around)
        self._host_load.begin()
        self._observed_ns, self._segment_ns = 0, now_ns
        self._due(now_ns)
        self._observations += 1
        self._decide(iteration, observation)

    def _gather(self) -> None:
        """Add the recorder's new rows to the sums. If some rows are already overwritten, the rest begin a new segment."""
        rows = self.recorder.since(self._since_ns)
        expected = self._stats.batches - self._batches
        self._batches = self._stats.batches
        if rows is None or not len(rows):
            self._anchor_ns = 0
            return
        self._since_ns = int(rows[-1, _ASKED]) + 1
        firsts = (rows[:, _PART] == 0).nonzero()[0]
        if len(firsts) < expected:
            self._anchor_ns = 0
        passed = min(self._skip, len(firsts))
        self._skip -= passed
        if not passed and not self._anchor_ns:
            passed = 1
        if passed:
            self._anchor_ns = int(rows[firsts[passed - 1], _GIVEN])
            rows = rows[firsts[passed] :] if passed < len(firsts) else rows[:0]
        self._anchor_ns = self._sums.add(rows, self._anchor_ns)

    # Deciding

    def _decide(self, iteration: Iteration, observation: Observation) -> None:
        deepest = iteration.deepest if self._open_window else 0
        self._policy.bounds = replace(self._policy.bounds, window_most=deepest)
        consensus = self._consensus
        if consensus is None:
            action = self._policy.decide(observation)
            if action is not None:
                self._do(iteration, action)
            return
        consensus.report(observation)
        if consensus.leads:
            action = self._policy.decide(consensus.combined(observation))
            if action is not None and action.kind == "hold":
                self._do(iteration, action)
            elif (
                action is not None
                and action.workers > iteration.workers
                and (why := self._dangerous(iteration))
            ):
                self._hold(why)  # the other ranks would follow a decision that this rank cannot carry out
            elif action is not None:
                consensus.publish(action.workers, action.window, split=action.split)
                self._followed = target.sequence if (target := consensus.target()) is not None else 0
                self._do(iteration, action)
                return
        target = consensus.target()
        if target is not None and target.sequence > self._followed:
            self._followed = target.sequence
            reason = "all local ranks have as many: the one that leads chose so"
            if target.workers != iteration.workers:
                self._do(
                    iteration, AutoscaleAction("follow", target.workers, target.window, reason, target.split)
                )

    @property
    def _open_window(self) -> bool:
        """Whether the policy may change the window."""
        loader = self._loader()
        return loader is not None and isinstance(loader.prefetch_factor, LeftOpen) and loader.in_order

    def _do(self, iteration: Iteration, action: AutoscaleAction) -> None:
        if action.kind == "hold":
            self._hold(action.reason)
            return
        before = iteration.workers, iteration.window
        wanted = min(action.workers, self._policy.bounds.most)
        if self._fixed or wanted < 1:
            if wanted != before[0]:
                self.pending = wanted
                self.due_ns = _NEVER
                self._note(action, before, (wanted, before[1]), "from the next epoch on")
            return
        if wanted > before[0] and (why := self._dangerous(iteration)):
            self._hold(why)
            return
        deepest = iteration.deepest * wanted // before[0]
        iteration.resize(wanted, min(action.window, deepest) if self._open_window else 0)
        self._settling_ns = _clock()
        self._due(self._settling_ns, again=True)
        self._count(iteration.workers)
        self._note(action, before, (iteration.workers, iteration.window))

    def _dangerous(self, iteration: Iteration) -> str:
        """The reason to fork no worker now, or "": threads that do not survive a fork may have started. A user who asked for fork
        gets it.
        """
        plan, loader = iteration.pool.plan, self._loader()
        if not plan.kind.processes or plan.context.get_start_method() != "fork":
            return ""
        if loader is not None and loader.multiprocessing_context is not None:
            return ""
        found = start_method.live_hazards()
        names = ", ".join(hazard.module for hazard in found)
        return (
            f"threads of {names} live in this process now, and do not survive the fork of another worker"
            if found
            else ""
        )

    def _count(self, workers: int) -> None:
        loader = self._loader()
        if loader is not None and isinstance(loader.num_workers, Auto):
            loader.num_workers = Auto(workers)

    # Reporting

    def _note(
        self, action: AutoscaleAction, before: tuple[int, int], after: tuple[int, int], when: str = ""
    ) -> None:
        workers = f"{before[0]} -> {after[0]} workers"
        if before[0] == after[0]:
            workers = f"{after[0]} workers, a window of {before[1]} -> {after[1]} batches"
        text = f"{workers}{' ' * bool(when)}{when} ({action.kind}): {action.reason}"
        self._held = None
        self._actions.append(
            {
                "at_s": round((_clock() - self._began_ns) / 1e9, 3),
                "kind": action.kind,
                "workers": list(before[:1] + after[:1]),
                "window": [before[1], after[1]],
                "reason": action.reason,
            }
        )
        del self._actions[:-_KEPT]
        self._last = text
        if self.pending is None:
            self.recorder.resized(Option(after[0], f"auto: {text}"), after[1])
        self._say("tuning", text)

    def _hold(self, reason: str) -> None:
        if reason != self._held:
            self._held = reason
            self._say("held", f"the number of workers stays: {reason}")

    def _say(self, kind: str, text: str) -> None:
        self._stats.event(kind, text)
        with suppress(Exception):  # a handler of the user's may raise
            _log.info("%s: %s", self._stats.name, text)

    def stats(self, workers: int) -> dict[str, Any]:
        """For ``stats()``: a fresh, plain dict."""
        bounds = self._policy.bounds
        return {
            **begun(self._begun, workers),
            "most": bounds.most,
            "most_reason": bounds.reason,
            "windows": self._observations,
            "actions": [dict(each) for each in list(self._actions)],
            "held": self._held,
            "next_epoch": self.pending,
            "unplugged": self.unplugged,
        }

    def _guarded(self, what: Any) -> None:
        try:
            what()
        except Exception as error:
            if not is_ours(error):
                raise  # it comes from a signal handler: the script shall see it
            self.unplugged = f"{type(error).__name__}: {error}"
            self.due_ns = _NEVER
            self._stats.warn(
                f"the number of workers is not tuned any more and stays as it is: {self.unplugged}"
            )


def begun(initial: InitialWorkers | None, workers: int) -> dict[str, Any]:
    """The value for ``stats()`` before the first iteration."""
    first = {"workers": workers, "reason": "as it was set"}
    if initial is not None:
        first = {"workers": initial.workers, "reason": initial.reason}
    return {"workers": workers, "begun": first, "actions": [], "held": None}


def _remote_bounds() -> AutoscaleBounds:
    """Workers on other hosts follow the consumer's wait alone: this machine's CPUs do not limit them."""
    why = "more on one cluster are yours to ask for"
    return AutoscaleBounds(MOST_REMOTE, why, cpus=MOST_REMOTE + 1.0, cpus_reason="those of the cluster")


def _join_ranks(loader: Any) -> RankConsensus | None:
    """Join the local ranks that load the same data. All of them iterate their loaders in the same order."""
    kind = type(loader.dataset)
    key = f"{kind.__module__}.{kind.__qualname__} {loader.batch_size}"
    _same_data[key] += 1
    return RankConsensus.join(os.environ, f"{key} {_same_data[key]}")

"""Feeds the pilot of a loader with ``num_workers="auto"`` and carries out what it says.

    next() ── due? ──► rows since the last look ──► Window ──► (concord: the ranks' windows) ──► Pilot ──► Iteration.resize
                                                                                                      └──► log, record, stats()

It looks between two batches, on the thread that iterates; a batch costs it one look at the clock. It has its own state over all
epochs and holds on to no iteration. An autopilot that fails is unplugged: everything stays as it is, and training goes on.
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
from stoker._runtime.autoscale.host_load import Surroundings
from stoker._runtime.autoscale.initial_workers import Outset, most
from stoker._runtime.autoscale.observations import Stretch
from stoker._runtime.autoscale.policy import Pilot
from stoker._runtime.autoscale.rank_consensus import Concord
from stoker._runtime.autoscale.types import Action, Bounds, Window
from stoker._runtime.executors.process import start_method
from stoker._runtime.protocol.status_page import MAX_WORKERS
from stoker.options import Auto, LeftOpen

if TYPE_CHECKING:
    from stoker._runtime.engine.iteration import Iteration
    from stoker._runtime.engine.loader_stats import Ledger

PAUSE_NS = 250_000_000
"""Between two looks, at most, when there is not enough to go by yet."""

SETTLE_NS = 60_000_000_000
"""Workers that have not come up, or not left, after so long are not waited for any more."""

_KEPT = 200
"""Actions that ``stats()`` remembers."""
_NEVER = 1 << 62
_PART = STEP_COLUMNS.index("part")
_ASKED = STEP_COLUMNS.index("asked_ns")
_GIVEN = STEP_COLUMNS.index("given_ns")
_log = logging.getLogger("stoker")
_clock = time.monotonic_ns
_alike: Counter[str] = Counter()
"""Loaders of this process so far, by what they load: in all ranks the same."""


class Autopilot:
    """Owner: a loader, of which it only knows where it is. Used on the thread that iterates; ``told`` on any."""

    def __init__(self, loader: Any, begun: Outset, ledger: Ledger, recorder: Recorder) -> None:
        found = cpus()
        limit, why = most(found)
        self.recorder = recorder
        self.due_ns = _NEVER
        """When to look next."""
        self.pending: int | None = None
        """How many workers the next epoch is to have, where this one's stay as they are."""
        self._loader = weakref.ref(loader)
        self._ledger = ledger
        self._begun = begun
        self._began_ns = _clock()
        self._pilot = Pilot(Bounds(min(limit, MAX_WORKERS), why, cpus=found.usable, cpus_reason=found.reason))
        self._surroundings = Surroundings(found)
        self._concord = _seat(loader) if found.ranks > 1 else None
        if self._concord is not None:
            weakref.finalize(loader, self._concord.close)
        self._followed = 0
        self._flies: weakref.ref[Iteration] | None = None
        self._fixed = False
        self._settling_ns = 0
        self._stretch = Stretch()
        self._skip = self._anchor_ns = self._since_ns = self._segment_ns = self._flown_ns = self._batches = 0
        self._windows = self._crew = 0
        self._actions: list[dict[str, Any]] = []
        self._held: str | None = None
        self._last = begun.reason
        self.unplugged: str | None = None

    # Iterations

    def attach(self, iteration: Iteration, *, fixed: bool) -> bool:
        """Fly this iteration; False while another one is. ``fixed``: its workers stay as many as they are until its end."""
        other = self._flies() if self._flies is not None else None
        if self.unplugged is not None or (other is not None and not other.over):
            return False
        self._flies, self._fixed = weakref.ref(iteration), fixed
        self._settling_ns = 0
        if self.pending is None or not fixed:
            self._go_on(iteration)
        return True

    def detach(self, iteration: Iteration) -> None:
        """The iteration is over. What was seen of it counts on in the next one: epochs may be short."""
        if self._flies is None or self._flies() is not iteration:
            return
        self._flies = None
        if self.due_ns != _NEVER:
            self._guarded(self._land)
        self.due_ns = _NEVER

    def _land(self) -> None:
        if not self._settling_ns:
            self._gather()
            self._flown_ns += _clock() - self._segment_ns

    def look(self, iteration: Iteration) -> None:
        """It is time. Called before a batch is asked for."""
        self._guarded(lambda: self._look(iteration))

    def at_edge(self) -> int | None:
        """Before an epoch begins: how many workers it is to have, if that has to be another pool's."""
        pending, self.pending = self.pending, None
        if pending is not None:
            self.recorder.resized(Option(pending, f"auto: {self._last}"), 0)
        return pending

    # Watching

    def _go_on(self, iteration: Iteration, *, anew: bool = False) -> None:
        """A segment of the stretch begins, behind the first batches: they were made under other circumstances."""
        now_ns = _clock()
        if anew or not self._stretch.steps or iteration.workers != self._crew:
            self._stretch, self._flown_ns = Stretch(), 0
            self._surroundings.begin()
        self._crew = iteration.workers
        self._skip, self._anchor_ns = max(1, self._crew), 0
        self._since_ns = self._segment_ns = now_ns
        self._batches = self._ledger.batches
        self._due(now_ns)

    def _due(self, now_ns: int, *, again: bool = False) -> None:
        whole_ns = int(self._pilot.period.seconds * 1e9)
        self.due_ns = now_ns + (min(PAUSE_NS, whole_ns // 8) if again else max(0, whole_ns - self._flown_ns))

    def _look(self, iteration: Iteration) -> None:
        now_ns, loader = _clock(), self._loader()
        if iteration.over or (loader is not None and not isinstance(loader.num_workers, Auto)):
            self.due_ns = _NEVER  # in the latter case the user has settled the number meanwhile
            return
        if self._settling_ns:
            iteration.listen()
            if not iteration.settled and now_ns < self._settling_ns + SETTLE_NS:
                self._due(now_ns, again=True)
                return
            self._settling_ns = 0
            self._go_on(iteration, anew=True)
            return
        period = self._pilot.period
        made = self._ledger.batches - self._batches - self._skip + self._stretch.steps
        if made < period.steps or self._flown_ns + now_ns - self._segment_ns < period.seconds * 1e9:
            self._due(now_ns, again=True)
            return
        self._gather()
        if self._stretch.steps < period.steps:
            self._due(now_ns, again=True)
            return
        stretch, self._stretch = self._stretch, Stretch()
        around = self._surroundings.known(stretch.wall_ns, stretch.cpu_ns, iteration.pool._workers)
        window = stretch.window(iteration.workers, iteration.window, split=iteration.splits, **around)
        self._surroundings.begin()
        self._flown_ns, self._segment_ns = 0, now_ns
        self._due(now_ns)
        self._windows += 1
        self._decide(iteration, window)

    def _gather(self) -> None:
        """Rows since the last time into the stretch. Where some are gone already, those that are left are one of their own."""
        rows = self.recorder.since(self._since_ns)
        expected = self._ledger.batches - self._batches
        self._batches = self._ledger.batches
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
        self._anchor_ns = self._stretch.add(rows, self._anchor_ns)

    # Deciding

    def _decide(self, iteration: Iteration, window: Window) -> None:
        deepest = iteration.deepest if self._open_window else 0
        self._pilot.bounds = replace(self._pilot.bounds, window_most=deepest)
        concord = self._concord
        if concord is None:
            action = self._pilot.decide(window)
            if action is not None:
                self._do(iteration, action)
            return
        concord.report(window)
        if concord.leads:
            action = self._pilot.decide(concord.gathered(window))
            if action is not None and action.kind == "hold":
                self._do(iteration, action)
            elif (
                action is not None
                and action.workers > iteration.workers
                and (why := self._dangerous(iteration))
            ):
                self._hold(why)  # the others would go where this rank cannot follow
            elif action is not None:
                concord.publish(action.workers, action.window, split=action.split)
                self._followed = target.sequence if (target := concord.target()) is not None else 0
                self._do(iteration, action)
                return
        target = concord.target()
        if target is not None and target.sequence > self._followed:
            self._followed = target.sequence
            reason = "all local ranks have as many: the one that leads chose so"
            if target.workers != iteration.workers:
                self._do(iteration, Action("follow", target.workers, target.window, reason, target.split))

    @property
    def _open_window(self) -> bool:
        """Whether the window is ours to change."""
        loader = self._loader()
        return loader is not None and isinstance(loader.prefetch_factor, LeftOpen) and loader.in_order

    def _do(self, iteration: Iteration, action: Action) -> None:
        if action.kind == "hold":
            self._hold(action.reason)
            return
        before = iteration.workers, iteration.window
        wanted = min(action.workers, self._pilot.bounds.most)
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
        """Why no worker may be forked now; threads may have come since that do not survive it. Who asked for fork has it."""
        plan, loader = iteration.pool.plan, self._loader()
        if plan.kind != "process" or plan.context.get_start_method() != "fork":
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

    # Telling

    def _note(self, action: Action, before: tuple[int, int], after: tuple[int, int], when: str = "") -> None:
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
            self._say("held", f"no other number of workers: {reason}")

    def _say(self, kind: str, text: str) -> None:
        self._ledger.event(kind, text)
        with suppress(Exception):  # of a handler of the user's
            _log.info("%s: %s", self._ledger.name, text)

    def told(self, workers: int) -> dict[str, Any]:
        """For ``stats()``: a fresh, plain dict."""
        bounds = self._pilot.bounds
        return {
            **begun(self._begun, workers),
            "most": bounds.most,
            "most_reason": bounds.reason,
            "windows": self._windows,
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
                raise  # a signal handler's, for the script
            self.unplugged = f"{type(error).__name__}: {error}"
            self.due_ns = _NEVER
            self._ledger.warn(
                f"the number of workers is not tuned any more and stays as it is: {self.unplugged}"
            )


def begun(outset: Outset | None, workers: int) -> dict[str, Any]:
    """What ``stats()`` tells before anything was iterated."""
    first = {"workers": workers, "reason": "as it was set"}
    if outset is not None:
        first = {"workers": outset.workers, "reason": outset.reason}
    return {"workers": workers, "begun": first, "actions": [], "held": None}


def _seat(loader: Any) -> Concord | None:
    """This rank's place among those that load the same. In all of them loaders are iterated in the same order."""
    kind = type(loader.dataset)
    key = f"{kind.__module__}.{kind.__qualname__} {loader.batch_size}"
    _alike[key] += 1
    return Concord.join(os.environ, f"{key} {_alike[key]}")

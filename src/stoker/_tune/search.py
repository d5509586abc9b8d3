"""The search: facts, one worker, the demand, what the replay says, the race; and at any time the answer as of then."""

from __future__ import annotations

import importlib.util
import math
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from typing import Any

from stoker._core.tuning import candidates, verdict
from stoker._core.tuning.block import Block
from stoker._core.tuning.candidates import Bounds
from stoker._core.tuning.prior import Prior, predict, prior, safe_workers
from stoker._core.tuning.race import Entry, Race
from stoker._core.tuning.setting import Setting
from stoker._core.tuning.work import Demand, Host, Work
from stoker._metrics import room
from stoker._metrics.cpus import cpus
from stoker._tune.edits import edits
from stoker._tune.facts.target import Target
from stoker._tune.result import Tuning
from stoker._tune.visit import PROBES, Lost, Visit

_LEAST_S = 0.7
"""Without so much time left no block is begun."""
_WORK_SHARE = 0.25
_FIRST_SHARE = 0.6
"""Of the time for the race, until the best is looked around."""
_HANG_S = 15.0
"""A block without a sign of life for so long hangs, or is too slow to be measured."""


class Search:
    """One tuning on its way. ``told`` is called with what is done now."""

    def __init__(
        self,
        visit: Visit,
        demand: Demand,
        *,
        step: str | None = None,
        has_step: bool = False,
        ranks: int | None = None,
        told: Callable[[str], None] = lambda what: None,
    ) -> None:
        self._visit = visit
        self._told = told
        self._step = step
        self._has_step = has_step or step is not None
        self._ranks = ranks
        self.demand = demand
        self.target: Target | None = None
        self.host = this_host(ranks)
        self.work: Work | None = None
        self.prior: Prior | None = None
        self.race: Race | None = None
        self.ceiling: float | None = None
        self.stopped = ""
        self.failure = ""
        self.notes: list[str] = []
        self._closed: set[Setting] = set()

    def run(self) -> None:
        """All of it. Raises TargetError; KeyboardInterrupt passes through, and ``stopped`` and all else then hold what there is."""
        self._told("loading")
        self.target = self._visit.open()
        self._told("machine")
        self._facts()
        if not self._is_worth_it():
            return
        self._told("one worker")
        self._one_worker()
        if self.failure:
            self.stopped = "failed"
            return
        self._told("demand")
        self._demand()
        self._race()

    def _facts(self) -> None:
        if _exists("host"):
            try:
                self.host = self._visit.ask(
                    "host", limit_s=10.0, trial={} if self._ranks is None else {"ranks": self._ranks}
                )
            except Lost as error:
                self.notes.append(f"the machine was looked at from outside only: {error}")

    def _is_worth_it(self) -> bool:
        assert self.target is not None
        if self._visit.left_s < _LEAST_S:
            self.stopped = "budget"
            self.failure = "the budget was spent before anything could be measured"
            return False
        return True

    def _one_worker(self) -> None:
        if not _exists("work"):
            return
        seconds = max(0.5, min(8.0, _WORK_SHARE * self._visit.left_s))
        try:
            self.work = self._visit.ask(
                "work",
                limit_s=_HANG_S,
                within_s=seconds * 3,
                trial={"seconds": seconds, "limit_s": seconds * 2},
            )
        except Lost as error:
            self.failure = str(error)

    def _demand(self) -> None:
        pass

    def _race(self) -> None:
        assert self.target is not None
        baseline = self.target.setting
        settings: tuple[Setting, ...]
        bounds = self._bounds()
        if self.work is not None and self.work.batch_ns:
            self.prior = prior(self.host, self.work, self.demand, batches=self.target.batches)
            settings = candidates.first(baseline, self.host, self.work, self.demand, self.prior, bounds)
        else:
            few = safe_workers(self.host)
            settings = tuple(Setting(count, prefetch=2 if count else None) for count in (0, few, 2 * few))
        self.race = Race(baseline, settings, cpus=self.host.cpus)
        whole_s = self._visit.left_s
        self._heats(until_s=whole_s * (1 - _FIRST_SHARE))
        while self.work is not None and self.prior is not None and self._visit.left_s > 0.15 * whole_s:
            best = self.race.best
            if best is None:
                break
            tried = (*self.race.alive, *self.race.left, *self.race.failed)
            new = candidates.around(best, tried, self.host, self.work, self.demand, self.prior, bounds)
            if not self.race.join(new):
                break
            self._heats(until_s=0.0)
        self.stopped = self.race.stopped or "budget"

    def _heats(self, *, until_s: float) -> None:
        """Rounds until the race stops, or no more than so much time is left."""
        race = self.race
        assert race is not None
        while (entries := race.ask(self._visit.left_s - until_s)) is not None:
            told: list[tuple[Block, float]] = []
            for entry in entries:
                if self._visit.left_s < _LEAST_S:
                    break
                self._told(verdict.described(entry.setting))
                began = time.monotonic()
                block = self._block(entry)
                told.append((block, time.monotonic() - began))
            if not told:
                break
            race.tell(told)
            self._close_losers()

    def _block(self, entry: Entry) -> Block:
        """A block that ended its patient is told as a failure: whoever comes next gets a new one."""
        left_s = max(_LEAST_S, self._visit.left_s)
        trial = {
            "setting": asdict(entry.setting),
            "seconds": entry.seconds,
            "least": entry.least,
            "step_ns": self.demand.step_ns // max(1, self.demand.burst),
            "step_cpu_ns": self.demand.cpu_ns // max(1, self.demand.burst),
            "burst": self.demand.burst,
            "step": self._has_step,
            "limit_s": left_s,
        }
        try:
            block: Block = self._visit.ask("block", limit_s=_HANG_S, within_s=left_s, trial=trial)
        except Lost as error:
            return Block(entry.setting, 0, 0, 0, failure=str(error))
        return block

    def _close_losers(self) -> None:
        """Who has left needs no workers any more."""
        assert self.race is not None
        for setting in set(self.race.left) - self._closed:
            self._closed.add(setting)
            try:
                self._visit.ask("block", limit_s=10.0, trial={"setting": asdict(setting), "close": True})
            except Lost:
                return

    def _bounds(self) -> Bounds:
        target = self.target
        assert target is not None
        return Bounds(
            threads=not target.stream,
            workers=not target.daemonic,
            most=1 if target.stream and not target.asks_worker else None,
        )

    def result(self, target: object) -> Tuning:
        """The answer as of now."""
        found = self.target
        baseline = found.setting if found is not None else Setting()
        best = self.race.best if self.race is not None else None
        measured = best is not None
        chosen = best if best is not None else self._safe(baseline)
        points = self._points()
        rivals = self.race.standing.rivals(chosen) if self.race is not None and measured else ()
        case = verdict.Case(
            baseline,
            chosen,
            points,
            rivals,
            self.stopped,
            self.host,
            self.work,
            self.demand,
            self.prior,
            "unknown",
            self.ceiling,
            crowded=self.race is not None and self.race.crowded,
            stream=found is not None and found.stream,
            asks_worker=found is None or found.asks_worker,
            batches=found.batches if found is not None else None,
            failure=self.failure,
        )
        said = verdict.say(case)
        typed = edits(found, chosen) if found is not None else ()
        return Tuning(
            target=target if isinstance(target, str) else type(target).__name__,
            batch_size=found.batch_size if found is not None else None,
            baseline=baseline,
            recommended=chosen,
            verdict=said.verdict,
            why=said.why,
            regime=case.regime,
            warnings=(*said.warnings, *self.notes),
            separated=measured and not rivals,
            gain=said.gain,
            ceiling=self.ceiling,
            limit=said.limit,
            stopped=self.stopped,
            spent_s=self._visit.spent_s,
            host=self.host,
            work=self.work,
            demand=self.demand,
            points=points,
            edit=typed[0] if typed else None,
            edits=typed,
            file=found.file if found is not None else None,
            line=found.line if found is not None else None,
            failure=self.failure,
        )

    def _points(self) -> tuple[Any, ...]:
        if self.race is None:
            return ()
        points = self.race.points()
        work = self.work
        if work is None or not work.batch_ns:
            return points
        return tuple(
            replace(each, predicted_ns=predict(each.setting, self.host, work, self.demand).interval_ns)
            for each in points
        )

    def _safe(self, baseline: Setting) -> Setting:
        count = safe_workers(self.host)
        return Setting(count, prefetch=2, pin=baseline.pin)


def this_host(ranks: int | None) -> Host:
    """What can be seen without a patient."""
    found = cpus()
    shared = ranks or found.ranks
    usable = found.usable if ranks in (None, found.ranks) else max(1, math.floor(found.affinity / shared))
    return Host(float(usable), found.reason, found.machine, shared, room.room_bytes())


def _exists(name: str) -> bool:
    return importlib.util.find_spec(f"{PROBES}.{name}") is not None

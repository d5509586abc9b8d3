"""``stoker bench``: compares torch's default, the usual advice, the target's own setting, and stoker tuned, in turns."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from statistics import median
from typing import Any

from stoker._record.finding import counted
from stoker._runtime.autoscale import profile_files
from stoker._runtime.simulation.setting import Setting
from stoker._runtime.simulation.work import Demand, Host
from stoker._tools.tune import demand as demands
from stoker._tools.tune.comparison import Comparison, Lane
from stoker._tools.tune.facts import Likeness, Target
from stoker._tools.tune.model.block import Block
from stoker._tools.tune.model.race import RUNQ
from stoker._tools.tune.model.standings import NEIGHBOUR, CountedBlock, Standings
from stoker._tools.tune.safety import bounds_of, this_host
from stoker._tools.tune.session import ProbeLost, TuneSession, ask_host, block_trial, find_step
from stoker._tools.tune.tuning import tune

BenchProgress = Callable[[str, float], None]
"""Called with the current step of the work, and the share of the time that is spent."""
DEFAULT, ADVICE, YOURS, TUNED = "torch's default", "the usual advice", "yours", "stoker tuned"
_ROUNDS = 6
"""The number of rounds that the time is divided into."""
_LEAST_ROUNDS = 2
_BLOCK_S = (0.3, 2.0)
_LEAST_BATCHES = 4
_HANG_S = 30.0
_LIKENESS = 0.2
"""Share of the time for comparing the batches of both engines."""
_SAME = 0.03
"""Times that differ by less count as equal."""


def bench(
    target: object,
    *,
    batch_size: int | None = None,
    setting: Setting | None = None,
    step: str | Callable[[Any], Any] | None = None,
    step_s: float | None = None,
    record: str | None = None,
    accumulate: int = 1,
    ranks: int | None = None,
    budget_s: float = 30.0,
    tune_s: float = 45.0,
    fresh: bool = False,
    progress: BenchProgress | None = None,
) -> Comparison:
    """Run the loaders side by side on the user's own data. Arguments are those of ``tune``; ``budget_s`` is for the comparison.

    stoker's setting is ``setting``, or that of a saved profile unless ``fresh``, or the one that ``tune`` finds within
    ``tune_s``. Ctrl-C ends it with the results so far. Raises TargetError and ValueError as ``tune`` does.
    """
    demand, step = demands.resolved(
        target, step=step, step_s=step_s, record=record, accumulate=accumulate, ranks=ranks, budget_s=budget_s,
        batch_size=batch_size,
    )  # fmt: skip
    run = _BenchRun(target, batch_size, demand, step, ranks, budget_s, progress)
    try:
        run.look()
        if setting is None and not fresh:
            setting, run.tuned_by = run.profiled()
        elif setting is not None:
            run.tuned_by = "given"
        if setting is None:
            run.report("tuning")
            found = tune(
                target, batch_size=batch_size, step=step, step_s=step_s, record=record, accumulate=accumulate, ranks=ranks,
                budget_s=tune_s, progress=lambda what, share, _: run.report(f"tuning: {what}"),
            )  # fmt: skip
            setting = found.recommended
            run.tuned_by = "tuned now" if found.points else "assumed"
            run.warnings += found.warnings
        run.compare(setting)
    except KeyboardInterrupt:
        run.stopped = "interrupted"
    finally:
        with suppress(KeyboardInterrupt):
            run.close()
    return run.result()


class _BenchRun:
    """One bench in progress."""

    def __init__(
        self,
        target: object,
        batch_size: int | None,
        demand: Demand,
        step: str | Callable[[Any], Any] | None,
        ranks: int | None,
        budget_s: float,
        progress: BenchProgress | None,
    ) -> None:
        self._name = target if isinstance(target, str) else type(target).__name__
        self._began = time.monotonic()
        self._session = TuneSession(
            target, batch_size=batch_size, budget_s=budget_s, step=step if callable(step) else None
        )
        self._step = step
        self._ranks = ranks
        self._budget_s = budget_s
        self._progress = progress
        self._share = 0.0
        self._target: Target | None = None
        self._demand = demand
        self._likeness = Likeness(None, 0, "not looked at")
        self._names: dict[Setting, tuple[str, ...]] = {}
        self._counted: list[CountedBlock] = []
        self._failed: dict[Setting, str] = {}
        self._rounds = 0
        self.host: Host = this_host(ranks)
        self.warnings: tuple[str, ...] = ()
        self.tuned_by = ""
        self.stopped = ""
        self.failure = ""

    def report(self, what: str) -> None:
        """Report the current step of the work."""
        if self._progress is not None:
            self._progress(what, self._share)

    def close(self) -> None:
        """End the sandbox."""
        self._session.close()

    def look(self) -> None:
        """Load the target and look at the machine. Raises TargetError."""
        self.report("loading")
        self._target = self._session.open()
        if isinstance(self._step, str):
            find_step(self._session, self._step)
        with suppress(ProbeLost):
            self.host = ask_host(self._session, self._ranks)

    def profiled(self) -> tuple[Setting | None, str]:
        """The setting in a saved profile for this target on this machine, if there is one."""
        assert self._target is not None
        found = profile_files.find_key(self._target.key, self._target.batch_size, ranks=self._ranks)
        return (None, "") if found is None else (found.setting, f"profile of {found.made_at}")

    def compare(self, tuned: Setting) -> None:
        """Run all loaders in turns, as long as there is time for a whole round."""
        self._name_lanes(replace(tuned, engine="stoker"))
        self._measure_demand()
        self._look_alike(replace(tuned, engine="stoker"))
        until = time.monotonic() + self._budget_s
        drawn = random.Random(0)
        longest_s = 0.0
        while self._alive() and not self.failure:
            left_s = until - time.monotonic()
            if self._rounds >= _LEAST_ROUNDS and left_s < longest_s:
                break
            if self._rounds and left_s < -2 * self._budget_s:
                break
            began = time.monotonic()
            lanes = self._alive()
            seconds = max(_BLOCK_S[0], min(_BLOCK_S[1], self._budget_s / _ROUNDS / len(lanes) - 0.1))
            drawn.shuffle(lanes)
            for setting in lanes:
                self._share = min(0.99, 1 - max(0.0, until - time.monotonic()) / self._budget_s)
                self.report(f"round {self._rounds + 1}: {self._names[setting][0]}")
                self._keep(self._block(setting, seconds))
            self._rounds += 1
            longest_s = max(longest_s if self._rounds > 2 else 0.0, time.monotonic() - began)
        self.stopped = "failed" if not self._counted else "budget"
        if not self._counted:
            self.failure = self.failure or next(iter(self._failed.values()), "nothing could be run")

    def result(self) -> Comparison:
        """The comparison as of now."""
        settings = list(self._names)
        counted = calm(self._counted)
        baseline = next((each for each in settings if each not in self._failed), Setting(engine="torch"))
        standings = Standings(counted, baseline)
        lanes = []
        for setting in settings:
            failure = self._failed.get(setting) or ("" if standings.rounds(setting) else "it was not run")
            point = standings.point(setting, failure=failure)
            middle_ns = point.interval_ns.middle
            lanes.append(Lane(self._names[setting], point, 1e9 / middle_ns if middle_ns > 0 else 0.0))
        target = self._target
        return Comparison(
            target=self._name,
            batch_size=None if target is None else target.batch_size,
            kept=() if target is None else target.kept,
            lanes=tuple(lanes),
            verdict=said(lanes, standings)
            if not self.failure
            else f"Nothing could be compared: {self.failure}.",
            tuned_by=self.tuned_by,
            alike=self._likeness.alike,
            alike_text=self._likeness.text,
            rounds=self._rounds,
            demand=self._demand,
            host=self.host,
            warnings=(*self.warnings, *crowded(self._counted, self.host)),
            stopped=self.stopped,
            spent_s=time.monotonic() - self._began,
            failure=self.failure,
        )

    def _name_lanes(self, tuned: Setting) -> None:
        assert self._target is not None
        most = bounds_of(self._target).most
        if most is not None:
            self.warnings += (
                (
                    "Every worker reads the whole stream: its code does not ask which worker it is in. With more than one, samples "
                    f"come several times and count as often, so the usual advice was run with {most}."
                ),
            )
        wanted = [(DEFAULT, Setting(0, engine="torch")), (ADVICE, advised(self.host, most))]
        if self._target.loader:
            wanted.append((YOURS, self._target.setting))
        wanted.append((TUNED, tuned))
        for name, setting in wanted:
            names = self._names.pop(setting, ())
            self._names[setting] = (*names, name)
        # torch's default comes first, whatever other names it has; stoker's comes last.
        self._names = dict(sorted(self._names.items(), key=lambda each: _place(each[1])))

    def _measure_demand(self) -> None:
        if self._step is None:
            return
        self.report("demand")
        trial = {"step": self._step if isinstance(self._step, str) else None, "burst": self._demand.burst}
        try:
            self._demand = self._session.ask("demand", limit_s=_HANG_S, within_s=2 * _HANG_S, trial=trial)
        except ProbeLost as error:
            self._step = None
            self.warnings += (
                f"The step function could not be used, so batches are taken as fast as they come: {str(error).rstrip('.')}.",
            )

    def _look_alike(self, tuned: Setting) -> None:
        self.report("equal batches")
        limit_s = max(2.0, _LIKENESS * self._budget_s)
        trial = {"setting": tuned.as_dict(), "limit_s": limit_s}
        try:
            self._likeness = self._session.ask(
                "likeness", limit_s=limit_s + 5, within_s=limit_s + 5, trial=trial
            )
        except ProbeLost as error:
            self._likeness = Likeness(None, 0, str(error))
        if not self._likeness.batches and self._leave_out_bad():
            self._look_alike(tuned)

    def _leave_out_bad(self) -> bool:
        """Leave out samples that raise. True if there are such samples. If no sample can be made at all, the bench ends."""
        trial = {"seconds": 1.0, "limit_s": max(3.0, min(_HANG_S, self._budget_s) / 2)}
        try:
            work = self._session.ask("work", limit_s=_HANG_S, within_s=_HANG_S, trial=trial)
        except ProbeLost as error:
            self.failure = str(error)
            return False
        if not [each for each in work.bad if self._session.leave_out(each)]:
            return False
        bad = counted(len(work.bad), "sample")
        self.warnings += (f"{bad} and maybe more raise ({work.bad_text}): they were left out.",)
        return True

    def _block(self, setting: Setting, seconds: float) -> Block:
        step = self._step if isinstance(self._step, str) else self._step is not None
        limit_s = max(_HANG_S / 2, 4 * seconds)
        trial = block_trial(
            setting, self._demand, step, seconds=seconds, least=_LEAST_BATCHES, limit_s=limit_s
        )
        try:
            block: Block = self._session.ask("block", limit_s=_HANG_S, within_s=4 * _HANG_S, trial=trial)
        except ProbeLost as error:
            return Block(setting, 0, 0, 0, failure=str(error))
        return block

    def _keep(self, block: Block) -> None:
        if block.failure or not block.batches:
            self._failed[block.setting] = block.failure or "no batch came"
            self._counted = [each for each in self._counted if each.block.setting != block.setting]
        else:
            self._counted.append(CountedBlock(self._rounds, block))

    def _alive(self) -> list[Setting]:
        return [each for each in self._names if each not in self._failed]


def advised(host: Host, most: int | None = None) -> Setting:
    """The setting that most guides advise: a persistent worker for every CPU, and pinned memory with an accelerator.

    ``most``: the most workers that do not repeat data.
    """
    try:
        count = len(os.sched_getaffinity(0))
    except (AttributeError, OSError):
        count = host.machine_cpus
    count = count if most is None else min(count, most)
    return Setting(max(1, count), pin=host.accelerator is not None, engine="torch")


def calm(counted: Sequence[CountedBlock]) -> list[CountedBlock]:
    """The blocks, with disturbed ones marked: workers queued for a CPU much more than in the calmest block of the same setting.

    At least two blocks of each setting count.
    """
    found = []
    for setting in {each.block.setting: None for each in counted}:
        own = sorted(
            (each for each in counted if each.block.setting == setting),
            key=lambda each: each.block.runq_share or 0.0,
        )
        least = own[0].block.runq_share or 0.0
        for place, each in enumerate(own):
            hit = place >= _LEAST_ROUNDS and (each.block.runq_share or 0.0) > least + RUNQ
            found.append(replace(each, disturbed=hit))
    return found


def crowded(counted: Sequence[CountedBlock], host: Host) -> tuple[str, ...]:
    """A warning if other programs used CPUs."""
    known = [each.block.foreign_cpus for each in counted if each.block.foreign_cpus is not None]
    if not known or median(known) < NEIGHBOUR:
        return ()
    return (
        f"Other programs used {median(known):.1f} of {host.machine_cpus} CPUs meanwhile: an idle machine would give other numbers.",
    )


def said(lanes: list[Lane], standings: Standings) -> str:
    """The verdict in a sentence: stoker tuned against the best of the others."""
    known = set(standings.settings)
    if not lanes or lanes[-1].setting not in known:
        return "stoker's tuned setting could not be run." if lanes else "Nothing was run."
    ours = lanes[-1]
    others = [each for each in lanes[:-1] if each.setting in known]
    if not others:
        return "There was nothing to compare with."
    best = min(others, key=lambda each: each.point.interval_ns.middle)
    ratio = standings.ratio(ours.setting, best.setting)
    name = best.names[0]
    if ratio.low > 1 + _SAME:
        return f"{name} is faster: stoker tuned takes {ratio.middle:.2f} times as long."
    if ratio.high < 1 - _SAME:
        return f"stoker tuned is {1 / ratio.middle:.2f} times as fast as the best of the others, {name}."
    return f"stoker tuned and {name} are equally fast, as far as this comparison shows."


def _place(names: tuple[str, ...]) -> int:
    if TUNED in names:
        return 3
    return min((DEFAULT, ADVICE, YOURS).index(each) for each in names)

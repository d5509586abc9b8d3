"""The search: facts, one worker, the demand, predictions, the race. It holds the results so far at any time."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Protocol

from stoker._runtime.simulation.setting import Setting
from stoker._runtime.simulation.work import Demand, Work
from stoker._tools.tune.facts import Target, ThreadSafety
from stoker._tools.tune.instruments.sample_parts import SampleParts
from stoker._tools.tune.knobs.multiprocessing_context import StartTrial, chosen_start, try_starts
from stoker._tools.tune.model import candidates, verdict
from stoker._tools.tune.model.block import Block
from stoker._tools.tune.model.candidates import KnobContext
from stoker._tools.tune.model.prior import Prior, predict, prior
from stoker._tools.tune.model.race import Race, RaceEntry
from stoker._tools.tune.model.verdict import CEILING
from stoker._tools.tune.safety import bounds_of, left_out_sentence, may_use_threads, this_host, thread_trial
from stoker._tools.tune.session import ProbeLost, Prober, ask_host, block_trial, find_step

_LEAST_S = 0.7
"""No block begins with less time left."""
_WORK_SHARE = 0.2
_WORK_S = (0.5, 6.0)
"""The time for watching one worker: a share of the whole, within these bounds."""
_FIRST_SHARE = 0.55
"""Share of the race's time for the first settings; the rest is for settings around the best."""
_MORE_SHARE = 0.12
"""No setting joins the race with less of its time left."""
_STARTS_S = 25.0
"""Start methods are not tried with less time left: a fork server that imports torch takes seconds."""
_HEADSPACE_S = 1.5
_PARTS_S, _PARTS_SHARE, _PARTS_LEAST_S = 1.0, 0.04, 0.2
"""The time for looking at what a cache could keep: a share of what is left, at most, and at least."""
_HANG_S = 15.0
"""A block without a sign of life for so long hangs, or is too slow to measure."""
_WAITS = 0.015
_BESIDE = 0.08
"""A loop that waits less than this has no data problem, even if its step takes this much longer than given."""
_TRIFLE_NS = 300_000
"""A batch that is made in less is handed over in about as much: without a step that is known, no worker can help."""
_STARTS_NS = 2_000_000
"""Of batches that take less, start methods are not tried: workers hardly matter."""
_CROWDED = 0.15
"""If other programs leave no CPU idle, a loop may wait this much and still have no data problem, if the replay says so."""


class SearchSession(Prober, Protocol):
    """The part of a session that a search uses."""

    @property
    def left_s(self) -> float: ...

    @property
    def spent_s(self) -> float: ...

    def open(self) -> Target: ...

    def leave_out(self, index: int) -> bool: ...


class Search:
    """One tuning in progress. ``progress`` is called with the current step of the work.

    ``failure`` says why nothing, or not everything, could be measured. ``notes`` has other remarks.
    """

    def __init__(
        self,
        session: SearchSession,
        demand: Demand,
        *,
        step: str | None = None,
        has_step: bool = False,
        ranks: int | None = None,
        progress: Callable[[str], None] = lambda what: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._session = session
        self._progress = progress
        self._step = step
        self._has_step = has_step or step is not None
        self._ranks = ranks
        self._clock = clock
        self.demand = demand
        self.target: Target | None = None
        self.host = this_host(ranks)
        self.work: Work | None = None
        self.prior: Prior | None = None
        self.race: Race | None = None
        self.ceiling: float | None = None
        self.starts: tuple[StartTrial, ...] = ()
        self.stopped = ""
        self.failure = ""
        self.untried: tuple[Setting, ...] = ()
        """Settings that may be better, but for which there was no time."""
        self.notes: list[str] = []
        self.sample_parts: SampleParts | None = None
        """What of a sample's work a cache could keep; None: not looked, or it cannot be told."""
        self.thread_safety: ThreadSafety | None = None
        """Whether threads leave the batches as they are; None: nobody looked, as long as no setting with threads was proposed."""
        self._closed: set[Setting] = set()

    @property
    def spent_s(self) -> float:
        """Seconds since it began."""
        return self._session.spent_s

    def watch(self) -> bool:
        """Load the target, watch one worker, and measure the step: no setting is tried. Raises TargetError. Whether it worked."""
        self._progress("loading the target")
        self.target = self._session.open()
        if self.target.others:
            self.notes.append(
                f"The target has {self.target.others + 1} loaders: this answer is for the first one."
            )
        if self._step is not None:
            find_step(self._session, self._step)
        self._progress("looking at the machine")
        self._look_at_host()
        if self._session.left_s < _LEAST_S:
            self._give_up("budget", "the budget was spent on loading the target")
            return False
        self._progress("watching one worker")
        if not self._watch_one_worker():
            return False
        self._progress("measuring the step")
        self._measure_demand()
        return True

    def run(self) -> None:
        """Run the whole search. Raises TargetError. KeyboardInterrupt passes through, and the results so far stay."""
        if not self.watch():
            return
        if self._session.left_s < _LEAST_S:
            self._give_up("budget", "the budget was spent before two settings could be compared")
            return
        if self.target is not None and self.target.setting.shares:
            self._compare_threads((self.target.setting,))
        if self._is_worth_it():
            if self._needs_no_worker():
                self.stopped = "no worker can help"
                return
            self._look_at_samples()
            self._compare()

    def _needs_no_worker(self) -> bool:
        """Whether there are no workers, batches take next to nothing, and no step says that even this counts."""
        assert self.target is not None
        assert self.work is not None
        trifle = bool(self.work.batch_ns) and self.work.typical_ns < _TRIFLE_NS
        return trifle and not self.demand.step_ns and not self.target.setting.workers

    def _give_up(self, stopped: str, failure: str) -> None:
        self.stopped = stopped
        self.failure = self.failure or failure

    def _look_at_host(self) -> None:
        try:
            self.host = ask_host(self._session, self._ranks)
        except ProbeLost as error:
            self.notes.append(f"The machine was examined from outside only: {error}.")

    def _watch_one_worker(self) -> bool:
        """Measure one worker's work. False if that fails. A sample that ended the process is left out at the next try."""
        least_s, most_s = _WORK_S
        while True:
            left_s = self._session.left_s
            seconds = max(least_s, min(most_s, _WORK_SHARE * left_s))
            patience_s = max(seconds, left_s / 2)
            trial = {"seconds": seconds, "limit_s": patience_s}
            try:
                self.work = self._session.ask(
                    "work", limit_s=max(_HANG_S, patience_s), within_s=max(left_s, patience_s), trial=trial
                )
                break
            except ProbeLost as error:
                if self._session.left_s < left_s / 3 or not self._can_retry(error):
                    self._give_up("failed", str(error))
                    return False
        bad = self.work.bad
        for index in bad:
            self._session.leave_out(index)
        if bad:
            some = f"{len(bad)} samples" if len(bad) > 1 else f"sample {bad[0]}"
            self.notes.append(f"Left out: {some} ({self.work.bad_text}).")
        return True

    def _look_at_samples(self) -> None:
        """For the forecast of a cache, which is left out if this fails."""
        seconds = min(_PARTS_S, _PARTS_SHARE * self._session.left_s)
        if seconds < _PARTS_LEAST_S or self.target is None or self.target.stream:
            return
        self._progress("what a cache could keep")
        try:
            self.sample_parts = self._session.ask(
                "cache", limit_s=_HANG_S, within_s=10 * seconds, trial={"seconds": seconds}
            )
        except ProbeLost:
            return

    def _can_retry(self, error: ProbeLost) -> bool:
        """Whether the probe can be tried again without the sample that ended it."""
        index = getattr(error.probe_failure, "index", None)
        if index is None or self._session.left_s < _LEAST_S or not self._session.leave_out(index):
            return False
        self.notes.append(f"Left out: {error}.")
        return True

    def _measure_demand(self) -> None:
        """Measure the user's step function. If it raises, that is a warning and the demand stays unknown."""
        if not self._has_step:
            return
        trial = {
            "step": self._step,
            "burst": self.demand.burst,
            "seconds": min(3.0, self._session.left_s / 6),
        }
        try:
            self.demand = self._session.ask(
                "demand", limit_s=_HANG_S, within_s=max(5.0, self._session.left_s / 3), trial=trial
            )
        except ProbeLost as error:
            self._has_step = False
            self._step = None
            self.notes.append(
                f"The step function could not be used, so the search was for the fastest setting: {str(error).rstrip('.')}."
            )

    def _is_worth_it(self) -> bool:
        """Whether data takes more than 3 % of a step with the current setting. True if the demand is unknown."""
        assert self.target is not None
        assert self.work is not None
        if not self.demand.step_ns or self._threads_break:
            return True
        self._progress("the headspace")
        baseline = self.target.setting
        race = Race(baseline, (), cpus=self.host.cpus)
        seconds = min(_HEADSPACE_S, self._session.left_s / 6)
        blocks = []
        for _ in range(2):
            began = self._clock()
            block = self._block(RaceEntry(baseline, seconds / 2, 4))
            race.tell([(block, self._clock() - began)])
            if block.failure:
                return True
            blocks.append(block)
        step_ns = self.demand.step_ns / max(1, self.demand.burst)
        whole_ns = sum(each.wall_ns for each in blocks) / sum(each.batches for each in blocks)
        stall = sum(each.wait_ns for each in blocks) / sum(each.wall_ns for each in blocks)
        self.ceiling = max(0.0, 1 - step_ns / whole_ns)
        self.race = race
        seen = min(self.ceiling, stall)
        fine = self.ceiling < CEILING or (stall < _WAITS and self.ceiling < _BESIDE)
        if race.crowded and seen < _CROWDED:  # it waits for CPUs that other programs use; alone it would not
            predicted_ns = predict(baseline, self.host, self.work, self.demand).interval_ns
            fine = fine or 1 - step_ns / predicted_ns < CEILING
        if fine:
            self.ceiling = seen if self.ceiling >= CEILING else self.ceiling
            self.stopped = "not the bottleneck"
            return False
        return True

    def _compare(self) -> None:
        context, settings = self._proposed()
        alone, self.race = self.race, Race(settings[0], settings[1:], cpus=self.host.cpus)
        self._expect(settings)
        try:
            self._run_race(self.race, context)
            self.stopped = self.race.stopped or "budget"
            self._look_beyond(context)
        finally:  # Ctrl-C, too: what was measured of the baseline counts
            if self.race.best is None and alone is not None and not self.race.failed:
                self.race = alone
        if self.race.best is None:
            reasons = list(dict.fromkeys(self.race.failed.values()))
            self._give_up(self.stopped, reasons[0] if reasons else "there was no time for a single block")

    def _proposed(self) -> tuple[KnobContext, tuple[Setting, ...]]:
        """The settings of the first race. If threads may not be used, the context says so."""
        assert self.target is not None
        assert self.work is not None
        own, bounds = self.target.setting, bounds_of(self.target)
        self.prior = prior(self.host, self.work, self.demand, batches=self.target.batches)
        bounds = replace(bounds, start_method=self._try_starts())
        context = KnobContext(self.host, self.work, self.demand, self.prior, bounds)
        settings = candidates.first(own, context)
        if bounds.threads and (context.mostly_waits or any(each.shares for each in settings)):
            self._compare_threads(settings)
            if not may_use_threads(self.thread_safety, own):
                context = replace(context, bounds=replace(bounds, threads=False))
                settings = candidates.first(own, context)
        repeats = bounds.most is not None and own.workers > bounds.most
        # Data that is wrong, or that several workers read repeatedly, is no more data.
        return context, settings[1:] if repeats or self._threads_break else settings

    def _run_race(self, race: Race, context: KnobContext) -> None:
        """Run the settings of the race, then those next to the best, as long as there is time."""
        whole_s = self._session.left_s
        self._run_rounds(until_s=whole_s * (1 - _FIRST_SHARE))
        while self._session.left_s > _MORE_SHARE * whole_s:
            best = race.best
            if best is None:
                break
            new = candidates.around(best, race.tried, context)
            if not race.join(new):
                self._run_rounds(until_s=0.0)
                break
            self._expect(new)
            self._run_rounds(until_s=0.0)

    def _compare_threads(self, settings: Iterable[Setting]) -> None:
        """Find out, once, whether threads leave the batches as they are. Where it cannot be found out, it is unknown."""
        assert self.target is not None
        assert self.work is not None
        if self.thread_safety is not None or self.target.stream or not self.work.batch_ns:
            return
        self._progress("whether threads change the batches")
        trial = thread_trial(settings, self.target.own_collate, self.work, self._session.left_s)
        within_s = 3 * trial["limit_s"]
        try:
            self.thread_safety = self._session.ask(
                "thread_safety", limit_s=within_s, within_s=within_s, trial=trial
            )
        except ProbeLost as error:
            self.thread_safety = ThreadSafety(
                None, f"comparing their batches failed: {str(error).rstrip('.')}"
            )
        assert self.thread_safety is not None
        said = left_out_sentence(self.thread_safety, self.target.setting)
        if said:
            self.notes.append(said)

    @property
    def _threads_break(self) -> bool:
        """Whether the present setting uses threads, and they change the batches: it may not be the answer."""
        found = self.thread_safety
        return (
            found is not None
            and found.safe is False
            and self.target is not None
            and self.target.setting.shares
        )

    def _look_beyond(self, context: KnobContext) -> None:
        """Note the settings that had no time and that the replay predicts to be better than the best."""
        assert self.race is not None
        best = self.race.best
        if best is None:
            return
        near = candidates.around(best, self.race.tried, context)
        faster_ns = (1 - CEILING) * context.predicted_ns(best)
        self.untried = tuple(each for each in near if context.predicted_ns(each) < faster_ns)

    def _try_starts(self) -> str | None:
        """Try start methods, if there is time and workers may be started. Returns the method for the race."""
        assert self.target is not None
        assert self.prior is not None
        if self._session.left_s < _STARTS_S or self.target.stream or not bounds_of(self.target).workers:
            return None
        if self.work is not None and self.work.typical_ns < _STARTS_NS:
            return None
        own, usual = self.target.setting.start_method, self.host.start_method
        self._progress("ways to start workers")

        def run(setting: Setting) -> Block:
            block = self._block(RaceEntry(setting, 0.05, 1))
            self._close(setting)
            return block

        self.starts = try_starts(run, min(2, self.prior.first))
        return chosen_start(self.starts, own, usual)

    def _expect(self, settings: Iterable[Setting]) -> None:
        """Give the race the replay's predictions."""
        assert self.race is not None
        assert self.work is not None
        for each in settings:
            self.race.expected[each] = predict(each, self.host, self.work, self.demand).interval_ns

    def _run_rounds(self, *, until_s: float) -> None:
        """Run rounds until the race stops, or only so much time is left."""
        race = self.race
        assert race is not None
        while (entries := race.ask(self._session.left_s - until_s)) is not None:
            results: list[tuple[Block, float]] = []
            try:
                self._run_round(entries, results)
            finally:  # measurements before Ctrl-C count
                if results:
                    race.tell(results)
            if not results:
                return
            self._close_losers()

    def _run_round(self, entries: Iterable[RaceEntry], results: list[tuple[Block, float]]) -> None:
        for entry in entries:
            if self._session.left_s < _LEAST_S:
                return
            self._progress(verdict.described(entry.setting))
            began = self._clock()
            block = self._block(entry)
            if block.failure and self._session.left_s < _LEAST_S:
                return  # it failed because the time was over
            results.append((block, self._clock() - began))

    def _block(self, entry: RaceEntry) -> Block:
        """Run one block. If it ends its sandbox, it has a ``failure``, and the next block gets a new sandbox."""
        left_s = max(_LEAST_S, self._session.left_s)
        step = self._step or self._has_step
        trial = block_trial(
            entry.setting, self.demand, step, seconds=entry.seconds, least=entry.least, limit_s=left_s
        )
        while True:
            try:
                block: Block = self._session.ask(
                    "block", limit_s=max(_HANG_S, left_s / 2), within_s=left_s, trial=trial
                )
                return block
            except ProbeLost as error:
                if not self._can_retry(error):
                    return Block(entry.setting, 0, 0, 0, failure=str(error))
                left_s = max(_LEAST_S, self._session.left_s)

    def _close_losers(self) -> None:
        """Close the loaders of settings that have left the race."""
        assert self.race is not None
        for setting in set(self.race.left) - self._closed:
            self._closed.add(setting)
            if not self._close(setting):
                return

    def _close(self, setting: Setting) -> bool:
        """End the workers of a setting. False if the sandbox was lost."""
        try:
            self._session.ask("block", limit_s=10.0, trial={"setting": setting.as_dict(), "close": True})
        except ProbeLost:
            return False
        return True

"""Decides from observations of a running loader how many workers it should have. Pure; one per loader, one thread.

    window ──► nothing to go by? ──► circumstances changed? ──► a trial under way? ──► waits too much? ──► waits never?
                 left out              opening again              keep or revert         grow, deepen…       shrink

Every change is a trial: it stays when the whole step became shorter (a shrink: when it did not become longer), else it is taken
back. What was taken back is not tried again while demand, work and load are what they were. In the opening a short window is
enough for a decision, and growth goes to where the demand is expected to be met; later on windows are joined until they say more.
"""

from __future__ import annotations

from collections.abc import Callable

from stoker._runtime.autoscale.conditions import Conditions
from stoker._runtime.autoscale.next_action import NextAction, RejectedCount
from stoker._runtime.autoscale.trial import GAIN, ActionTrial
from stoker._runtime.autoscale.types import AutoscaleAction, AutoscaleBounds, Observation, ObservationPeriod
from stoker._runtime.simulation.replay import SimulationResult, replay

SHORT_S = 2.0
LEAST_STEPS = 4
MOST_STEPS = 32
"""A window: so long, and so many steps that every worker has had its turn."""

LONG_S = 10.0
LONG_STEPS = 50
"""What decisions rest on after the opening."""

STRETCH_LIMIT = 8
"""How much longer than that it may become by doubling after changes that were taken back."""

PATIENCE_LIMIT = 30
"""Short windows without a new trial, at most, after several that were taken back one after the other. It doubles from one to the
next: where nothing that is tried pays, the machine may just be restless."""

GAP_NS = 10_000_000_000
"""A longest step beyond this is no step: a validation, a checkpoint, somebody at a breakpoint."""

STALL = 0.02
"""A loop that waits less than this share of its time is left alone."""

CALM = 0.005
CALM_WINDOWS = 3
"""One that waits less than this for so many periods may do with fewer workers."""

QUIET_WINDOWS = 3
"""The opening ends after so many windows in a row without a change."""

NEVER_CAME = 3
"""Windows after which a change that nobody carried out is given up."""


class AutoscalePolicy:
    """The controller passes one observation after the other, and carries out each action before the next one begins.

    ``bounds`` may be replaced at any time. ``oracle`` is the replay.
    """

    def __init__(self, bounds: AutoscaleBounds, *, oracle: Callable[..., SimulationResult] = replay) -> None:
        self.bounds = bounds
        self.opening = True
        self.trial: ActionTrial | None = None
        self._oracle = oracle
        self._workers = 1
        self._seen: Observation | None = None
        self._reference: Conditions | None = None
        self._elsewhere: Conditions | None = None
        """Circumstances that differed from the reference a window ago: they count when they last."""
        self._stretch = 1
        self._quiet = 0
        self._calm = 0
        self._absent = 0
        self._reverts = 0
        self._patience = 0
        self._said: set[str] = set()
        self._refuted: dict[str, RejectedCount] = {}

    @property
    def period(self) -> ObservationPeriod:
        """How long the next window is to be. Windows are short all the time; the policy joins them where it wants to know more."""
        return ObservationPeriod(SHORT_S, min(MOST_STEPS, max(LEAST_STEPS, 2 * self._workers)))

    def decide(self, window: Observation) -> AutoscaleAction | None:
        """What to do after this window; None: go on. ``window.workers`` tells what became of the last action."""
        self._workers = window.workers
        if window.warm_up or window.steps < 1 or window.wall_ns <= 0 or window.gap_ns > GAP_NS:
            return None
        if self.trial is not None and window.workers != self.trial.action.workers:
            self._never_came()
            return None
        self._absent = 0
        self._patience = max(0, self._patience - 1)
        if self._seen is not None and self._seen.workers != window.workers:
            self._seen, self._calm = None, 0
        action = self._notice(window)
        if action is not None:
            return action
        seen = self._seen = window if self._seen is None else self._seen.joined(window)
        if not self._enough(seen):
            return None
        if self.trial is not None:
            verdict = self.trial.judge(seen)
            if verdict is None:
                return None
            if not verdict.keep:
                return self._revert(verdict.reason, refute=True, harmful=verdict.harmful)
            self._keep(self.trial, seen)
        self._seen = None
        return self._choose(seen)

    def _enough(self, seen: Observation) -> bool:
        if self.opening:
            return True
        times = 1 if self.trial is not None else self._stretch
        return seen.wall_ns >= times * LONG_S * 1e9 and seen.steps >= LONG_STEPS

    # Circumstances

    def _notice(self, window: Observation) -> AutoscaleAction | None:
        """Open again when circumstances have been others for two windows in a row."""
        now = Conditions.of(window)
        if self._reference is None:
            self._reference = now
        if self.trial is not None:  # a step that takes longer may be its doing; the neighbours' load is not
            if not Conditions.of(self.trial.before).load_moved(now, self.bounds.cpus):
                self._elsewhere = None
                return None
            change = "the neighbours' load changed meanwhile"
        else:
            change = self._reference.change(now, self.bounds.cpus)
        if not change:
            self._elsewhere = None
            return None
        lasting = self._elsewhere is not None and not self._elsewhere.change(now, self.bounds.cpus)
        self._elsewhere = now
        if not lasting:
            return None
        self._reference, self._elsewhere = now, None
        self.opening, self._stretch, self._quiet, self._calm, self._seen = True, 1, 0, 0, None
        trial = self.trial
        if trial is None:
            return None
        if trial.action.kind != "shrink" and window.stall < trial.before.stall - GAIN:
            self.trial = None
            return None
        return self._revert(change, refute=False, harmful=False)

    def _applies(self, kind: str, window: Observation) -> RejectedCount | None:
        """What is known not to pay, under circumstances like these."""
        refuted = self._refuted.get(kind)
        if refuted is None:
            return None
        now = Conditions.of(window)
        return None if refuted.context.change(now, self.bounds.cpus, factor=refuted.times) else refuted

    # Trials

    def _never_came(self) -> None:
        """The change was not carried out, or workers died: nothing to judge."""
        self._seen = None
        self._absent += 1
        if self._absent >= NEVER_CAME and self.trial is not None:
            self._refute(self.trial, harmful=False)
            self.trial, self._absent = None, 0

    def _keep(self, trial: ActionTrial, seen: Observation) -> None:
        """It stays. What it came from is thereby known not to pay: nothing is tried that leads back there."""
        self.trial = None
        self._reverts = max(0, self._reverts - 1)
        self._reference = now = Conditions.of(seen)
        back = {"grow": "shrink", "shrink": "grow"}.get(trial.action.kind)
        if back == "shrink" or trial.action.code == "crowded":
            self._refuted[str(back)] = RejectedCount(trial.before.workers, now, 1, harmful=False)

    def _refute(self, trial: ActionTrial, *, harmful: bool) -> None:
        kind = trial.action.kind
        earlier = self._refuted.get(kind)
        workers = trial.action.workers
        if kind == "grow" and not harmful:
            workers = trial.before.workers + 1  # what is in between would not pay either
        times = 1 if earlier is None or earlier.workers != workers else earlier.times + 1
        self._refuted[kind] = RejectedCount(workers, Conditions.of(trial.before), times, harmful)

    def _revert(self, reason: str, *, refute: bool, harmful: bool) -> AutoscaleAction:
        trial = self.trial
        assert trial is not None
        before = trial.before
        if refute:
            self._refute(trial, harmful=harmful)
            self._stretch = min(STRETCH_LIMIT, 2 * self._stretch)
            self._reverts += 1
            self._patience = min(PATIENCE_LIMIT, 2**self._reverts - 2)
        self.trial = self._seen = None
        self._reference = Conditions.of(before)
        self._quiet = 0
        return AutoscaleAction(
            "revert", before.workers, before.window, reason, before.split, trial.action.kind
        )

    # Choices

    def _choose(self, seen: Observation) -> AutoscaleAction | None:
        refuted = {kind: found for kind in self._refuted if (found := self._applies(kind, seen)) is not None}
        course = NextAction(seen, self.bounds, refuted, self.opening, self._oracle)
        action = course.relieve() if seen.stall >= STALL else None
        if seen.stall >= CALM and not course.fed:
            self._calm = 0
        else:
            self._calm += 1
            if self._calm >= CALM_WINDOWS and not self.opening:
                self._calm, action = 0, course.spare() or action
        if action is not None and action.kind != "hold":
            if self._patience:
                return None
            self.trial = ActionTrial(action, seen)
            self._quiet = self._calm = 0
            self._said.clear()
            return action
        self._quiet += 1
        if self.opening and self._quiet >= QUIET_WINDOWS:
            self.opening, self._calm = False, 0
        if action is None or action.code in self._said:  # once is enough, until something has changed
            return None
        self._said.add(action.code)
        return action

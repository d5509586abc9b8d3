"""Decides from observations of a running loader how many workers it should have. Pure; one per loader, one thread.

    observation ──► unusable? ──► conditions changed? ──► a trial is running? ──► waits too much? ──► never waits?
                     ignore        ramp up again            keep or revert          grow, deepen…       shrink

Every change is a trial. It stays if the whole step became shorter; a shrink stays if the step did not become longer. Otherwise it
is reverted, and not tried again while demand, work and load stay the same. During ramp-up one short observation is enough for a
decision, and the number of workers grows to the predicted need. Later, observations are joined until they are long enough.
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
"""The length of an observation, in seconds and in steps: every worker has delivered by then."""

LONG_S = 10.0
LONG_STEPS = 50
"""The length that a decision needs after ramp-up."""

LENGTH_LIMIT = 8
"""Reverted changes double that length, up to this factor."""

PATIENCE_LIMIT = 30
"""The most short observations without a new trial, after several reverted trials in a row. The number doubles with each of them,
because the machine's load may just be unsteady.
"""

GAP_NS = 10_000_000_000
"""A longer step is no step but a validation, a checkpoint or a breakpoint."""

STALL = 0.02
"""A loop that waits less than this share of its time needs no change."""

CALM = 0.005
CALM_OBSERVATIONS = 3
"""A loop that waits less than this for so many observations may need fewer workers."""

QUIET_OBSERVATIONS = 3
"""Ramp-up ends after so many observations in a row without a change."""

MOST_ABSENT = 3
"""After so many observations, a change that was not carried out is given up."""


class AutoscalePolicy:
    """The controller passes one observation after the other, and carries out each action before the next one begins.

    ``bounds`` may be replaced at any time. ``oracle`` is the replay.
    """

    def __init__(self, bounds: AutoscaleBounds, *, oracle: Callable[..., SimulationResult] = replay) -> None:
        self.bounds = bounds
        self.ramping_up = True
        self.trial: ActionTrial | None = None
        self._oracle = oracle
        self._workers = 1
        self._seen: Observation | None = None
        self._reference: Conditions | None = None
        self._changed: Conditions | None = None
        """The conditions of the last observation, if they differed from the reference. They count if they last."""
        self._length_factor = 1
        self._quiet = 0
        self._calm = 0
        self._absent = 0
        self._reverts = 0
        self._patience = 0
        self._reported: set[str] = set()
        self._rejected: dict[str, RejectedCount] = {}

    @property
    def period(self) -> ObservationPeriod:
        """The length of the next observation. Observations are always short; the policy joins them if it needs more."""
        return ObservationPeriod(SHORT_S, min(MOST_STEPS, max(LEAST_STEPS, 2 * self._workers)))

    def decide(self, observation: Observation) -> AutoscaleAction | None:
        """The action after this observation, or None. ``observation.workers`` shows whether the last action was carried out."""
        self._workers = observation.workers
        if (
            observation.warm_up
            or observation.steps < 1
            or observation.wall_ns <= 0
            or observation.gap_ns > GAP_NS
        ):
            return None
        if self.trial is not None and observation.workers != self.trial.action.workers:
            self._not_carried_out()
            return None
        self._absent = 0
        self._patience = max(0, self._patience - 1)
        if self._seen is not None and self._seen.workers != observation.workers:
            self._seen, self._calm = None, 0
        action = self._notice(observation)
        if action is not None:
            return action
        seen = self._seen = observation if self._seen is None else self._seen.joined(observation)
        if not self._enough(seen):
            return None
        if self.trial is not None:
            verdict = self.trial.judge(seen)
            if verdict is None:
                return None
            if not verdict.keep:
                return self._revert(verdict.reason, reject=True, harmful=verdict.harmful)
            self._keep(self.trial, seen)
        self._seen = None
        return self._choose(seen)

    def _enough(self, seen: Observation) -> bool:
        if self.ramping_up:
            return True
        times = 1 if self.trial is not None else self._length_factor
        return seen.wall_ns >= times * LONG_S * 1e9 and seen.steps >= LONG_STEPS

    # Conditions

    def _notice(self, observation: Observation) -> AutoscaleAction | None:
        """Ramp up again if the conditions differed for two observations in a row."""
        now = Conditions.of(observation)
        if self._reference is None:
            self._reference = now
        if self.trial is not None:
            # The trial may be why a step takes longer, but not why the load of other programs changed.
            if not Conditions.of(self.trial.before).load_moved(now, self.bounds.cpus):
                self._changed = None
                return None
            change = "the neighbours' load changed meanwhile"
        else:
            change = self._reference.change(now, self.bounds.cpus)
        if not change:
            self._changed = None
            return None
        lasting = self._changed is not None and not self._changed.change(now, self.bounds.cpus)
        self._changed = now
        if not lasting:
            return None
        self._reference, self._changed = now, None
        self.ramping_up, self._length_factor, self._quiet, self._calm, self._seen = True, 1, 0, 0, None
        trial = self.trial
        if trial is None:
            return None
        if trial.action.kind != "shrink" and observation.stall < trial.before.stall - GAIN:
            self.trial = None
            return None
        return self._revert(change, reject=False, harmful=False)

    def _applies(self, kind: str, observation: Observation) -> RejectedCount | None:
        """What did not help under conditions like these."""
        rejected = self._rejected.get(kind)
        if rejected is None:
            return None
        now = Conditions.of(observation)
        return None if rejected.conditions.change(now, self.bounds.cpus, factor=rejected.times) else rejected

    # Trials

    def _not_carried_out(self) -> None:
        """The change was not carried out, or workers died: there is nothing to judge."""
        self._seen = None
        self._absent += 1
        if self._absent >= MOST_ABSENT and self.trial is not None:
            self._reject(self.trial, harmful=False)
            self.trial, self._absent = None, 0

    def _keep(self, trial: ActionTrial, seen: Observation) -> None:
        """Keep the change. The number before it is then known not to help, so that nothing leads back there."""
        self.trial = None
        self._reverts = max(0, self._reverts - 1)
        self._reference = now = Conditions.of(seen)
        back = {"grow": "shrink", "shrink": "grow"}.get(trial.action.kind)
        if back == "shrink" or trial.action.code == "crowded":
            self._rejected[str(back)] = RejectedCount(trial.before.workers, now, 1, harmful=False)

    def _reject(self, trial: ActionTrial, *, harmful: bool) -> None:
        kind = trial.action.kind
        earlier = self._rejected.get(kind)
        workers = trial.action.workers
        if kind == "grow" and not harmful:
            workers = trial.before.workers + 1  # a number in between would not help either
        times = 1 if earlier is None or earlier.workers != workers else earlier.times + 1
        self._rejected[kind] = RejectedCount(workers, Conditions.of(trial.before), times, harmful)

    def _revert(self, reason: str, *, reject: bool, harmful: bool) -> AutoscaleAction:
        trial = self.trial
        assert trial is not None
        before = trial.before
        if reject:
            self._reject(trial, harmful=harmful)
            self._length_factor = min(LENGTH_LIMIT, 2 * self._length_factor)
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
        rejected = {
            kind: found for kind in self._rejected if (found := self._applies(kind, seen)) is not None
        }
        options = NextAction(seen, self.bounds, rejected, self.ramping_up, self._oracle)
        action = options.reduce_wait() if seen.stall >= STALL else None
        if seen.stall >= CALM and not options.supplied:
            self._calm = 0
        else:
            self._calm += 1
            if self._calm >= CALM_OBSERVATIONS and not self.ramping_up:
                self._calm, action = 0, options.free_workers() or action
        if action is not None and action.kind != "hold":
            if self._patience:
                return None
            self.trial = ActionTrial(action, seen)
            self._quiet = self._calm = 0
            self._reported.clear()
            return action
        self._quiet += 1
        if self.ramping_up and self._quiet >= QUIET_OBSERVATIONS:
            self.ramping_up, self._calm = False, 0
        if action is None or action.code in self._reported:  # report it once, until something changes
            return None
        self._reported.add(action.code)
        return action

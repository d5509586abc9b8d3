"""The trial of a change: it is judged by the whole step, not by the wait."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from stoker._runtime.autoscale.types import AutoscaleAction, Observation
from stoker._runtime.autoscale.worker_bounds import variation

GAIN = 0.02
"""The gain that a change needs to be kept."""

MARGIN = 0.03
LOOKS = 3
NOISY_LOOKS = 6
"""A first look decides if the gain differs from that by this much; a second one by half; the third one decides in any case. If
batch times vary so much that a mean is less certain, the difference must be larger, and there are more looks.
"""

STALL_RISE = 0.01
"""A shrink is reverted if the loop's wait grows by this share."""

DRAINS = 2
MOST_LOOKS = 8
"""A shrink has an effect when the batches made before it are used up: after so many windows of batches, within so many looks."""


def uncertainty(observation: Observation) -> float:
    """The uncertainty of the mean of so many batch times, as a share of it."""
    return float(variation(observation.batch_ns) / max(1, observation.steps) ** 0.5)


def lengthening(before: Observation, after: Observation) -> float:
    """The share by which the interval became longer, beyond what chance explains by the batches in the two observations.

    If the loop waits for workers, batches that take longer by chance make the interval longer. That effect is removed, but not
    more than chance explains: batches that take longer because of more workers are what a trial has to find.
    """
    weight = min(1.0, 2 * before.stall)
    ratio = 1.0
    if before.making_ns > 0 and after.making_ns > 0:
        chance = 2 * (uncertainty(before) ** 2 + uncertainty(after) ** 2) ** 0.5
        ratio = min(1 + chance, max(1 - min(0.5, chance), after.making_ns / before.making_ns))
    expected_ns = before.interval_ns * (1 + weight * (ratio - 1))
    return after.interval_ns / max(1.0, expected_ns) - 1


class TrialOutcome(NamedTuple):
    """The outcome of a trial. ``harmful``: it made the step longer, and did not only fail to help."""

    keep: bool
    harmful: bool
    reason: str


@dataclass(slots=True)
class ActionTrial:
    """An action under trial. ``before`` is the observation before it."""

    action: AutoscaleAction
    before: Observation
    looks: int = 0

    def judge(self, after: Observation) -> TrialOutcome | None:
        """Judge by everything that was observed since the action. None: undecided yet."""
        self.looks += 1
        longer = lengthening(self.before, after)
        if self.action.kind == "shrink":
            return self._judge_shrink(after, longer)
        noise = self._noise(after)
        last = self.looks >= (NOISY_LOOKS if noise > MARGIN else LOOKS)
        margin = 0.0 if last else max(MARGIN / self.looks, noise)
        gain = -longer
        if gain >= GAIN + margin:
            return TrialOutcome(True, False, "")
        if gain >= GAIN - margin and not last:
            return None
        return TrialOutcome(False, gain < -GAIN, self._comparison(after))

    def _judge_shrink(self, after: Observation, longer: float) -> TrialOutcome | None:
        noise = self._noise(after)
        waits_more = after.stall - self.before.stall >= STALL_RISE + noise
        if (waits_more and after.stall >= GAIN) or longer >= GAIN + max(MARGIN, noise):
            return TrialOutcome(False, True, self._comparison(after))
        drained = after.steps >= DRAINS * max(self.before.window, self.action.window)
        certain = drained and noise < MARGIN and self.looks >= LOOKS
        if not certain and self.looks < MOST_LOOKS:
            return None
        if waits_more or longer >= GAIN:
            return TrialOutcome(False, True, self._comparison(after))
        return TrialOutcome(True, False, "")

    def _noise(self, after: Observation) -> float:
        """The difference that chance explains: batch times vary, and workers deliver in bursts."""
        both = [
            uncertainty(each) / 2 + each.workers / (4 * max(1, each.steps)) for each in (self.before, after)
        ]
        return min(1.0, 2 * max(self.before.stall, after.stall)) * max(both)

    def _comparison(self, after: Observation) -> str:
        what = f"{self.action.workers} workers"
        if self.action.kind == "deepen":
            what = f"a window of {self.action.window}"
        elif self.action.kind == "split":
            what = "batches made in parts"
        before = self.before
        return (
            f"with {what} a step takes {after.interval_ns / 1e6:.3g} ms instead of {before.interval_ns / 1e6:.3g} ms "
            f"(wait {after.stall:.1%} instead of {before.stall:.1%}): back to what it was"
        )

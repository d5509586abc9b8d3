"""A change that is being judged: by the whole step, not by the wait."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from stoker._runtime.autoscale.types import AutoscaleAction, Observation
from stoker._runtime.autoscale.worker_bounds import variation

GAIN = 0.02
"""What a change has to gain to be kept."""

MARGIN = 0.03
LOOKS = 3
NOISY_LOOKS = 6
"""How far from that a first look has to be to settle it; a second one half as far, and the third one settles it. Where batch times
vary so much that the mean of a window is less certain than that, it has to be further, and there are more looks."""

STALL_RISE = 0.01
"""A shrink after which the loop waits more by this is taken back."""

DRAINS = 2
MOST_LOOKS = 8
"""A shrink shows when the batches made before it are used up: so many windows' worth of them, within so many looks."""


def uncertainty(window: Observation) -> float:
    """By how much the mean of so many batch times may be off, as a share of it."""
    return float(variation(window.batch_ns) / max(1, window.steps) ** 0.5)


def lengthening(before: Observation, after: Observation) -> float:
    """By which share the interval became longer, beyond what follows from the batches that chance put into the two windows.

    Where the loop waits for workers, batches that happen to take longer make the interval longer. That is taken out, but not
    more than chance explains: batches that take longer because there are more workers are what a trial is to find out.
    """
    weight = min(1.0, 2 * before.stall)
    ratio = 1.0
    if before.making_ns > 0 and after.making_ns > 0:
        chance = 2 * (uncertainty(before) ** 2 + uncertainty(after) ** 2) ** 0.5
        ratio = min(1 + chance, max(1 - min(0.5, chance), after.making_ns / before.making_ns))
    expected_ns = before.interval_ns * (1 + weight * (ratio - 1))
    return after.interval_ns / max(1.0, expected_ns) - 1


class TrialOutcome(NamedTuple):
    """``harmful``: it did not only fail to help."""

    keep: bool
    harmful: bool
    reason: str


@dataclass(slots=True)
class ActionTrial:
    """``before`` is what was seen before the action."""

    action: AutoscaleAction
    before: Observation
    looks: int = 0

    def judge(self, after: Observation) -> TrialOutcome | None:
        """With all that was seen since the action; None: look on."""
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
        return TrialOutcome(False, gain < -GAIN, self._told(after))

    def _judge_shrink(self, after: Observation, longer: float) -> TrialOutcome | None:
        noise = self._noise(after)
        waits_more = after.stall - self.before.stall >= STALL_RISE + noise
        if (waits_more and after.stall >= GAIN) or longer >= GAIN + max(MARGIN, noise):
            return TrialOutcome(False, True, self._told(after))
        drained = after.steps >= DRAINS * max(self.before.window, self.action.window)
        certain = drained and noise < MARGIN and self.looks >= LOOKS
        if not certain and self.looks < MOST_LOOKS:
            return None
        if waits_more or longer >= GAIN:
            return TrialOutcome(False, True, self._told(after))
        return TrialOutcome(True, False, "")

    def _noise(self, after: Observation) -> float:
        """How much of a difference chance explains: batch times that differ, and bursts of as many batches as workers."""
        both = [
            uncertainty(each) / 2 + each.workers / (4 * max(1, each.steps)) for each in (self.before, after)
        ]
        return min(1.0, 2 * max(self.before.stall, after.stall)) * max(both)

    def _told(self, after: Observation) -> str:
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

"""A stand-in for the training loop: takes batches, spends what a step would, and writes down when they came."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from stoker._runtime.simulation.work import Demand

_clock = time.perf_counter_ns
_TRIALS = 9
_NAP_S = 0.0005
_LOOK_NS = 50_000_000
"""How often the other side is told that things go on."""


@dataclass(slots=True)
class Laps:
    """When batches were asked for and when they came; one more moment at the end, when the last step was over."""

    asked_ns: list[int] = field(default_factory=list)
    given_ns: list[int] = field(default_factory=list)
    ended_ns: int = 0

    def counted(self, group: int) -> tuple[int, int, int]:
        """Batches, wall time and time in ``next()``, of as many whole groups as there are.

        Workers that began together deliver together: a group is a batch of each, and a part of one would count too fast or too
        slow. With fewer than two groups all batches count.
        """
        count = len(self.asked_ns)
        if count >= 2 * group:
            count -= count % group
        ends = [*self.asked_ns, self.ended_ns]
        wall_ns = ends[count] - ends[0]
        wait_ns = sum(self.given_ns[each] - self.asked_ns[each] for each in range(count))
        return count, wall_ns, wait_ns


class Stand:
    """Spends a step's time: so much of it on the CPU, the rest asleep. ``late_ns`` is how much too late a sleep ends here."""

    def __init__(self, demand: Demand, late_ns: int = 0) -> None:
        self._step_ns, self._cpu_ns, self._late_ns = demand.step_ns, demand.cpu_ns, late_ns

    def __call__(self, batch: Any) -> None:
        began_ns = _clock()
        busy_ns = began_ns + min(self._cpu_ns, self._step_ns)
        while _clock() < busy_ns:
            pass
        rest_ns = began_ns + self._step_ns - _clock() - self._late_ns
        if rest_ns > 0:
            time.sleep(rest_ns / 1e9)


def lateness_ns() -> int:
    """How much longer than asked for a short sleep takes: timers have slack."""
    took = []
    for _ in range(_TRIALS):
        began_ns = _clock()
        time.sleep(_NAP_S)
        took.append(_clock() - began_ns - int(_NAP_S * 1e9))
    return max(0, int(statistics.median(took)))


def consume(
    take: Callable[[], Any],
    step: Callable[[Any], Any] | None,
    *,
    seconds: float,
    least: int,
    limit_ns: int,
    burst: int = 1,
    alive: Callable[[], None] = lambda: None,
) -> Laps:
    """Take batches until both ``seconds`` are over and ``least`` have come, or the clock says ``limit_ns``; at least one.

    With ``burst`` so many are taken back to back, and then their steps are done. ``alive`` is called now and then.
    """
    laps = Laps()
    asked, given = laps.asked_ns, laps.given_ns
    now_ns = _clock()
    enough_ns, look_ns = now_ns + int(seconds * 1e9), now_ns + _LOOK_NS
    while True:
        held = []
        for _ in range(burst):
            asked.append(now_ns)
            batch = take()
            now_ns = _clock()
            given.append(now_ns)
            if step is not None:
                held.append(batch)
            del batch
        while held:
            assert step is not None
            step(held.pop(0))
            now_ns = _clock()
        if now_ns >= look_ns:
            alive()
            look_ns = now_ns + _LOOK_NS
        if (now_ns >= enough_ns and len(asked) >= least) or now_ns >= limit_ns:
            laps.ended_ns = now_ns
            return laps

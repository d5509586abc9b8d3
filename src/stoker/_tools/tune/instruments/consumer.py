"""A stand-in for the training step: spends the time that a step would."""

from __future__ import annotations

import statistics
import time
from typing import Any

from stoker._runtime.simulation.work import Demand

_clock = time.perf_counter_ns
_TRIALS = 9
_NAP_S = 0.0005


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

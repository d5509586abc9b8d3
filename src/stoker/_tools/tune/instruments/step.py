"""The training step: the user's own function, or a simulated step that takes the same time."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

from stoker._runtime.simulation.work import Demand
from stoker._tools.sandbox.outcome import FactUnavailable
from stoker._tools.sandbox.subject import Subject
from stoker._tools.sandbox.target import text_of, user_stack, value_of
from stoker.errors import TargetError

_clock = time.perf_counter_ns
_TRIALS = 9
_NAP_S = 0.0005
KEPT, _NAME = "step", "step_name"


def step_of(subject: Subject) -> Callable[[Any], Any]:
    """The function that ``subject.trial["step"]`` names, or the one that came with the subject. Raises FactUnavailable."""
    named = subject.trial.get(KEPT)
    if isinstance(named, str) and subject.kept.get(_NAME) != named:
        subject.kept[KEPT], subject.kept[_NAME] = _found(named), named
    if KEPT not in subject.kept:
        raise FactUnavailable("there is no step function")
    step: Callable[[Any], Any] = subject.kept[KEPT]
    return step


def _found(named: str) -> Any:
    try:
        found = value_of(named)
    except TargetError as error:
        raise FactUnavailable(f"the step function cannot be had: {error}", error.stack) from None
    if not callable(found):
        raise FactUnavailable(f"{named} is no function: the step function is called with a batch")
    return found


def call(step: Callable[[Any], Any], batch: Any) -> None:
    """Run one step. Raises FactUnavailable, with the user's stack, if it raises."""
    try:
        step(batch)
    except Exception as error:
        said = f"the step function raised {type(error).__name__}: {text_of(error)}"
        raise FactUnavailable(said.splitlines()[0], user_stack(error)) from error


class SimulatedStep:
    """Takes a step's time: part of it on the CPU, the rest asleep. ``late_ns`` is how much too late a sleep ends here."""

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
    """How much longer than requested a short sleep takes, because timers have slack."""
    took = []
    for _ in range(_TRIALS):
        began_ns = _clock()
        time.sleep(_NAP_S)
        took.append(_clock() - began_ns - int(_NAP_S * 1e9))
    return max(0, int(statistics.median(took)))

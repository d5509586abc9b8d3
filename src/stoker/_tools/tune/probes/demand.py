"""Measures the user's step function on batches that are ready: the step's time if data takes none.

``subject.trial`` has ``step`` (the function's name; not needed if it came with the subject), ``seconds`` (2 by default),
``burst`` (calls per step), ``limit_s`` for making the batches, and ``look`` (only find the function). It runs in the sandbox
itself: the function is kept for blocks.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

from stoker._runtime.simulation.setting import Setting
from stoker._runtime.simulation.work import Demand
from stoker._tools.probes import accelerator
from stoker._tools.sandbox.outcome import FactUnavailable
from stoker._tools.sandbox.refusal import failure_of
from stoker._tools.sandbox.subject import Subject
from stoker._tools.sandbox.time_limit import limit
from stoker._tools.tune.instruments.bench_loader import BenchLoader, limit_native_threads
from stoker._tools.tune.instruments.step import call, step_of
from stoker._tools.tune.knobs.device import Device

_SECONDS = 2.0
_LIMIT_S = 60.0
_BATCHES = 4
_WARM_UP = 5
_STEADY = 1.3
"""Warm-up is over when a step is not faster than the one before by more than this factor."""
_TOGETHER = 4
"""Steps that are timed together if an accelerator works asynchronously."""
_LEAST, _MOST = 3, 1000


def probe(subject: Subject) -> Demand:
    """Raises FactUnavailable if the function cannot be found, raises, or has no batch."""
    limit_native_threads()
    trial = subject.trial
    step = step_of(subject)
    if trial.get("look"):
        return Demand(0)
    seconds = float(trial.get("seconds", _SECONDS))
    batches = _batches(subject, seconds / 2, float(trial.get("limit_s", _LIMIT_S)))
    subject.touch(None)
    _warm_up(step, batches, subject)
    wall_ns, cpu_ns = _timed(step, batches, seconds, subject)
    burst = max(1, int(trial.get("burst", 1)))
    return Demand(burst * wall_ns, burst * cpu_ns, source="step", burst=burst)


def _batches(subject: Subject, seconds: float, limit_s: float) -> list[Any]:
    """Some batches, made here; at least one."""
    found: list[Any] = []
    try:
        bench = BenchLoader(subject, _ready_made(subject))
        with limit(limit_s):
            bench.open()
            until = time.monotonic() + seconds
            while len(found) < _BATCHES and (not found or time.monotonic() < until):
                found.append(bench.take())
        bench.close()
    except Exception as error:
        if not found:
            raise FactUnavailable(f"there is no batch for the step function: {failure_of(error)}") from None
    return found


def _ready_made(subject: Subject) -> Setting:
    """torch's loader without workers; stoker's if the target brings batches to a device, where the step then needs them."""
    knob = Device()
    device = knob.read(subject.loader)
    return Setting(0, engine="torch") if device is None else knob.put(Setting(0), device)


def _warm_up(step: Callable[[Any], Any], batches: Sequence[Any], subject: Subject) -> None:
    """Run the first calls, which compile, allocate, and pick algorithms."""
    before_ns = 0
    for number in range(_WARM_UP):
        began_ns = time.perf_counter_ns()
        call(step, batches[number % len(batches)])
        accelerator.settle()
        subject.touch(None)
        took_ns = time.perf_counter_ns() - began_ns
        if number and before_ns < _STEADY * took_ns:
            return
        before_ns = took_ns


def _timed(
    step: Callable[[Any], Any], batches: Sequence[Any], seconds: float, subject: Subject
) -> tuple[int, int]:
    """Wall and CPU time of a step, all threads of the process: the median of each."""
    together = _TOGETHER if accelerator.in_use() else 1
    wall_ns: list[float] = []
    cpu_ns: list[float] = []
    number, until = 0, time.monotonic() + seconds
    while len(wall_ns) < _MOST and (len(wall_ns) < _LEAST or time.monotonic() < until):
        began_ns, began_cpu_ns = time.perf_counter_ns(), time.process_time_ns()
        for _ in range(together):
            call(step, batches[number % len(batches)])
            number += 1
        accelerator.settle()
        wall_ns.append((time.perf_counter_ns() - began_ns) / together)
        cpu_ns.append((time.process_time_ns() - began_cpu_ns) / together)
        subject.touch(None)
        if sum(wall_ns) > 4e9 * seconds:  # so slow that two are enough
            break
    return max(1, int(statistics.median(wall_ns))), int(statistics.median(cpu_ns))

"""Finds the demand from the caller's arguments: a time, a function, or the record of a run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from stoker._record import journal
from stoker._record.schema import LoaderRecord
from stoker._runtime.simulation.work import Demand


def check(
    *,
    step: str | Callable[[Any], Any] | None,
    step_s: float | None,
    record: str | None,
    accumulate: int,
    ranks: int | None,
    budget_s: float,
    batch_size: int | None,
) -> None:
    """Raise ValueError for arguments that contradict each other or have no effect."""
    given = [
        name for name, value in (("step", step), ("step_s", step_s), ("record", record)) if value is not None
    ]
    if len(given) > 1:
        raise ValueError(f"give the demand once: {' and '.join(given)} were both given")
    if step_s is not None and not 0 <= step_s < 1e6:
        raise ValueError(f"step_s should be a time in seconds, but got {step_s!r}")
    if isinstance(step, str) and not all(step.rpartition(":")[::2]):
        raise ValueError(f"step should be module:function or path/to/file.py:function, but got {step!r}")
    counts: dict[str, Any] = {"accumulate": accumulate, "ranks": ranks, "batch_size": batch_size}
    for name, value in counts.items():
        if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
            raise ValueError(f"{name} should be a positive number, but got {value!r}")
    if not 0 < budget_s < 1e6:
        raise ValueError(f"budget_s should be a time in seconds, but got {budget_s!r}")


def resolved(
    target: object,
    *,
    step: str | Callable[[Any], Any] | None,
    step_s: float | None,
    record: str | None,
    accumulate: int,
    **others: Any,
) -> tuple[Demand, str | Callable[[Any], Any] | None]:
    """The demand as far as it is given, and the step function to measure it with, if any. ``others`` are checked.

    Raises ValueError, and RecordError for a record that cannot be read.
    """
    check(step=step, step_s=step_s, record=record, accumulate=accumulate, **others)
    if callable(step) and isinstance(target, str):
        step = named(step)
    if step_s is not None:
        return Demand(int(step_s * 1e9), 0, "step-ms", accumulate), step
    if record is not None:
        return recorded(record, accumulate=accumulate), step
    return Demand(0, burst=accumulate), step


def named(step: Callable[[Any], Any]) -> str:
    """The name "module:function" by which another process can find a function. Raises ValueError if it cannot."""
    module, name = getattr(step, "__module__", None), getattr(step, "__qualname__", "")
    if not module or module == "__main__" or not name or "<" in name:
        raise ValueError(
            "a target that is loaded in a process of its own cannot be given a function of this one: name it as "
            'step="module:function", or pass the loader itself as target'
        )
    return f"{module}:{name}"


def recorded(path: str, *, accumulate: int = 1) -> Demand:
    """The time of a run's steps without their waits. Raises RecordError, and ValueError if the run has no step."""
    loaders = [each for each in journal.read(Path(path)).loaders if each.totals.steps and each.totals.step_ns]
    if not loaders:
        raise ValueError(f"{path} holds no steps: its run ended before its second batch")
    main = max(loaders, key=lambda each: each.totals.wait_ns + each.totals.step_ns)
    step_ns = main.totals.step_ns // main.totals.steps
    cpu_ns = min(step_ns, _loop_cpu_ns(main))
    return Demand(step_ns * accumulate, cpu_ns * accumulate, "record", accumulate)


def _loop_cpu_ns(loader: LoaderRecord) -> int:
    """CPU time of the loop's thread for a step, without making batches itself."""
    cpu_ns = loader.load.loop_cpu_ns
    if cpu_ns is None or not loader.workers:
        return 0
    return int(cpu_ns // loader.totals.steps)

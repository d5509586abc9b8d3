"""``stoker.tune``: probes a target, races settings, and says which one to take."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from stoker._tune.result import Tuning

Progress = Callable[[str, float, "Tuning | None"], None]
"""Called with what is done now, the share of the budget that is spent, and the best so far."""


def tune(
    target: object,
    *,
    batch_size: int | None = None,
    step: str | Callable[[Any], Any] | None = None,
    step_s: float | None = None,
    record: str | None = None,
    accumulate: int = 1,
    ranks: int | None = None,
    budget_s: float = 45.0,
    save: bool = True,
    progress: Progress | None = None,
) -> Tuning:
    """The setting to take for a loader or a dataset, with the reason and the expected gain.

    ``target`` is the object, or where it is, as for ``stoker.doctor``. The demand is what a training step takes on data that is
    there: ``step_s``, or measured with ``step`` (a function of a batch, or where it is), or read from a run's ``record``; without
    any of these the fastest setting wins. ``accumulate`` is how many batches a step pulls back to back, ``ranks`` how many
    training processes share the machine (default: as the environment says). ``save`` leaves a profile for ``num_workers="auto"``.
    Ctrl-C ends it with the best so far. Raises TargetError when the target cannot be loaded, ValueError for arguments that
    contradict each other; a target whose samples cannot be made gives an answer with ``failure``.
    """
    raise NotImplementedError

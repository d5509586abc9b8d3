"""``stoker.tune``: probes a target, races settings, and recommends one."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

from stoker._tools.tune import demand as demands
from stoker._tools.tune.answer import AnswerBuilder
from stoker._tools.tune.result import Tuning
from stoker._tools.tune.save_profile import with_saved_profile
from stoker._tools.tune.search import Search
from stoker._tools.tune.session import TuneSession

Progress = Callable[[str, float, "Tuning | None"], None]
"""Called with the current step of the work, the spent share of the budget, and the best so far."""


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
    """Find the best setting for a loader or a dataset, with the reason and the expected gain.

    The demand is the time of a training step without waiting for data. Give one of ``step_s``, ``step`` and ``record``; without
    them, the fastest setting wins. After Ctrl-C you get the best so far. If the target's samples cannot be made, the answer has
    a ``failure``.

    Args:
        target: The loader or dataset, or its location, as for ``stoker.doctor``.
        batch_size: Replaces the loader's own. For a dataset, the default is 32.
        step: The training step, a function of a batch, or its location. It is measured.
        step_s: The time of a training step, in seconds.
        record: The record of a run, which contains the time of a step.
        accumulate: How many batches a step takes at once.
        ranks: How many training processes share the machine. Default: read from the environment.
        budget_s: Seconds for the whole tuning.
        save: Save a profile for ``num_workers="auto"``.
        progress: Called with the present activity, the share of the budget that is spent, and the best so far.

    Raises:
        TargetError: The target cannot be loaded.
        ValueError: Arguments contradict each other.
    """
    demand, step = demands.resolved(
        target, step=step, step_s=step_s, record=record, accumulate=accumulate, ranks=ranks, budget_s=budget_s,
        batch_size=batch_size,
    )  # fmt: skip
    live = step if callable(step) else None
    session = TuneSession(target, batch_size=batch_size, budget_s=budget_s, step=live)

    def report(what: str) -> None:
        if progress is not None:
            progress(
                what, session.share, answer_builder.now(whole=False) if search.race is not None else None
            )

    search = Search(
        session,
        demand,
        step=step if isinstance(step, str) else None,
        has_step=live is not None,
        ranks=ranks,
        progress=report,
    )
    answer_builder = AnswerBuilder(search, target if isinstance(target, str) else type(target).__name__)
    try:
        search.run()
    except KeyboardInterrupt:
        search.stopped = "interrupted"
    finally:
        with suppress(KeyboardInterrupt):
            session.close()
    found = answer_builder.now()
    return with_saved_profile(found, search.target) if save and search.target is not None else found

"""The loop without workers: plan a batch, make it, hand it over.

Nothing is made ahead and no worker can die, so the scheduler has nothing to decide. Leaving it out saves 20 µs a batch.
"""

from __future__ import annotations

from typing import Any

from stoker._runtime.engine.iteration import Iteration
from stoker._runtime.executors.inline import InlineExecutor
from stoker._runtime.scheduler import messages as m


class InlineIteration(Iteration):
    """One pass over the sampler of a map-style dataset, on the thread that asks. Errors, records and states are as with workers."""

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        assert isinstance(self._executor, InlineExecutor)
        self._make = self._executor.direct()

    def _advance(self) -> None:
        """Make the next batch. Raises at the end."""
        if self._cut_off is not None:
            self._progress.note(self._cut_off, failed=True)
            self._cut_off = None
        if self._closed:
            raise StopIteration
        assert self._planner is not None
        planned = self._planner.plan()  # the user's code, in which Ctrl-C does no harm
        if planned.__class__ is m.PlanEnded:
            self._finish()
        ticket = planned.ticket  # type: ignore[union-attr]
        guard = self._guard
        guard.held += 1  # not ``with``, and no call before: an interrupt there would lose the ticket
        self._ready.append(m.Deliver(ticket, (self._make(ticket),)))
        guard.held -= 1

    def _take(self) -> m.Deliver:
        return self._ready.popleft()

    def _compare(self, deliver: m.Deliver, batch: Any) -> None:
        """One thread makes all batches: there is nothing to compare."""

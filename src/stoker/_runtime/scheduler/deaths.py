"""Counts worker deaths by loader, by ticket and by row. Says when to stop restarting workers, and which row to exclude.

Pure. The scheduler owns it and acts on its answers.
"""

from __future__ import annotations

from stoker._runtime.scheduler import messages as m
from stoker._runtime.scheduler.policy import DEATHS_LIMIT, Policy
from stoker._runtime.scheduler.story import Story
from stoker._runtime.scheduler.types import Task, Ticket


class DeathCounts:
    """One per scheduler. Called on the thread that iterates."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self.total = 0
        """Unexpected deaths so far."""
        self.by_row: dict[int, dict[int, int]] = {}
        """Deaths by row, for each open ticket that killed a worker (``policy.exclude_killers``)."""
        self._in_a_row = 0
        self._before_start = 0

    def count(self, event: m.WorkerLost) -> None:
        """Count an unexpected loss."""
        self.total += 1
        self._in_a_row += 1
        self._before_start = 0 if event.started else self._before_start + 1

    def refused(self) -> None:
        """Count a worker that the system refused to start. The other workers continue without it."""
        self._before_start = 0

    def taken(self, ticket: Ticket) -> None:
        """Note that the consumer took this ticket. A batch without rows does not prove that workers survive."""
        if self.by_row:
            self.by_row.pop(ticket.seq, None)
        if not ticket.excluded or not _nothing_left(ticket):
            self._in_a_row = 0
        self._before_start = 0

    def forget(self, seq: int) -> None:
        """Forget this ticket: it will not be delivered."""
        self.by_row.pop(seq, None)

    def hopeless(self, event: m.WorkerLost, *, has_task: bool) -> str:
        """The reason to start no further worker, or "". ``has_task``: the lost worker's task is not done yet."""
        reason = event.reason.rstrip(".")
        if self._before_start > self._policy.restarts:
            return f"{reason}: before it could take any work"
        if self._in_a_row >= DEATHS_LIMIT:
            return f"{reason}: {self._in_a_row} workers died without one batch delivered between them"
        if self._in_a_row and not self._policy.restart_idle and not has_task:
            return event.reason
        return ""

    def blame(self, story: Story, task: Task, row: int) -> bool:
        """Count a death during a task. True if that was one death too many.

        With ``exclude_killers`` deaths are counted by row. A row that alone killed ``restarts + 1`` workers is excluded, and the
        task continues without it. Numbers below -1 are the worker's own names for positions that are no row of the ticket. They
        are passed back to it.
        """
        ticket, restarts = story.ticket, self._policy.restarts
        known = row < -1 or task.part.start <= row < max(task.part.stop, 1)
        if not self._policy.exclude_killers or not known or row in ticket.excluded:
            story.blamed += 1
            return story.blamed > restarts
        killed = self.by_row.setdefault(ticket.seq, {})
        killed[row] = killed.get(row, 0) + 1
        if killed[row] > restarts:
            story.ticket = ticket._replace(excluded=(*ticket.excluded, row))
        return False


def _nothing_left(ticket: Ticket) -> bool:
    """Whether every row killed its workers. The delivered batch then has no rows."""
    return sum(row >= 0 for row in ticket.excluded) >= max(ticket.rows, 1)

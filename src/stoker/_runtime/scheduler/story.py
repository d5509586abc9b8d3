"""The life of one ticket in the scheduler: its state, its parts, and the moves that led there."""

from __future__ import annotations

import enum

from stoker._runtime.scheduler import messages as m
from stoker._runtime.scheduler.types import Task, Ticket
from stoker.errors import IllegalMove


class TicketState(enum.IntEnum):
    """The states of a ticket. Integers, so that the table of legal moves is a list lookup."""

    PLANNED = 0
    DISPATCHED = 1
    READY = 2
    VOID = 3
    TAKEN = 4


_P, _D, _R, _V, _T = TicketState
_LEGAL: tuple[tuple[TicketState, ...], ...] = ((_D,), (_D, _R, _V), (_T,), (), ())


class Story:
    """A ticket, the results of its parts, and its history."""

    __slots__ = (
        "attempts",
        "blamed",
        "claims",
        "moves",
        "nbytes",
        "open_parts",
        "results",
        "shared_bytes",
        "state",
        "tasks",
        "ticket",
        "unknown_writers",
    )

    def __init__(self, ticket: Ticket) -> None:
        self.ticket = ticket
        self.state = _P
        self.moves: list[str] = []
        self.tasks: list[Task] = []
        self.results: list[m.BatchReady | m.BatchFailed | m.Lost | None] = []
        self.attempts = 0
        self.blamed = 0
        self.open_parts = 0
        self.nbytes = 0
        self.shared_bytes = 0
        self.unknown_writers = 0
        self.claims: dict[int, int] = {}

    def move(self, to: TicketState, event: str) -> None:
        """Move to another state. An illegal move raises with the whole story."""
        self.moves.append(event)
        if to not in _LEGAL[self.state]:
            raise IllegalMove(f"{event} in state {self.state.name.lower()}; {self}")
        self.state = to

    def __str__(self) -> str:
        return f"ticket {self.ticket.seq} (attempt {self.attempts}): {' → '.join(self.moves)}"

"""Describes a position in the data in words, for errors and warnings."""

from __future__ import annotations

from typing import Any

from stoker._runtime.scheduler.messages import WorkerLost
from stoker._runtime.scheduler.types import Ticket

_SHOWN = 8


def place(ticket: Ticket, row: int, *, collating: bool = False) -> str:
    """The sample or batch. ``row`` is a hint; it is negative if no certain row is being fetched."""
    indices: Any = ticket.indices
    if indices is None or (isinstance(indices, list) and any(index is None for index in indices)):
        # An iterable dataset has no indices.
        return f"batch {ticket.seq}"
    if not ticket.rows:
        return f"dataset index {_short(indices)}"
    listed = list(indices)
    if collating or not 0 <= row < len(listed):
        shown = ", ".join(_short(index) for index in listed[:_SHOWN])
        more = f", … ({len(listed)} in all)" if len(listed) > _SHOWN else ""
        doing = "the collation of " if collating else ""
        return f"{doing}batch {ticket.seq} of dataset indices [{shown}{more}]"
    return f"dataset index {_short(listed[row])} (row {row} of batch {ticket.seq})"


def place_of_loss(loss: WorkerLost, ticket: Ticket | None) -> str:
    """Where a worker was when it was lost. ``ticket`` is the one that it had claimed, if there is one."""
    if ticket is not None:
        return f"worker {loss.worker} was on {place(ticket, loss.row, collating=loss.collating)}"
    return "it was on no batch" if loss.started else "it had not started yet"


def _short(index: Any) -> str:
    try:
        text = repr(index)
    except Exception:  # the user's index has a broken repr: say the rest
        text = f"<{type(index).__name__} without repr>"
    return text if len(text) <= 80 else f"{text[:77]}..."

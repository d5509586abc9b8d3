"""The transport's two sides as protocols."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Receipt:
    """What a worker reports about a written batch: where its root lies and how much of the slot a reader must map."""

    root_offset: int
    root_bytes: int
    nbytes: int

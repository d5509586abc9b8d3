"""Whether two engines give the same batches."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Likeness:
    """``alike`` is None where it cannot be told; ``text`` says why, or what differs."""

    alike: bool | None
    batches: int
    text: str

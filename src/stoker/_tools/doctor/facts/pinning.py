"""Whether pinning helps on this machine, and what copying costs."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PinningFacts:
    """``accelerator`` is the kind there is ("cuda"), None without one."""

    accelerator: str | None
    devices: int
    copy_bytes_s: float
    """What one thread copies in a second into plain memory. A pin thread does that with every batch, and at best as fast."""

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
    pin_error: str = ""
    """Why torch cannot page-lock memory here; "" if it can, or if it was not tried: the loader neither pins nor has a device."""
    register_error: str = ""
    """Why memory cannot be registered with the driver; "" likewise. Tried for loaders with ``device=``."""

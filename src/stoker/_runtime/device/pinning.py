"""Copies batches to page-locked memory with torch's own allocator, which tracks copies in flight."""

from __future__ import annotations

from typing import Any

from torch.utils.data._utils.pin_memory import pin_memory


def pin(batch: Any, device: str | None) -> Any:
    """The batch with its tensors in pinned memory; custom ``pin_memory`` methods are called. The slot is free afterwards."""
    return pin_memory(batch, device)  # type: ignore[no-untyped-call]

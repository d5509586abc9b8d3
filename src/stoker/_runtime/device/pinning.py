"""Page-locked copies of batches, by torch's own allocator, which knows about copies that are still in flight."""

from __future__ import annotations

from typing import Any

from torch.utils.data._utils.pin_memory import pin_memory

from stoker._runtime.device.stager import Staged


class PinningStager:
    """Copies each batch into pinned memory, for ``pin_memory=True``. Custom ``pin_memory`` methods are called.

    The copy is done when ``stage`` returns: there is no fence.
    """

    def __init__(self, device: str | None) -> None:
        self._device = device

    def stage(self, batch: Any) -> Staged:
        """The batch with its tensors in pinned memory."""
        return Staged(pin_memory(batch, self._device))  # type: ignore[no-untyped-call]

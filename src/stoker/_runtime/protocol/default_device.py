"""Reads torch's default device without using it."""

from __future__ import annotations

import torch
from torch.overrides import _get_current_function_mode_stack
from torch.utils._device import DeviceContext


def default_device() -> torch.device:
    """Return the device of tensors that this thread makes without naming one; without an index if none was given.

    ``torch.get_default_device()`` makes a tensor there to learn the index. That starts the device, and raises in a forked process.
    """
    devices = default_devices()
    return devices[-1] if devices else torch.device("cpu")


def default_devices() -> list[torch.device]:
    """Return the devices of ``torch.set_default_device`` and of each ``with torch.device(...)``; the last one is in force."""
    if not torch._C._len_torch_function_stack():
        return []
    modes = _get_current_function_mode_stack()  # type: ignore[no-untyped-call]
    return [mode.device for mode in modes if isinstance(mode, DeviceContext)]

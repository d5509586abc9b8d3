"""The fake accelerator for a framework in a child process: does a step get the very memory that the loader filled?"""

from __future__ import annotations

from typing import Any

import torch

from stoker._runtime.device.device_stager import DeviceCopy
from stoker._runtime.device.host_registers import HOST_REGISTERS, HostRegister
from tests import fake_device

NAME = fake_device.NAME


class HandedOver:
    """Device memory: of batches as loaders handed them over, and as a training step got them."""

    def __init__(self) -> None:
        self.filled: list[int] = []
        self.used: list[int] = []

    def note(self, tensor: Any) -> None:
        """A step got this tensor."""
        assert tensor.device.type == NAME
        self.used.append(memory(tensor))


def memory(tensor: torch.Tensor) -> int:
    """The address of a tensor's storage on the device."""
    return tensor.untyped_storage().data_ptr()


def load() -> HandedOver:
    """Have the device in this process, which has to be a child, and notice what loaders bring to it."""
    fake = fake_device.load()
    fake.order("prompt")
    HOST_REGISTERS[NAME] = HostRegister(fake.register_host, fake.unregister_host)
    handed, take = HandedOver(), DeviceCopy.take

    def noticed(self: DeviceCopy, sources: Any) -> Any:
        batch = take(self, sources)
        first = next(iter(batch.values())) if isinstance(batch, dict) else batch
        handed.filled.append(memory(first))
        return batch

    DeviceCopy.take = noticed  # type: ignore[method-assign]  # the child ends soon
    return handed

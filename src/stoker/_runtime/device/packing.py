"""Says where the tensors of a host batch lie within one range of bytes, and builds tensors over those bytes elsewhere.

A batch over a slot is one range already. The tensors of any other batch are packed into one.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from stoker._runtime.transport.base import HostMemory
from stoker._runtime.transport.codec import EncodedBatch
from stoker._runtime.transport.layout import ALIGN_BYTES, BatchLayout, contiguous_strides

Place = tuple[torch.Tensor, int, Sequence[int]]
"""A tensor, its offset in the range and its strides there. -1: it has no elements, and no place."""


class PackedTensors:
    """Tensors within one range of ``nbytes``. In a slot, the range begins at ``start``."""

    __slots__ = ("_places", "nbytes", "start")

    def __init__(self, places: Sequence[Place], start: int, nbytes: int) -> None:
        self._places = places
        self.start = start
        self.nbytes = nbytes

    def views(self, buffer: torch.Tensor) -> dict[int, torch.Tensor]:
        """By id of each tensor: its like over ``buffer``, which has the bytes of the range, on any device.

        All lie on one storage, which torch's allocators know: they track what is done with it.
        """
        storage, device = buffer.untyped_storage(), buffer.device
        made: dict[int, torch.Tensor] = {}
        for tensor, offset, strides in self._places:
            dtype = tensor.dtype
            if offset < 0:
                view = torch.empty_strided(tensor.shape, tensor.stride(), dtype=dtype, device=device)
            else:
                view = torch.empty(0, dtype=dtype, device=device)
                view.set_(storage, offset // dtype.itemsize, tensor.shape, strides)
            if tensor.requires_grad:
                view.requires_grad_()
            if tensor.__dict__:
                view.__dict__.update(tensor.__dict__)
            made[id(tensor)] = view
        return made


def in_slot(tensors: Sequence[torch.Tensor], memory: HostMemory) -> PackedTensors | None:
    """The places of tensors that lie in this slot; None if one of them does not."""
    base = memory.address
    limit = base + memory.nbytes
    low, high = limit, base
    addresses: list[int] = []
    for tensor in tensors:
        nbytes = tensor.nbytes if tensor.is_contiguous() else _reach(tensor)
        address = tensor.data_ptr() if nbytes else -1
        addresses.append(address)
        if address < 0:
            continue
        if address < base or address + nbytes > limit or (address - base) % tensor.itemsize:
            return None
        low = min(low, address)
        high = max(high, address + nbytes)
    start = (low - base) & -ALIGN_BYTES if low < high else 0  # the same alignment there as here
    origin = base + start
    places = [
        (tensor, address - origin if address >= 0 else -1, tensor.stride())
        for tensor, address in zip(tensors, addresses, strict=True)
    ]
    return PackedTensors(places, start, max(0, high - origin))


class LooseTensors(PackedTensors):
    """Tensors anywhere in memory, with their places in a range that they are yet to be copied to.

    Tensors over one storage lie over one another there, too.
    """

    __slots__ = ("_encoded",)

    def __init__(self, tensors: Sequence[torch.Tensor]) -> None:
        plain = [tensor.detach() for tensor in tensors]
        layout = BatchLayout(0, ())
        entries = layout.place(plain)
        places = [
            (
                tensor,
                entry[0] if tensor.numel() else -1,
                entry[3] if len(entry) > 3 else contiguous_strides(entry[2]),
            )
            for tensor, entry in zip(tensors, entries, strict=True)
        ]
        super().__init__(places, 0, layout.cursor)
        self._encoded = EncodedBatch(b"", layout, plain)

    def pack(self, buffer: torch.Tensor) -> None:
        """Copy them into ``buffer``, in host memory, which has ``nbytes``."""
        self._encoded.copy_to(buffer.numpy(), buffer.data_ptr())


def _reach(tensor: torch.Tensor) -> int:
    """The bytes from the first element of a tensor to the end of its last one."""
    if not tensor.numel():
        return 0
    span = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return (span + 1) * tensor.itemsize

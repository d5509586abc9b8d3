"""Lets torch's collation build its tensors directly in the slot.

torch collates through a map from element type to function, which users may extend. Stoker replaces one entry of that map, the one
for tensors. The new entry stacks into the slot of the current thread, if there is one. Torch's own entry would open a new
shared-memory file per tensor. Because the map is torch's, ``default_collate`` inside a user's ``collate_fn`` uses the slot too.

Results are the same bit for bit, inline and in worker processes. Where stacking into prepared memory would differ, as with mixed
dtypes, tensors are stacked on the heap.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.utils.data._utils import collate as torch_collate

from stoker._runtime.worker.context import current

_stock: Callable[..., torch.Tensor] = torch_collate.collate_tensor_fn


_SMALL_BYTES = 16 * 1024
"""Up to this size a batch is stacked on the heap and copied: checking every row for the direct way would cost more."""


def collate_tensor(batch: Any, *, collate_fn_map: Any = None) -> torch.Tensor:
    """Stack tensors of equal shape; into the slot when they are plain and of one dtype."""
    elem = batch[0]
    slot = current.slot
    if elem.is_nested or elem.layout is not torch.strided:
        return _stock(batch, collate_fn_map=collate_fn_map)  # raises torch's own error
    if (
        slot is None
        or type(elem) is not torch.Tensor
        or len(batch) * elem.nbytes <= _SMALL_BYTES
        or elem.device.type != "cpu"
    ):
        return torch.stack(batch, 0)
    dtype = elem.dtype
    shape = elem.shape
    for tensor in batch:
        if (
            type(tensor) is not torch.Tensor
            or tensor.dtype is not dtype
            or tensor.requires_grad
            or tensor.shape != shape
        ):
            return torch.stack(batch, 0)  # promotes, or raises, as it does without workers
    return torch.stack(batch, 0, out=slot.tensor((len(batch), *shape), dtype))


def install() -> None:
    """Put our entry for tensors into torch's collate map, unless the user has put one there."""
    table = torch_collate.default_collate_fn_map
    if table.get(torch.Tensor) is _stock:
        table[torch.Tensor] = collate_tensor


def uninstall() -> None:
    """The other way round. For a fork that judges torch's own loader, of a process in which ours had threads."""
    table = torch_collate.default_collate_fn_map
    if table.get(torch.Tensor) is collate_tensor:
        table[torch.Tensor] = _stock


def additions() -> dict[Any, Any] | None:
    """What the user changed in torch's collate map, to be carried to workers that do not inherit it."""
    table = torch_collate.default_collate_fn_map
    changed = {
        key: function
        for key, function in table.items()
        if function is not collate_tensor and getattr(function, "__module__", "") != torch_collate.__name__
    }
    return changed or None


def is_default(collate_fn: Any) -> bool:
    """Whether batches are collated by torch's ``default_collate`` alone, with nothing of the user's in its map."""
    return collate_fn is torch_collate.default_collate


def merge(changed: dict[Any, Any]) -> None:
    """Apply what ``additions`` found in the parent."""
    torch_collate.default_collate_fn_map.update(changed)

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

from stoker._runtime.protocol.thread_context import current

_stock: Callable[..., torch.Tensor] = torch_collate.collate_tensor_fn


_SMALL_BYTES = 16 * 1024
"""Smaller batches are stacked on the heap and copied: checking every row would cost more than the copy."""


def collate_tensor(batch: Any, *, collate_fn_map: Any = None) -> torch.Tensor:
    """Stack tensors of equal shape; in the slot when they are plain and of one dtype."""
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
    """Put our entry for tensors into torch's collate map, unless the user changed that entry."""
    table = torch_collate.default_collate_fn_map
    if table.get(torch.Tensor) is _stock:
        table[torch.Tensor] = collate_tensor


def uninstall() -> None:
    """Restore torch's own entry. For a fork that measures torch's loader in a process that used worker threads."""
    table = torch_collate.default_collate_fn_map
    if table.get(torch.Tensor) is collate_tensor:
        table[torch.Tensor] = _stock


def additions() -> dict[Any, Any] | None:
    """Return the user's changes to torch's collate map, for workers that do not inherit it."""
    table = torch_collate.default_collate_fn_map
    changed = {
        key: function
        for key, function in table.items()
        if function is not collate_tensor and getattr(function, "__module__", "") != torch_collate.__name__
    }
    return changed or None


def is_stock() -> bool:
    """Whether torch's collate map is as torch made it, apart from our entry: nothing in it keeps a sample as it is."""
    return not additions()


def is_default(collate_fn: Any) -> bool:
    """Whether ``collate_fn`` is torch's ``default_collate``."""
    return collate_fn is torch_collate.default_collate


def merge(changed: dict[Any, Any]) -> None:
    """Apply what ``additions`` found in the parent."""
    torch_collate.default_collate_fn_map.update(changed)

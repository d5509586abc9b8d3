"""Reads the table of a flat batch of plain tensors, and builds such a batch over other memory: on a device, or page-locked.

Batches of one loader have the same table for long. So it is read once, and no tensor over host memory is made for a batch that a
device reads. Stateless; any thread.
"""

from __future__ import annotations

import marshal
from collections.abc import Sequence
from typing import Any

import torch

from stoker._runtime.transport.codec import SKELETON, flat_batch
from stoker._runtime.transport.dtypes import DTYPES, ITEM_BYTES
from stoker._runtime.transport.layout import ALIGN_BYTES, contiguous_strides


class FlatTable:
    """Where the tensors of a batch lie in its slot: between ``start`` and ``start + nbytes``. Immutable."""

    __slots__ = ("_form", "_places", "nbytes", "start")

    def __init__(
        self, form: Any, offsets: Sequence[int], codes: Sequence[int], shapes: Sequence[tuple[int, ...]]
    ) -> None:
        self._form = form
        self.start = min(offsets) & -ALIGN_BYTES  # the same alignment there as here
        places: list[tuple[torch.dtype, int, tuple[int, ...], tuple[int, ...]]] = []
        end = self.start
        for offset, code, shape in zip(offsets, codes, shapes, strict=True):
            strides, item_bytes = contiguous_strides(shape), ITEM_BYTES[code]
            numel = shape[0] * strides[0] if shape else 1
            end = max(end, offset + numel * item_bytes)
            places.append((DTYPES[code], (offset - self.start) // item_bytes, shape, strides))
        self._places = places
        self.nbytes = end - self.start

    def batch_over(self, buffer: torch.Tensor) -> Any:
        """The batch over ``buffer``, which has these bytes, on any device.

        All tensors lie on one storage, which torch's allocators know. None is a view of another tensor.
        """
        storage, device, empty = buffer.untyped_storage(), buffer.device, torch.empty
        return flat_batch(
            self._form,
            [
                empty(0, dtype=dtype, device=device).set_(storage, first, shape, strides)
                for dtype, first, shape, strides in self._places
            ],
        )


def flat_table(root: bytes) -> FlatTable | None:
    """The table of an encoded batch, by its root; None if the batch is not flat, or has other leaves than plain tensors."""
    form, *columns = marshal.loads(root)
    if form == SKELETON or len(columns) != 3 or not columns[0]:
        return None
    offsets, codes, _ = columns
    if any(offset % ITEM_BYTES[code] for offset, code in zip(offsets, codes, strict=True)):
        return None
    return FlatTable(form, *columns)

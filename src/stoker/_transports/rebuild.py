"""From a batch's table and its bytes back to tensors and arrays. Stateless; any thread.

Functions whose names appear in a skeleton (``leaf``, ``leaf_requiring_grad``...) are looked up by the unpickler in the
reader's process: renaming one changes the wire format.
"""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from stoker._transports.dtypes import CODE, DTYPES, ITEM_BYTES, NUMPY
from stoker._transports.layout import STORAGE, Entry

_from_numpy = torch.from_numpy
_ndarray = np.ndarray
_BYTE = np.dtype(np.uint8)
_MAX_NUMPY_DIMS = 32


def leaves(buffer: Any, entries: Sequence[Entry]) -> list[Any]:
    """The leaves that the entries describe, over ``buffer``. Every leaf that is not empty keeps ``buffer`` alive."""
    storages: dict[int, torch.UntypedStorage] = {}
    built: list[Any] = []
    for entry in entries:
        if len(entry) == 3 and entry[2] != STORAGE:
            offset, code, shape = entry
            native = NUMPY[code]
            if native is not None and 0 not in shape and len(shape) <= _MAX_NUMPY_DIMS:
                # A numpy array carries shape and offset into torch in one step, and the result is no view of another
                # tensor, which torch.frombuffer followed by .view() would be.
                built.append(_from_numpy(_ndarray(shape, native, buffer, offset)))
                continue
            built.append(tensor(buffer, offset, shape, DTYPES[code]))
        else:
            built.append(_unusual(buffer, entry, storages))
    return built


def tensor(
    buffer: Any, offset: int, shape: Sequence[int], dtype: torch.dtype, strides: Sequence[int] | None = None
) -> torch.Tensor:
    """A tensor over ``buffer`` on a storage of its own; contiguous unless strides (in elements) are given."""
    code = CODE[dtype]
    native = NUMPY[code]
    if 0 in shape:
        empty = torch.empty(tuple(shape), dtype=dtype)
        return empty if strides is None else torch.empty_strided(tuple(shape), tuple(strides), dtype=dtype)
    if native is not None and len(shape) <= _MAX_NUMPY_DIMS:
        if strides is None:
            return _from_numpy(_ndarray(shape, native, buffer, offset))
        item_bytes = ITEM_BYTES[code]
        return _from_numpy(_ndarray(shape, native, buffer, offset, tuple(stride * item_bytes for stride in strides)))
    if strides is None:
        strides = _contiguous(shape)
    span = sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True)) + 1
    return _over(storage(buffer, offset, span * ITEM_BYTES[code]), 0, shape, strides, dtype)


def storage(buffer: Any, offset: int, nbytes: int) -> torch.UntypedStorage:
    """A storage over ``nbytes`` of ``buffer``."""
    if not nbytes:
        return torch.UntypedStorage(0)
    return _from_numpy(_ndarray((nbytes,), _BYTE, buffer, offset)).untyped_storage()


def _over(
    block: torch.UntypedStorage, first: int, shape: Sequence[int], strides: Sequence[int], dtype: torch.dtype
) -> torch.Tensor:
    return torch.empty(0, dtype=dtype).set_(block, first, tuple(shape), tuple(strides))  # type: ignore[call-overload, no-any-return]


def _contiguous(shape: Sequence[int]) -> tuple[int, ...]:
    strides, step = [0] * len(shape), 1
    for dim in reversed(range(len(shape))):
        strides[dim] = step
        step *= shape[dim]
    return tuple(strides)


def _unusual(buffer: Any, entry: Entry, storages: dict[int, torch.UntypedStorage]) -> Any:
    """Leaves other than contiguous tensors; ``storages`` holds the shared regions met so far."""
    if len(entry) == 2:
        offset, nbytes = entry
        return memoryview(_ndarray((nbytes,), _BYTE, buffer, offset))
    if len(entry) == 3:
        offset, nbytes, _ = entry
        return _region(buffer, offset, nbytes, storages)
    offset, kind, shape, strides = entry[:4]
    if not isinstance(kind, int):
        dtype = pickle.loads(kind) if isinstance(kind, bytes) else np.dtype(kind)
        return _ndarray(shape, dtype, buffer, offset, strides) if 0 not in shape else _ndarray(shape, dtype)
    if len(entry) == 4 or 0 in shape:
        return tensor(buffer, offset, shape, DTYPES[kind], strides)
    region, nbytes = entry[4:]
    block = _region(buffer, region, nbytes, storages)
    return _over(block, (offset - region) // ITEM_BYTES[kind], shape, strides, DTYPES[kind])


def _region(buffer: Any, offset: int, nbytes: int, storages: dict[int, torch.UntypedStorage]) -> torch.UntypedStorage:
    block = storages.get(offset) if nbytes else None
    if block is None:
        block = storage(buffer, offset, nbytes)
        storages[offset] = block
    return block


def leaf(value: Any) -> Any:
    """Skeleton: the next leaf, as it is."""
    return value


def leaf_requiring_grad(value: torch.Tensor) -> torch.Tensor:
    """Skeleton: the next leaf, a tensor that requires grad."""
    return value.requires_grad_()


def typed_storage(block: torch.UntypedStorage, dtype: torch.dtype) -> torch.TypedStorage:
    """Skeleton: the typed face of a storage, which torch's own reductions of unusual tensors contain."""
    return torch.storage.TypedStorage(wrap_storage=block, dtype=dtype, _internal=True)

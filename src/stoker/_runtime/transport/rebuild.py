"""Rebuilds tensors and arrays from a batch's table and its bytes. Stateless; any thread.

A skeleton names some of these functions (``leaf`` and those below it), and the unpickler looks them up in the reader's process.
Renaming one of them changes the wire format.
"""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from itertools import repeat
from typing import Any

import numpy as np
import torch

from stoker._runtime.transport.dtypes import CODE, DTYPES, ITEM_BYTES, NUMPY
from stoker._runtime.transport.layout import STORAGE, Entry, contiguous_strides

_from_numpy = torch.from_numpy
_ndarray: Any = np.ndarray
_native = NUMPY.__getitem__
_BYTE = np.dtype(np.uint8)
_MAX_NUMPY_DIMS = 32


def plain(
    buffer: Any, offsets: Sequence[int], codes: Sequence[int], shapes: Sequence[Sequence[int]]
) -> list[torch.Tensor]:
    """Contiguous tensors over ``buffer``, which each of them keeps alive.

    A numpy array takes offset and shape into torch in one step, and the result is no view of another tensor,
    which ``torch.frombuffer`` followed by ``view`` would be.
    """
    return list(map(_from_numpy, map(_ndarray, shapes, map(_native, codes), repeat(buffer), offsets)))


def leaves(buffer: Any, entries: Sequence[Entry]) -> list[Any]:
    """The leaves that the entries describe; every one that is not empty keeps ``buffer`` alive."""
    storages: dict[int, torch.UntypedStorage] = {}
    return [_leaf(buffer, entry, storages) for entry in entries]


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
        byte_strides = tuple(stride * ITEM_BYTES[code] for stride in strides)
        return _from_numpy(_ndarray(shape, native, buffer, offset, byte_strides))
    if strides is None:
        strides = contiguous_strides(shape)
    span = sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True)) + 1
    return _over(storage(buffer, offset, span * ITEM_BYTES[code]), 0, shape, strides, dtype)


def storage(buffer: Any, offset: int, nbytes: int) -> torch.UntypedStorage:
    """A storage over ``nbytes`` of ``buffer``."""
    if not nbytes:
        return torch.empty(0).untyped_storage()
    return _from_numpy(_ndarray((nbytes,), _BYTE, buffer, offset)).untyped_storage()


def _over(
    block: torch.UntypedStorage, first: int, shape: Sequence[int], strides: Sequence[int], dtype: torch.dtype
) -> torch.Tensor:
    return torch.empty(0, dtype=dtype).set_(block, first, tuple(shape), tuple(strides))


def _leaf(buffer: Any, entry: Entry, storages: dict[int, torch.UntypedStorage]) -> Any:
    """One leaf; ``storages`` holds the shared regions met so far in this batch."""
    if len(entry) == 2:
        offset, nbytes = entry
        return memoryview(_ndarray((nbytes,), _BYTE, buffer, offset))
    offset, kind, shape = entry[:3]
    if shape == STORAGE:
        return _region(buffer, offset, kind, storages)
    if len(entry) == 3:
        return tensor(buffer, offset, shape, DTYPES[kind])
    strides = entry[3]
    if not isinstance(kind, int):
        return _array(buffer, offset, kind, shape, strides)
    if len(entry) == 4 or 0 in shape:
        return tensor(buffer, offset, shape, DTYPES[kind], strides)
    region, nbytes = entry[4:]
    block = _region(buffer, region, nbytes, storages)
    return _over(block, (offset - region) // ITEM_BYTES[kind], shape, strides, DTYPES[kind])


def _array(
    buffer: Any, offset: int, name: str | bytes, shape: tuple[int, ...], strides: tuple[int, ...]
) -> np.ndarray[Any, Any]:
    dtype = pickle.loads(name) if isinstance(name, bytes) else np.dtype(name)
    if 0 in shape or not dtype.itemsize:
        return np.empty(shape, dtype)
    array: np.ndarray[Any, Any] = _ndarray(shape, dtype, buffer, offset, strides)
    if any(stride == 0 and size > 1 for size, stride in zip(shape, strides, strict=True)):
        # As numpy itself does for broadcast arrays: writing one element would change others.
        array.flags.writeable = False
    return array


def _region(
    buffer: Any, offset: int, nbytes: int, storages: dict[int, torch.UntypedStorage]
) -> torch.UntypedStorage:
    block = storages.get(offset) if nbytes else None
    if block is None:
        block = storage(buffer, offset, nbytes)
        storages[offset] = block
    return block


def leaf(value: Any) -> Any:
    """Skeleton: the next leaf, as it is."""
    return value


def tensor_requiring_grad(plain_tensor: torch.Tensor) -> torch.Tensor:
    """Skeleton: a leaf of autograd that requires grad."""
    return plain_tensor.requires_grad_()


def tensor_of_type(plain_tensor: torch.Tensor, kind: type[torch.Tensor], requires_grad: bool) -> torch.Tensor:
    """Skeleton: a tensor of a subclass. Its attributes follow through :func:`set_attributes`."""
    made = plain_tensor.as_subclass(kind)
    return made.requires_grad_() if requires_grad else made


def set_attributes(made: torch.Tensor, state: Any) -> None:
    """Skeleton: give a tensor the state that its ``__getstate__`` returned.

    ``torch.Tensor.__setstate__`` is a relic for another format, so only a subclass's own is used.
    """
    if type(made).__setstate__ is not torch.Tensor.__setstate__:
        made.__setstate__(state)  # type: ignore[no-untyped-call]
        return
    for part in state if isinstance(state, tuple) else (state,):
        for name, value in (part or {}).items():
            setattr(made, name, value)


def sparse_coo(
    indices: torch.Tensor, values: torch.Tensor, shape: tuple[int, ...], coalesced: bool, requires_grad: bool
) -> torch.Tensor:
    """Skeleton: a sparse COO tensor.

    Torch's own rebuilding functions put every sparse tensor on a list for later validation, which only
    ``torch.load`` empties: its memory, here a lease, would never be freed.
    """
    return torch.sparse_coo_tensor(
        indices, values, shape, is_coalesced=coalesced, requires_grad=requires_grad, check_invariants=False
    )


def sparse_compressed(
    compressed: torch.Tensor,
    plain_indices: torch.Tensor,
    values: torch.Tensor,
    shape: tuple[int, ...],
    layout: torch.layout,
    requires_grad: bool,
) -> torch.Tensor:
    """Skeleton: a sparse CSR, CSC, BSR or BSC tensor; not torch's own way, for the reason above."""
    return torch.sparse_compressed_tensor(
        compressed,
        plain_indices,
        values,
        shape,
        layout=layout,
        requires_grad=requires_grad,
        check_invariants=False,
    )


def typed_storage(block: torch.UntypedStorage, dtype: torch.dtype) -> torch.TypedStorage:
    """Skeleton: the typed face of a storage, which torch's own reductions of unusual tensors contain."""
    made: torch.TypedStorage = torch.TypedStorage(wrap_storage=block, dtype=dtype, _internal=True)  # type: ignore[no-untyped-call]
    return made

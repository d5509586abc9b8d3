"""Pickles the part of a batch that is not tensor or array data, with holes for the leaves.

Plain pickle comes first, because it is fast. cloudpickle is used for the whole skeleton when a class or function cannot be found by
name, as in a notebook. When neither works, the error names the path to the part that cannot be pickled.
"""

from __future__ import annotations

import copyreg
import io
import pickle
from collections.abc import Iterator
from typing import Any

import cloudpickle
import numpy as np
import torch

from stoker._runtime.transport import rebuild
from stoker._runtime.transport.layout import is_bare
from stoker._runtime.transport.unsendable import unsendable

_Tensor = torch.Tensor
_strided = torch.strided

_MARK = pickle.PickleBuffer(bytearray())
"""Stands for a leaf's data while pickling. It is writable, because the reader would wrap a read-only one."""


def skeleton(obj: object) -> tuple[bytes, list[Any]]:
    """Return ``obj`` pickled without its leaves, and the leaves in the order of unpickling."""
    try:
        return _pickled(_SkeletonPickler, obj)
    except MemoryError:
        raise
    except Exception:
        pass
    try:
        return _pickled(_ByValuePickler, obj)
    except MemoryError:
        raise
    except Exception as error:
        raise unsendable(obj, error, _failure) from error


def _failure(obj: object) -> Exception | None:
    """Return why ``obj`` cannot be pickled by itself; None if it can."""
    try:
        _pickled(_ByValuePickler, obj)
    except Exception as error:
        return error
    return None


def _pickled(kind: type[_SkeletonPickler] | type[_ByValuePickler], obj: object) -> tuple[bytes, list[Any]]:
    file = io.BytesIO()
    leaves: list[Any] = []
    buffers: list[pickle.PickleBuffer] = []
    # ``append`` returns None, which tells the pickler to leave the buffer out.
    pickler = kind(file, 5, buffer_callback=buffers.append)
    pickler.leaves = leaves
    pickler.dump(obj)
    if len(buffers) > len(leaves):
        leaves = _merged(buffers, iter(leaves))
    return file.getvalue(), leaves


def _merged(buffers: list[pickle.PickleBuffer], leaves: Iterator[Any]) -> list[Any]:
    """Merge leaves with buffers that objects put out of band themselves, in the order of the pickle."""
    for buffer in buffers:
        # Raises BufferError for one that is not contiguous: pickle refuses those too.
        buffer.raw().release()
    return [next(leaves) if buffer is _MARK else buffer for buffer in buffers]


class _SkeletonPickler(pickle.Pickler):
    """Pickles by reference."""

    leaves: list[Any]

    def reducer_override(self, obj: Any) -> Any:
        return _reduce(obj, self.leaves)


class _ByValuePickler(cloudpickle.Pickler):  # type: ignore[misc]
    """Pickles by value what the reader cannot import."""

    leaves: list[Any]

    def reducer_override(self, obj: Any) -> Any:
        reduced = _reduce(obj, self.leaves)
        return super().reducer_override(obj) if reduced is NotImplemented else reduced


def _reduce(obj: Any, leaves: list[Any]) -> Any:
    """Reduce ``obj``: a leaf is collected and leaves a hole, everything else is left to the pickler."""
    kind = type(obj)
    if kind is _Tensor:
        if not is_bare(obj):
            return _reduce_tensor(obj)
    elif kind is np.ndarray:
        if obj.dtype.hasobject:
            return NotImplemented
    elif isinstance(obj, _Tensor):
        return _reduce_tensor(obj)
    elif isinstance(obj, torch.storage.TypedStorage):
        return rebuild.typed_storage, (obj._untyped_storage, obj.dtype)
    elif not isinstance(obj, torch.UntypedStorage) or obj.device.type != "cpu":
        return NotImplemented
    leaves.append(obj)
    # A tuple made anew each time: the pickler would answer a known one with a reference to the leaf before.
    return rebuild.leaf, (_MARK,)


def _reduce_tensor(tensor: torch.Tensor) -> Any:
    """Reduce a tensor that is not bare to a bare one and its changes, or leave it to torch.

    A tensor with a history is detached: its values travel, the graph cannot.
    """
    kind = type(tensor)
    if tensor.device.type not in ("cpu", "meta"):
        raise TypeError(f"it lies on {tensor.device}; workers must return CPU tensors")
    if kind is _Tensor and tensor.layout is not _strided and tensor.is_cpu and not tensor.is_nested:
        return _reduce_sparse(tensor)
    dense = tensor.layout is _strided and tensor.is_cpu and not tensor.is_quantized and not tensor.is_nested
    if not dense or _pickles_itself(kind):
        return (rebuild.leaf, (tensor.detach(),)) if tensor.grad_fn is not None else NotImplemented
    with torch._C.DisableTorchFunctionSubclass():
        plain = tensor.detach().as_subclass(_Tensor).resolve_conj().resolve_neg()
        requires_grad = tensor.requires_grad and tensor.is_leaf
    state = tensor.__getstate__()
    made: tuple[Any, ...]
    if kind is not _Tensor:
        made = (rebuild.tensor_of_type, (plain, kind, requires_grad))
    else:
        made = (rebuild.tensor_requiring_grad if requires_grad else rebuild.leaf, (plain,))
    return (*made, state, None, None, rebuild.set_attributes) if state else made


def _reduce_sparse(tensor: torch.Tensor) -> Any:
    """Reduce a sparse tensor to its dense parts."""
    layout, requires_grad = tensor.layout, tensor.requires_grad and tensor.is_leaf
    tensor = tensor.detach()
    shape = tuple(tensor.shape)
    if layout is torch.sparse_coo:
        parts = (tensor._indices(), tensor._values())
        return rebuild.sparse_coo, (*parts, shape, tensor.is_coalesced(), requires_grad)
    if layout in (torch.sparse_csr, torch.sparse_bsr):
        indices = (tensor.crow_indices(), tensor.col_indices())
    elif layout in (torch.sparse_csc, torch.sparse_bsc):
        indices = (tensor.ccol_indices(), tensor.row_indices())
    else:
        return NotImplemented
    return rebuild.sparse_compressed, (*indices, tensor.values(), shape, layout, requires_grad)


def _pickles_itself(kind: type[torch.Tensor]) -> bool:
    """Whether a class defines its own pickling, or holds other tensors instead of memory."""
    return (
        kind.__reduce_ex__ is not _Tensor.__reduce_ex__
        or kind.__torch_dispatch__ is not _Tensor.__torch_dispatch__
        or kind in copyreg.dispatch_table
    )

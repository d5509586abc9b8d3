"""A sample's content as one number: samples of different processes are compared by it, without sending them.

Equal content gives equal numbers within one family of forks; nothing of the user's is called but what pickling calls.
"""

from __future__ import annotations

import io
import pickle
from hashlib import blake2b
from typing import Any

import numpy as np
import torch

_DEEP = 12
_PLAIN = (bool, int, float, complex, str, bytes, type(None))


def digest(value: Any) -> int:
    """64 bits of what a sample holds: tensors and arrays by their bytes, containers item by item, anything else by its pickle."""
    state = blake2b(digest_size=8)
    _add(state, value, _DEEP)
    return int.from_bytes(state.digest(), "little")


def _add(state: Any, value: Any, deep: int) -> None:
    state.update(type(value).__qualname__.encode())
    if isinstance(value, torch.Tensor):
        _add_tensor(state, value)
    elif isinstance(value, np.ndarray | np.generic) and not value.dtype.hasobject:
        _add_array(state, np.asarray(value))
    elif isinstance(value, _PLAIN):
        state.update(repr(value).encode())
    elif isinstance(value, dict) and deep:
        for key, item in value.items():
            _add(state, key, deep - 1)
            _add(state, item, deep - 1)
    elif isinstance(value, list | tuple) and deep:
        state.update(str(len(value)).encode())
        for item in value:
            _add(state, item, deep - 1)
    else:
        _add_other(state, value)


def _add_tensor(state: Any, tensor: torch.Tensor) -> None:
    state.update(f"{tensor.dtype} {tuple(tensor.shape)} {tensor.layout}".encode())
    try:
        dense = tensor.detach().to_dense() if tensor.layout != torch.strided else tensor.detach()
        state.update(dense.cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    except (RuntimeError, TypeError, NotImplementedError):  # quantised, nested
        state.update(repr(tensor).encode())


def _add_array(state: Any, array: np.ndarray[Any, Any]) -> None:
    state.update(f"{array.dtype} {array.shape}".encode())
    state.update(np.ascontiguousarray(array).view(np.uint8).reshape(-1).data if array.size else b"")


def _add_other(state: Any, value: Any) -> None:
    file = io.BytesIO()
    try:
        _Pickler(file, protocol=4).dump(value)
    except Exception:  # what cannot be pickled is known by its type alone
        return
    state.update(file.getbuffer())


class _Pickler(pickle.Pickler):
    """Tensors within are known by their digest: two pickles of one tensor differ."""

    def reducer_override(self, obj: Any) -> Any:
        return (int, (digest(obj),)) if isinstance(obj, torch.Tensor) else NotImplemented

"""Digests a sample or a batch into one number, to compare values of different processes without sending them.

Equal content gives equal numbers within one family of forks. Of the user's code, only what pickling calls runs.
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


class NotComparable(Exception):
    """Something in a batch has no value to compare."""


def digest(value: Any, *, strict: bool = False) -> int:
    """64 bits of the content: tensors and arrays by their bytes, containers item by item, anything else by its pickle.

    A value without comparable content counts by its type alone; with ``strict`` it raises NotComparable.
    """
    state = blake2b(digest_size=8)
    _add(state, value, _DEEP, strict)
    return int.from_bytes(state.digest(), "little")


def _add(state: Any, value: Any, deep: int, strict: bool) -> None:
    state.update(type(value).__qualname__.encode())
    if isinstance(value, torch.Tensor):
        _add_tensor(state, value, strict)
    elif isinstance(value, np.ndarray | np.generic) and not value.dtype.hasobject:
        _add_array(state, np.asarray(value))
    elif isinstance(value, _PLAIN):
        state.update(repr(value).encode())
    elif isinstance(value, dict) and deep:
        for key, item in value.items():
            _add(state, key, deep - 1, strict)
            _add(state, item, deep - 1, strict)
    elif isinstance(value, list | tuple) and deep:
        state.update(str(len(value)).encode())
        for item in value:
            _add(state, item, deep - 1, strict)
    else:
        _add_other(state, value, strict)


def _add_tensor(state: Any, tensor: torch.Tensor, strict: bool) -> None:
    if strict and (tensor.layout != torch.strided or tensor.is_quantized):
        raise NotComparable(f"a tensor of layout {tensor.layout}")
    state.update(f"{tensor.dtype} {tuple(tensor.shape)} {tensor.layout}".encode())
    try:
        dense = tensor.detach().to_dense() if tensor.layout != torch.strided else tensor.detach()
        state.update(dense.cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    except (RuntimeError, TypeError, NotImplementedError):  # quantised, nested
        state.update(repr(tensor).encode())


def _add_array(state: Any, array: np.ndarray[Any, Any]) -> None:
    state.update(f"{array.dtype} {array.shape}".encode())
    state.update(np.ascontiguousarray(array).view(np.uint8).reshape(-1).data if array.size else b"")


def _add_other(state: Any, value: Any, strict: bool) -> None:
    file = io.BytesIO()
    try:
        _DigestPickler(file, strict).dump(value)
    except Exception:
        if strict:
            raise NotComparable(f"a {type(value).__name__}") from None
        return
    state.update(file.getbuffer())


class _DigestPickler(pickle.Pickler):
    """Replaces a tensor by its digest: two pickles of one tensor differ."""

    def __init__(self, file: io.BytesIO, strict: bool) -> None:
        super().__init__(file, protocol=4)
        self._strict = strict

    def reducer_override(self, obj: Any) -> Any:
        return (int, (digest(obj, strict=self._strict),)) if isinstance(obj, torch.Tensor) else NotImplemented

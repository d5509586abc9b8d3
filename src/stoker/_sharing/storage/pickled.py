"""Columns of byte strings, and of items that have no layout of their own: each of those is pickled by itself."""

from __future__ import annotations

import copyreg
import io
import itertools
import pickle
from collections.abc import Iterator, Sequence
from types import FunctionType
from typing import Any

import numpy as np
import torch

from stoker._pickling import main_module
from stoker._pickling.segment import Place, SegmentWriter
from stoker._sharing.storage import layouts
from stoker.errors import CannotShare

_CHUNK = 1 << 16
_NEW_DTYPES = torch.storage._new_dtypes()
"""Those (uint16, float8) whose tensors torch can unpickle from a file of its own only."""


class NotPacked(Exception):
    """This is better left as it is; the text says why."""


def bytes_column(items: Iterator[bytes], rows: int, writer: SegmentWriter) -> layouts.Bytes:
    """Write byte strings as they come; never more than a few of them are held."""
    ends = np.zeros(rows + 1, np.uint64)

    def chunks() -> Iterator[bytes]:
        row = 1
        while chunk := list(itertools.islice(items, _CHUNK)):
            ends[row : row + len(chunk)] = np.fromiter(map(len, chunk), np.uint64, len(chunk))
            row += len(chunk)
            yield b"".join(chunk)

    place = writer.put(chunks())
    np.cumsum(ends, out=ends)
    return layouts.Bytes(place, *offsets(ends, writer))


def offsets(ends: np.ndarray[Any, Any], writer: SegmentWriter) -> tuple[Place, str]:
    """Write offsets, in four bytes each where that is enough."""
    if int(ends[-1]) < 1 << 32:
        return writer.array(ends.astype(np.uint32)), "I"
    return writer.array(ends.astype(np.uint64)), "Q"


def pickled_column(items: Sequence[Any], writer: SegmentWriter) -> layouts.Pickled:
    """Write items of any kind. Raises CannotShare with the row of one that cannot be pickled, and NotPacked."""
    try:
        return layouts.Pickled(bytes_column(_dumped(items), len(items), writer))
    except NotPacked:
        raise
    except Exception:  # one of a class that pickle does not find, or one that cannot be pickled at all
        named: dict[Any, int] = {}
        dumped = (_dump(item, row, named) for row, item in enumerate(items))
        return layouts.Pickled(bytes_column(dumped, len(items), writer), tuple(named))


class _Foreign(Exception):
    pass


def _dumped(items: Sequence[Any]) -> Iterator[bytes]:
    file = io.BytesIO()
    pickler = pickle.Pickler(file, 5)
    pickler.dispatch_table = _with_tensors()
    for item in items:
        pickler.dump(item)
        data = file.getvalue()
        if b"__main__" in data or b"__mp_main__" in data:  # in another process that is another module
            raise _Foreign
        yield data
        pickler.clear_memo()
        file.seek(0)
        file.truncate()


class _Dumper(pickle.Pickler):
    """Leaves out classes and functions that another process could not import."""

    def __init__(self, file: io.BytesIO, named: dict[Any, int]) -> None:
        super().__init__(file, 5)
        self.dispatch_table = _with_tensors()
        self._named = named

    def persistent_id(self, obj: Any) -> int | None:
        if not isinstance(obj, type | FunctionType):
            return None
        if obj.__module__ in main_module.NAMES or "<" in obj.__qualname__:
            return self._named.setdefault(obj, len(self._named))
        return None


def _dump(item: Any, row: int, named: dict[Any, int]) -> bytes:
    file = io.BytesIO()
    try:
        _Dumper(file, named).dump(item)
    except NotPacked:
        raise
    except Exception as error:
        raise CannotShare(f"({type(item).__name__}) cannot be packed: {error}", (row,)) from error
    return file.getvalue()


def _with_tensors() -> dict[type, Any]:
    return {**copyreg.dispatch_table, torch.Tensor: _tensor}


def _tensor(tensor: torch.Tensor) -> Any:
    """As torch does it, but not with the whole storage that it is a small view of: every row would bring that along."""
    refuse_shared(tensor)
    if tensor.device.type == "cpu" and tensor.layout is torch.strided and not tensor.is_quantized:
        storage = tensor.untyped_storage()
        if storage.nbytes() > 2 * tensor.nbytes and not tensor.requires_grad:
            tensor = tensor.clone()
        if tensor.dtype in _NEW_DTYPES and not tensor.requires_grad:
            raw = tensor.contiguous().reshape(-1).view(torch.uint8).numpy()
            return _from_bytes, (raw.tobytes(), tensor.dtype, tuple(tensor.shape))
    return tensor.__reduce_ex__(5)  # type: ignore[no-untyped-call]


def _from_bytes(data: bytes, dtype: torch.dtype, shape: tuple[int, ...]) -> torch.Tensor:
    if not data:
        return torch.empty(shape, dtype=dtype)
    return torch.frombuffer(bytearray(data), dtype=dtype).view(shape)


def refuse_shared(tensor: torch.Tensor) -> None:
    """Raise NotPacked for a tensor that is a channel between processes: packed it would be one no more."""
    if tensor.layout is torch.strided and not tensor.is_nested and tensor.is_shared():  # type: ignore[no-untyped-call]
        raise NotPacked("holds tensors that are shared by torch (share_memory_)")

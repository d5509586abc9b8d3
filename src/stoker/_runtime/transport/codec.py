"""Encodes a batch as bytes: tensor and array data in aligned regions, and a small root that describes them.

    write:   object ── encode ──▶ EncodedBatch: root (table + skeleton) and the copies still to be made
    read:    root + buffer ── decode ──▶ equal object, its tensors lying in the buffer

The skeleton is a pickle in which every leaf is one NEXT_BUFFER instruction. The reader passes the rebuilt leaves to
``pickle.loads`` as its buffers. So decoding needs no unpickler subclass and no state outside the call. A batch that is a tensor, or
a flat list, tuple or dict of plain tensors, has no skeleton.
"""

from __future__ import annotations

import ctypes
import marshal
import pickle
from collections.abc import Sequence
from typing import Any, Final

import torch

from stoker._runtime.transport import rebuild
from stoker._runtime.transport.dtypes import carrier
from stoker._runtime.transport.layout import BatchLayout, Window
from stoker._runtime.transport.skeleton import skeleton

SKELETON, _ONE, _LIST, _TUPLE = 0, 1, 2, 3
"""The form of a batch, the first field of its table; a dict has the tuple of its keys there."""

_LENGTH_BYTES: Final = 4
_memmove = ctypes.memmove


class EncodedBatch:
    """An encoded batch whose data was not copied yet. Lives only inside one ``write``."""

    __slots__ = ("_layout", "_leaves", "end", "root")

    def __init__(self, root: bytes, layout: BatchLayout, leaves: Sequence[Any]) -> None:
        self.root = root
        self.end = layout.cursor
        self._layout = layout
        self._leaves = leaves

    def copy_to(self, buffer: Any, address: int) -> None:
        """Copy the data into ``buffer``, which begins at ``address`` and has room for ``end`` bytes."""
        for offset, source, nbytes in self._layout.copies:
            _memmove(address + offset, source, nbytes)
        for offset, tensor, strides in self._layout.strided:
            _copy_strided(buffer, offset, tensor, strides)


def encode(obj: object, cursor: int, windows: Sequence[Window]) -> EncodedBatch:
    """Encode ``obj``; its data gets offsets from ``cursor`` on.

    Memory inside one of ``windows`` is described but not copied. Raises UnsendableError with the path to the part that neither
    pickle nor cloudpickle accepts.
    """
    layout = BatchLayout(cursor, windows)
    form, items = _flat(obj)
    if items is not None:
        columns = layout.place_plain(items, checked=False)
        if columns is not None:
            return EncodedBatch(marshal.dumps((form, *columns)), layout, items)
    pickled, leaves = skeleton(obj)
    columns = layout.place_plain(leaves, checked=True)
    table = marshal.dumps((SKELETON, layout.place(leaves)) if columns is None else (SKELETON, *columns))
    return EncodedBatch(
        b"".join((table, pickled, len(pickled).to_bytes(_LENGTH_BYTES, "little"))), layout, leaves
    )


def decode(buffer: Any, root: Any) -> Any:
    """Return the object that ``encode`` was given. Its tensors lie in ``buffer`` and keep it alive. Any thread."""
    form, *table = marshal.loads(root)
    leaves = rebuild.leaves(buffer, table[0]) if len(table) == 1 else rebuild.plain(buffer, *table)
    if form == SKELETON:
        end = len(root) - _LENGTH_BYTES
        start = end - int.from_bytes(root[end:], "little")
        return pickle.loads(root[start:end], buffers=leaves)
    return flat_batch(form, leaves)


def flat_batch(form: Any, leaves: list[Any]) -> Any:
    """Return the batch of a form that has no skeleton."""
    if form == _ONE:
        return leaves[0]
    if form == _LIST:
        return leaves
    if form == _TUPLE:
        return tuple(leaves)
    return dict(zip(form, leaves, strict=True))


def _flat(obj: Any) -> tuple[Any, Sequence[Any] | None]:
    """Return (form, items) of a batch that needs no skeleton if its items are plain tensors, else (form, None)."""
    kind = type(obj)
    if kind is torch.Tensor:
        return _ONE, (obj,)
    if kind is list:
        return _LIST, obj
    if kind is tuple:
        return _TUPLE, obj
    if kind is dict and all(type(key) is str for key in obj):
        return tuple(obj), tuple(obj.values())
    return SKELETON, None


def _copy_strided(buffer: Any, offset: int, tensor: torch.Tensor, strides: tuple[int, ...]) -> None:
    """Copy a tensor that is not dense; an expanded dimension is written once, at its first index."""
    once = tensor.detach()
    for dim, stride in enumerate(strides):
        if stride == 0:
            once = once.narrow(dim, 0, 1)
    bits = carrier(tensor.dtype)
    target = rebuild.tensor(buffer, offset, once.shape, bits, strides)
    target.copy_(once if bits is tensor.dtype else once.view(bits))

"""A batch as bytes: the data of tensors and arrays in aligned regions, and a small root that says how they fit.

    write:   object ── encode ──▶ Encoded: root (table + skeleton) and the copies still to be made
    read:    root + buffer ── decode ──▶ equal object, its tensors lying in the buffer

The skeleton is a pickle in which every leaf is one NEXT_BUFFER instruction; the reader hands ``pickle.loads`` the
rebuilt leaves as its buffers, so that decoding needs neither an unpickler subclass nor any state outside the call.
Batches that are a tensor or a flat list, tuple or dict of plain tensors have no skeleton at all.
"""

from __future__ import annotations

import ctypes
import io
import marshal
import pickle
from collections.abc import Callable, Sequence
from typing import Any, Final

import cloudpickle
import numpy as np
import torch

from stoker._transports import rebuild
from stoker._transports.dtypes import NUMPY, CODE, carrier
from stoker._transports.layout import Layout, Window
from stoker._transports.unsendable import unsendable
from stoker.errors import UnsendableError

_Tensor = torch.Tensor
_strided = torch.strided
_memmove = ctypes.memmove

_SKELETON, _ONE, _LIST, _TUPLE = 0, 1, 2, 3
"""Form of a batch, first field of its table; a dict has the tuple of its keys there."""

_LENGTH_BYTES: Final = 4
_MARK = pickle.PickleBuffer(bytearray())
"""What a skeleton's pickler sees in place of a leaf's data; writable, or the reader would wrap leaves in memoryviews."""


class Encoded:
    """An encoded batch whose data still lies where the batch is. Lives only inside one ``write``."""

    __slots__ = ("_layout", "_leaves", "end", "root")

    def __init__(self, root: bytes, layout: Layout, leaves: Sequence[Any]) -> None:
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


def encode(obj: object, cursor: int, windows: Sequence[Window]) -> Encoded:
    """Encode ``obj`` with its data to lie at offsets from ``cursor`` on.

    Memory inside one of ``windows`` is only described, never copied. Raises UnsendableError, with the path to the
    culprit, for what neither pickle nor cloudpickle can take.
    """
    layout = Layout(cursor, windows)
    form, leaves = _flat(obj)
    if leaves is not None:
        layout.place(leaves)
        return Encoded(marshal.dumps((form, layout.entries)), layout, leaves)
    leaves = []
    skeleton = _skeleton(obj, leaves)
    layout.place(leaves)
    table = marshal.dumps((_SKELETON, layout.entries))
    return Encoded(b"".join((table, skeleton, len(skeleton).to_bytes(_LENGTH_BYTES, "little"))), layout, leaves)


def decode(buffer: Any, root: Any) -> Any:
    """The object that ``encode`` was given, its tensors lying in (and keeping) ``buffer``. Any thread."""
    form, entries = marshal.loads(root)
    leaves = rebuild.leaves(buffer, entries)
    if form == _SKELETON:
        nbytes = int.from_bytes(root[-_LENGTH_BYTES:], "little")
        return pickle.loads(root[-_LENGTH_BYTES - nbytes : -_LENGTH_BYTES], buffers=leaves)
    if form == _ONE:
        return leaves[0]
    if form == _LIST:
        return leaves
    if form == _TUPLE:
        return tuple(leaves)
    return dict(zip(form, leaves, strict=True))


def _flat(obj: object) -> tuple[Any, Sequence[Any] | None]:
    """(form, leaves) of a batch that needs no skeleton; leaves are None for every other batch."""
    kind = type(obj)
    form: Any
    items: Any
    if kind is _Tensor:
        form, items = _ONE, (obj,)
    elif kind is list:
        form, items = _LIST, obj
    elif kind is tuple:
        form, items = _TUPLE, obj
    elif kind is dict:
        form, items = tuple(obj), tuple(obj.values())  # type: ignore[call-overload, attr-defined]
        for key in form:
            if type(key) is not str:
                return form, None
    else:
        return _SKELETON, None
    for item in items:
        if type(item) is not _Tensor or not _plain(item):
            return form, None
    if len(items) > 1 and len(set(map(id, items))) != len(items):
        return form, None
    return form, items


def _plain(tensor: torch.Tensor) -> bool:
    """Whether a tensor is nothing but bytes, a dtype, a shape and strides in this process's memory."""
    return (
        tensor.is_cpu
        and tensor.layout is _strided
        and not tensor.requires_grad
        and not tensor.is_neg()
        and not tensor.is_conj()
        and not tensor.is_quantized
        and not tensor.is_nested
        and not tensor.__dict__
    )


def _reduce(obj: Any, leaves: list[Any]) -> Any:
    """How a skeleton's pickler reduces ``obj``: leaves are collected, all else is left to pickle."""
    kind = type(obj)
    if kind is _Tensor:
        if _plain(obj):
            leaves.append(obj)
            return rebuild.leaf, (_MARK,)
        return _reduce_tensor(obj, leaves)
    if kind is np.ndarray:
        if obj.dtype.hasobject:
            return NotImplemented
        leaves.append(obj)
        return rebuild.leaf, (_MARK,)
    if isinstance(obj, torch.UntypedStorage):
        if obj.device.type != "cpu":
            return NotImplemented
        leaves.append(obj)
        return rebuild.leaf, (_MARK,)
    if isinstance(obj, torch.storage.TypedStorage):
        return rebuild.typed_storage, (obj._untyped_storage, obj.dtype)
    if isinstance(obj, _Tensor):
        return _reduce_tensor(obj, leaves)
    return NotImplemented


def _reduce_tensor(tensor: torch.Tensor, leaves: list[Any]) -> Any:
    """Tensors that are more than plain: each is reduced to plain ones, or as torch itself pickles it."""
    if tensor.device.type not in ("cpu", "meta"):
        raise UnsendableError(f"a tensor on {tensor.device}: workers must return CPU tensors")
    if tensor.requires_grad and tensor.grad_fn is not None:
        return rebuild.leaf, (tensor.detach(),)
    return NotImplemented


class _Skeleton(pickle.Pickler):
    """Pickles everything but the leaves, which it collects in the order in which the unpickler will ask for them."""

    def __init__(self, file: io.BytesIO, leaves: list[Any], callback: Callable[[Any], Any]) -> None:
        super().__init__(file, 5, buffer_callback=callback)
        self._leaves = leaves

    def reducer_override(self, obj: Any) -> Any:
        return _reduce(obj, self._leaves)


def _skeleton(obj: object, leaves: list[Any]) -> bytes:
    file = io.BytesIO()
    _Skeleton(file, leaves, lambda buffer: None).dump(obj)
    return file.getvalue()


def _copy_strided(buffer: Any, offset: int, tensor: torch.Tensor, strides: tuple[int, ...]) -> None:
    """Copy a tensor that is not dense; an expanded dimension is written once, at its first index."""
    once = tensor.detach()
    for dim, stride in enumerate(strides):
        if stride == 0:
            once = once.narrow(dim, 0, 1)
    bits = carrier(tensor.dtype)
    target = rebuild.tensor(buffer, offset, once.shape, bits, strides)
    target.copy_(once if bits is tensor.dtype else once.view(bits))

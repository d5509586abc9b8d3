"""Encodes a sample as buffers to append, and rebuilds it over a copy of them or over the store itself.

    encode(sample) ─▶ EncodedSample: buffers that lie one behind the other, and a root that describes them
    decode(buffer, base, root) ─▶ an equal sample, its tensors and arrays lying in ``buffer``

Flat samples of plain tensors, arrays and scalars have a table of their own, which is read in a few microseconds. All others go
the way of a batch, through ``transport.codec``.
"""

from __future__ import annotations

import ctypes
import marshal
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch

from stoker._runtime.transport import codec, rebuild
from stoker._runtime.transport.dtypes import NATIVE_CODE, NUMPY
from stoker._runtime.transport.layout import ALIGN_BYTES, contiguous_strides
from stoker.errors import UnsendableError

_from_numpy = torch.from_numpy
_ndarray: Any = np.ndarray
_Tensor = torch.Tensor
_GENERAL, _ONE, _TUPLE, _LIST = 0, 1, 2, 3
_SCALARS = frozenset({int, float, str, bytes, bool, type(None)})


class EncodedSample(NamedTuple):
    """An encoded sample. ``keep`` holds what the buffers lie in."""

    data: list[Any]
    root: bytes
    keep: object


def encode(sample: Any) -> EncodedSample:
    """Encode a sample. Raises UnsendableError for one that cannot be kept, with the path to the part."""
    kind = type(sample)
    if kind is tuple or kind is list:
        encoded = _flat(_TUPLE if kind is tuple else _LIST, sample)
    elif kind is dict and all(type(key) is str for key in sample):
        encoded = _flat(tuple(sample), tuple(sample.values()))
    else:
        encoded = _flat(_ONE, (sample,))
    return _general(sample) if encoded is None else encoded


def why_unkept(error: UnsendableError) -> str:
    """Return why ``encode`` failed, with the path to the part: ``sample[1]: generator (cannot pickle ...)``."""
    text = str(error)
    return "sample" + text.removeprefix("batch") if text.startswith("batch") else text


def decode(buffer: Any, base: int, root: Any) -> Any:
    """Return the sample whose data begin at ``base`` of ``buffer``, which its tensors keep alive. Any thread."""
    form, items, table = marshal.loads(root)
    if form == _GENERAL:
        whole = buffer if not base else _ndarray((len(buffer) - base,), np.uint8, buffer, base)
        return codec.decode(whole, items)
    for place, offset, code, shape in table:
        if code >= 0:
            items[place] = _from_numpy(_ndarray(shape, NUMPY[code], buffer, base + offset))
        else:
            items[place] = _ndarray(shape, _ARRAY_DTYPES[~code], buffer, base + offset)
    if form == _TUPLE:
        return tuple(items)
    if form == _LIST:
        return items
    if form == _ONE:
        return items[0]
    return dict(zip(form, items, strict=True))


_ARRAY_DTYPES = tuple(native for native in NUMPY if native is not None)
_ARRAY_CODE = {native: ~place for place, native in enumerate(_ARRAY_DTYPES)}


def _flat(form: Any, values: Sequence[Any]) -> EncodedSample | None:
    """Encode a sample whose parts are scalars, plain tensors and plain arrays; None for any other."""
    items: list[Any] = list(values)
    table: list[tuple[int, int, int, tuple[int, ...]]] = []
    data: list[Any] = []
    blocks: set[int] = set()
    cursor = 0
    for place, value in enumerate(items):
        kind = type(value)
        if kind in _SCALARS:
            continue
        found = _tensor(value) if kind is _Tensor else _array(value) if kind is np.ndarray else None
        if found is None:
            return None
        code, array, block = found
        if block in blocks:  # two parts share memory, and must still do so
            return None
        blocks.add(block)
        table.append((place, cursor, code, array.shape))
        items[place] = None
        nbytes = array.nbytes
        data.append(array.reshape(-1).view(np.uint8).data)
        padding = -nbytes % ALIGN_BYTES
        if padding:
            data.append(bytes(padding))
        cursor += nbytes + padding
    return EncodedSample(data, marshal.dumps((form, items, table)), values)


def _tensor(value: torch.Tensor) -> tuple[int, np.ndarray[Any, Any], int] | None:
    try:
        code = NATIVE_CODE.get(value.dtype)
        if (
            code is None
            or not value.is_cpu
            or value.requires_grad
            or not value.is_contiguous()
            or value.__dict__
        ):
            return None
        shape = tuple(value.shape)
        if not value.nbytes or len(shape) > 32 or value.is_neg() or value.is_conj():
            return None
        if value.stride() != contiguous_strides(shape):
            return None
        block = value.untyped_storage()
        return code, value.numpy(), block.data_ptr()
    except RuntimeError:  # sparse, nested, or of a layout of its own
        return None


def _array(value: np.ndarray[Any, Any]) -> tuple[int, np.ndarray[Any, Any], int] | None:
    code = _ARRAY_CODE.get(value.dtype)
    flags = value.flags
    if code is None or not value.nbytes or not flags.c_contiguous or not flags.writeable or value.ndim > 32:
        return None
    base: Any = value
    while type(base.base) is np.ndarray:
        base = base.base
    if isinstance(base.base, _Tensor):
        return None
    return code, value, base.__array_interface__["data"][0]


def _general(sample: Any) -> EncodedSample:
    """Encode any sample, as a batch is encoded."""
    encoded = codec.encode(sample, 0, ())
    buffer = bytearray(encoded.end)
    if encoded.end:
        encoded.copy_to(buffer, ctypes.addressof(ctypes.c_char.from_buffer(buffer)))
    root = marshal.dumps((_GENERAL, encoded.root, ()))
    return EncodedSample([buffer], root, rebuild)

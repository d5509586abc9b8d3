"""Shared arrays and tensors: ordinary ones over the memory of a segment.

What is derived from a ``SharedArray`` (items, views, results) is an ordinary ndarray, because code that handles samples asks for
exactly that type; views stay read-only. Tensors cannot be read-only: a write to a shared one stays in the process that writes.
"""

from __future__ import annotations

import functools
import pickle
import warnings
from typing import Any

import numpy as np
import torch

from stoker._pickling import segment as segments
from stoker._pickling.segment import Place, Segment
from stoker._sharing.containers.lists import refuser

_COPY = "x = x.copy()"
_plain_setitem = np.ndarray.__setitem__


class SharedArray(np.ndarray[Any, Any]):
    """An array that all workers read from one copy. ``copy()`` gives a private, ordinary array. Made by ``stoker.share``."""

    def __array_wrap__(self, array: Any, context: Any = None, return_scalar: bool = False) -> Any:
        """Results are ordinary arrays."""
        plain = np.asarray(array)
        return plain[()] if return_scalar or plain.ndim == 0 else plain

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        """What NumPy's functions make (``zeros_like``, ``concatenate``) is nobody else's, and must not claim to be shared."""
        return _unclaimed(super().__array_function__(func, types, args, kwargs))

    def __getitem__(self, key: Any) -> Any:
        return _plain(self)[key]

    def __iter__(self) -> Any:
        return iter(_plain(self))

    def __setitem__(self, key: Any, value: Any) -> None:
        if not self.flags.writeable:
            refuser("array", "assigning to it", _COPY)(self)
        _plain_setitem(self, key, value)

    def copy(self, order: Any = "C") -> Any:
        """A private, ordinary array."""
        return _plain(self).copy(order)

    def __copy__(self) -> Any:
        return self

    def __deepcopy__(self, memo: Any) -> Any:
        return self

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Pickle out of band where the pickler takes buffers, so that ``spec_pickle`` finds the segment. Else copy."""
        plain = _plain(self)
        order = "F" if plain.flags.f_contiguous and not plain.flags.c_contiguous else "C"
        if int(protocol) < 5 or not (plain.flags.c_contiguous or plain.flags.f_contiguous):
            return plain.copy().__reduce_ex__(protocol)
        # As bytes: of dates numpy gives no buffer.
        contiguous: Any = (plain.T if order == "F" else plain).reshape(-1).view(np.uint8)
        buffer = pickle.PickleBuffer(contiguous)
        return _arrived, (buffer, plain.dtype, plain.shape, order)


def opened_array(
    segment: Segment, place: Place, dtype: np.dtype[Any], shape: tuple[int, ...], order: str
) -> SharedArray:
    """A shared array over its place."""
    quiet_torch()
    return segment.array(place, dtype, shape, order).view(SharedArray)


def opened_tensor(
    segment: Segment, place: Place, dtype: torch.dtype, shape: tuple[int, ...], stride: tuple[int, ...]
) -> torch.Tensor:
    """A tensor over its place."""
    if not place.nbytes:
        return torch.empty_strided(shape, stride, dtype=dtype)
    flat = torch.frombuffer(segment, dtype=dtype, count=place.nbytes // dtype.itemsize, offset=place.at)
    return flat.as_strided(shape, stride)


@functools.cache
def quiet_torch() -> None:
    """Let torch say now, unheard, what it says once per process about tensors over read-only arrays.

    It warns that writing is undefined behaviour. Here it is not: the mapping is private.
    """
    read_only = np.zeros(1)
    read_only.flags.writeable = False
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.from_numpy(read_only)


def _plain(array: Any) -> np.ndarray[Any, Any]:
    return np.ndarray.view(array, np.ndarray)


def _unclaimed(result: Any) -> Any:
    if type(result) is SharedArray:
        return _plain(result)
    return type(result)(map(_unclaimed, result)) if type(result) in (list, tuple) else result


def _arrived(buffer: Any, dtype: np.dtype[Any], shape: tuple[int, ...], order: Any) -> Any:
    flat: np.ndarray[Any, Any] = np.frombuffer(buffer, np.uint8)
    if segments.find(flat.ctypes.data, flat.nbytes) is None:
        flat = flat.copy()
    array: np.ndarray[Any, Any] = np.ndarray(shape, dtype, flat, order=order)
    if flat.flags.owndata:
        return array
    quiet_torch()
    array.flags.writeable = False
    return array.view(SharedArray)


def _passed_on(name: str) -> Any:
    method = getattr(np.ndarray, name)

    @functools.wraps(method)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        return method(_plain(self), *args, **kwargs)

    return call


def _attribute(name: str, array: Any) -> Any:
    return getattr(_plain(array), name)


_WRITES = ("fill", "sort", "put", "partition", "resize", "setfield", "itemset", "setflags")
for _name in dir(np.ndarray):  # what they give must not claim to be shared: it may be a copy
    if (
        not _name.startswith("_")
        and _name not in (*_WRITES, "copy", "view")
        and callable(getattr(np.ndarray, _name))
    ):
        setattr(SharedArray, _name, _passed_on(_name))
for _name in ("T", "mT", "real", "imag", "flat"):
    if hasattr(np.ndarray, _name):  # mT came with numpy 2
        setattr(SharedArray, _name, property(functools.partial(_attribute, _name)))
for _name in _WRITES:
    setattr(SharedArray, _name, refuser("array", f".{_name}()", _COPY))
for _name, _sign in (
    ("add", "+"), ("sub", "-"), ("mul", "*"), ("truediv", "/"), ("floordiv", "//"), ("mod", "%"), ("pow", "**"),
    ("and", "&"), ("or", "|"), ("xor", "^"), ("lshift", "<<"), ("rshift", ">>"), ("matmul", "@"),
):  # fmt: skip
    setattr(SharedArray, f"__i{_name}__", refuser("array", f"{_sign}=", _COPY))

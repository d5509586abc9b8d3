"""Reads a value for an identity: all of its content, so that equal digests mean equal values.

A value made in C is read as it pickles itself, or as its memory. What cannot be read in any way is opaque: its digest is a random
number, equal to no other. Long lists are read level by level, one to four seconds for a million rows.
"""

from __future__ import annotations

import concurrent.futures
import contextvars
import copyreg
import enum
import io
import logging
import marshal
import os
import random
import struct
import threading
import types
import warnings
import weakref
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence, Set
from functools import partial
from hashlib import blake2b
from itertools import chain
from pathlib import PurePath
from typing import Any, NamedTuple

import numpy as np
import torch

from stoker._pickling.attributes import MISSING, read_slot, slots_of
from stoker._pickling.instances import own_dict
from stoker._runtime.cache import code_digest, sources

_DEEP = 60
_MOST_ITEMS = 20_000_000
_MOST_BYTES = 4 << 30
"""What is larger is opaque: it would be read for more than about fifteen seconds."""

_FEW = 64
_PLAIN = frozenset({bool, int, float, complex, str, bytes, type(None)})
_NAMED = (enum.Enum, torch.dtype, torch.device, torch.layout, torch.memory_format, np.dtype)
_BASES = (dict, list, tuple, set, frozenset, str, bytes, bytearray, int, float, complex)

_READ: dict[type, Callable[[Any], Any]] = {
    types.MappingProxyType: dict,
    struct.Struct: lambda value: value.format,
    weakref.ref: lambda value: value(),
    weakref.KeyedRef: lambda value: (value.key, value()),
    staticmethod: lambda value: value.__func__,
    classmethod: lambda value: value.__func__,
    property: lambda value: (value.fget, value.fset),
}
"""Types made in C that do not pickle, and how each is read."""

HANDLES = (
    contextvars.ContextVar,
    np.random.Generator,
    np.random.RandomState,
    random.Random,
    torch.Generator,
    type(threading.Lock()),
    type(threading.RLock()),
    threading.local,
    threading.Thread,
    concurrent.futures.Executor,
    logging.Logger,
    logging.LoggerAdapter,
    logging.Handler,
    types.GeneratorType,
    types.CoroutineType,
    types.AsyncGeneratorType,
)
"""They hold no data of a sample: whether one is there changes nothing. The proof looks after generators of random numbers."""


class ValueFacts(NamedTuple):
    """A digest of 16 bytes. ``opaque`` says what could not be read; "" if all was. ``large``: it took long."""

    digest: bytes
    opaque: str
    large: bool


def digest_of(value: Any) -> ValueFacts:
    """Read a value. Any thread. Runs code by which types pickle themselves: that of libraries, and of types made in C."""
    made = Digest()
    try:
        made.add(None if is_handle(value) else value, 0)
    except RecursionError:
        made.cannot_read("something nested too deep")
    return made.result()


def is_handle(value: Any) -> bool:
    """Whether it is a lock, a generator or the like, which counts as None."""
    kind = type(value)
    iterates = hasattr(kind, "__next__") and kind.__module__ in ("builtins", "itertools", "_csv")
    return isinstance(value, HANDLES) or iterates or kind.__name__ == "SemLock"


class Digest:
    """Reads values one after the other. An object that was met before counts by its number, so cycles end."""

    def __init__(self) -> None:
        self.opaque: list[str] = []
        self._total = blake2b(digest_size=16)
        self._met: dict[Any, int] = {}
        self._keep: list[object] = []
        self._items = 0
        self._bytes = 0
        self._hidden: dict[type, bool] = {}

    def result(self) -> ValueFacts:
        """Return what was read."""
        large = self._items > 1000 or self._bytes > 1 << 20
        if self.opaque:
            return ValueFacts(os.urandom(16), self.opaque[0], large)
        return ValueFacts(self._total.digest(), "", large)

    def put(self, tag: str, data: bytes = b"") -> None:
        """Take bytes. No two sequences of calls give the same digest."""
        self._total.update(f"{tag}:{len(data)};".encode() + data)

    def first_time(self, key: object) -> bool:
        """Whether this key was not met yet; it puts the key's number."""
        number = len(self._met)
        found = self._met.setdefault(key, number)
        self.put("number", str(found).encode())
        return found == number

    def cannot_read(self, what: str) -> None:
        """Note that something has no digest."""
        self.opaque.append(what)

    def add(self, value: Any, depth: int) -> None:
        """Read one value."""
        self.add_all([value], depth)

    def add_all(self, items: list[Any], depth: int) -> None:
        """Read values in order, those of each type together."""
        self._items += len(items)
        if depth > _DEEP or self._items > _MOST_ITEMS:
            self.cannot_read(
                "something nested too deep" if depth > _DEEP else f"more than {_MOST_ITEMS:,} objects"
            )
            return
        kinds = {kind: place for place, kind in enumerate(dict.fromkeys(map(type, items)))}
        self.put("all", str(len(items)).encode())
        if len(kinds) > 1:
            self.put("order", marshal.dumps([kinds[kind] for kind in map(type, items)], 2))
        for kind in kinds:
            group = items if len(kinds) == 1 else [each for each in items if type(each) is kind]
            self._add_group(kind, group, depth)

    def _add_group(self, kind: type, group: list[Any], depth: int) -> None:
        if kind in _PLAIN:
            # Version 2 has no references, so equal values give equal bytes.
            data = marshal.dumps(group, 2)
            self._bytes += len(data)
            self.put(kind.__name__, data)
            self._add_stamps(group if kind is str else [], depth)
        elif issubclass(kind, PurePath):
            self.put("paths", marshal.dumps(list(map(str, group)), 2))
            self._add_stamps(group, depth)
        elif issubclass(kind, np.generic):
            self.put("scalars", marshal.dumps([(each.dtype.str, each.tobytes()) for each in group], 2))
        elif kind is tuple:
            self._add_lists("tuples", group, depth)
        elif kind is list:
            self._add_lists("lists", self._fresh(group), depth)
        elif kind is dict:
            fresh = self._fresh(group)
            self._add_lists("keys", fresh, depth)
            self._add_lists("values", [each.values() for each in fresh], depth)
        elif len(group) > 1 and self.is_plain(kind) and not slots_of(kind):
            fresh = self._fresh(group)
            self.add(kind, depth + 1)
            self.add_all([own_dict(each) for each in fresh], depth + 1)
        else:
            for each in self._fresh(group):
                self.put("one")
                self._add_one(each, kind, depth)

    def _add_stamps(self, group: list[Any], depth: int) -> None:
        """Files that an attribute, or a short list in one, names. Files of single samples are noted with these."""
        if depth <= 1 and len(group) <= _FEW:
            self.put("stamps", b"|".join(map(sources.stamp_of_file, group)))

    def _add_lists(self, tag: str, group: Sequence[Any], depth: int) -> None:
        lengths = list(map(len, group))
        self.put(tag, marshal.dumps(lengths, 2))
        if self._items + sum(lengths) > _MOST_ITEMS:
            self.cannot_read(f"more than {_MOST_ITEMS:,} objects")
        elif any(lengths):
            self.add_all(list(chain.from_iterable(group)), depth + 1)

    def _fresh(self, group: list[Any]) -> list[Any]:
        """Put the number of each object; return those that were not met before."""
        first = len(self._met)
        met = self._met
        numbers = [met.setdefault(id(each), len(met)) for each in group]
        self.put("numbers", marshal.dumps(numbers, 2))
        self._keep += group
        if len(met) - first == len(group):
            return group
        return list(
            {number: each for number, each in zip(numbers, group, strict=True) if number >= first}.values()
        )

    def _add_one(self, value: Any, kind: type, depth: int) -> None:
        if hasattr(kind, "__stoker_identity__"):
            self.put("own")
            self.add(value.__stoker_identity__(), depth + 1)
        elif isinstance(value, np.ndarray):
            self._add_array(value, kind, depth)
        elif isinstance(value, torch.Tensor):
            self._add_tensor(value, kind, depth)
        elif isinstance(value, _NAMED):
            self.put(kind.__qualname__, repr(value).encode())
        elif kind is set or kind is frozenset:
            self._add_set(value, kind, depth)
        elif isinstance(value, type | types.FunctionType | types.CodeType | types.ModuleType):
            self._add_code(value, depth)
        elif isinstance(value, types.MethodType | types.BuiltinFunctionType | partial):
            self._add_bound(value, kind, depth)
        elif is_handle(value):
            self.put("handle")
        elif isinstance(value, io.IOBase) and self._add_file(value, depth):
            return
        else:
            self._add_instance(value, kind, depth)

    def _add_code(self, value: Any, depth: int) -> None:
        if isinstance(value, type):
            code_digest.add_class(self, value, depth)
        elif isinstance(value, types.FunctionType):
            code_digest.add_function(self, value, depth)
        elif isinstance(value, types.CodeType):
            code_digest.add_code(self, value, depth)
        else:
            code_digest.add_module(self, value)

    def _add_bound(self, value: Any, kind: type, depth: int) -> None:
        """Something that is called with objects that it holds."""
        self.put(kind.__qualname__, str(getattr(value, "__qualname__", "")).encode())
        if isinstance(value, types.MethodType):
            held: tuple[Any, ...] = (value.__func__, value.__self__)
        elif isinstance(value, partial):
            held = (value.func, value.args, value.keywords, own_dict(value))
        else:
            held = (value.__self__,)
        if isinstance(held[-1], types.ModuleType):
            self.put("module", held[-1].__name__.encode())
            return
        for each in held:
            self.add(each, depth + 1)

    def _add_array(self, array: Any, kind: type, depth: int) -> None:
        self.put("array", f"{array.dtype!r}:{array.shape}".encode())
        if array.dtype.hasobject:
            self.add(np.asarray(array).tolist(), depth + 1)
        elif isinstance(array, np.memmap) and array.filename is not None and array.mode == "r":
            whole = array
            while isinstance(whole.base, np.memmap):
                whole = whole.base
            place = array.__array_interface__["data"][0] - whole.__array_interface__["data"][0]
            about = (str(array.filename), whole.offset, place, array.strides)
            self.put("map", repr(about).encode() + sources.stamp_of_file(array.filename))
        elif array.size:
            self._add_memory(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
        if kind not in (np.ndarray, np.memmap) and not kind.__module__.startswith("stoker."):
            self.add(kind, depth + 1)
            self.add(dict(own_dict(array) or {}), depth + 1)

    def _add_tensor(self, tensor: torch.Tensor, kind: type, depth: int) -> None:
        try:
            with torch._C.DisableTorchFunctionSubclass():
                plain = tensor.detach() if kind is torch.Tensor else tensor.detach().as_subclass(torch.Tensor)
                self.put(
                    "tensor", f"{plain.dtype}:{tuple(plain.shape)}:{plain.device}:{plain.layout}".encode()
                )
                if plain.layout is not torch.strided or plain.is_quantized:
                    if plain.is_quantized or not self._add_reduced(plain, torch.Tensor, depth):
                        self.cannot_read(f"a tensor of layout {plain.layout}")
                elif plain.numel() and not plain.is_meta:
                    dense = plain.cpu().resolve_conj().resolve_neg().contiguous()
                    self._add_memory(dense.reshape(-1).view(torch.uint8).numpy().data)
        except Exception as error:  # memory of another device, or a tensor without memory
            self.cannot_read(f"{kind.__module__}.{kind.__qualname__} ({type(error).__name__})")
        if kind is not torch.Tensor or own_dict(tensor):
            self.add(kind, depth + 1)
            self.add(dict(own_dict(tensor) or {}), depth + 1)

    def _add_memory(self, data: memoryview) -> None:
        self._bytes += data.nbytes
        if self._bytes > _MOST_BYTES:
            self.cannot_read(f"more than {_MOST_BYTES >> 30} GiB of data")
            return
        self.put("memory", str(data.nbytes).encode())
        self._total.update(data)

    def _add_set(self, value: Any, kind: type, depth: int) -> None:
        """The order of a set is another one in each process."""
        digests = []
        for each in list(value):
            if type(each) in _PLAIN:
                digests.append(type(each).__name__.encode() + marshal.dumps(each, 2))
            else:
                inner = Digest()
                inner.add(each, depth + 1)
                self.opaque += inner.opaque
                digests.append(inner.result().digest)
        self._items += len(digests)
        self.put(kind.__name__, marshal.dumps(sorted(digests), 2))

    def _add_file(self, file: Any, depth: int) -> bool:
        """Read memory that looks like a file, or the name of an open file. False for others."""
        if isinstance(file, io.BytesIO | io.StringIO):
            held = file.getvalue() if not file.closed else None
            self.add(held, depth + 1)
            return True
        raw = file
        with_name = None
        for _ in range(3):
            if type(raw) is io.FileIO:
                with_name = raw.name
                break
            raw = (
                getattr(raw, "buffer", None) if isinstance(raw, io.TextIOBase) else getattr(raw, "raw", None)
            )
        if not isinstance(with_name, str | bytes | os.PathLike):
            return False
        path = os.path.abspath(os.fsdecode(with_name))
        self.put("file", path.encode("utf-8", "surrogateescape"))
        self.put("stamp", b"" if raw.closed or raw.writable() else sources.stamp_of_file(path))
        return True

    def _add_instance(self, value: Any, kind: type, depth: int) -> None:
        """Read an object: what its type in C holds, its class and its attributes."""
        before = len(self.opaque)
        base = next((each for each in _BASES if issubclass(kind, each)), None)
        if kind in _READ:
            self.put(kind.__qualname__)
            self.add(_READ[kind](value), depth + 1)
            return
        if kind.__module__.startswith("stoker._sharing.") and isinstance(value, Sequence | Mapping | Set):
            self.put("shared", kind.__qualname__.encode())
            self.add(dict(value) if isinstance(value, Mapping) else list(value), depth + 1)
            return
        if base is not None:
            self.add(_as_base(value, base), depth + 1)
            self.add(
                getattr(value, "default_factory", None) if isinstance(value, defaultdict) else None, depth + 1
            )
        elif kind.__name__ == "_lru_cache_wrapper":
            self.add(value.__wrapped__, depth + 1)
            return
        elif self._is_hidden(kind):
            if self._add_buffer(value, kind) or self._add_reduced(value, kind, depth):
                return
            del self.opaque[before:]
            self.cannot_read(f"{kind.__module__}.{kind.__qualname__}")
            return
        elif _reduces_itself(kind) and sources.is_library_module(kind.__module__):
            found = self._add_reduced(value, kind, depth)
            if found:
                return
        self.add(kind, depth + 1)
        for name, each in sorted(attributes(value), key=lambda item: str(item[0])):
            self.put("attribute", str(name).encode("utf-8", "surrogatepass"))
            self.add(each, depth + 1)

    def is_plain(self, kind: type) -> bool:
        """Whether attributes are all that instances hold: a class in Python that is no container, tensor, handle or the like."""
        others = (*_BASES, *_NAMED, *HANDLES, np.ndarray, torch.Tensor, type, partial, io.IOBase)
        return not (
            issubclass(kind, others)
            or hasattr(kind, "__stoker_identity__")
            or kind.__module__.startswith("stoker._sharing.")
            or self._is_hidden(kind)
            or (_reduces_itself(kind) and sources.is_library_module(kind.__module__))
        )

    def _is_hidden(self, kind: type) -> bool:
        """Whether instances hold something in C: they are larger than their slots."""
        found = self._hidden.get(kind)
        if found is None:
            names = [f"slot{place}" for place in range(len(slots_of(kind)))]
            names += ["__dict__"] * bool(kind.__dictoffset__) + ["__weakref__"] * bool(kind.__weakrefoffset__)
            like = type("like", (), {"__slots__": names})
            found = bool(kind.__itemsize__) or kind.__basicsize__ > like.__basicsize__
            self._hidden[kind] = found
        return found

    def _add_buffer(self, value: Any, kind: type) -> bool:
        try:
            view = memoryview(value)
            data = view.cast("B") if view.c_contiguous else memoryview(view.tobytes())
        except (TypeError, BufferError, ValueError):
            return False
        self.put("buffer", f"{kind.__qualname__}:{view.format}:{view.shape}".encode())
        self._add_memory(data)
        return True

    def _add_reduced(self, value: Any, kind: type, depth: int) -> bool:
        """Read an object as it pickles itself. False if it cannot be pickled."""
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                reduce = copyreg.dispatch_table.get(kind)
                reduced = value.__reduce_ex__(5) if reduce is None else reduce(value)
        except Exception:
            return False
        if isinstance(reduced, str):
            self.put("name", f"{kind.__qualname__}:{getattr(value, '__module__', '')}:{reduced}".encode())
            return True
        made, args, *rest = reduced
        self.put("reduced", f"{kind.__module__}.{kind.__qualname__}".encode())
        self.add(made, depth + 1)
        self.add(args, depth + 1)
        for place, each in enumerate(rest):
            self.add(list(each) if place in (1, 2) and each is not None else each, depth + 1)
        return True


def attributes(obj: object) -> list[tuple[str, Any]]:
    """Return the attributes that an object stores, without running code of its class."""
    found = list((own_dict(obj) or {}).copy().items())
    for name, slot in slots_of(type(obj)).items():
        value = read_slot(obj, slot)
        if value is not MISSING:
            found.append((name, value))
    return found


def _as_base(value: Any, base: Any) -> Any:
    """The value as Python's own type has it, without code of its class."""
    if base is dict:
        return dict(dict.items(value))
    if base in (list, tuple, set, frozenset):
        return base(base.__iter__(value))
    read: dict[Any, Any] = {
        str: str.__str__,
        int: int.__int__,
        float: float.__float__,
        bytes: bytes.__bytes__,
    }
    return read.get(base, complex if base is complex else bytes)(value)


def _reduces_itself(kind: Any) -> bool:
    """Whether a type says how it is pickled."""
    return kind in copyreg.dispatch_table or any(
        getattr(kind, name, None) is not getattr(object, name)
        for name in ("__reduce_ex__", "__reduce__", "__getstate__")
    )

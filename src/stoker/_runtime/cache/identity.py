"""Computes the identity of a dataset or function: a digest of its code, its attributes and the libraries that it comes from.

Equal identities mean equal samples, so a store may be used again. What a digest cannot read (a lock, an open file, a generator)
counts as None: a handle that is opened at the first sample changes nothing. Any thread; no user code runs.
"""

from __future__ import annotations

import dis
import enum
import functools
import io
import marshal
import os
import site
import sys
import sysconfig
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from hashlib import blake2b
from importlib import metadata
from pathlib import Path, PurePath
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np
import torch

from stoker._pickling.attributes import MISSING, read_slot, slots_of
from stoker._pickling.instances import own_dict

_FORMAT = b"1"
_DEEP = 12
_OBJECTS = 20_000
_ITEMS = 20_000
"""How many items of a container of objects are read. Containers of plain values are read whole."""

_LARGE_ITEMS = 1000
_WHOLE_BYTES = 64 << 20
_BLOCK_BYTES = 1 << 16
_BLOCKS = 1024
"""A larger array is read in this many blocks, evenly spread."""

_NOTHING = b"0"
_LIBRARIES = tuple(
    {
        os.path.realpath(path) + os.sep
        for path in (*sysconfig.get_paths().values(), *site.getsitepackages())
        if path
    }
)
_SELF = os.path.realpath(os.path.dirname(os.path.dirname(os.path.dirname(__file__)))) + os.sep


class Identity:
    """The digests of an object's parts. ``whole`` is the digest of them all, apart from attributes in ``apart_from``."""

    def __init__(self, parts: dict[str, bytes], large: dict[str, Any]) -> None:
        self.parts = parts
        self.large = large
        """Attributes that hold much data. They are not read again while they are the same objects."""

    def whole(self, apart_from: frozenset[str] = frozenset()) -> bytes:
        """Return 32 bytes that stand for all of it."""
        total = blake2b(_FORMAT, digest_size=32)
        for name in sorted(self.parts):
            if name not in apart_from:
                total.update(name.encode() + b"=" + self.parts[name])
        return total.digest()

    def differing(self, other: Identity) -> list[str]:
        """Return the names of the attributes that differ."""
        names = sorted(self.parts.keys() | other.parts.keys())
        return [name for name in names if self.parts.get(name) != other.parts.get(name)]


def of_dataset(dataset: Any, known: Identity | None = None) -> Identity:
    """Return the identity of a dataset: its class, and each of its attributes by name. ``known`` is an earlier one."""
    parts = {"": _Digest().of(type(dataset)), " python": _versions()}
    large = {}
    for name, value in attributes(dataset):
        if isinstance(value, list | tuple | dict | np.ndarray | torch.Tensor) and _is_large(value):
            large[name] = value
            if known is not None and known.large.get(name) is value:
                parts[name] = known.parts[name]
                continue
        parts[name] = _Digest().of(value)
    return Identity(parts, large)


def _is_large(value: Any) -> bool:
    return (
        value.nbytes > 1 << 20 if isinstance(value, np.ndarray | torch.Tensor) else len(value) > _LARGE_ITEMS
    )


def of_function(function: Any) -> Identity:
    """Return the identity of a function, method, partial or callable object."""
    return Identity({"": _Digest().of(function), " python": _versions()}, {})


def attributes(obj: object) -> Iterator[tuple[str, Any]]:
    """Yield the attributes that an object stores, without running code of its class."""
    yield from (own_dict(obj) or {}).copy().items()
    for name, slot in slots_of(type(obj)).items():
        value = read_slot(obj, slot)
        if value is not MISSING:
            yield name, value


_PACKAGES = (
    "torch",
    "torchvision",
    "numpy",
    "pillow",
    "opencv-python",
    "opencv-python-headless",
    "opencv-contrib-python",
    "opencv-contrib-python-headless",
)


@functools.cache
def _versions() -> bytes:
    """The versions that are installed. Which of them a process has imported so far says nothing about its samples."""
    found = []
    for name in _PACKAGES:
        with suppress(metadata.PackageNotFoundError):
            found.append((name, metadata.version(name)))
    return repr((sys.version_info[:3], sys.byteorder, found)).encode()


def is_library(path: str) -> bool:
    """Whether a file belongs to Python, an installed package, or stoker."""
    path = os.path.realpath(path)
    return path.startswith(_LIBRARIES) or path.startswith(_SELF)


class _Digest:
    """Reads one value. An object that was met before counts by its number, so cycles end."""

    def __init__(self) -> None:
        self._met: dict[int, int] = {}
        self._keep: list[object] = []

    def of(self, value: Any) -> bytes:
        total = blake2b(digest_size=16)
        self._add(total, value, 0)
        return total.digest()

    def _add(self, total: Any, value: Any, depth: int) -> None:
        kind = type(value)
        if value is None:
            total.update(_NOTHING)
            return
        if kind in _SCALARS:
            total.update(f"{kind.__name__}:{value!r};".encode("utf-8", "surrogatepass"))
            if kind is str and depth <= 1:
                total.update(_stamp(value))
            return
        if isinstance(value, PurePath):
            total.update(f"path:{value};".encode("utf-8", "surrogatepass") + _stamp(value))
            return
        if id(value) in self._met:
            total.update(f"again:{self._met[id(value)]};".encode())
            return
        if depth > _DEEP or len(self._met) > _OBJECTS:
            total.update(f"deep:{kind.__qualname__};".encode())
            return
        self._met[id(value)] = len(self._met)
        self._keep.append(value)
        self._add_object(total, value, kind, depth)

    def _add_object(self, total: Any, value: Any, kind: type, depth: int) -> None:
        if isinstance(value, np.ndarray):
            self._add_array(total, value, depth)
        elif isinstance(value, torch.Tensor):
            self._add_tensor(total, value, depth)
        elif kind in (list, tuple, dict, set, frozenset):
            self._add_container(total, value, kind, depth)
        elif isinstance(value, FunctionType):
            self._add_function(total, value, depth)
        elif isinstance(value, MethodType):
            total.update(b"method;")
            self._add(total, value.__func__, depth + 1)
            self._add(total, value.__self__, depth + 1)
        elif isinstance(value, partial):
            total.update(b"partial;")
            for part in (value.func, value.args, value.keywords):
                self._add(total, part, depth + 1)
        elif isinstance(value, CodeType):
            self._add_code(total, value, depth)
        elif isinstance(value, type):
            self._add_class(total, value, depth)
        elif isinstance(value, ModuleType | BuiltinFunctionType):
            total.update(f"{kind.__name__}:{getattr(value, '__name__', '')};".encode())
        elif isinstance(value, enum.Enum | torch.dtype | torch.device | torch.Size | np.generic | np.dtype):
            total.update(f"{kind.__qualname__}:{value!r};".encode())
        elif hasattr(kind, "__stoker_identity__"):
            total.update(value.__stoker_identity__())
        else:
            self._add_instance(total, value, kind, depth)

    def _add_array(self, total: Any, array: np.ndarray[Any, Any], depth: int) -> None:
        total.update(f"array:{array.dtype.str}:{array.shape};".encode())
        if array.dtype.hasobject:
            self._add(total, array.reshape(-1)[:_ITEMS].tolist(), depth + 1)
        elif isinstance(array, np.memmap) and array.filename is not None:
            total.update(f"{array.filename}:{array.offset};".encode() + _stamp(array.filename))
        elif array.size:
            _add_bytes(total, np.ascontiguousarray(array).reshape(-1).view(np.uint8))

    def _add_tensor(self, total: Any, tensor: torch.Tensor, depth: int) -> None:
        total.update(f"tensor:{tensor.dtype}:{tuple(tensor.shape)}:{tensor.device};".encode())
        if tensor.layout is torch.strided and tensor.is_cpu and not tensor.is_quantized and tensor.numel():
            dense = tensor.detach().resolve_conj().resolve_neg().contiguous()
            _add_bytes(total, dense.reshape(-1).view(torch.uint8).numpy())

    def _add_container(self, total: Any, value: Any, kind: type, depth: int) -> None:
        total.update(f"{kind.__name__}:{len(value)};".encode())
        if kind in (set, frozenset):
            digests = sorted(_Digest().of(item) for item in list(value)[:_ITEMS])
            total.update(b"".join(digests))
            return
        if len(value) > 64:
            try:
                # Version 2 has no references, so equal values give equal bytes.
                total.update(marshal.dumps(value, 2))
                return
            except ValueError:
                pass
        items = list(value.items()) if kind is dict else list(value)
        if len(items) > _ITEMS:
            step = len(items) // (_ITEMS // 2)
            items = items[:: max(1, step)]
        for item in items:
            self._add(total, item, depth + 1)

    def _add_function(self, total: Any, function: FunctionType, depth: int) -> None:
        total.update(f"function:{_module(function)}.{function.__qualname__};".encode())
        code = function.__code__
        if is_library(code.co_filename):
            self._add_library(total, function.__module__)
            return
        self._add_code(total, code, depth)
        for part in (function.__defaults__, function.__kwdefaults__):
            self._add(total, part, depth + 1)
        for cell in function.__closure__ or ():
            try:
                self._add(total, cell.cell_contents, depth + 1)
            except ValueError:  # not filled yet
                total.update(b"empty;")
        for name in _globals(code):
            found = function.__globals__.get(name)
            if type(found) in _SCALARS or isinstance(found, FunctionType | type | tuple):
                total.update(name.encode() + b"=")
                self._add(total, found, depth + 1)

    def _add_code(self, total: Any, code: CodeType, depth: int) -> None:
        total.update(code.co_code + repr((code.co_names, code.co_varnames, code.co_freevars)).encode())
        for const in code.co_consts:
            self._add(total, const, depth + 1)

    def _add_class(self, total: Any, kind: type, depth: int) -> None:
        total.update(f"class:{_module(kind)}.{kind.__qualname__};".encode())
        path = getattr(sys.modules.get(kind.__module__), "__file__", None)
        if kind.__module__ == "builtins" or (path is None and _module(kind) != "__main__"):
            return
        if path is not None and is_library(path):
            self._add_library(total, kind.__module__)
            return
        for base in kind.__bases__:
            self._add(total, base, depth + 1)
        for name, value in sorted(vars(kind).items()):
            inner = getattr(value, "__func__", None) or getattr(value, "fget", None) or value
            if (
                isinstance(inner, FunctionType)
                or type(inner) in _SCALARS
                or type(inner) in (tuple, list, dict)
            ) and (not name.startswith("__") or isinstance(inner, FunctionType)):
                total.update(name.encode() + b"=")
                self._add(total, inner, depth + 1)

    def _add_library(self, total: Any, module: str | None) -> None:
        top = (module or "").partition(".")[0]
        total.update(f"{top}:{getattr(sys.modules.get(top), '__version__', '')};".encode())

    def _add_instance(self, total: Any, value: Any, kind: type, depth: int) -> None:
        for container in (dict, list, tuple):
            if issubclass(kind, container):
                self._add_container(total, container(value), container, depth)
        stored = sorted(attributes(value), key=lambda item: str(item[0]))
        opaque = isinstance(value, np.random.Generator | np.random.RandomState | torch.Generator | io.IOBase)
        if opaque or (not stored and own_dict(value) is None and not issubclass(kind, dict | list | tuple)):
            total.update(_NOTHING)  # made in C: nothing tells what it holds
            return
        self._add(total, kind, depth + 1)
        for name, each in stored:
            total.update(str(name).encode() + b"=")
            self._add(total, each, depth + 1)


def _module(thing: Any) -> str:
    """The module's name; the main module has another one in spawned workers."""
    return str(thing.__module__).replace("__mp_main__", "__main__")


_SCALARS = frozenset({bool, int, float, complex, str, bytes})


@functools.cache
def _globals(code: CodeType) -> tuple[str, ...]:
    """The global names that a function reads."""
    found = {each.argval for each in dis.get_instructions(code) if each.opname == "LOAD_GLOBAL"}
    for const in code.co_consts:
        if isinstance(const, CodeType):
            found.update(_globals(const))
    return tuple(sorted(found))


def _stamp(path: Any) -> bytes:
    """Size and mtime of a file that an attribute names; nothing for anything else."""
    try:
        if len(str(path)) > 4096 or not Path(path).is_file():
            return b""
        facts = os.stat(path)
    except (OSError, ValueError):
        return b""
    return f"{facts.st_size}:{facts.st_mtime_ns};".encode()


def _add_bytes(total: Any, array: np.ndarray[Any, Any]) -> None:
    if array.nbytes <= _WHOLE_BYTES:
        total.update(array.data)
        return
    step = array.nbytes // _BLOCKS
    for start in range(0, array.nbytes - _BLOCK_BYTES + 1, step):
        total.update(array[start : start + _BLOCK_BYTES].data)
    total.update(array[-_BLOCK_BYTES:].data)

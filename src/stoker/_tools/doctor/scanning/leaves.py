"""Handles objects that the walk does not enter: tensors, arrays, tables, handles, locks, random generators, modules."""

from __future__ import annotations

import array
import io
import logging
import mmap
import random
import types
import weakref
from collections import deque
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import torch

from stoker._pickling import segment
from stoker._pickling.instances import own_dict
from stoker._runtime.worker.rng import generators
from stoker._sharing.containers import tables
from stoker._tools.doctor.scanning import kinds
from stoker._tools.doctor.scanning.kinds import OpenHandle, RunningResource
from stoker._tools.doctor.scanning.maps import Maps
from stoker._tools.doctor.scanning.paths import WalkNode

HELD, PLAIN, BOTH = 1, 2, 6
_GENERATORS = (
    np.random.Generator,
    np.random.RandomState,
    np.random.BitGenerator,
    random.Random,
    torch.Generator,
)
_NEVER = (
    types.GeneratorType, types.CoroutineType, types.AsyncGeneratorType, types.FrameType, types.TracebackType,
    weakref.ReferenceType,
)  # fmt: skip
_BY_NAME = (
    types.BuiltinFunctionType, types.WrapperDescriptorType, types.MethodDescriptorType, torch.dtype, torch.device, torch.layout,
    np.dtype,
)  # fmt: skip


_BUFFERS = (bytearray, array.array, io.BytesIO)
_TABLES = frozenset({"pandas", "polars", "pyarrow"})
_MAPPED_BYTES = 1 << 16
"""Less is not asked whether a file backs it."""


class LeafDecision(NamedTuple):
    """What is to be done about something known: refused by pickling or not, entered or not."""

    refusal: BaseException | None = None
    refused_ways: int = 0
    enter: bool = False


@dataclass(slots=True)
class Leaves:
    """What was met, by kind, each with the node that leads there. Bytes are booked where they were met."""

    tensors: list[tuple[WalkNode, int, int]] = field(default_factory=list)
    """Tensors with the address and the bytes of their storage."""
    odd: list[WalkNode] = field(default_factory=list)
    arrays: list[tuple[WalkNode, int]] = field(default_factory=list)
    """Arrays and tables, with the bytes that plain pickle would copy."""
    handles: list[tuple[WalkNode, OpenHandle]] = field(default_factory=list)
    held: list[tuple[WalkNode, RunningResource]] = field(default_factory=list)
    generators: list[WalkNode] = field(default_factory=list)
    stubs: set[int] = field(default_factory=set)
    """Ids of what a trial pickle must not touch."""
    stub_kinds: set[type] = field(default_factory=set)
    """Types of tensors, arrays and tables."""
    _storages: set[int] = field(default_factory=set)
    _ordinary: set[type] = field(default_factory=set)
    _maps: Maps = field(default_factory=Maps)

    def take(self, node: WalkNode, *, first: bool, held: bool) -> LeafDecision | None:
        """Note what is known about it; None when the walk has to look into it."""
        obj, kind = node.obj, type(node.obj)
        if kind in kinds.ATOMS:
            return LeafDecision()
        if issubclass(kind, torch.Tensor | torch.UntypedStorage | torch.TypedStorage):
            return self._tensor(node, first, held)
        if issubclass(kind, np.ndarray) and not obj.dtype.hasobject:
            return self._array(node, first, held)
        if issubclass(kind, _GENERATORS):
            if first:
                self.generators.append(node)
            return LeafDecision()
        if kind in _BY_NAME or issubclass(kind, np.generic):
            return LeafDecision()
        if issubclass(kind, logging.Logger):
            return LeafDecision()  # travels by its name
        if issubclass(kind, torch.jit.ScriptModule):
            return self._stub(
                node,
                TypeError("a ScriptModule cannot be pickled: torch.jit.save and torch.jit.load it"),
                BOTH,
            )
        if kind is types.ModuleType:
            return self._stub(node, TypeError("cannot pickle 'module' object"), PLAIN)
        if issubclass(kind, _NEVER):
            return self._stub(node, _cannot(kind), BOTH)
        if kind is memoryview:
            return self._stub(node, TypeError("cannot pickle 'memoryview' object"), PLAIN)
        if kind.__module__ == "stoker" or str(kind.__module__).startswith("stoker._sharing"):
            if node.account is not None and node.account.node is node:
                node.account.kind, node.account.backing = kind.__name__, "shared"
            return LeafDecision()
        if kind in self._ordinary:
            return None
        if kind in _BUFFERS:
            return self._measured(
                node, memoryview(obj.getbuffer() if kind is io.BytesIO else obj).nbytes, first, held
            )
        libraries = {str(cls.__module__).partition(".")[0] for cls in kind.__mro__}
        if not issubclass(kind, type) and libraries & _TABLES:
            table = self._table(node, first, held)
            if table is not None:
                return table
        if "PIL" in libraries and (own_dict(obj) or {}).get("fp") is None and hasattr(kind, "tobytes"):
            return self._measured(node, _picture_bytes(obj), first, held)
        if kinds.is_ordinary(kind):
            self._ordinary.add(kind)
            return None
        return self._known(node, first)

    def _known(self, node: WalkNode, first: bool) -> LeafDecision | None:
        obj, kind = node.obj, type(node.obj)
        if kinds.is_standard_stream(obj):
            return self._stub(node, _cannot(kind), PLAIN)
        handle = kinds.opened(obj)
        if handle is not None:
            # A queue has a pipe and its own lock: only what is held besides is shared without one.
            if first and handle.live and (handle.what != "pipe" or node.ways & HELD):
                self.handles.append((node, handle))
            if handle.sendable:
                self.stubs.add(id(obj))
                return LeafDecision(enter=handle.what != "image" and not _is_builtin(kind))
            ways = PLAIN if kind is io.TextIOWrapper and handle.live and handle.what == "file" else BOTH
            return self._stub(node, _cannot(kind), ways)
        found = kinds.running(obj)
        if found is None:
            return None
        if first:
            self.held.append((node, found))
        if found.sendable:
            return None
        return self._stub(node, _cannot(kind), BOTH)

    def _stub(self, node: WalkNode, error: BaseException, ways: int) -> LeafDecision:
        self.stubs.add(id(node.obj))
        return LeafDecision(error, ways)

    def _tensor(self, node: WalkNode, first: bool, held: bool) -> LeafDecision:
        obj = node.obj
        self.stubs.add(id(obj))
        self.stub_kinds.add(type(obj))
        try:
            storage = obj.untyped_storage() if isinstance(obj, torch.Tensor) else obj
            nbytes, address = storage.nbytes(), storage.data_ptr()
            backing = "shared" if storage.is_shared() or segment.find(address, nbytes) else "private"
            if backing == "private" and nbytes >= _MAPPED_BYTES and self._maps.is_file(address):
                backing = "file"
        except Exception:  # sparse, nested, or without memory
            nbytes, address, backing = _numbers_bytes(obj), id(obj), "private"
        if first:
            self.tensors.append((node, address, nbytes))
            if isinstance(obj, torch.Tensor) and (
                obj.requires_grad or obj.device.type not in ("cpu", "meta")
            ):
                self.odd.append(node)
        if held and node.account is not None:
            node.account.tensors += node.weight
            cpu = getattr(obj, "device", torch.device("cpu")).type == "cpu"
            once = address not in self._storages
            self._storages.add(address)
            self._booked(node, nbytes if once and cpu else 0, backing)
        if isinstance(obj, torch.Tensor) and obj.requires_grad and not obj.is_leaf:
            error = RuntimeError("refusing to serialize a non-leaf tensor which requires_grad")
            return LeafDecision(error, BOTH if backing == "shared" else PLAIN)  # shared ones go torch's way
        return LeafDecision()

    def _array(self, node: WalkNode, first: bool, held: bool) -> LeafDecision:
        obj = node.obj
        self.stubs.add(id(obj))
        self.stub_kinds.add(type(obj))
        if first:
            self.arrays.append((node, obj.nbytes))
        if held and node.account is not None:
            owner, backing = _owner(obj)
            once = id(owner) not in self._storages
            self._storages.add(id(owner))
            nbytes = owner.nbytes if isinstance(owner, np.ndarray) else obj.nbytes
            self._booked(node, nbytes if once else 0, backing)
        return LeafDecision()

    def _table(self, node: WalkNode, first: bool, held: bool) -> LeafDecision | None:
        obj = node.obj
        try:
            if type(obj).__module__.startswith("polars."):
                return self._measured(node, int(obj.estimated_size()), first, held)
            if tables.is_table(obj):
                mapped = self._maps.is_file(_arrow_address(obj))
                return self._measured(
                    node, tables.measured(obj), first, held, "file" if mapped else "private"
                )
        except Exception:  # of a library: it is looked into like anything else
            return None
        return None

    def _measured(
        self, node: WalkNode, nbytes: int, first: bool, held: bool, backing: str = "private"
    ) -> LeafDecision:
        """Something that is mostly bytes, of which only the number is of interest."""
        self.stubs.add(id(node.obj))
        self.stub_kinds.add(type(node.obj))
        if first and type(node.obj) is not bytearray:  # no pickler lets itself be kept from those
            self.arrays.append((node, nbytes))
        if held and node.account is not None:
            self._booked(node, nbytes, backing)
        return LeafDecision()

    def _booked(self, node: WalkNode, nbytes: int, backing: str) -> None:
        account = node.account
        if account.node is node:
            account.kind, account.backing = described(node.obj), backing
        elif backing != "private":
            return
        account.book(nbytes * node.weight, node.weight, 128 * node.weight)


def _arrow_address(table: Any) -> int:
    """Where the first buffer of an Arrow table lies; 0 for other tables."""
    if not hasattr(table, "itercolumns") and not hasattr(table, "chunks"):
        return 0
    columns = table.itercolumns() if hasattr(table, "itercolumns") else (table,)
    for column in columns:
        for chunk in column.chunks:
            for buffer in chunk.buffers():
                if buffer is not None and buffer.size:
                    return int(buffer.address)
    return 0


def _picture_bytes(picture: Any) -> int:
    """Return the bytes of an image of PIL's that is decoded."""
    width, height = picture.size
    return int(width * height * len(picture.getbands()))


def _is_builtin(kind: type) -> bool:
    return not kind.__flags__ & (1 << 9)


def _cannot(kind: type) -> TypeError:
    """What pickle says."""
    name = kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__name__}"
    return TypeError(f"cannot pickle {name!r} object")


def _owner(array: Any) -> tuple[Any, str]:
    """What the memory of an array belongs to, and what kind of memory it is."""
    at: Any = array
    while True:
        if segment.find(at.ctypes.data, at.nbytes):
            return at, "shared"
        base = at.base
        if isinstance(base, np.ndarray):
            at = base
        else:
            break
    if isinstance(at, np.memmap) or isinstance(base, mmap.mmap):
        return at, "file"
    return at, "private"


def _numbers_bytes(obj: Any) -> int:
    try:
        return int(obj.numel() * obj.element_size())
    except Exception:  # a subclass or layout that has no such figures
        return 0


def described(obj: Any) -> str:
    """What it is, in a few words: "list of str", "ndarray uint8 (60000, 28, 28)"."""
    kind = type(obj)
    name = kinds.name_of(kind)
    if issubclass(kind, torch.Tensor):
        shape = "nested" if obj.is_nested else tuple(obj.shape)
        return f"tensor {str(obj.dtype).removeprefix('torch.')} {shape}"
    if issubclass(kind, np.ndarray):
        return f"{name} {obj.dtype} {obj.shape}"
    if issubclass(kind, dict) and dict.__len__(obj):
        key, value = next(iter(dict.items(obj)))
        return f"{name} of {type(key).__name__} to {type(value).__name__}"
    for base in (list, tuple, set, frozenset, deque):
        if issubclass(kind, base) and base.__len__(obj):
            inside = {type(each).__name__ for each, _ in zip(base.__iter__(obj), range(8), strict=False)}
            return f"{name} of {' and '.join(sorted(inside)[:2])}{', …' if len(inside) > 2 else ''}"
    return name


def is_global_generator(obj: Any) -> bool:
    """Whether module-level functions draw from it."""
    return generators.is_global(obj)

"""What the walk does not enter: tensors, arrays, tables, handles, locks, random generators, modules."""

from __future__ import annotations

import io
import mmap
import random
import types
import weakref
from collections import deque
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import torch

from stoker._doctor.scanning import kinds
from stoker._doctor.scanning.kinds import Open, Running
from stoker._doctor.scanning.paths import Node
from stoker._share import segment, tables
from stoker._worker import generators

PLAIN, BOTH = 2, 6
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


class Verdict(NamedTuple):
    """What is to be done about something known: refused by pickling or not, entered or not."""

    refusal: BaseException | None = None
    refused_ways: int = 0
    enter: bool = False


@dataclass(slots=True)
class Leaves:
    """What was met, by kind, each with the node that leads there. Bytes are booked where they were met."""

    tensors: list[tuple[Node, int, int]] = field(default_factory=list)
    """Tensors with the address and the bytes of their storage."""
    odd: list[Node] = field(default_factory=list)
    arrays: list[tuple[Node, int]] = field(default_factory=list)
    """Arrays and tables, with the bytes that plain pickle would copy."""
    handles: list[tuple[Node, Open]] = field(default_factory=list)
    held: list[tuple[Node, Running]] = field(default_factory=list)
    generators: list[Node] = field(default_factory=list)
    stubs: set[int] = field(default_factory=set)
    """Ids of what a trial pickle must not touch."""
    stub_kinds: set[type] = field(default_factory=set)
    """Types of tensors, arrays and tables."""
    _storages: set[int] = field(default_factory=set)

    def take(self, node: Node, *, first: bool, held: bool) -> Verdict | None:
        """Note what is known about it; None when the walk has to look into it."""
        obj, kind = node.obj, type(node.obj)
        if kind in kinds.ATOMS:
            return Verdict()
        if issubclass(kind, torch.Tensor | torch.UntypedStorage | torch.TypedStorage):
            return self._tensor(node, first, held)
        if issubclass(kind, np.ndarray) and not obj.dtype.hasobject:
            return self._array(node, first, held)
        if issubclass(kind, _GENERATORS):
            if first:
                self.generators.append(node)
            return Verdict()
        if kind in _BY_NAME or issubclass(kind, np.generic):
            return Verdict()
        if kind is types.ModuleType:
            return self._stub(node, TypeError("cannot pickle 'module' object"), PLAIN)
        if issubclass(kind, _NEVER):
            return self._stub(node, _cannot(kind), BOTH)
        if kind is memoryview:
            return self._stub(node, TypeError("cannot pickle 'memoryview' object"), PLAIN)
        if kind.__module__ == "stoker" or str(kind.__module__).startswith("stoker._share"):
            if node.account is not None and node.account.node is node:
                node.account.kind, node.account.backing = kind.__name__, "shared"
            return Verdict()
        if not issubclass(kind, type) and tables.is_table(obj):
            return self._table(node, first, held)
        return self._known(node, first)

    def _known(self, node: Node, first: bool) -> Verdict | None:
        obj, kind = node.obj, type(node.obj)
        if kinds.is_standard_stream(obj):
            return self._stub(node, _cannot(kind), PLAIN)
        handle = kinds.opened(obj)
        if handle is not None:
            if first and handle.live:
                self.handles.append((node, handle))
            if handle.sendable:
                self.stubs.add(id(obj))
                return Verdict(enter=handle.what != "image" and not _is_builtin(kind))
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

    def _stub(self, node: Node, error: BaseException, ways: int) -> Verdict:
        self.stubs.add(id(node.obj))
        return Verdict(error, ways)

    def _tensor(self, node: Node, first: bool, held: bool) -> Verdict:
        obj = node.obj
        self.stubs.add(id(obj))
        self.stub_kinds.add(type(obj))
        try:
            storage = obj.untyped_storage() if isinstance(obj, torch.Tensor) else obj
            nbytes, address = storage.nbytes(), storage.data_ptr()
            backing = "shared" if storage.is_shared() or segment.find(address, nbytes) else "private"
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
        refused = isinstance(obj, torch.Tensor) and obj.requires_grad and not obj.is_leaf
        if refused:
            return Verdict(RuntimeError("refusing to serialize a non-leaf tensor which requires_grad"), PLAIN)
        return Verdict()

    def _array(self, node: Node, first: bool, held: bool) -> Verdict:
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
        return Verdict()

    def _table(self, node: Node, first: bool, held: bool) -> Verdict:
        self.stubs.add(id(node.obj))
        self.stub_kinds.add(type(node.obj))
        try:
            nbytes = tables.measured(node.obj)
        except Exception:  # of a library
            nbytes = 0
        if first:
            self.arrays.append((node, nbytes))
        if held and node.account is not None:
            self._booked(node, nbytes, "private")
        return Verdict()

    def _booked(self, node: Node, nbytes: int, backing: str) -> None:
        account = node.account
        if account.node is node:
            account.kind, account.backing = described(node.obj), backing
        elif backing != "private":
            return
        account.book(nbytes * node.weight, node.weight, 128 * node.weight)


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
        return f"tensor {str(obj.dtype).removeprefix('torch.')} {tuple(obj.shape)}"
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

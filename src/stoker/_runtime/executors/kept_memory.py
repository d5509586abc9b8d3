"""Copies batches whose memory a ``collate_fn`` keeps for the next one, for workers that are threads.

    collate_fn ──► batch ──► is its memory held by others, too? ──► copied before the next call may write into it

Processes need none of this: a batch is copied on its way. Threads hand over the batch itself. A ``collate_fn`` that fills one
buffer again and again would change batches that the user holds, and two threads would fill it at once.

Torch and Python count who holds a tensor or an array. Memory that torch did not allocate (``torch.from_numpy``) has no such count.
Of it, the first batches are kept until it is clear whether their addresses come back.
"""

from __future__ import annotations

import copy
import sys
import warnings
import weakref
import zlib
from array import array
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import lru_cache
from types import FrameType
from typing import Any

import numpy as np
import torch

from stoker._runtime.executors.turn import Turn

_LEARNED_BATCHES = 16
_MOST_BYTES = 256 << 20
"""The most memory that is kept to compare addresses."""
_MOST_OWNERS = 256
_MOST_COMPARED = 512
_DEPTH = 6

_PLAIN = frozenset((int, float, bool, complex, str, bytes, type(None)))
_REFILLED = (bytearray, array, set)
"""Other objects that may be filled again, and that ``copy.copy`` copies as a whole."""


def _counted_here() -> int:
    each = object()
    return sys.getrefcount(each)


_HERE = _counted_here()
"""What ``sys.getrefcount`` counts of our own: the local name and, before Python 3.14, the call's argument."""

_use_count: Callable[[int], int] = getattr(torch._C, "_storage_Use_Count", lambda storage: 0)


class KeptMemory:
    """Stands for the ``collate_fn`` of a loader in all of its worker threads.

    Call it, then ``settle`` the batch, then leave the ``turn``, on one thread. Calls take turns at first, and for good once memory
    was found that others hold. Without ``lasting``, ``settle`` is for the first batches only, unless it finds such memory.
    """

    def __init__(
        self, collate_fn: Callable[[Any], Any], turn: Turn | None = None, *, lasting: bool = True
    ) -> None:
        self._collate_fn = collate_fn
        self._turn = turn or Turn()
        self._lasting = lasting
        self._left = _LEARNED_BATCHES
        self._takes_turns = True
        self._foreign = False
        """Whether memory that torch did not allocate came back: all of it is copied from then on."""
        self._held = False
        """Whether memory was found that others hold."""
        self._originals: list[torch.Tensor] = []
        self._contents: dict[tuple[int, int], tuple[weakref.ref[Any], int]] = {}
        """By id and address: the owner of memory that others hold, and a checksum of what was there."""
        self._warned = False

    @property
    def found(self) -> bool:
        """Whether batches so far were in memory that others hold."""
        return self._held or self._foreign

    @property
    def settles(self) -> bool:
        """Whether batches have to be settled."""
        return self._lasting or self._left > 0 or self.found

    def __call__(self, samples: Any) -> Any:
        if self._takes_turns:
            self._turn.take()
        return self._collate_fn(samples)

    @staticmethod
    def is_called_in(frame: FrameType | None) -> bool:
        """Whether this is the frame of a call of ``collate_fn``, or of a wait for one."""
        return frame is not None and frame.f_code is KeptMemory.__call__.__code__

    def release(self) -> None:
        """The batch was settled, or there is none: let the next thread collate. Idempotent."""
        self._turn.leave()

    def copy_all(self, box: list[Any]) -> None:
        """Replace by copies whatever someone else holds of the batch ``box[0]``, without learning from it: we hold samples."""
        found = HeldMemory()
        found.search(box, _DEPTH)
        held = found.held()
        box[0] = _replaced(box[0], _copied(found, held | found.foreign()), held, _DEPTH)

    def settle(self, box: list[Any], *, warns: bool = True) -> None:
        """Replace by copies what others hold, or may hold, of the batch ``box[0]``. The list has the only reference to it."""
        self._warned = self._warned or not warns
        found = HeldMemory()
        found.search(box, _DEPTH)
        held = found.held()
        self._held = self._held or bool(held)
        self._takes_turns = self._takes_turns or self._held
        foreign = found.foreign() - held
        copied = held | foreign if self._left or self._foreign else held
        if self._left:
            self._learn([found.tensors[key] for key in foreign])
        for key in copied:
            each: Any = found.tensors.get(key)
            if each is not None:
                self._compare(each if each._base is None else each._base, each.data_ptr(), each)
            elif (each := found.arrays.get(key)) is not None:
                self._compare(each if each.base is None else each.base, each.ctypes.data, each)
        if copied:
            box[0] = _replaced(box[0], _copied(found, copied), held, _DEPTH)

    def _learn(self, foreign: list[torch.Tensor]) -> None:
        """Keep the memory of the first batches: an address that comes back nevertheless is a buffer."""
        addresses = {each.data_ptr() for each in self._originals}
        if any(each.data_ptr() in addresses for each in foreign):
            self._foreign = True
            self._warn()
        self._originals += foreign
        self._left -= 1
        if self._left and sum(each.nbytes for each in self._originals) < _MOST_BYTES:
            return
        self._left = 0
        self._originals.clear()
        self._takes_turns = self._foreign or self._held

    def _compare(self, owner: Any, address: int, part: Any) -> None:
        """Warn when memory comes back with other contents. The owner is what the memory lives and dies with."""
        if self._warned:
            return
        content = zlib.crc32(_begin(part))
        key = id(owner), address
        known = self._contents.get(key)
        if known is not None and known[0]() is owner:
            if known[1] != content:
                self._contents.clear()
                self._warn()
        elif known is not None or len(self._contents) < _MOST_OWNERS:
            with suppress(TypeError):  # nothing can refer to it weakly
                self._contents[key] = weakref.ref(owner), content

    def _warn(self) -> None:
        if not self._warned:
            self._warned = True
            warnings.warn(
                "collate_fn returns memory that it fills again for a later batch. With executor='thread' such batches are copied, "
                "and collate_fn runs on one thread at a time. Return new tensors, or use executor='process'",
                stacklevel=2,
            )


class HeldMemory:
    """The tensors, arrays and containers of one batch by their ids, and which of them others hold.

    Python counts all references to an object; those that come from inside the batch are counted here.
    """

    def __init__(self) -> None:
        self.tensors: dict[int, torch.Tensor] = {}
        self.arrays: dict[int, np.ndarray[Any, Any]] = {}
        self.composed: dict[int, torch.Tensor] = {}
        """Sparse and nested ones. Nobody counts who holds the tensors that they consist of, so others may always do."""
        self._references: dict[int, int] = {}
        self._inside: Counter[int] = Counter()

    def search(self, holder: Any, depth: int) -> None:
        """Look through a container, or the attributes of an object."""
        for each in _items(holder):
            kind, key = type(each), id(each)
            if kind in _PLAIN:
                continue
            self._inside[key] += 1
            if key in self._references:
                continue
            self._references[key] = sys.getrefcount(each) - _HERE
            if isinstance(each, torch.Tensor):
                self._add_tensor(key, each)
            elif isinstance(each, np.ndarray):
                if each.nbytes:
                    self.arrays[key] = each
            elif depth:
                self.search(each, depth - 1)

    def _add_tensor(self, key: int, each: torch.Tensor) -> None:
        if not each.is_cpu or type(each).__torch_dispatch__ is not torch.Tensor.__torch_dispatch__:
            return  # its memory is no storage of ours to look at
        if each.layout is not torch.strided or each.is_nested:
            self.composed[key] = each
        elif each.nbytes:
            self.tensors[key] = each

    def held(self) -> set[int]:
        """The objects that something outside the batch can reach."""
        bases = {id(each._base) for each in self.tensors.values() if each._base is not None}
        self._inside.update(bases)  # torch holds the object of a tensor that has views
        found = {key for key, count in self._references.items() if count > self._inside[key]}
        return found | self._views() | self._parts() | set(self.composed)

    def foreign(self) -> set[int]:
        """Tensors in memory that torch did not allocate, so that nobody counts who holds it."""
        return {key for key, each in self.tensors.items() if not each.untyped_storage().resizable()}

    def _views(self) -> set[int]:
        """Tensors whose memory something outside the batch can reach: a buffer of which they are parts."""
        storages = {}
        parts: dict[int, set[int]] = {}
        bases: dict[int, Any] = {}
        held: set[int] = set()
        for key, each in self.tensors.items():
            storage = each.untyped_storage()
            storages[storage._cdata] = storage
            parts.setdefault(storage._cdata, set()).add(key)
            base = each._base
            if base is not None and id(base) not in self.tensors:
                # One more is usual: torch's own.
                if id(base) not in bases and sys.getrefcount(base) > _HERE + 1:
                    held.add(storage._cdata)
                bases[id(base)] = base
                parts[storage._cdata].add(id(base))
        for storage_key, members in parts.items():
            if _use_count(storage_key) > len(members) + 1:  # and our own
                held.add(storage_key)
        return {key for storage_key in held for key in parts[storage_key] if key in self.tensors}

    def _parts(self) -> set[int]:
        """Arrays that are parts of an array, or another owner of memory, that something outside the batch can reach."""
        parts: dict[int, list[int]] = {}
        for key, each in self.arrays.items():
            if each.base is not None:
                parts.setdefault(id(each.base), []).append(key)
        held: set[int] = set()
        for base_key, keys in parts.items():
            base = self.arrays[keys[0]].base
            inside = len(keys) + self._inside[base_key] + (base_key in self.arrays)
            if sys.getrefcount(base) - _HERE > inside:
                held.update(keys)
        return held


def _items(holder: Any) -> Iterator[Any]:
    """What a container holds, or an object's attributes. The iterator keeps no reference to what it gave."""
    if isinstance(holder, list | tuple | deque):
        return iter(holder)
    if isinstance(holder, dict):
        return iter(holder.values())
    if isinstance(holder, type):
        return iter(())
    values = getattr(holder, "__dict__", None)
    kind: Any = type(holder)
    if slots := _slots(kind):
        return _slotted(holder, values, slots)
    return iter(values.values()) if isinstance(values, dict) else iter(())


def _slotted(holder: Any, values: Any, slots: tuple[str, ...]) -> Iterator[Any]:
    if isinstance(values, dict):
        yield from values.values()
    for name in slots:
        with suppress(AttributeError):  # not set
            yield getattr(holder, name)


@lru_cache(128)  # a batch may have thousands of objects of one class
def _slots(kind: type) -> tuple[str, ...]:
    """Names of the attributes that objects of a class have in slots."""
    found = []
    for each in kind.__mro__:
        slots = each.__dict__.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if name.startswith("__") and not name.endswith("__"):
                found.append(f"_{each.__name__.lstrip('_')}{name}")
            elif name not in ("__dict__", "__weakref__"):
                found.append(name)
    return tuple(found)


def _attributes(value: Any) -> dict[str, Any]:
    """By name: those in its dict and in slots."""
    if isinstance(value, type):
        return {}
    kind: Any = type(value)
    slots = {name: getattr(value, name) for name in _slots(kind) if hasattr(value, name)}
    values = getattr(value, "__dict__", None)
    return {**values, **slots} if isinstance(values, dict) else slots


def _copies(tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Copy tensors of one storage. They share memory as before, unless the storage is more than twice their size."""
    storage = tensors[0].untyped_storage()
    plain = not any(
        type(each) is not torch.Tensor or each.requires_grad or each.is_conj() or each.is_neg()
        for each in tensors
    )
    if not plain or storage.nbytes() > 2 * sum(each.nbytes for each in tensors):
        return [_copy_of(each) for each in tensors]
    fresh = torch.empty(storage.nbytes(), dtype=torch.uint8).untyped_storage()
    fresh.copy_(storage)
    return [
        torch.empty(0, dtype=each.dtype).set_(fresh, each.storage_offset(), each.shape, each.stride())
        for each in tensors
    ]


def _copy_of(tensor: torch.Tensor) -> torch.Tensor:
    """A copy of its own. One of a subclass keeps its type and attributes, unless gradients flow through it."""
    if type(tensor) is torch.Tensor or tensor.grad_fn is not None:
        return tensor.clone()
    copied = tensor.detach().clone().as_subclass(type(tensor)).requires_grad_(tensor.requires_grad)
    vars(copied).update(vars(tensor))
    return copied


def _copied(found: HeldMemory, keys: Iterable[int]) -> dict[int, Any]:
    """Copies of these tensors and arrays, by the ids of the originals."""
    copies: dict[int, Any] = {}
    storages: dict[int, list[int]] = {}
    for key in keys:
        if key in found.tensors:
            storages.setdefault(found.tensors[key].untyped_storage()._cdata, []).append(key)
        elif key in found.arrays:
            copies[key] = found.arrays[key].copy()
        elif key in found.composed:
            copies[key] = _copy_of(found.composed[key])
    for some in storages.values():
        copies.update(zip(some, _copies([found.tensors[key] for key in some]), strict=True))
    return copies


def _replaced(value: Any, copies: dict[int, Any], held: set[int], depth: int) -> Any:
    """The value with copies in the place of what was copied; containers that others hold are made anew."""
    if id(value) in copies:
        return copies[id(value)]
    kind = type(value)
    if kind in _PLAIN or isinstance(value, torch.Tensor | np.ndarray) or depth < 0:
        return value
    if isinstance(value, _REFILLED):
        return copy.copy(value) if id(value) in held else value
    if isinstance(value, tuple):
        items = [_replaced(each, copies, held, depth - 1) for each in value]
        if all(new is old for new, old in zip(items, value, strict=True)):
            return value
        return kind(*items) if hasattr(value, "_fields") else tuple(items)
    has_items = isinstance(value, list | dict | deque)
    if isinstance(value, dict):
        pairs = dict(value)
    else:
        pairs = dict(enumerate(value)) if has_items else _attributes(value)
    changed = {
        key: new
        for key, each in pairs.items()
        if (new := _replaced(each, copies, held, depth - 1)) is not each
    }
    opaque = not has_items and not pairs and not hasattr(value, "__dict__")
    if not changed and (opaque or id(value) not in held):
        return value
    value = copy.copy(value)
    for key, new in changed.items():
        if has_items:
            value[key] = new
        elif key in getattr(value, "__dict__", ()):
            vars(value)[key] = new
        else:
            object.__setattr__(value, key, new)
    return value


def _begin(value: Any) -> bytes:
    """Some bytes of the first row."""
    while value.ndim > 1:
        value = value[0]
    if isinstance(value, torch.Tensor):
        begin = value.detach().reshape(-1)[:_MOST_COMPARED].resolve_conj().resolve_neg()
        return begin.contiguous().view(torch.uint8).numpy().tobytes()
    return value.reshape(-1)[:_MOST_COMPARED].tobytes()  # type: ignore[no-any-return]

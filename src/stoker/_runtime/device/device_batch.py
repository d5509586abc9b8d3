"""Finds the tensors of a batch, and builds the same batch with other tensors in their places. Stateless; any thread.

Containers, dataclasses and plain objects are looked into. An object with its own ``to`` is asked instead. Everything else stays.
"""

from __future__ import annotations

import copy
import dataclasses
from array import array
from collections.abc import Callable, Mapping, MutableMapping, MutableSequence, Sequence, Set
from types import FunctionType, MemberDescriptorType, MethodType, ModuleType
from typing import Any, Literal, NamedTuple

import numpy as np
import torch

_Tensor = torch.Tensor
_STAYS = (
    str,
    bytes,
    bytearray,
    int,
    float,
    complex,
    type(None),
    range,
    array,
    memoryview,
    np.ndarray,
    np.generic,
    torch.Generator,
    torch.device,
    torch.dtype,
)
_NEVER = (type, ModuleType, FunctionType, MethodType)
_DEEPEST = 4
"""Plain objects inside plain objects that are looked into. An object that a thread made may lead to anything in the process."""

Replace = Callable[[Any], Any]
Method = Literal["to", "pin_memory"]


def rebuilt(batch: Any, tensor: Replace, ask: Replace, method: Method = "to") -> Any:
    """The batch with ``tensor(each)`` for plain tensors and ``ask(each)`` for objects that have the method themselves.

    Nothing is changed in place. A part in which nothing is replaced stays the same object. One object in two places of the
    batch is one object in the result, too.
    """
    kind = type(batch)
    if kind is _Tensor and _is_plain(batch):
        return tensor(batch)
    return _BatchWalk(tensor, ask, method).visit(batch)


class FoundTensors(NamedTuple):
    """All plain tensors of a batch, each once, and whether it has objects that have the method themselves.

    ``flat``: the batch is one tensor, or a list, tuple or dict of these tensors and of nothing else.
    """

    tensors: list[torch.Tensor]
    asks: bool
    flat: bool


def found(batch: Any, method: Method = "to") -> FoundTensors:
    """What there is to replace in a batch."""
    flat = _flat(batch)
    if flat is not None:
        return FoundTensors(flat, asks=False, flat=True)
    tensors: list[torch.Tensor] = []
    asked: list[Any] = []

    def note(each: Any) -> Any:
        tensors.append(each)
        return each

    def note_asked(each: Any) -> Any:
        asked.append(each)
        return each

    rebuilt(batch, note, note_asked, method)
    return FoundTensors(tensors, bool(asked), flat=False)


def replaced(batch: Any, tensors: FoundTensors, views: dict[int, torch.Tensor]) -> Any:
    """The batch with these views in the place of its tensors, by their ids and in their order. Nobody is asked."""
    if not tensors.flat:
        return rebuilt(batch, lambda each: views[id(each)], lambda each: each)
    kind = type(batch)
    if kind is dict:
        return dict(zip(batch, views.values(), strict=True))
    if kind is tuple:
        return tuple(views.values())
    return list(views.values()) if kind is list else views[id(batch)]


def _flat(batch: Any) -> list[torch.Tensor] | None:
    """The tensors of a flat batch. Most batches are flat, and walking over one costs several times as much."""
    kind = type(batch)
    if kind is list or kind is tuple:
        each = batch
    elif kind is dict:
        each = batch.values()
    else:
        return [batch] if kind is _Tensor and _is_plain(batch) else None
    tensors = []
    for tensor in each:
        if type(tensor) is not _Tensor or not _is_plain(tensor):
            return None
        tensors.append(tensor)
    return tensors if tensors and len({id(tensor) for tensor in tensors}) == len(tensors) else None


def _is_plain(tensor: torch.Tensor) -> bool:
    """Whether bytes, dtype, shape and strides are all there is, apart from ``requires_grad`` and attributes."""
    if tensor.layout is not torch.strided or tensor.is_nested or tensor.is_quantized or not tensor.is_cpu:
        return False
    if tensor.grad_fn is not None or tensor.is_neg():
        return False
    return not (tensor.is_complex() and tensor.is_conj())


class _BatchWalk:
    """One walk over a batch."""

    def __init__(self, tensor: Replace, ask: Replace, method: Method) -> None:
        self._tensor = tensor
        self._ask = ask
        self._method = method
        self._depth = 0
        self._done: dict[int, tuple[Any, Any]] = {}
        """By id: the object, so that its id stays its own, and what takes its place."""

    def visit(self, value: Any) -> Any:
        kind = type(value)
        if kind is str or kind is int or kind is float or kind is bool or value is None:
            return value
        known = self._done.get(id(value))
        if known is not None:
            return known[1]
        self._done[id(value)] = (value, value)  # a batch that contains itself keeps itself there
        made = self._made(value, kind)
        self._done[id(value)] = (value, made)
        return made

    def _made(self, value: Any, kind: type) -> Any:
        if kind is _Tensor and _is_plain(value):
            return self._tensor(value)
        if kind is dict:
            return self._dict(value)
        if kind is list or kind is tuple:
            items = [self.visit(each) for each in value]
            if all(new is old for new, old in zip(items, value, strict=True)):
                return value
            return items if kind is list else tuple(items)
        if isinstance(value, (_STAYS, _NEVER)):
            return value
        if callable(getattr(value, self._method, None)):
            if self._method == "to" and isinstance(value, MutableMapping):
                # Its values go with the others, in one copy. Then its own method is called, too.
                value = self._mapping(value)
            return self._ask(value)
        if isinstance(value, Mapping):
            return self._mapping(value)
        if isinstance(value, tuple):
            items = [self.visit(each) for each in value]
            if all(new is old for new, old in zip(items, value, strict=True)):
                return value
            return kind(*items) if hasattr(kind, "_fields") else kind(items)
        if isinstance(value, Sequence | Set):
            return self._sequence(value)
        return self._object(value)

    def _dict(self, value: dict[Any, Any]) -> Any:
        items = {key: self.visit(each) for key, each in value.items()}
        return items if any(items[key] is not value[key] for key in items) else value

    def _mapping(self, value: Any) -> Any:
        items = {key: self.visit(each) for key, each in value.items()}
        if all(items[key] is each for key, each in value.items()):
            return value
        try:  # the type may have more than its items: copy it, then change them
            if isinstance(value, MutableMapping):
                clone = _clone(value)
                clone.update(items)
                return clone
            return type(value)(items)
        except TypeError:
            return items

    def _sequence(self, value: Any) -> Any:
        """Copy a sequence or a set. It may make its items as they are asked for: they are asked for once."""
        try:
            before = list(value)
        except TypeError:
            return value
        items = [self.visit(each) for each in before]
        if all(new is old for new, old in zip(items, before, strict=True)):
            return value
        try:  # the type may have more than its items, as a deque has its length
            if isinstance(value, MutableSequence):
                clone = _clone(value)
                for number, each in enumerate(items):
                    clone[number] = each
                return clone
            return type(value)(items)
        except TypeError:
            return items

    def _object(self, value: Any) -> Any:
        """Attributes that hold tensors are replaced in a copy: those of a dataclass, in ``__dict__`` and in ``__slots__``."""
        if self._depth >= _DEEPEST:
            return value
        if dataclasses.is_dataclass(value):
            held = {each.name: getattr(value, each.name, None) for each in dataclasses.fields(value)}
        else:
            held = _attributes(value)
        self._depth += 1
        new = {name: self.visit(each) for name, each in held.items()}
        self._depth -= 1
        changed = {name: each for name, each in new.items() if each is not held[name]}
        if not changed:
            return value
        clone = copy.copy(value)
        for name, each in changed.items():
            object.__setattr__(clone, name, each)
        return clone


def _clone(value: Any) -> Any:
    """A copy with items of its own. ``copy.copy`` alone shares the list or dict in which an object keeps them."""
    clone = copy.copy(value)
    if not isinstance(value, list | dict) and not hasattr(type(value), "__copy__"):
        for name, each in _attributes(value).items():
            if isinstance(each, list | dict):
                object.__setattr__(clone, name, copy.copy(each))
    return clone


def _attributes(value: Any) -> dict[str, Any]:
    return {**_in_slots(value), **(getattr(value, "__dict__", None) or {})}


def _in_slots(value: Any) -> dict[str, Any]:
    """What an object keeps in the ``__slots__`` of its classes, as far as it is set."""
    members: list[str] = []
    for kind in type(value).__mro__:
        inside = vars(kind)
        if "__slots__" in inside:  # otherwise it is made in C, whose members are not to be set
            members += [name for name, each in inside.items() if type(each) is MemberDescriptorType]
    return {name: getattr(value, name) for name in members if hasattr(value, name)}

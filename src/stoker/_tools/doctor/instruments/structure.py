"""Describes the structure of samples, and finds what keeps two of them from becoming one batch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from stoker._tools.doctor.facts.samples import Difference, Leaf, Storage

_MOST_LEAVES = 256
_DEEPEST = 12
_MOST_STORAGES = 8


def leaves(value: Any) -> tuple[Leaf, ...]:
    """Every value that is no container, by its path; the first few hundred."""
    found = []
    for path, each in _walk(value, "", 0):
        found.append(_leaf(path, each))
        if len(found) == _MOST_LEAVES:
            break
    return tuple(found)


def tensors(value: Any) -> Iterator[torch.Tensor]:
    """Every tensor in it."""
    return (each for _, each in _walk(value, "", 0) if isinstance(each, torch.Tensor))


def storages(value: Any) -> tuple[Storage, ...]:
    """The storages that tensors in it show a part of, the most wasteful first."""
    found: dict[int, Storage] = {}
    for path, each in _walk(value, "", 0):
        if not isinstance(each, torch.Tensor) or each.layout != torch.strided:
            continue
        whole = each.untyped_storage()
        before = found.get(whole.data_ptr())
        used = each.numel() * each.element_size() + (before.used_bytes if before else 0)
        found[whole.data_ptr()] = Storage(
            before.path if before else path, (before.tensors if before else 0) + 1, used, whole.nbytes()
        )
    partial = [each for each in found.values() if each.used_bytes < each.storage_bytes]
    return tuple(sorted(partial, key=lambda each: each.used_bytes - each.storage_bytes)[:_MOST_STORAGES])


def difference(first: Any, second: Any, path: str = "") -> tuple[str, str, str, str] | None:
    """The first thing that differs, as (what, path, of the first, of the second) in the words of ``Difference``; else None."""
    if (first is None) != (second is None):
        return "none", path, _named(first), _named(second)
    if isinstance(first, Mapping) and isinstance(second, Mapping):
        if first.keys() != second.keys():
            return "keys", path, _keys(first, second), _keys(second, first)
        pairs = [(f"{path}[{key!r}]", first[key], second[key]) for key in first]
    elif _is_sequence(first) and _is_sequence(second):
        if len(first) != len(second):
            return "length", path, str(len(first)), str(len(second))
        pairs = [(f"{path}[{at}]", a, b) for at, (a, b) in enumerate(zip(first, second, strict=True))]
    else:
        return _of_values(first, second, path)
    for place, a, b in pairs[:_MOST_LEAVES]:
        found = difference(a, b, place)
        if found is not None:
            return found
    return None


def as_difference(
    found: tuple[str, str, str, str], first_index: int, second_index: int, collates: bool
) -> Difference:
    """The difference as a fact."""
    what, path, first, second = found
    return Difference(what, path, first, second, first_index, second_index, collates)


def _of_values(first: Any, second: Any, path: str) -> tuple[str, str, str, str] | None:
    one, other = _leaf(path, first), _leaf(path, second)
    if one.kind != other.kind:
        return "kind", path, one.kind, other.kind
    if len(one.shape) != len(other.shape) or one.shape != other.shape:
        return "shape", path, str(one.shape), str(other.shape)
    if one.dtype != other.dtype:
        return "dtype", path, one.dtype, other.dtype
    return None


def _walk(value: Any, path: str, depth: int) -> Iterator[tuple[str, Any]]:
    if depth < _DEEPEST:
        if isinstance(value, Mapping):
            for key, each in list(value.items())[:_MOST_LEAVES]:
                yield from _walk(each, f"{path}[{key!r}]", depth + 1)
            return
        if _is_sequence(value):
            for at, each in enumerate(value[:_MOST_LEAVES]):
                yield from _walk(each, f"{path}[{at}]", depth + 1)
            return
    yield path, value


def _is_sequence(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str | bytes | bytearray | range)


def _leaf(path: str, value: Any) -> Leaf:
    if isinstance(value, torch.Tensor):
        try:
            storage_bytes = value.untyped_storage().nbytes()
        except (NotImplementedError, RuntimeError):  # sparse tensors have none
            storage_bytes = 0
        return Leaf(
            path,
            "tensor",
            str(value.dtype).removeprefix("torch."),
            tuple(value.shape),
            value.numel() * value.element_size(),
            storage_bytes,
            value.device.type,
            value.requires_grad,
        )
    if isinstance(value, np.ndarray):
        base = value
        while isinstance(base.base, np.ndarray):
            base = base.base
        return Leaf(path, "array", str(value.dtype), tuple(value.shape), value.nbytes, base.nbytes)
    if isinstance(value, str | bytes | bytearray):
        return Leaf(path, type(value).__name__, data_bytes=len(value), storage_bytes=len(value))
    return Leaf(path, _named(value))


def _named(value: Any) -> str:
    return "None" if value is None else type(value).__name__


def _keys(one: Mapping[Any, Any], other: Mapping[Any, Any]) -> str:
    """The keys, those that the other lacks first."""
    own = [repr(key) for key in one if key not in other]
    return ", ".join([*own, *(repr(key) for key in one if key in other)][:6])

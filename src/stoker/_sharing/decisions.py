"""Decides what ``share`` does with one object: pack it, look inside, or leave it alone, with the reason."""

from __future__ import annotations

import mmap
import sys
from collections import OrderedDict, deque
from collections.abc import Sized
from dataclasses import dataclass
from enum import Enum
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

from stoker._pickling.instances import own_dict
from stoker._pickling.segment import Segment, find
from stoker._sharing import contents
from stoker._sharing.containers import tables
from stoker._sharing.containers.arrays import SharedArray
from stoker._sharing.containers.dicts import SharedDict
from stoker._sharing.containers.lists import SharedSequence
from stoker._sharing.containers.sets import SharedSet
from stoker._sharing.containers.views import span
from stoker._sharing.sizes import estimate, item_kinds

FEW = 10_000
"""Containers that are not packed are looked into up to this many items."""

_LEVELS = 4
_CONTAINERS = (list, tuple, dict, set, frozenset, deque)
_ENTERED = frozenset((list, tuple, dict, OrderedDict))


class ShareAction(Enum):
    """What happens to a thing."""

    PACK = "pack"
    ENTER = "enter"
    KEEP = "keep"


@dataclass(frozen=True, slots=True)
class ShareDecision:
    """``reason`` is for people: why a thing is left alone, or what changes when it is packed.

    ``inner_bytes``: where the threshold for what is inside differs from the one outside. ``tell``: worth a line of the report
    however small.
    """

    fate: ShareAction
    nbytes: int = 0
    reason: str = ""
    inner_bytes: int | None = None
    tell: bool = False


_SILENTLY = ShareDecision(ShareAction.KEEP)
_SHARED = ShareDecision(ShareAction.KEEP, 0, "already shared", tell=True)


def judge(obj: Any, min_bytes: int, *, root: bool = False) -> ShareDecision:
    """Decide about one thing. Reads it, changes nothing. ``root``: the user named it, so its size does not matter."""
    try:
        return _judged(obj, min_bytes, root)
    except Exception as error:  # a proxy that may not be asked now, a stand-in that only claims to be a list
        return ShareDecision(
            ShareAction.KEEP, 0, f"it does not let itself be looked at: {error!r}", tell=True
        )


def _judged(obj: Any, min_bytes: int, root: bool) -> ShareDecision:
    kind = type(obj)
    if kind in contents.ATOMS:
        return _atom(obj, min_bytes)
    if isinstance(obj, contents.UNTOUCHED):
        return _SILENTLY
    if isinstance(obj, SharedSequence | SharedDict | SharedSet | SharedArray):
        return _SHARED
    if isinstance(obj, np.ndarray):
        return _array(obj, min_bytes, root)
    if isinstance(obj, torch.Tensor):
        return _tensor(obj, min_bytes, root)
    if tables.is_table(obj):
        return _table(obj, min_bytes, root)
    if kind in contents.PACKED:
        return _container(obj, min_bytes, root)
    if isinstance(obj, _CONTAINERS):
        return _subclass(obj, min_bytes)
    return _object(obj, root)


def _atom(obj: Any, min_bytes: int) -> ShareDecision:
    if isinstance(obj, bytes) and len(obj) >= min_bytes:
        return ShareDecision(
            ShareAction.KEEP, len(obj), "one bytes object: share np.frombuffer(it, np.uint8) instead"
        )
    return _SILENTLY


def _array(obj: np.ndarray[Any, Any], min_bytes: int, root: bool) -> ShareDecision:
    nbytes = estimate(obj)
    if nbytes == 0 or (_taken(obj, nbytes) < min_bytes and not root):
        return _SILENTLY
    if obj.dtype.hasobject:
        return ShareDecision(
            ShareAction.KEEP, nbytes, "an array of Python objects: share array.tolist() instead"
        )
    base: Any = obj
    while isinstance(base, np.ndarray) and base.base is not None:
        if isinstance(base, np.memmap):
            break
        base = base.base
    if isinstance(base, memoryview):
        base = base.obj
    if isinstance(base, Segment):
        return _SHARED
    if isinstance(base, np.memmap | mmap.mmap):
        return ShareDecision(ShareAction.KEEP, nbytes, "a mapped file: processes share its pages already")
    if type(obj) is not np.ndarray:
        return ShareDecision(
            ShareAction.KEEP,
            nbytes,
            f"a {type(obj).__name__}, not a plain ndarray: np.asarray(it) can be shared",
        )
    return ShareDecision(ShareAction.PACK, nbytes)


def _taken(obj: Any, nbytes: int) -> int:
    """The memory behind an array or tensor: less than its numbers would take when it repeats some."""
    if isinstance(obj, np.ndarray) and obj.dtype.hasobject:
        return nbytes
    reach = span(obj)
    return min(nbytes, reach.high - reach.low)


def _tensor(obj: torch.Tensor, min_bytes: int, root: bool) -> ShareDecision:
    nbytes = estimate(obj)
    if obj.requires_grad or type(obj) is not torch.Tensor:
        return ShareDecision(
            ShareAction.KEEP,
            nbytes,
            "requires grad: share tensor.detach() instead"
            if obj.requires_grad
            else f"a {type(obj).__name__}, not a plain tensor",
        )
    if obj.device.type != "cpu":
        return ShareDecision(ShareAction.KEEP, nbytes, f"on {obj.device}")
    if obj.layout is not torch.strided or obj.is_nested or obj.is_quantized or obj.is_conj() or obj.is_neg():
        return ShareDecision(ShareAction.KEEP, nbytes, "not a dense tensor of plain numbers")
    if nbytes == 0 or (_taken(obj, nbytes) < min_bytes and not root):
        return _SILENTLY
    if obj.is_shared():  # type: ignore[no-untyped-call]
        return ShareDecision(ShareAction.KEEP, 0, "shared by torch already (share_memory_)", tell=True)
    storage = obj.untyped_storage()
    if find(storage.data_ptr(), storage.nbytes()) is not None:
        return _SHARED
    if storage.filename is not None:
        return ShareDecision(ShareAction.KEEP, nbytes, "a mapped file: processes share its pages already")
    return ShareDecision(ShareAction.PACK, nbytes)


def _table(obj: Any, min_bytes: int, root: bool) -> ShareDecision:
    nbytes = tables.measured(obj)
    if nbytes < min_bytes and not root:
        return _SILENTLY
    reason = tables.refusal(obj)
    if reason == tables.SHARED:
        return _SHARED
    return ShareDecision(ShareAction.KEEP if reason else ShareAction.PACK, nbytes, reason)


def _container(obj: Any, min_bytes: int, root: bool) -> ShareDecision:
    if not obj:
        return _SILENTLY
    levels = item_kinds(obj, _LEVELS)
    kinds = levels[0]
    if type(obj) in _ENTERED and any(issubclass(kind, contents.LIVE) for kind in kinds):
        return ShareDecision(
            ShareAction.ENTER, sys.getsizeof(obj), contents.alive(levels), tell=type(obj) is not tuple
        )
    nbytes = estimate(obj)
    enter = ShareDecision(ShareAction.ENTER) if type(obj) in _ENTERED else _SILENTLY
    if kinds == {type(None)} and not isinstance(obj, dict) and not root:
        return ShareDecision(
            ShareAction.KEEP, 0, "nothing but None: a cache that is filled later?", tell=nbytes >= min_bytes
        )
    if kinds <= contents.ATOMS:
        return ShareDecision(ShareAction.PACK, nbytes) if nbytes >= min_bytes or root else _SILENTLY
    if nbytes < min_bytes and not root:
        return enter
    if type(obj) in _ENTERED:
        if reason := contents.alive(levels):
            return ShareDecision(ShareAction.ENTER, sys.getsizeof(obj), reason, tell=True)
        if torch.Tensor in kinds and not all(
            map(contents.is_data, obj.values() if isinstance(obj, dict) else obj)
        ):
            return ShareDecision(
                ShareAction.ENTER,
                nbytes,
                "holds tensors that are shared by torch, on a device or require grad",
            )
        inner = contents.large_inside(obj, kinds, min_bytes, nbytes)
        if inner is not None:
            return ShareDecision(ShareAction.ENTER, inner_bytes=inner)
    if any(contents.is_opaque(kind) for level in levels for kind in level) and contents.sprawls(obj, nbytes):
        return ShareDecision(
            ShareAction.ENTER if len(obj) <= FEW and type(obj) in _ENTERED else ShareAction.KEEP,
            nbytes,
            "its items refer to much more than themselves: packed one by one they would take more memory",
        )
    return ShareDecision(ShareAction.PACK, nbytes, contents.what_changes(kinds))


def _subclass(obj: Any, min_bytes: int) -> ShareDecision:
    if isinstance(obj, tuple) and hasattr(obj, "_fields"):
        return ShareDecision(ShareAction.ENTER)
    if isinstance(obj, Dataset):
        return ShareDecision(ShareAction.ENTER)  # its attributes; what it is itself stays
    nbytes = estimate(obj)
    if nbytes < min_bytes:
        return _SILENTLY
    plain = next(
        kind for kind in (dict, set, frozenset, tuple, list) if isinstance(obj, kind) or kind is list
    )
    return ShareDecision(
        ShareAction.KEEP, nbytes, f"a {type(obj).__name__}: {plain.__name__}(it) can be shared"
    )


def _object(obj: Any, root: bool) -> ShareDecision:
    kind = type(obj)
    if isinstance(obj, torch.nn.Module):
        return ShareDecision(
            ShareAction.KEEP, _parameters(obj), "a torch Module: share its parameters with share_memory()"
        )
    if kind.__module__.startswith("stoker.") and not isinstance(obj, DataLoader | Dataset):
        return _SILENTLY
    if isinstance(obj, Enum | torch.Generator | np.random.Generator | np.random.RandomState):
        return _SILENTLY
    if (
        kind.__module__.partition(".")[0] in sys.stdlib_module_names
        and (kind.__module__, kind.__name__) not in contents.NAMESPACES
    ):
        return _SILENTLY
    if not root and not isinstance(obj, Dataset) and _from_library(kind) and _has_own_state(kind):
        return ShareDecision(
            ShareAction.KEEP,
            estimate(obj),
            f"a {kind.__module__}.{kind.__name__}, which decides itself how it is copied",
        )
    if isinstance(obj, Sized) and own_dict(obj) is None and not has_slots(kind):
        return ShareDecision(
            ShareAction.KEEP, estimate(obj), f"a {kind.__name__}: nothing is known of its inside"
        )
    return ShareDecision(ShareAction.ENTER)


def _parameters(module: torch.nn.Module) -> int:
    return sum(estimate(tensor) for tensor in module.parameters())


def _from_library(kind: type) -> bool:
    home = getattr(sys.modules.get(kind.__module__), "__file__", None) or ""
    return "site-packages" in home or "dist-packages" in home


def _has_own_state(kind: Any) -> bool:
    return (
        kind.__getstate__ is not object.__getstate__
        or kind.__reduce__ is not object.__reduce__
        or kind.__reduce_ex__ is not object.__reduce_ex__
    )


def has_slots(kind: type) -> bool:
    """Whether a class written in Python declares slots."""
    return any("__slots__" in base.__dict__ for base in kind.__mro__)

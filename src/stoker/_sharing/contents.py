"""Inspects a container to decide whether it is packed as a whole."""

from __future__ import annotations

import io
import pickle
import sys
import types
from collections import OrderedDict
from itertools import islice
from typing import Any

import numpy as np
import torch
from torch.utils.data import Dataset

from stoker._pickling.tensors import plain_tensor
from stoker._sharing.containers.arrays import SharedArray
from stoker._sharing.containers.dicts import SharedDict
from stoker._sharing.containers.lists import SharedSequence
from stoker._sharing.containers.sets import SharedSet
from stoker._sharing.sizes import estimate, largest

ATOMS = frozenset(
    (type(None), bool, int, float, complex, str, bytes, np.dtype, torch.dtype, torch.device, slice, range)
)
PACKED = frozenset((list, tuple, dict, OrderedDict, set, frozenset))
LIVE = (
    Dataset,
    torch.nn.Module,
    torch.nn.Parameter,
    SharedSequence,
    SharedDict,
    SharedSet,
    SharedArray,
)
UNTOUCHED = (
    type,
    types.ModuleType,
    types.FunctionType,
    types.MethodType,
    types.BuiltinFunctionType,
    types.GeneratorType,
)
NAMESPACES = frozenset((("types", "SimpleNamespace"), ("argparse", "Namespace")))
_CENSUS = 1024
_MANY_ARRAYS = 64
_INNER_BYTES = 4096
_PROBED = 8


def alive(levels: list[set[type]]) -> str:
    """Why the items of a container must stay the objects they are; empty when they need not."""
    kinds = sorted({kind.__name__ for level in levels for kind in level if issubclass(kind, LIVE)})
    if not kinds and all(map(_is_live, levels[0])):
        kinds = sorted(kind.__name__ for kind in levels[0])
    if not kinds:
        return ""
    return f"holds {', '.join(kinds[:3])} objects, which stay the objects they are"


def is_data(item: Any) -> bool:
    """Whether a tensor is nothing but numbers in this process's own memory; true of all that is no tensor."""
    if type(item) is not torch.Tensor:
        return True
    return plain_tensor(item) and not item.is_shared()  # type: ignore[no-untyped-call]


def _is_live(kind: type) -> bool:
    if issubclass(kind, (*LIVE, *UNTOUCHED, io.IOBase)) or kind.__module__ in ("_thread", "threading"):
        return True
    return any("__call__" in base.__dict__ for base in kind.__mro__)


def is_opaque(kind: type) -> bool:
    """Whether instances may refer to anything: neither numbers, text, arrays nor Python's own containers."""
    return not (kind in PACKED or kind in ATOMS or issubclass(kind, np.ndarray | np.generic | torch.Tensor))


def _is_changeable(kind: type) -> bool:
    if kind in (list, dict, set):
        return True
    ordinary = kind.__module__.partition(".")[0] not in sys.stdlib_module_names
    return is_opaque(kind) and (ordinary or (kind.__module__, kind.__name__) in NAMESPACES)


def large_inside(obj: Any, kinds: set[type], min_bytes: int, nbytes: int) -> int | None:
    """The threshold for its items, when some are large themselves: reading one would decode all of it. Else None."""
    if len(obj) > _CENSUS:
        return None
    values = list(obj.values() if isinstance(obj, dict) else obj)
    large = largest(values, min_bytes)
    if not large:
        return None
    if kinds <= {np.ndarray, torch.Tensor} and len(values) > _MANY_ARRAYS and _alike(values):
        return None
    rest = nbytes - sum(map(estimate, large))
    return min_bytes if rest < min_bytes else min(min_bytes, _INNER_BYTES)


def _alike(values: list[Any]) -> bool:
    """Whether arrays lie behind one another in one layout, so that reading one copies nothing."""
    return len({(type(value), value.dtype, value.ndim) for value in values}) == 1


def sprawls(obj: Any, nbytes: int) -> bool:
    values = obj.values() if isinstance(obj, dict) else obj
    step = max(1, len(obj) // _PROBED)
    limit = 65536 + 16 * nbytes // len(obj)
    return any(_outgrows(item, limit) for item in islice(values, 0, None, step))


class _Outgrown(Exception):
    pass


class _LimitedSink:
    """A file that refuses to grow beyond a limit."""

    def __init__(self, limit_bytes: int) -> None:
        self._left = limit_bytes

    def write(self, data: Any) -> int:
        nbytes = memoryview(data).nbytes
        self._left -= nbytes
        if self._left < 0:
            raise _Outgrown
        return nbytes


def _outgrows(item: object, limit_bytes: int) -> bool:
    try:
        pickle.Pickler(_LimitedSink(limit_bytes), 5).dump(item)
    except (_Outgrown, RecursionError):  # a long chain of items that refer to each other, for one
        return True
    except Exception:  # whoever packs it says what is wrong with it
        return False
    return False


def what_changes(kinds: set[type]) -> str:
    changeable = sorted(kind.__name__ for kind in kinds if _is_changeable(kind))
    if not changeable:
        return ""
    return f"items ({', '.join(changeable[:3])}) are decoded at every access: changes to one are not kept"

"""Finds the parts of a dataset that are called for a sample, and which of them draw random numbers, by their paths."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from types import CodeType, FrameType, FunctionType, MethodType, ModuleType
from typing import Any, NamedTuple

import numpy as np
import torch

from stoker._pickling.attributes import Path, slots_of, spell_path
from stoker._pickling.instances import own_dict
from stoker._runtime.cache.digest import attributes
from stoker._runtime.cache.proving.draws import NAMES, DrawWatch
from stoker._runtime.cache.proving.named_generators import generator_behind, generators_in_code

_DEEP = 8
_OBJECTS = 500
_ITEMS = 64


class DatasetParts(NamedTuple):
    """What a dataset leads to: objects and functions with their paths, and generators with theirs."""

    objects: list[tuple[str, Any]]
    generators: list[tuple[str, Any]]


def parts_of(dataset: Any, root: str = "dataset") -> DatasetParts:
    """Return what a dataset leads to, nearest first. Long containers hold data and are not searched."""
    objects: list[tuple[str, Any]] = []
    generators: list[tuple[str, Any]] = []
    queue: list[tuple[Path, Any]] = [((), dataset)]
    met: set[int] = {id(dataset)}
    for path, obj in queue:  # grows while it is iterated
        for step, value in _held(obj):
            if id(value) in met or len(met) > _OBJECTS:
                continue
            here: Path = (*path, step)
            found = generator_behind(value)
            if found is not None:
                met.update((id(value), id(found)))
                generators.append((spell_path(root, here), found))
            elif isinstance(value, list | tuple | dict | FunctionType | MethodType) or _is_object(value):
                met.add(id(value))
                if not isinstance(value, list | tuple | dict):
                    objects.append((spell_path(root, here), value))
                if len(here) < _DEEP:
                    queue.append((here, value))
    roots = [dataset, *(value for _, value in objects)]
    generators += generators_in_code(roots, {id(each) for _, each in generators})
    return DatasetParts(objects, generators)


def who_draws(fetch: Callable[[], Any], parts: DatasetParts) -> list[str]:
    """Fetch once, and return the innermost parts that drew, such as ``dataset.transform.transforms[1] (RandomCrop)``.

    A generator of the dataset that was drawn from is named if no part was seen.
    """
    watch = DrawWatch(parts.generators)
    by_object = {id(obj): (path, obj) for path, obj in parts.objects}
    by_code: dict[CodeType, tuple[str, Any]] = {
        obj.__code__: (path, obj) for path, obj in parts.objects if isinstance(obj, FunctionType)
    }
    stack: list[tuple[FrameType, str, list[Any], int]] = []
    blamed: list[str] = []

    def look(frame: FrameType, event: str, _: Any) -> None:
        if event == "call":
            found = by_code.get(frame.f_code)
            if found is None and frame.f_code.co_argcount:
                first = frame.f_code.co_varnames[0]
                found = by_object.get(id(frame.f_locals.get(first)))
            if found is not None:
                path, obj = found
                name = getattr(obj, "__name__", None) or type(obj).__name__
                stack.append((frame, f"{path} ({name})", watch.mark(), len(blamed)))
        elif event == "return" and stack and stack[-1][0] is frame:
            _, name, before, count = stack.pop()
            if len(blamed) == count and watch.drawn(before) and name not in blamed:
                blamed.append(name)

    before = watch.mark()
    sys.setprofile(look)
    try:
        fetch()
    finally:
        sys.setprofile(None)
    return blamed or [name for name in watch.drawn(before) if name not in NAMES]


def _held(obj: Any) -> list[tuple[Any, Any]]:
    if isinstance(obj, MethodType):
        return [(("attribute", "__self__"), obj.__self__)]
    if type(obj) in (list, tuple):
        return [(("item", place), value) for place, value in enumerate(obj)] if len(obj) <= _ITEMS else []
    if type(obj) is dict:
        return [(("item", key), value) for key, value in obj.items()] if len(obj) <= _ITEMS else []
    if isinstance(obj, FunctionType):
        return []
    if isinstance(obj, partial):
        held = [("func", obj.func), ("args", obj.args), ("keywords", obj.keywords)]
        return [(("attribute", name), value) for name, value in held]
    return [(("attribute", name), value) for name, value in attributes(obj)]


def _is_object(value: Any) -> bool:
    if isinstance(value, type | torch.Tensor | np.ndarray | ModuleType):
        return False
    return own_dict(value) is not None or bool(slots_of(type(value)))

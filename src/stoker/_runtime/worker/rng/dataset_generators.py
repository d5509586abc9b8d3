"""Finds generators stored on a map-style dataset, and seeds them whenever the global ones are seeded.

    dataset ──► .transform ──► .transforms[0] ──► .random_generator      a path, found once, in the parent
                                                        │
    worker: looks up each step again before a range ──► another object? then it follows all paths anew

Without this, every worker would hold a copy of such a generator and draw the same numbers, in every epoch.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from hashlib import blake2b
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np
import torch
from torch.utils.data import Dataset

from stoker._pickling.attributes import MISSING, Path, Step, read_slot, slots_of, spell
from stoker._pickling.instances import own_dict
from stoker._runtime.protocol.worker_spec import GeneratorPath
from stoker._runtime.scheduler.row_ranges import mix
from stoker._runtime.worker.rng import generators

_log = logging.getLogger("stoker")

_DEEP = 10
"""How many steps from the dataset are followed. A transform of a transform of a subset of a subset takes nine."""

_ITEMS = 64
"""Longer lists, tuples and dicts hold data, not transforms."""

_DATASETS = 1024
"""The limit for containers whose first item is a dataset."""

_OBJECTS = 1000
"""How many objects are searched, nearest first."""

_VALUES = 10_000
"""How many values in them are looked at. That takes ten milliseconds at most."""

_ATTRIBUTES = 1000
"""An instance with more attributes is a table and is not searched."""

_SHARED = "threads share the dataset's generators"
"""The key of the warning."""

_OPAQUE = (
    bool, int, float, complex, str, bytes, bytearray, type(None), type, ModuleType, FunctionType, MethodType,
    BuiltinFunctionType, np.ndarray, np.generic, torch.Tensor, torch.dtype, torch.device,
)  # fmt: skip
_PLAIN = frozenset(_OPAQUE)

AS_GLOBAL = 0
"""The number of a generator that is global in the parent. Its copy is seeded like the original."""


def find(dataset: object, apart: object = None) -> tuple[GeneratorPath, ...]:
    """Return all generators that a dataset leads to, nearest first. One that is held in two places is returned twice.

    Generators that only ``apart`` leads to are left out.
    """
    found: list[GeneratorPath] = []
    seen = {id(dataset), id(apart)}
    queue: deque[tuple[Path, object]] = deque([((), dataset)])
    slots: dict[type, dict[str, Any]] = {}
    left = _VALUES
    while queue and left > 0:
        path, obj = queue.popleft()
        for step, value in _held(obj, slots):
            left -= 1
            if type(value) in _PLAIN or issubclass(type(value), _OPAQUE):
                continue
            if generators.is_generator(value):
                here = (*path, step)
                number = AS_GLOBAL if generators.is_global(value) else _number(here)
                found.append(GeneratorPath(here, number))
            elif id(value) not in seen and len(path) + 1 < _DEEP and len(seen) < _OBJECTS:
                seen.add(id(value))
                queue.append(((*path, step), value))
    return tuple(found)


def warn_once(found: Sequence[GeneratorPath], warned: set[str]) -> None:
    """Warn, once per loader, that worker threads share these generators and draw in no fixed order."""
    if found and _SHARED not in warned:
        warned.add(_SHARED)
        *holder, (_, name) = found[0].path
        _log.warning(
            "%s is a random generator that worker threads share, so its numbers depend on their timing. "
            "Use stoker.generator() instead: it is seeded for each sample",
            spell(tuple(holder), str(name)),
        )


class DatasetGenerators:
    """The generators of one process's dataset. Owner: a batch maker; used on its thread.

    A path that leads nowhere is skipped: ``__getstate__`` may have dropped the generator.
    """

    def __init__(self, dataset: object, paths: Sequence[GeneratorPath]) -> None:
        self._dataset = dataset
        self._paths = paths
        self._steps: list[tuple[Callable[[Any], Any], Any, object]] = []
        self._seeders: list[tuple[int, generators.Seed]] = []
        self._objects: list[object] = []
        self._resolve()

    def reseed(self, key: int) -> None:
        """Seed all generators from the key of a range or row, each with its own stream."""
        self._look_again()
        for number, seed in self._seeders:
            seed(mix(key ^ number) if number else key)  # both are well mixed, so one round is enough

    def keep(self) -> Callable[[], None]:
        """Save the states of all generators; return a function that restores them."""
        self._look_again()  # also one that was added since
        kept = [generators.keep(obj) for obj in self._objects]

        def put_back() -> None:
            for each in kept:
                each()

        return put_back

    def _look_again(self) -> None:
        try:
            for read, name, expected in self._steps:
                if read(name) is not expected:
                    self._resolve()
                    break
        except IndexError:  # a list is shorter now
            self._resolve()

    def _resolve(self) -> None:
        """Follow the paths, and note each step with the object it leads to."""
        steps: dict[tuple[int, Any], tuple[Callable[[Any], Any], Any, object]] = {}
        sources: dict[int, object] = {}
        self._seeders, self._objects = [], []
        for path, number in self._paths:
            found: Any = self._dataset
            for step in path:
                read = _reader(found, step)
                try:
                    value = MISSING if read is None else read(step[1])
                except IndexError:
                    value = MISSING
                if read is not None:
                    steps[id(found), step] = (read, step[1], value)
                found = value
                if found is MISSING or found is None:
                    break
            if not generators.is_generator(found) or generators.is_global(found):
                continue  # those are seeded anyway
            source = generators.source(found)
            if id(source) not in sources:
                sources[id(source)] = source
                self._seeders.append((number, generators.seeder(found)))
                self._objects.append(found)
        self._steps = list(steps.values())


def _held(obj: object, slots: dict[type, dict[str, Any]]) -> Iterator[tuple[Step, Any]]:
    """Yield what an object stores: the items of a small container, the attributes of any other object."""
    container: Any
    for container in (dict, list, tuple):
        if issubclass(type(obj), container):
            items = _items(obj, container)
            yield from ((("item", key), value) for key, value in items if type(key) in (str, int))
    attributes = own_dict(obj)
    if attributes and len(attributes) <= _ATTRIBUTES:
        yield from ((("attribute", name), value) for name, value in attributes.copy().items())
    kind = type(obj)
    if kind not in slots:
        slots[kind] = slots_of(kind)
    for name, slot in slots[kind].items():
        value = read_slot(obj, slot)
        if value is not MISSING:
            yield ("attribute", name), value


def _items(obj: Any, container: Any) -> list[tuple[Any, Any]]:
    length = container.__len__(obj)
    if length > _ITEMS:
        values = dict.values(obj) if container is dict else container.__iter__(obj)
        if length > _DATASETS or not issubclass(type(next(iter(values), None)), Dataset):
            return []
    return list(dict.copy(obj).items() if container is dict else enumerate(container.__iter__(obj)))


def _reader(obj: Any, step: Step) -> Callable[[Any], Any] | None:
    """Return a function that looks up one step without running user code. It may raise IndexError."""
    kind, name = step
    if kind == "item":
        for container in (dict, list, tuple):
            if issubclass(type(obj), container):
                return partial(container.get if container is dict else container.__getitem__, obj)
        return None
    slot = slots_of(type(obj)).get(name)
    if slot is not None:
        return lambda _: read_slot(obj, slot)
    attributes = own_dict(obj)
    return None if attributes is None else attributes.get


def _number(path: Path) -> int:
    """Return a number that depends on the path alone, so adding a generator does not change the others."""
    return int.from_bytes(blake2b(repr(path).encode(), digest_size=8).digest(), "little") or 1

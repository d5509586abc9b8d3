"""Finds the random generators within reach of samples, and tells by their state which were used."""

from __future__ import annotations

import gc
import random
import sys
from collections.abc import Iterator
from types import FunctionType, ModuleType
from typing import Any

import numpy as np
import torch

from stoker._pickling.attributes import follow, spell_path
from stoker._runtime.worker.rng import dataset_generators, generators
from stoker._tools.probes.digest import digest
from stoker._tools.probes.random_source import RandomSource

_MOST = 200
"""So many generators are watched, those on the dataset first."""


class GeneratorWatch:
    """The generators there are, and their states as they stood when it was made. Thread: the one that makes samples."""

    def __init__(self, dataset: object) -> None:
        self._watched: list[tuple[RandomSource, Any, int]] = []
        seen: set[int] = set()
        for name, reach, obj in _within_reach(dataset):
            if id(obj) not in seen and len(seen) < _MOST:
                seen.add(id(obj))
                self._watched.append((RandomSource(name, _kind(obj), reach), obj, _state(obj)))

    def again(self) -> None:
        """Compare with the states as they stand now."""
        self._watched = [(source, obj, _state(obj)) for source, obj, _ in self._watched]

    def drawn(self) -> tuple[RandomSource, ...]:
        """Return the sources whose state has changed since."""
        return tuple(source for source, obj, before in self._watched if _state(obj) != before)


def _within_reach(dataset: object) -> Iterator[tuple[str, str, Any]]:
    for found in dataset_generators.find(dataset):
        obj = follow(dataset, found.path)
        if generators.is_generator(obj) and not generators.is_global(obj):
            yield spell_path("dataset", found.path), "stored", obj
    yield "torch", "global", torch.default_generator
    yield "numpy.random", "global", np.random.mtrand._rand
    yield "random", "global", random._inst
    for name, module in list(sys.modules.items()):
        if isinstance(module, ModuleType):
            for attribute, obj in list(vars(module).items()):
                if _is_loose(obj):
                    yield f"{name}.{attribute}", "module", obj
    for function in gc.get_objects():
        if type(function) is FunctionType and function.__closure__:
            for variable, cell in zip(function.__code__.co_freevars, function.__closure__, strict=False):
                try:
                    obj = cell.cell_contents
                except ValueError:  # not filled yet
                    continue
                if _is_loose(obj):
                    yield f"{variable} (of {function.__module__}.{function.__qualname__})", "closure", obj


def _is_loose(obj: object) -> bool:
    return generators.is_generator(obj) and not generators.is_global(obj)


def _state(obj: Any) -> int:
    if isinstance(obj, np.random.Generator):
        return digest(_plain(obj.bit_generator.state))
    if isinstance(obj, np.random.RandomState):
        return digest(_plain(obj.get_state(legacy=False)))
    return digest(obj.get_state() if isinstance(obj, torch.Generator) else obj.getstate())


def _plain(state: Any) -> Any:
    """A state of NumPy's: some are mappings of another type."""
    return {str(key): _plain(value) for key, value in state.items()} if hasattr(state, "items") else state


def _kind(obj: object) -> str:
    if isinstance(obj, np.random.Generator):
        return "numpy.Generator"
    if isinstance(obj, np.random.RandomState):
        return "numpy.RandomState"
    return "torch.Generator" if isinstance(obj, torch.Generator) else "random.Random"

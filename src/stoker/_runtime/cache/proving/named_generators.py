"""Finds random generators that code reaches by a name: in closures, default values, class attributes, and the user's globals.

A generator that is seen is watched with every sample. One that is not can only show in samples that differ.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from types import BuiltinMethodType, FunctionType, MethodType, ModuleType
from typing import Any

from stoker._runtime.cache import sources
from stoker._runtime.cache.code_digest import names_in
from stoker._runtime.cache.digest import attributes
from stoker._runtime.cache.proving.draws import is_generator, is_global

_MOST = 1000
"""Values that are looked at."""
_ITEMS = 64

_Named = tuple[str, Any]


def generator_behind(value: Any) -> Any:
    """The generator that a value is, or whose method it is, such as ``rng.random``; None for other values.

    Global ones are None as well: they are watched apart, and only where no other thread draws from them.
    """
    if isinstance(value, BuiltinMethodType):
        value = value.__self__
    return value if is_generator(value) and not is_global(value) else None


def generators_in_code(roots: Iterable[Any], known: set[int]) -> list[_Named]:
    """Return the generators that the code of these objects and functions leads to, without those of the ids in ``known``."""
    found: list[_Named] = []
    met = set(known)
    queue: list[_Named] = [("", root) for root in roots]
    met.update(id(root) for _, root in queue)
    for _, obj in queue:  # grows while it is iterated
        for name, value in _named(obj):
            if id(value) in met or len(met) > _MOST:
                continue
            met.add(id(value))
            generator = generator_behind(value)
            if generator is None:
                if _leads_on(value):
                    queue.append((name, value))
            elif generator is value or id(generator) not in met:
                met.add(id(generator))
                found.append((name, generator))
    return found


def _leads_on(value: Any) -> bool:
    if isinstance(value, FunctionType | MethodType | partial):
        return True
    if type(value) in (list, tuple, dict):
        return len(value) <= _ITEMS
    kind = value if isinstance(value, type) else type(value)
    return not isinstance(value, ModuleType) and not sources.is_library_module(kind.__module__)


def _named(obj: Any) -> Iterator[_Named]:
    """What an object names or holds, with words for each."""
    if isinstance(obj, MethodType):
        yield obj.__name__, obj.__func__
        yield "self", obj.__self__
    elif isinstance(obj, partial):
        yield from (
            (f"an argument of {obj!r:.60}", each) for each in (obj.func, *obj.args, *obj.keywords.values())
        )
    elif isinstance(obj, FunctionType):
        yield from _named_by(obj)
    elif type(obj) in (list, tuple, dict):
        yield from (("an item", each) for each in (obj.values() if type(obj) is dict else obj))
    else:
        kind = obj if isinstance(obj, type) else type(obj)
        if kind is not obj:
            yield from ((f"{name} of {kind.__qualname__}", value) for name, value in attributes(obj))
        for base in kind.__mro__:
            if not sources.is_library_module(base.__module__):
                yield from _defined_by(base)


def _defined_by(kind: type) -> Iterator[_Named]:
    for name, value in list(vars(kind).items()):
        inner = getattr(value, "__func__", value) if isinstance(value, staticmethod | classmethod) else value
        yield f"{kind.__qualname__}.{name}", inner.fget if isinstance(inner, property) else inner


def _named_by(function: FunctionType) -> Iterator[_Named]:
    if sources.is_library(function.__code__.co_filename):
        return
    place = function.__qualname__
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            yield f"{name} of {place}", cell.cell_contents
        except ValueError:  # not filled yet
            continue
    for value in (*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()):
        yield f"a default value of {place}", value
    names, space = names_in(function.__code__), function.__globals__
    for name in names.loaded:
        value = space.get(name)
        if isinstance(value, ModuleType):
            if not sources.is_library_module(value.__name__):
                inside = vars(value)
                yield from (
                    (f"{value.__name__}.{each}", inside[each]) for each in names.mentioned & inside.keys()
                )
        elif name in space:
            yield f"{space.get('__name__')}.{name}", value

"""Reduces an object as pickling does: as plain pickle, which torch's loader uses, and as stoker's own pickle.

The hooks that run here (``__reduce__``, ``__getstate__``) are those that pickling would run, once per object.
"""

from __future__ import annotations

import copyreg
import dataclasses
import io
import pickle
from multiprocessing.reduction import ForkingPickler
from typing import Any

from stoker._pickling import spec_pickle
from stoker._tools.doctor.scanning.paths import WalkStep, attribute_step

_copyreg: Any = copyreg


class Reductions:
    """Remembers what each object was reduced to. One use; inside a spawning context."""

    def __init__(self) -> None:
        self._cloud = spec_pickle.probing(io.BytesIO())
        self._own = self._cloud.dispatch_table.maps[0]
        """cloudpickle's, without what the standard library knows."""
        self._plain: dict[int, Any] = {}
        self._by_name: dict[int, bool] = {}
        self._kept: list[Any] = []

    def plain(self, obj: Any) -> Any:
        """What plain pickle makes of it: a tuple, a name, or the exception that it raises."""
        if id(obj) not in self._plain:
            self._kept.append(obj)
            self._plain[id(obj)] = _attempt(_plainly, obj)
        return self._plain[id(obj)]

    def known(self, obj: Any) -> Any:
        """The same, where it was asked for before; else None."""
        return self._plain.get(id(obj))

    def cloud(self, obj: Any) -> Any:
        """Return what ``spec_pickle`` makes of it. Differs from ``plain`` where cloudpickle supports more."""
        reducer = self._own.get(type(obj))
        if reducer is not None:
            return _attempt(reducer, obj)
        plain = self.plain(obj)
        if not isinstance(plain, BaseException):
            return plain
        found = _attempt(self._cloud.reducer_override, obj)
        return plain if found is NotImplemented else found

    def by_name(self, obj: Any) -> bool:
        """Whether another process finds this function or class under its name, as plain pickle sees it."""
        if id(obj) not in self._by_name:
            self._kept.append(obj)
            try:
                pickle.dumps(obj, 4)
                self._by_name[id(obj)] = True
            except Exception:
                self._by_name[id(obj)] = False
        return self._by_name[id(obj)]

    def by_value(self, obj: Any) -> Any:
        """Return what ``spec_pickle`` makes of a function or class that it sends by value; None for one sent by name."""
        found = _attempt(self._cloud.reducer_override, obj)
        return None if found is NotImplemented else found


def _attempt(reduce: Any, obj: Any) -> Any:
    try:
        found = reduce(obj)
    except (Exception, SystemExit) as error:
        return error
    if found is NotImplemented or type(found) is str:
        return found
    return _checked(found, obj)


def _plainly(obj: Any) -> Any:
    kind = type(obj)
    reducer = ForkingPickler._extra_reducers.get(kind) or copyreg.dispatch_table.get(kind)  # type: ignore[attr-defined]
    return obj.__reduce_ex__(5) if reducer is None else reducer(obj)


def _checked(found: Any, obj: Any) -> Any:
    """Iterators in a reduction serve once: they are kept as lists."""
    if type(found) is not tuple or not 2 <= len(found) <= 6:
        return pickle.PicklingError("__reduce__ must return a string or a tuple of two to six items")
    if not callable(found[0]) or not isinstance(found[1], tuple):
        return pickle.PicklingError("the first items that __reduce__ returns must be a callable and a tuple")
    if issubclass(type(obj), list | dict | set):
        return found  # its items are looked at as such
    try:
        return tuple(
            list(part) if at in (3, 4) and part is not None else part for at, part in enumerate(found)
        )
    except (Exception, SystemExit) as error:
        return error


def parts(obj: Any, reduced: tuple[Any, ...]) -> list[tuple[WalkStep, Any]]:
    """What has to be pickled for this reduction, each with the step that leads there. Items of containers are not among it."""
    func, args = reduced[0], reduced[1]
    found: list[tuple[WalkStep, Any]] = []
    if func in (_copyreg.__newobj__, _copyreg.__newobj_ex__, _copyreg._reconstructor) and args:
        found.append((WalkStep("class"), args[0]))
        rest = args[1:]
    else:
        found.append((WalkStep("text", ".__reduce_ex__(5)[0]"), func))
        rest = args
    first = len(args) - len(rest)
    found += [(WalkStep("text", f".__reduce_ex__(5)[1][{at}]"), arg) for at, arg in enumerate(rest, first)]
    if len(reduced) > 2 and reduced[2] is not None:
        found += _state(obj, reduced[2])
    if not issubclass(type(obj), list | dict | set):
        for at in (3, 4):
            if len(reduced) > at and reduced[at]:
                found.append((WalkStep("text", f".__reduce_ex__(5)[{at}]"), reduced[at]))
    return found


def _state(obj: Any, state: Any) -> list[tuple[WalkStep, Any]]:
    if type(state) is dict:
        return [_entry(obj, name, value) for name, value in state.items()]
    if type(state) is tuple and len(state) == 2 and all(each is None or type(each) is dict for each in state):
        return [_entry(obj, name, value) for each in state for name, value in (each or {}).items()]
    if (
        type(state) is list
        and dataclasses.is_dataclass(type(obj))
        and len(state) == len(dataclasses.fields(obj))
    ):
        return [
            (attribute_step(each.name), value)
            for each, value in zip(dataclasses.fields(obj), state, strict=True)
        ]
    return [(WalkStep("text", _state_text(obj)), state)]


def _entry(obj: Any, name: Any, value: Any) -> tuple[WalkStep, Any]:
    """An entry of a state. Attributes were met before, under their own names: this one was made for the pickle."""
    where = _state_text(obj)
    plain = type(name) in (str, int)
    return (WalkStep("text", f"{where}[{name!r}]") if plain else WalkStep("value")), value


def _state_text(obj: Any) -> str:
    kind: Any = type(obj)
    own = kind.__getstate__ is not object.__getstate__
    return ".__getstate__()" if own else ".__reduce_ex__(5)[2]"

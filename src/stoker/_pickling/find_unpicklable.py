"""Finds the innermost object that cannot be pickled and names it by the path a user would write.

The failed attempt is repeated once with Python's own pickler, which keeps a trail of the objects it is inside of. When it fails,
the trail leads to the object that was being pickled. ``__getstate__``, ``__reduce__`` and closures are followed as they are. Large
containers go through the fast pickler in pieces, so only the piece with the failing object is walked.
"""

from __future__ import annotations

import dataclasses
import functools
import io
import pickle
import types
from collections import deque
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any, NamedTuple

from stoker._pickling import remedies
from stoker.errors import UnsendableError

_PIECE = 1000
_ATOMS = frozenset({type(None), bool, int, float, complex, str, bytes})
_CONTAINERS = (list, tuple, dict, set, frozenset)


def unsendable_error(obj: object, error: Exception, make_pickler: Callable[[Any], Any]) -> UnsendableError:
    """Return the error to raise when ``obj`` could not be pickled. ``make_pickler`` makes the failing pickler for a stream.

    Called inside the spawning context of that attempt.
    """
    root = "" if hasattr(obj, "dataset") else type(obj).__name__
    found = search(obj, root, make_pickler)
    if found is None:
        return UnsendableError(
            f"the dataset, collate_fn or worker_init_fn cannot be sent to a worker: {error}"
        )
    return UnsendableError(f"{found.text} cannot be sent to a worker: {found.error}. {found.remedy}")


class Unpicklable(NamedTuple):
    """An object that cannot be pickled: its path and type as text, the error, and a remedy."""

    text: str
    error: Exception
    remedy: str


def search(obj: object, root: str, make_pickler: Callable[[Any], Any]) -> Unpicklable | None:
    """Return the innermost part of ``obj`` that this pickler refuses; None if it refuses nothing. ``root`` names ``obj``."""
    tracer = _TracingPickler(make_pickler)
    try:
        tracer.save(obj)
        return None
    except RecursionError:
        return None
    except Exception as error:
        trail = _up_to_a_known_kind(tracer.trail)
        thing = trail[-1].obj
        text = _path(trail, root).described(type(thing).__name__)
        return Unpicklable(text, error, remedies.remedy(thing, error))


class _TrailStep:
    """An object that is being pickled, and the parts it is reduced to if it is no plain container."""

    __slots__ = ("args", "obj", "state")

    def __init__(self, obj: Any) -> None:
        self.obj = obj
        self.args: Any = None
        self.state: Any = None


_Python: Any = pickle._Pickler


class _TracingPickler(_Python):  # type: ignore[misc]
    """Pickles without output. After an exception, ``trail`` leads from the root to the object that raised it."""

    def __init__(self, make_pickler: Callable[[Any], Any]) -> None:
        super().__init__(io.BytesIO(), protocol=5, buffer_callback=lambda _: None)
        self._make_pickler = make_pickler
        self._real = make_pickler(io.BytesIO())
        self.dispatch_table = self._real.dispatch_table
        self._opened: list[Any] = []
        self.trail: list[_TrailStep] = []

    def reducer_override(self, obj: Any) -> Any:
        return self._real.reducer_override(obj)

    def save(self, obj: Any, save_persistent_id: bool = True) -> None:
        if type(obj) in _ATOMS:
            return
        self.trail.append(_TrailStep(obj))
        if type(obj) in _CONTAINERS and len(obj) > _PIECE:
            self._save_pieces(obj)
        else:
            super().save(obj, save_persistent_id)
        self.trail.pop()  # not reached after an exception

    def save_reduce(self, func: Any, args: Any, state: Any = None, *rest: Any, **more: Any) -> None:
        step = self.trail[-1]
        step.args, step.state = args, state
        super().save_reduce(func, args, state, *rest, **more)

    def _save_pieces(self, obj: Any) -> None:
        if any(each is obj for each in self._opened):
            return
        self._opened.append(obj)
        items = iter(obj.items() if type(obj) is dict else obj)
        while piece := list(islice(items, _PIECE)):
            if self._travels(piece):
                continue
            for item in piece:
                for each in item if type(obj) is dict else (item,):
                    self.save(each)

    def _travels(self, piece: list[Any]) -> bool:
        try:
            self._make_pickler(io.BytesIO()).dump(piece)
        except Exception:
            return False
        return True


def _up_to_a_known_kind(trail: list[_TrailStep]) -> list[_TrailStep]:
    """Cut the trail at the first object of a known kind: users know their thread, not the lock inside it."""
    for at, step in enumerate(trail):
        if remedies.stays(step.obj):
            return trail[: at + 1]
    return trail


class _PathText(NamedTuple):
    """The text of a path so far. ``origin`` says where it begins, if that is no argument of the user."""

    text: str
    origin: str = ""

    def __add__(self, more: str) -> _PathText:  # type: ignore[override]
        return self._replace(text=(self.text + more).lstrip("."))

    def described(self, kind: str) -> str:
        if not self.origin:
            return f"{self.text} ({kind})"
        if self.text.isidentifier():
            return f"the variable {self.text!r} {self.origin} ({kind})"
        name = self.text.replace("[", ".").partition(".")[0]
        return f"{self.text} ({kind}), where {name!r} is the variable {self.origin},"


def _path(trail: list[_TrailStep], root: str) -> _PathText:
    path = _PathText(root)
    owner: _TrailStep | None = None
    for step, child in zip(trail, (later.obj for later in trail[1:]), strict=False):
        if owner is None and type(step.obj) not in _CONTAINERS:
            if child is step.state or (
                type(child) is tuple and child is not step.state and _made_of(step, child)
            ):
                owner = step  # the child is its state or its arguments, a part without a name
                continue
            path = _inside(path, step.obj, child)
        elif owner is not None:
            found = _of_owner(path, owner, step.obj, child)
            if found is None:
                continue
            path, owner = found, None
        else:
            path = _item(path, step.obj, child)
    return path


def _made_of(step: _TrailStep, child: tuple[Any, ...]) -> bool:
    """Whether the object is rebuilt from this tuple. pickle sometimes removes the class from it."""
    args = step.args or ()
    return child is args or (
        len(child) == len(args) - 1 and all(a is b for a, b in zip(child, args[1:], strict=True))
    )


def _inside(path: _PathText, obj: Any, child: Any) -> _PathText:
    """Extend the path from an object to a part beside its state: its class, or an item."""
    if child is type(obj):
        return path._replace(text=f"type({path.text})")
    if isinstance(obj, dict | list | set | frozenset | deque):
        return _item(path, obj, child)
    return path + ".__reduce__()"


def _item(path: _PathText, obj: Any, child: Any) -> _PathText:
    if isinstance(obj, dict):
        for key, value in obj.items():
            if value is child:
                return path + f"[{key!r}]"
        return path._replace(text=f"a key of {path.text}")
    if isinstance(obj, set | frozenset):
        return path._replace(text=f"an item of {path.text}")
    return path + next((f"[{at}]" for at, value in enumerate(obj) if value is child), "")


def _of_owner(path: _PathText, owner: _TrailStep, part: Any, child: Any) -> _PathText | None:
    """Extend the path from an object to ``child`` in its state or arguments ``part``; None if ``child`` has no name yet."""
    obj = owner.obj
    if isinstance(obj, types.CellType):
        return path
    if isinstance(obj, types.FunctionType):
        return _of_function(path, obj, part, child)
    if part is owner.state and _two_dicts(part):
        return None
    for name, value in _attributes(obj, part, owner):
        if value is child:
            return path + f".{name}"
    where = "__getstate__()" if part is owner.state or isinstance(part, dict) else "__reduce__()[1]"
    return _item(path + f".{where}", part, child)


def _two_dicts(state: Any) -> bool:
    """Whether a state is the usual pair of attributes and slots."""
    return (
        type(state) is tuple and len(state) == 2 and all(each is None or type(each) is dict for each in state)
    )


def _attributes(obj: Any, part: Any, owner: _TrailStep) -> Iterator[tuple[str, Any]]:
    """Yield names for the pickled parts of an object: from its state first, then attributes with the same value."""
    if isinstance(part, dict):
        yield from part.items()
    elif isinstance(part, list | tuple):
        names: Any = ()
        if part is owner.state and dataclasses.is_dataclass(obj):
            names = [each.name for each in dataclasses.fields(obj)]
        elif isinstance(obj, functools.partial):
            names = ("func", "args", "keywords")
        elif isinstance(obj, tuple):
            names = getattr(obj, "_fields", ())
        yield from zip(names, part, strict=False)
    if isinstance(obj, types.MethodType):
        yield from (("__func__", obj.__func__), ("__self__", obj.__self__))
    yield from getattr(obj, "__dict__", {}).items()
    for kind in type(obj).__mro__:
        slots = kind.__dict__.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if name not in ("__dict__", "__weakref__"):
                yield name, getattr(obj, name, None)


def _of_function(path: _PathText, function: Any, part: Any, child: Any) -> _PathText | None:
    """Extend the path from a function sent by value to a closure variable, a global or a default."""
    if child is function.__closure__ or _two_dicts(part):
        return None
    text = path.text
    if part is function.__closure__:
        at = next(at for at, cell in enumerate(part) if cell is child)
        return _PathText(function.__code__.co_freevars[at], f"that {text} closes over")
    for name, value in part.items() if isinstance(part, dict) else ():
        if value is not child:
            continue
        if name == "__globals__":
            return None
        if "__closure__" not in part and function.__globals__.get(name) is child:
            return _PathText(name, f"of its module that {text} uses")
        return path + f".{name}"
    return path

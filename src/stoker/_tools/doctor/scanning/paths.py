"""Spells where an object lies, as a user would write it: ``dataset.transforms[2].fn``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

_DEEP = 60
"""More steps than anybody reads."""

_LONG = 80
_PLAIN_KEYS = frozenset({str, int, bool, float, bytes, type(None)})


class WalkStep(NamedTuple):
    """From an object to a part of it.

    ``how``: "attribute", "vars", "item", "key", "value", "a key", "member", "variable", "global", "class"; or "text", where
    ``name`` is what to write behind the path.
    """

    how: str
    name: Any = None


@dataclass(slots=True, eq=False)
class WalkNode:
    """An object that the walk met, and the way to it."""

    obj: Any
    parent: WalkNode | None
    step: WalkStep
    ways: int = 0
    """How it gets into a worker: HELD, PLAIN, CLOUD of ``walk``."""
    weight: float = 1.0
    """How many objects it stands for: more than one in a sample."""
    account: Any = None
    bulk: bool = False
    """Whether it lies in a large container, so that it is told with that."""
    done: int = 0
    """The ways it was looked at for."""


def item_step(key: Any) -> WalkStep:
    """To the value of this key. Keys that cannot be typed are not spelled: their ``repr`` is the user's code."""
    plain = type(key) in _PLAIN_KEYS or (
        type(key) is tuple and all(type(each) in _PLAIN_KEYS for each in key)
    )
    return WalkStep("key", key) if plain and len(repr(key)) <= _LONG else WalkStep("value")


def attribute_step(name: Any) -> WalkStep:
    """To an attribute, whatever its name looks like."""
    if type(name) is str and name.isidentifier():
        return WalkStep("attribute", name)
    return WalkStep("vars", name)


def spell(node: WalkNode) -> str:
    """The path to it. Where no expression leads there, words do: "the variable 'f' that dataset.transform closes over"."""
    steps: list[WalkStep] = []
    at: WalkNode | None = node
    while at is not None:
        steps.append(at.step)
        at = at.parent
    steps.reverse()
    text, origin = "", _NOWHERE
    for step in steps[:_DEEP]:
        text, origin = _further(text, origin, step)
    if len(steps) > _DEEP:
        text += f"… ({len(steps) - 1} levels deep)"
    return _whole(text, origin)


class _Origin(NamedTuple):
    """The variable that a path begins with, and whose it is."""

    name: str
    where: str


_NOWHERE = _Origin("", "")


def _further(text: str, origin: _Origin, step: WalkStep) -> tuple[str, _Origin]:
    how, name = step
    if how in ("variable", "global"):
        where = "that {} closes over" if how == "variable" else "of its module that {} uses"
        return str(name), _Origin(str(name), where.format(_whole(text, origin)))
    if how == "class":
        return f"type({text})", origin
    if how == "vars":
        return f"vars({text})[{name!r}]", origin
    words = {"value": "a value of ", "a key": "a key of ", "member": "an item of "}.get(how)
    if words:
        return words + text, origin
    more = {"attribute": f".{name}", "item": f"[{name}]", "key": f"[{name!r}]"}.get(how, str(name))
    if text.startswith(("a value of ", "a key of ", "an item of ")):
        return f"({text}){more}", origin
    return text + more, origin


def _whole(text: str, origin: _Origin) -> str:
    name, where = origin
    if not name:
        return text
    return (
        f"the variable {name!r} {where}"
        if text == name
        else f"{text}, where {name!r} is the variable {where}"
    )

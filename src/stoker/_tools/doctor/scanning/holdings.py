"""Reads what an object holds, as it is stored: attributes, slots, closures. Runs no code of its class."""

from __future__ import annotations

import functools
import types
from collections import defaultdict
from typing import Any

import torch

from stoker._pickling.attributes import MISSING, read_slot, slots_of
from stoker._pickling.instances import own_dict
from stoker._tools.doctor.scanning.paths import WalkStep, attribute_step


def held_by(obj: Any) -> list[tuple[WalkStep, Any]]:
    """The attributes of an object as they are stored, without running code of its class."""
    kind = type(obj)
    if kind is functools.partial:
        return [(WalkStep("attribute", name), getattr(obj, name)) for name in ("func", "args", "keywords")]
    if kind is types.MethodType:
        return [
            (WalkStep("attribute", "__self__"), obj.__self__),
            (WalkStep("attribute", "__func__"), obj.__func__),
        ]
    found = []
    own = own_dict(obj)
    if own is not None:
        module = issubclass(kind, torch.nn.Module)
        for name, value in list(own.items()):
            if module and name in ("_parameters", "_buffers", "_modules") and issubclass(type(value), dict):
                prefix = f".{name}"
                found += [(_inner(prefix, key), inner) for key, inner in dict.items(value)]
            else:
                found.append((attribute_step(name), value))
    for name, slot in slots_of(kind).items():
        value = read_slot(obj, slot)
        if value is not MISSING:
            found.append((attribute_step(name), value))
    if issubclass(kind, defaultdict):
        factory: Any = vars(defaultdict)["default_factory"]
        found.append((WalkStep("attribute", "default_factory"), factory.__get__(obj)))
    return found


def _inner(prefix: str, key: Any) -> WalkStep:
    return (
        WalkStep("attribute", key)
        if type(key) is str and key.isidentifier()
        else WalkStep("text", f"{prefix}[{key!r}]")
    )


def closed_over(function: Any) -> list[tuple[WalkStep, Any]]:
    """What a function brings along: variables of functions around it, defaults, attributes."""
    found = []
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            found.append((WalkStep("variable", name), cell.cell_contents))
        except ValueError:  # nothing was put into it yet
            continue
    found += [
        (WalkStep("text", f".__defaults__[{at}]"), value)
        for at, value in enumerate(function.__defaults__ or ())
    ]
    found += [
        (WalkStep("text", f".__kwdefaults__[{name!r}]"), value)
        for name, value in (function.__kwdefaults__ or {}).items()
    ]
    found += [(attribute_step(name), value) for name, value in function.__dict__.items()]
    return found


def globals_of(reduced: Any) -> dict[str, Any]:
    """The globals that cloudpickle would send with a function."""
    state = reduced[2] if type(reduced) is tuple and len(reduced) > 2 else None
    slots = state[1] if type(state) is tuple and len(state) == 2 else None
    found = slots.get("__globals__") if type(slots) is dict else None
    return found if type(found) is dict else {}

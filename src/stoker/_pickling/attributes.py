"""Reads and writes attributes of an instance where they are stored: in its ``__dict__`` and its slots.

No property, ``__getattr__`` or ``__setattr__`` of the user runs here. The parent reads this way, and a worker writes this way.
"""

from __future__ import annotations

from types import MemberDescriptorType
from typing import Any, Final, Literal

from stoker._pickling.instances import own_dict

Step = tuple[Literal["attribute", "item"], Any]
"""One step from an object to a part: by attribute, or by index or key of a list, tuple or dict."""

Path = tuple[Step, ...]


class _MissingType:
    """The type of MISSING."""


MISSING: Final = _MissingType()


def slots_of(kind: type) -> dict[str, MemberDescriptorType]:
    """Return the slots that Python classes gave to instances of a type, by name."""
    return {
        name: member
        for cls in reversed(kind.__mro__)
        if "__slots__" in vars(cls)
        for name, member in vars(cls).items()
        if type(member) is MemberDescriptorType
    }


def read(obj: object, name: str) -> Any:
    """Return the attribute's value, or MISSING."""
    slot = slots_of(type(obj)).get(name)
    if slot is not None:
        return read_slot(obj, slot)
    attributes = own_dict(obj)
    return MISSING if attributes is None else attributes.get(name, MISSING)


def read_slot(obj: object, slot: MemberDescriptorType) -> Any:
    """Return the value of a slot, or MISSING."""
    try:
        return slot.__get__(obj)
    except AttributeError:
        return MISSING


def write(obj: object, name: str, value: Any) -> None:
    """Set the attribute, or delete it when ``value`` is MISSING. Does nothing if the object cannot store it."""
    slot = slots_of(type(obj)).get(name)
    if slot is None:
        attributes = own_dict(obj)
        if attributes is None:
            return
        if value is MISSING:
            attributes.pop(name, None)
        else:
            attributes[name] = value
    elif value is not MISSING:
        slot.__set__(obj, value)
    elif read_slot(obj, slot) is not MISSING:
        slot.__delete__(obj)


def follow(obj: object, path: Path) -> Any:
    """Return the object at a path, or MISSING when a step leads nowhere."""
    found: Any = obj
    for kind, key in path:
        if kind == "attribute":
            found = read(found, key)
        elif isinstance(found, dict):
            found = dict.get(found, key, MISSING)  # a defaultdict must not add an item
        elif isinstance(found, list | tuple):
            plain: Any = list if isinstance(found, list) else tuple  # no code of a subclass
            found = plain.__getitem__(found, key) if key < plain.__len__(found) else MISSING
        else:
            return MISSING
        if found is MISSING:
            return MISSING
    return found


def spell(path: Path, name: str) -> str:
    """Return an attribute as a user would write it: ``dataset.datasets[0].epoch``."""
    return f"{spell_path('dataset', path)}.{name}"


def spell_path(root: str, path: Path) -> str:
    """Return a path as a user would write it."""
    steps = (f".{key}" if kind == "attribute" else f"[{key!r}]" for kind, key in path)
    return f"{root}{''.join(steps)}"

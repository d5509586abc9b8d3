"""Reads the ``__dict__`` of an instance as it is stored, without running code of its class."""

from __future__ import annotations

from types import GetSetDescriptorType, MemberDescriptorType
from typing import Any


def own_dict(obj: object) -> dict[str, Any] | None:
    """Return the ``__dict__`` of the instance itself, without running code of its class; None without one."""
    for cls in type(obj).__mro__:
        getter = cls.__dict__.get("__dict__")
        if getter is not None:
            break
    else:
        return None
    if type(getter) not in (GetSetDescriptorType, MemberDescriptorType):
        return None  # a proxy may show the attributes of another object
    try:
        found = getter.__get__(obj)
    except Exception:  # a proxy written in C may raise
        return None
    return found if type(found) is dict else None

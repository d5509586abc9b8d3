"""What an instance holds, read as it is stored."""

from __future__ import annotations

from typing import Any


def own_dict(obj: object) -> dict[str, Any] | None:
    """The instance's ``__dict__`` itself, not a copy, without running code of its class; None where it has none."""
    try:
        found = object.__getattribute__(obj, "__dict__")
    except AttributeError:
        return None
    return found if type(found) is dict else None

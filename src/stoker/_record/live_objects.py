"""Lists objects for as long as something else keeps them alive.

A ``WeakSet`` may not be iterated while another thread adds to it, and a lock might be held by another thread at a fork. Here
both are single steps of the interpreter.
"""

from __future__ import annotations

import weakref
from typing import Generic, TypeVar

T = TypeVar("T")


class LiveObjects(Generic[T]):
    """Any thread, in finalizers and around forks too."""

    def __init__(self) -> None:
        self._entries: dict[int, weakref.ref[T]] = {}

    def add(self, member: T) -> None:
        """List it until it dies."""
        key = id(member)
        entries = self._entries

        def gone(ref: weakref.ref[T]) -> None:
            if entries.get(key) is ref:  # the place may be another's already
                del entries[key]

        entries[key] = weakref.ref(member, gone)

    def count(self) -> int:
        """How many are listed."""
        return len(self._entries)

    def all(self) -> list[T]:
        """Return the objects that are alive now."""
        found = (ref() for ref in list(self._entries.values()))
        return [member for member in found if member is not None]

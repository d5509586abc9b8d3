"""Puts batches back into the sampler's order."""

from __future__ import annotations

from typing import Generic, TypeVar

T = TypeVar("T")


class Reorder(Generic[T]):
    """Items arrive by number in any order. They leave in rising order, or as they come if ``in_order`` is False."""

    def __init__(self, *, in_order: bool = True, first: int = 0) -> None:
        self._in_order = in_order
        self._next = first
        self._waiting: dict[int, T | None] = {}

    @property
    def head(self) -> int:
        """The number of the item that has to leave next. It has no meaning if order does not matter."""
        return self._next

    def __len__(self) -> int:
        return len(self._waiting)

    def put(self, seq: int, item: T | None) -> list[T]:
        """Take one item; None for a number that stays empty. Returns all items that may leave now."""
        if not self._in_order:
            return [] if item is None else [item]
        if seq != self._next:
            self._waiting[seq] = item
            return []
        out = [] if item is None else [item]
        self._next += 1
        waiting = self._waiting
        while waiting and self._next in waiting:
            following = waiting.pop(self._next)
            self._next += 1
            if following is not None:
                out.append(following)
        return out

"""A shared set: a column of items with its index."""

from __future__ import annotations

from collections.abc import Iterator, Set
from multiprocessing import context
from typing import Any, TypeVar

from stoker._pickling.segment import Segment
from stoker._sharing.containers.lists import refuser
from stoker._sharing.storage.index import Index, Keys
from stoker._sharing.storage.layouts import ColumnLayout

K = TypeVar("K")
_SHOWN = 4
_context: Any = context


class SharedSet(Set[K]):
    """A set or frozenset that all workers read from one copy. Operators and ``copy()`` give ordinary ones. Any thread."""

    __slots__ = ("__weakref__", "_keys", "_parts")
    _keys: Keys
    _parts: tuple[Segment, ColumnLayout, Index, int, bool]

    def __init__(self, *_: object) -> None:
        raise TypeError("a SharedSet is made by stoker.share(...) from the set that it replaces")

    @classmethod
    def _from_iterable(cls, items: Any) -> Any:
        return set(items)

    def __contains__(self, key: object) -> bool:
        return self._keys.row(key) >= 0

    def __len__(self) -> int:
        return self._keys.rows

    def __iter__(self) -> Iterator[K]:
        return iter(self._keys)

    def __hash__(self) -> int:
        if not self._parts[4]:
            raise TypeError("unhashable type: 'SharedSet'")
        return self._hash()

    def __repr__(self) -> str:
        few = ", ".join(repr(item) for item, _ in zip(self, range(_SHOWN), strict=False))
        return f"SharedSet({{{few}{', …' if len(self) > _SHOWN else ''}}}, {len(self)} items: {self._parts[1].name})"

    def copy(self) -> Any:
        """A private, ordinary set; a frozenset if it was one."""
        return frozenset(self) if self._parts[4] else set(self)

    def union(self, *others: Any) -> Any:
        """As ``set.union``."""
        return self.copy().union(*others)

    def intersection(self, *others: Any) -> Any:
        """As ``set.intersection``."""
        return self.copy().intersection(*others)

    def difference(self, *others: Any) -> Any:
        """As ``set.difference``."""
        return self.copy().difference(*others)

    def symmetric_difference(self, other: Any) -> Any:
        """As ``set.symmetric_difference``."""
        return self.copy().symmetric_difference(other)

    def issubset(self, other: Any) -> bool:
        """As ``set.issubset``."""
        return bool(self.copy().issubset(other))

    def issuperset(self, other: Any) -> bool:
        """As ``set.issuperset``."""
        return all(item in self for item in other)

    def __copy__(self) -> SharedSet[K]:
        return self

    def __deepcopy__(self, memo: Any) -> SharedSet[K]:
        return self

    def __reduce__(self) -> Any:
        if _context.get_spawning_popen() is not None:
            return opened_set, self._parts
        return (frozenset if _is_frozen(self) else set), (list(self),)


def opened_set(segment: Segment, keys: ColumnLayout, index: Index, rows: int, frozen: bool) -> SharedSet[Any]:
    """A shared set over its keys. Called by ``share`` and, with what travelled, in workers."""
    shared: SharedSet[Any] = object.__new__(SharedSet)
    shared._parts = (segment, keys, index, rows, frozen)
    shared._keys = Keys(segment, keys, index, rows)
    return shared


def _is_frozen(obj: object) -> bool:
    return obj._parts[4] if isinstance(obj, SharedSet) else isinstance(obj, frozenset)


def _operator(name: str) -> Any:
    """As sets do it: both sides must be one, and the left one says what comes out."""
    mixin, is_reflected = getattr(Set, name), name.startswith("__r")

    def operate(self: Any, other: Any) -> Any:
        if not isinstance(other, Set):
            return NotImplemented
        result = mixin(self, other)
        kind = frozenset if _is_frozen(other if is_reflected else self) else set
        return result if type(result) is kind else kind(result)

    return operate


for _name in ("and", "or", "sub", "xor"):
    setattr(SharedSet, f"__{_name}__", _operator(f"__{_name}__"))
    setattr(SharedSet, f"__r{_name}__", _operator(f"__r{_name}__"))
for _name in (
    "add", "clear", "discard", "pop", "remove", "update",
    "difference_update", "intersection_update", "symmetric_difference_update",
):  # fmt: skip
    setattr(SharedSet, _name, refuser("set", f".{_name}()", "x = x.copy()"))
for _name, _sign in (("__ior__", "|="), ("__iand__", "&="), ("__isub__", "-="), ("__ixor__", "^=")):
    setattr(SharedSet, _name, refuser("set", _sign, "x = x.copy()"))

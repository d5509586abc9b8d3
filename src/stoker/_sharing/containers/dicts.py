"""A shared dict: a column of keys with its index, and a column of values."""

from __future__ import annotations

from collections.abc import ItemsView, Iterator, KeysView, Mapping, ValuesView
from itertools import islice
from multiprocessing import context
from typing import Any, NoReturn, TypeVar

from stoker._pickling.segment import Segment
from stoker._sharing.containers.lists import refuser
from stoker._sharing.storage.index import Index, Keys
from stoker._sharing.storage.layouts import ColumnLayout, Reader

K = TypeVar("K")
V_co = TypeVar("V_co", covariant=True)
_SHOWN = 4
_context: Any = context


class SharedDict(Mapping[K, V_co]):
    """A dict that all workers read from one copy, in its order. ``copy()`` gives a private, ordinary dict. Any thread."""

    __slots__ = ("__weakref__", "_keys", "_parts", "_value")
    _keys: Keys
    _parts: tuple[Segment, ColumnLayout, ColumnLayout, Index, int]
    _value: Reader
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, *_: object) -> None:
        raise TypeError("a SharedDict is made by stoker.share(...) from the dict that it replaces")

    def __getitem__(self, key: K) -> V_co:
        row = self._keys.row(key)
        if row < 0:
            raise KeyError(key)
        return self._value(row)  # type: ignore[no-any-return]

    def get(self, key: Any, default: Any = None) -> Any:
        """The value of a key, or ``default``."""
        row = self._keys.row(key)
        return default if row < 0 else self._value(row)

    def __contains__(self, key: object) -> bool:
        return self._keys.row(key) >= 0

    def __len__(self) -> int:
        return self._keys.rows

    def __iter__(self) -> Iterator[K]:
        return iter(self._keys)

    def __reversed__(self) -> Iterator[K]:
        return map(self._keys.at, range(len(self) - 1, -1, -1))

    def keys(self) -> KeysView[K]:
        """The keys, in order."""
        return _KeysInOrder(self)

    def values(self) -> ValuesView[V_co]:
        """The values, in order."""
        return _Values(self)

    def items(self) -> ItemsView[K, V_co]:
        """Keys and values, in order."""
        return _Items(self)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, dict | SharedDict):
            return NotImplemented
        if len(self) != len(other):
            return False
        missing = object()
        for key, value in self.items():
            found = other.get(key, missing)
            if not (found is value or found == value):
                return False
        return True

    def __or__(self, other: Any) -> dict[Any, Any]:
        return {**self, **other}

    def __ror__(self, other: Any) -> dict[Any, Any]:
        return {**other, **self}

    def __repr__(self) -> str:
        few = ", ".join(f"{key!r}: {value!r}" for key, value in islice(self.items(), _SHOWN))
        if len(self) > _SHOWN:
            few += ", …"
        keys, values = self._parts[1].name, self._parts[2].name
        return f"SharedDict({{{few}}}, {len(self)} items: {keys} to {values})"

    def copy(self) -> dict[K, V_co]:
        """A private, ordinary dict."""
        return dict(self.items())

    def __copy__(self) -> SharedDict[K, V_co]:
        return self

    def __deepcopy__(self, memo: Any) -> SharedDict[K, V_co]:
        return self

    def __reduce__(self) -> Any:
        if _context.get_spawning_popen() is not None:
            return opened_dict, self._parts
        return dict, (self.copy(),)

    def __setitem__(self, key: object, value: object) -> NoReturn:
        _refuse("assigning to it")

    def __delitem__(self, key: object) -> NoReturn:
        _refuse("deleting from it")

    def __ior__(self, other: object) -> NoReturn:  # type: ignore[misc]
        _refuse("|=")


class _KeysInOrder(KeysView[Any]):
    __slots__ = ()
    _mapping: SharedDict[Any, Any]

    def __reversed__(self) -> Iterator[Any]:
        return self._mapping.__reversed__()


class _Values(ValuesView[Any]):
    """Read down the column, without look-ups."""

    __slots__ = ()
    _mapping: Any

    def __contains__(self, value: object) -> bool:
        return value in iter(self)

    def __iter__(self) -> Iterator[Any]:
        return map(self._mapping._value, range(len(self._mapping)))

    def __reversed__(self) -> Iterator[Any]:
        return map(self._mapping._value, range(len(self._mapping) - 1, -1, -1))


class _Items(ItemsView[Any, Any]):
    """Read down both columns, without look-ups."""

    __slots__ = ()
    _mapping: Any

    def __contains__(self, item: object) -> bool:
        return isinstance(item, tuple) and len(item) == 2 and super().__contains__(item)

    def __iter__(self) -> Iterator[tuple[Any, Any]]:
        return zip(self._mapping, self._mapping.values(), strict=True)

    def __reversed__(self) -> Iterator[tuple[Any, Any]]:
        return zip(reversed(self._mapping), reversed(self._mapping.values()), strict=True)


def opened_dict(
    segment: Segment, keys: ColumnLayout, values: ColumnLayout, index: Index, rows: int
) -> SharedDict[Any, Any]:
    """A shared dict over its columns. Called by ``share`` and, with what travelled, in workers."""
    shared: SharedDict[Any, Any] = object.__new__(SharedDict)
    shared._parts = (segment, keys, values, index, rows)
    shared._keys = Keys(segment, keys, index, rows)
    shared._value = values.reader(segment)
    return shared


def _refuse(action: str) -> NoReturn:
    refuser("dict", action, "x = x.copy()")(None)


for _name in ("clear", "pop", "popitem", "setdefault", "update"):
    setattr(SharedDict, _name, refuser("dict", f".{_name}()", "x = x.copy()"))

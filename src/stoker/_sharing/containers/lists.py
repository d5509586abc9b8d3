"""Shared lists and tuples: read like the originals, decoded item by item from a segment."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from multiprocessing import context
from operator import countOf
from typing import Any, NoReturn, TypeVar, overload

from stoker._pickling.segment import Segment
from stoker._sharing.storage.layouts import ColumnLayout, Reader
from stoker.errors import SharedReadOnly

T_co = TypeVar("T_co", covariant=True)
_SHOWN = 6
_context: Any = context


class SharedSequence(Sequence[T_co]):
    """What ``SharedList`` and ``SharedTuple`` have in common. Made by ``stoker.share``; any thread.

    Reading an item decodes it: two reads give equal objects, not the same one, and changing one changes no other.
    A slice is a view.
    """

    __slots__ = ("__weakref__", "_layout", "_read", "_rows", "_segment")
    _segment: Segment
    _layout: ColumnLayout
    _rows: range
    _read: Reader
    _plain: type = list
    _word = "list"

    def __init__(self, *_: object) -> None:
        raise TypeError(
            f"a {type(self).__name__} is made by stoker.share(...) from the {self._word} that it replaces"
        )

    @overload
    def __getitem__(self, key: int) -> T_co: ...
    @overload
    def __getitem__(self, key: slice) -> SharedSequence[T_co]: ...
    def __getitem__(self, key: int | slice) -> Any:
        try:
            row = self._rows[key]
        except IndexError:
            raise IndexError(f"{self._word} index out of range") from None
        except TypeError:
            raise TypeError(
                f"{self._word} indices must be integers or slices, not {type(key).__name__}"
            ) from None
        if isinstance(row, range):
            return opened(type(self), self._segment, self._layout, row)
        return self._read(row)

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[T_co]:
        return map(self._read, self._rows)

    def __reversed__(self) -> Iterator[T_co]:
        return map(self._read, reversed(self._rows))

    def __contains__(self, value: object) -> bool:
        every: Any = iter(self)
        return value in every

    def count(self, value: Any) -> int:
        """As ``list.count``."""
        return countOf(self, value)

    def index(self, value: Any, start: int = 0, stop: int | None = None) -> int:
        """As ``list.index``."""
        low, high, _ = slice(start, stop).indices(len(self))
        for place, row in enumerate(self._rows[low:high], low):
            item = self._read(row)
            if item is value or item == value:
                return place
        raise ValueError(f"{value!r} is not in {self._word}")

    def __eq__(self, other: object) -> bool:
        if isinstance(other, self._plain) or (
            isinstance(other, SharedSequence) and other._plain is self._plain
        ):
            theirs: Any = other
            return len(self) == len(theirs) and all(map(_same, self, theirs))
        return NotImplemented

    def __lt__(self, other: Any) -> bool:
        return bool(self._value() < _plainly(other))

    def __le__(self, other: Any) -> bool:
        return bool(self._value() <= _plainly(other))

    def __gt__(self, other: Any) -> bool:
        return bool(self._value() > _plainly(other))

    def __ge__(self, other: Any) -> bool:
        return bool(self._value() >= _plainly(other))

    def __add__(self, other: Any) -> Any:
        return self._value() + _plainly(other)

    def __radd__(self, other: Any) -> Any:
        return other + self._value()

    def __mul__(self, times: int) -> Any:
        return self._value() * times

    __rmul__ = __mul__

    def __repr__(self) -> str:
        few = ", ".join(repr(item) for item in self[:_SHOWN])
        if len(self) > _SHOWN:
            few += ", …"
        left, right = ("[", "]") if self._plain is list else ("(", ")")
        return f"{type(self).__name__}({left}{few}{right}, {len(self)} items: {self._layout.name})"

    def __copy__(self) -> Any:
        return self

    def __deepcopy__(self, memo: Any) -> Any:
        return self

    def __reduce__(self) -> Any:
        """To a process that is being started, the segment travels; to anywhere else, an ordinary copy."""
        if _context.get_spawning_popen() is not None:
            return opened, (type(self), self._segment, self._layout, self._rows)
        return self._plain, (list(self),)

    def _value(self) -> Any:
        return self._plain(self)


class SharedList(SharedSequence[T_co]):
    """A list that all workers read from one copy. It cannot be changed; ``copy()`` gives a private, ordinary list."""

    __slots__ = ()
    __hash__ = None  # type: ignore[assignment]

    def copy(self) -> list[T_co]:
        """A private, ordinary list."""
        return list(self)

    tolist = copy

    def __setitem__(self, key: object, value: object) -> NoReturn:
        _refuse("assigning to it")

    def __delitem__(self, key: object) -> NoReturn:
        _refuse("deleting from it")

    def __iadd__(self, other: object) -> NoReturn:  # type: ignore[misc]
        _refuse("+=")

    def __imul__(self, times: object) -> NoReturn:
        _refuse("*=")


class SharedTuple(SharedSequence[T_co]):
    """A tuple that all workers read from one copy."""

    __slots__ = ()
    _plain = tuple
    _word = "tuple"

    def __hash__(self) -> int:
        return hash(tuple(self))


def opened(kind: type[Any], segment: Segment, layout: ColumnLayout, rows: range) -> Any:
    """A shared sequence over rows of a segment. Called by ``share`` and, with what travelled, in workers."""
    shared = object.__new__(kind)
    shared._segment = segment
    shared._layout = layout
    shared._rows = rows
    shared._read = layout.reader(segment)
    return shared


def refuser(what: str, action: str, copy: str) -> Callable[..., NoReturn]:
    """A method that says why it does not work, and how to get something for which it does."""

    def refuse(self: object, *_: object, **__: object) -> NoReturn:
        raise SharedReadOnly(
            f"this {what} is shared by all workers and read-only: {action} would have to change it for all of them. "
            f"Make a private copy first: {copy}"
        )

    return refuse


def _refuse(action: str) -> NoReturn:
    refuser("list", action, "x = x.copy()")(None)


for _name in ("append", "extend", "insert", "pop", "remove", "clear", "sort", "reverse"):
    setattr(SharedList, _name, refuser("list", f".{_name}()", "x = x.copy()"))


def _same(one: object, other: object) -> bool:
    """As containers see it: an object equals itself."""
    return one is other or bool(one == other)


def _plainly(other: Any) -> Any:
    return other._value() if isinstance(other, SharedSequence) else other

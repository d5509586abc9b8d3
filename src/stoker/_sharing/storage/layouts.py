"""Defines how the items of a shared container lie in a segment, and how one of them is read.

A layout is a small description that travels with the container. ``reader(segment)`` gives a function from a row to its item; it is
what every access runs through, so each is one closure over what it needs. Rows are checked by the container.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch

from stoker._pickling.segment import Place, Segment

Reader = Callable[[int], Any]


class ColumnLayout(Protocol):
    """Items of one container, packed. ``name`` is what reports call it."""

    @property
    def name(self) -> str: ...

    def reader(self, segment: Segment) -> Reader: ...


@dataclass(frozen=True, slots=True)
class Numbers:
    """Python numbers of one type: ``kind`` is their format as ``struct`` names it."""

    place: Place
    kind: str

    @property
    def name(self) -> str:
        return str(np.dtype(self.kind).name)

    def reader(self, segment: Segment) -> Reader:
        return segment.words(self.place, self.kind).__getitem__


@dataclass(frozen=True, slots=True)
class Constants:
    """One item, as often as needed."""

    item: Any

    @property
    def name(self) -> str:
        return "one value"

    def reader(self, segment: Segment) -> Reader:
        item = self.item
        return lambda row: item


@dataclass(frozen=True, slots=True)
class Scalars:
    """NumPy scalars of one dtype."""

    place: Place
    dtype: np.dtype[Any]
    rows: int

    @property
    def name(self) -> str:
        return f"numpy {self.dtype}"

    def reader(self, segment: Segment) -> Reader:
        return segment.array(self.place, self.dtype, (self.rows,)).__getitem__


@dataclass(frozen=True, slots=True)
class Bytes:
    """Byte strings one behind the other. ``ends`` holds one offset more than there are rows."""

    place: Place
    ends: Place
    kind: str

    @property
    def name(self) -> str:
        return "bytes"

    def reader(self, segment: Segment) -> Reader:
        base, ends = self.place.at, segment.words(self.ends, self.kind)

        def read(row: int) -> bytes:
            return segment[base + ends[row] : base + ends[row + 1]]

        return read


@dataclass(frozen=True, slots=True)
class Strings:
    """UTF-8 text. ``surrogates``: some hold lone surrogates, as file names in an unknown encoding do."""

    data: Bytes
    surrogates: bool

    @property
    def name(self) -> str:
        return "strings"

    def reader(self, segment: Segment) -> Reader:
        base, ends = self.data.place.at, segment.words(self.data.ends, self.data.kind)
        if self.surrogates:
            return lambda row: segment[base + ends[row] : base + ends[row + 1]].decode(
                "utf-8", "surrogatepass"
            )

        def read(row: int) -> str:
            return segment[base + ends[row] : base + ends[row + 1]].decode()

        return read


@dataclass(frozen=True, slots=True)
class Paths:
    """Text whose beginning, up to the last slash, is one of few. Row n is head ``codes[n]`` and tail n."""

    heads: Bytes
    codes: Numbers
    tails: Bytes

    @property
    def name(self) -> str:
        return "strings by folder"

    def reader(self, segment: Segment) -> Reader:
        codes = segment.words(self.codes.place, self.codes.kind)
        head, head_ends = self.heads.place.at, segment.words(self.heads.ends, self.heads.kind)
        tail, tail_ends = self.tails.place.at, segment.words(self.tails.ends, self.tails.kind)

        def read(row: int) -> str:
            code = codes[row]
            return (
                segment[head + head_ends[code] : head + head_ends[code + 1]]
                + segment[tail + tail_ends[row] : tail + tail_ends[row + 1]]
            ).decode()

        return read


@dataclass(frozen=True, slots=True)
class Constructed:
    """Objects that are made from one plain value each: ``pathlib`` paths from text."""

    kind: type
    items: ColumnLayout

    @property
    def name(self) -> str:
        return f"{self.kind.__name__} of {self.items.name}"

    def reader(self, segment: Segment) -> Reader:
        kind, item = self.kind, self.items.reader(segment)
        return lambda row: kind(item(row))


@dataclass(frozen=True, slots=True)
class Choices:
    """Items of which there are few different ones."""

    items: ColumnLayout
    codes: Numbers

    @property
    def name(self) -> str:
        return f"few {self.items.name}"

    def reader(self, segment: Segment) -> Reader:
        item, codes = self.items.reader(segment), segment.words(self.codes.place, self.codes.kind)
        return lambda row: item(codes[row])


@dataclass(frozen=True, slots=True)
class Optionals:
    """Items some of which are None. ``where`` holds the row among the others, or -1."""

    items: ColumnLayout
    where: Numbers

    @property
    def name(self) -> str:
        return f"{self.items.name} or None"

    def reader(self, segment: Segment) -> Reader:
        item, where = self.items.reader(segment), segment.words(self.where.place, self.where.kind)

        def read(row: int) -> Any:
            at = where[row]
            return item(at) if at >= 0 else None

        return read


@dataclass(frozen=True, slots=True)
class Records:
    """Tuples (named ones too), lists or dicts (``keys``) with the same fields, one column per field."""

    kind: type
    fields: tuple[ColumnLayout, ...]
    keys: tuple[Any, ...] | None = None

    @property
    def name(self) -> str:
        return f"{self.kind.__name__}s of ({', '.join(field.name for field in self.fields)})"

    def reader(self, segment: Segment) -> Reader:
        readers = [field.reader(segment) for field in self.fields]
        if self.keys is not None:
            pairs = list(zip(self.keys, readers, strict=True))
            return lambda row: {key: read(row) for key, read in pairs}
        if self.kind is list:
            return lambda row: [read(row) for read in readers]
        if self.kind is not tuple:
            kind, make = self.kind, tuple.__new__
            return lambda row: make(kind, [read(row) for read in readers])
        if len(readers) == 2:
            first, second = readers
            return lambda row: (first(row), second(row))
        return lambda row: tuple([read(row) for read in readers])


@dataclass(frozen=True, slots=True)
class Ragged:
    """Lists, tuples or sets of any length; the items of all of them are one column."""

    kind: type
    items: ColumnLayout
    ends: Numbers

    @property
    def name(self) -> str:
        return f"{self.kind.__name__}s of {self.items.name}"

    def reader(self, segment: Segment) -> Reader:
        kind, ends = self.kind, segment.words(self.ends.place, self.ends.kind)
        if isinstance(self.items, Numbers):
            numbers = segment.words(self.items.place, self.items.kind)
            if kind is list:
                return lambda row: numbers[ends[row] : ends[row + 1]].tolist()
            return lambda row: kind(numbers[ends[row] : ends[row + 1]].tolist())
        item = self.items.reader(segment)
        return lambda row: kind([item(at) for at in range(ends[row], ends[row + 1])])


@dataclass(frozen=True, slots=True)
class Arrays:
    """NumPy arrays of one dtype and number of dimensions. ``shapes`` is a shape for all, or the place of one per row."""

    place: Place
    dtype: np.dtype[Any]
    ends: Place
    kind: str
    shapes: tuple[int, ...] | Place
    ndim: int

    @property
    def name(self) -> str:
        return f"arrays of {self.dtype}"

    def reader(self, segment: Segment) -> Reader:
        base, dtype = self.place.at, self.dtype
        ends, shape_of = segment.words(self.ends, self.kind), _shapes(segment, self.shapes, self.ndim)

        def read(row: int) -> np.ndarray[Any, Any]:
            array: np.ndarray[Any, Any] = np.ndarray(shape_of(row), dtype, segment, base + ends[row])
            array.flags.writeable = False
            return array

        return read


@dataclass(frozen=True, slots=True)
class Tensors:
    """Tensors of one dtype and number of dimensions, as ``Arrays``. A write to one stays in this process."""

    place: Place
    dtype: torch.dtype
    ends: Place
    kind: str
    shapes: tuple[int, ...] | Place
    ndim: int

    @property
    def name(self) -> str:
        return f"tensors of {str(self.dtype).removeprefix('torch.')}"

    def reader(self, segment: Segment) -> Reader:
        base, dtype, frombuffer = self.place.at, self.dtype, torch.frombuffer
        ends, shape_of = segment.words(self.ends, self.kind), _shapes(segment, self.shapes, self.ndim)

        def read(row: int) -> torch.Tensor:
            start, shape = ends[row], shape_of(row)
            if ends[row + 1] == start:
                return torch.empty(shape, dtype=dtype)
            count = (ends[row + 1] - start) // dtype.itemsize
            return frombuffer(segment, dtype=dtype, count=count, offset=base + start).view(shape)

        return read


@dataclass(frozen=True, slots=True)
class Pickled:
    """Anything else: each item pickled by itself.

    ``named`` are classes and functions that another process could not import. They travel once, with this layout; items refer to
    them by number.
    """

    data: Bytes
    named: tuple[Any, ...] = ()

    @property
    def name(self) -> str:
        return "pickled"

    def reader(self, segment: Segment) -> Reader:
        base, ends = self.data.place.at, segment.words(self.data.ends, self.data.kind)
        loads = pickle.loads
        if self.named:
            named = self.named
            return lambda row: _ColumnUnpickler(
                segment[base + ends[row] : base + ends[row + 1]], named
            ).load()

        def read(row: int) -> Any:
            return loads(segment[base + ends[row] : base + ends[row + 1]])

        return read


class _ColumnUnpickler(pickle.Unpickler):
    def __init__(self, data: bytes, named: tuple[Any, ...]) -> None:
        super().__init__(io.BytesIO(data))
        self._named = named

    def persistent_load(self, number: Any) -> Any:
        return self._named[number]


def _shapes(segment: Segment, shapes: tuple[int, ...] | Place, ndim: int) -> Callable[[int], tuple[int, ...]]:
    if not isinstance(shapes, Place):
        return lambda row: shapes
    sizes = segment.words(shapes, "q")
    return lambda row: tuple(sizes[row * ndim : (row + 1) * ndim])

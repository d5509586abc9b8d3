"""pandas frames over a segment: a frame's pickle with all its numbers out of band. Never imports pandas itself."""

from __future__ import annotations

import copyreg
import io
import pickle
import sys
from importlib.util import find_spec
from multiprocessing import reduction
from typing import Any

import numpy as np

from stoker._pickling.segment import Place, Segment, SegmentWriter
from stoker._sharing.sizes import estimate
from stoker._sharing.storage.packing import Packed
from stoker._sharing.storage.pickled import NotPacked

_DATES = ("DatetimeArray", "TimedeltaArray")


def measured(frame: Any) -> int:
    """The bytes a frame takes; of Python objects in it, an estimate."""
    pickler, _ = _pickled(frame)
    return sum(buffer.raw().nbytes for buffer in pickler.buffers) + sum(map(estimate, pickler.kept))


def buffers(frame: Any) -> list[memoryview]:
    """The memory in which its numbers and Arrow text lie."""
    return [buffer.raw() for buffer in _pickled(frame)[0].buffers]


def view(segment: Segment, place: Place) -> memoryview:
    """The bytes of a place, read-only."""
    return memoryview(segment).toreadonly()[place.at : place.at + place.nbytes]


def pack_frame(frame: Any, writer: SegmentWriter) -> tuple[Packed, str]:
    """Write a frame, series or index; with what its readers will notice. Raises NotPacked when it is all Python objects."""
    before = writer.nbytes
    compact, renamed = _with_compact_text(frame)
    pickler, root = _pickled(compact)
    if not any(buffer.raw().nbytes for buffer in pickler.buffers):
        raise NotPacked("nothing in it but Python objects: share a list of them instead")
    places = [writer.put((buffer.raw(),)) for buffer in pickler.buffers]
    kept = pickler.kept
    for kind in pickler.kinds:  # so that pickling finds the segment and not a copy by pandas
        reduction.ForkingPickler.register(kind, _on_its_way)

    def open_(segment: Segment) -> Any:
        return _Unpickler(root, [view(segment, place) for place in places], kept).load()

    notes = [f"text of {', '.join(renamed)} becomes pandas' str (Arrow)"] if renamed else []
    if any(array.size >= len(frame) for array in kept):
        notes.append("columns of Python objects stay as they are")
    return Packed(f"pandas {type(frame).__name__}", writer.nbytes - before, open_), "; ".join(notes)


def reduced(array: Any) -> Any:
    """How one of pandas' arrays is pickled with its memory out of band, where its own way makes a copy; else None."""
    chunked = getattr(array, "_pa_array", None)
    if chunked is not None and _is_whole(chunked):  # pandas joins the chunks, even a single one
        state = {**vars(array), "_pa_array": chunked.chunk(0)}
        if "_cache" in state:
            state["_cache"] = {}
        return copyreg.__newobj__, (type(array),), state  # type: ignore[attr-defined]
    dates = getattr(array, "_ndarray", None)
    if isinstance(dates, np.ndarray) and dates.dtype.kind in "mM" and type(array).__name__ in _DATES:
        rebuild, args, state = array.__reduce_ex__(5)
        return rebuild, args, tuple(_Dates(part) if part is dates else part for part in state)
    return None


def _is_whole(chunked: Any) -> bool:
    """Whether it is one chunk that takes most of the memory it refers to: of a few rows of a long column only they travel."""
    return bool(chunked.num_chunks == 1 and chunked.get_total_buffer_size() <= 2 * chunked.nbytes)


def _on_its_way(array: Any) -> Any:
    return reduced(array) or array.__reduce_ex__(5)


class _Dates:
    """An array of dates on its way: numpy gives no buffer of one, but of its whole numbers."""

    def __init__(self, array: np.ndarray[Any, Any]) -> None:
        self._array = array

    def __reduce__(self) -> Any:
        array = self._array
        if not (array.flags.c_contiguous or array.flags.f_contiguous):
            array = np.ascontiguousarray(array)
        return _dates, (array.view(np.int64), array.dtype)


def _dates(numbers: np.ndarray[Any, Any], dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    return numbers.view(dtype)


class _FramePickler(pickle.Pickler):
    """Numbers out of band, arrays of Python objects not at all: they stay the same arrays."""

    def __init__(self, file: io.BytesIO) -> None:
        self.buffers: list[pickle.PickleBuffer] = []
        self.kept: list[np.ndarray[Any, Any]] = []
        self.kinds: set[type] = set()
        super().__init__(file, 5, buffer_callback=self.buffers.append)

    def persistent_id(self, obj: Any) -> int | None:
        if type(obj) is np.ndarray and obj.dtype.hasobject:
            self.kept.append(obj)
            return len(self.kept) - 1
        return None

    def reducer_override(self, obj: Any) -> Any:
        if type(obj) is np.ndarray and not (obj.flags.c_contiguous or obj.flags.f_contiguous):
            return np.ascontiguousarray(obj).__reduce_ex__(5)  # numpy puts only contiguous ones out of band
        if type(obj).__module__.startswith("pandas."):
            found = reduced(obj)
            if found is not None:
                self.kinds.add(type(obj))
                return found
        return NotImplemented


class _Unpickler(pickle.Unpickler):
    def __init__(self, root: bytes, buffers: list[memoryview], kept: list[np.ndarray[Any, Any]]) -> None:
        super().__init__(io.BytesIO(root), buffers=buffers)
        self._kept = kept

    def persistent_load(self, number: Any) -> Any:
        return self._kept[number]


def _pickled(table: Any) -> tuple[_FramePickler, bytes]:
    file = io.BytesIO()
    pickler = _FramePickler(file)
    pickler.dump(table)
    return pickler, file.getvalue()


def _with_compact_text(table: Any) -> tuple[Any, list[str]]:
    """The table with text in Arrow's form where that gives back equal values, and the names of what was converted."""
    pandas = sys.modules["pandas"]
    if find_spec("pyarrow") is None:
        return table, []
    if isinstance(table, pandas.Index):
        text = _text(table)
        return (table, []) if text is None else (text, ["the index"])
    renamed: list[str] = []
    compact = table.copy(deep=False)
    if isinstance(table, pandas.DataFrame):
        for place, name in enumerate(table.columns):
            text = _text(table.iloc[:, place])
            if text is not None:
                compact.isetitem(place, text)
                renamed.append(repr(name))
    else:
        text = _text(table)
        if text is not None:
            compact, renamed = text, ["the series"]
    index = _text(table.index)
    if index is not None:
        compact.index = index
        renamed.append("the index")
    return compact, renamed


def _text(values: Any) -> Any:
    """The same strings in Arrow's form; None when they are not only strings (and NaN), or would not be equal afterwards."""
    if values.dtype != object or isinstance(values, sys.modules["pandas"].MultiIndex):
        return None
    items = values.to_numpy()
    if not {str} <= set(map(type, items)) <= {str, float}:
        return None
    missing = values.isna()
    if not all(isinstance(item, str) for item in items[~np.asarray(missing)]):
        return None
    try:
        text = values.astype(_text_dtype())
    except (TypeError, ValueError):  # lone surrogates, for one
        return None
    again = text.to_numpy(dtype=object)
    same = (again == items) | np.asarray(missing)
    return text if bool(same.all()) else None


def _text_dtype() -> Any:
    dtype = sys.modules["pandas"].StringDtype
    try:
        return dtype("pyarrow", na_value=np.nan)
    except TypeError:  # pandas before 2.3
        return dtype("pyarrow")

"""pandas frames and Arrow tables over a segment. Neither library is imported here unless the user has imported it."""

from __future__ import annotations

import io
import pickle
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any

import numpy as np

from stoker._share.packing import NotPacked, Packed
from stoker._share.segment import Place, Segment, SegmentWriter, find
from stoker._share.sizes import estimate

SHARED = "already shared"
_PANDAS = ("DataFrame", "Series", "Index")
_ARROW = ("Table", "RecordBatch", "ChunkedArray", "Array")


def is_table(obj: object) -> bool:
    """Whether this is something that ``pack_table`` is for."""
    return _is_pandas(obj) or _is_arrow(obj)


def measured(table: Any) -> int:
    """The bytes a table takes; of Python objects in it, an estimate."""
    if _is_arrow(table):
        return int(table.nbytes)
    pickler, _ = _pickled(table)
    return sum(buffer.raw().nbytes for buffer in pickler.buffers) + sum(map(estimate, pickler.kept))


def refusal(table: Any) -> str:
    """Why a table stays as it is; empty when it can be packed."""
    kind = type(table)
    if kind.__module__.partition(".")[0] not in ("pandas", "pyarrow"):
        return f"a {kind.__name__}: only pandas' and Arrow's own classes are shared"
    buffers = (
        _arrow_buffers(table) if _is_arrow(table) else [buffer.raw() for buffer in _pickled(table)[0].buffers]
    )
    addresses = [np.frombuffer(buffer, np.uint8) for buffer in buffers if memoryview(buffer).nbytes]
    if addresses and all(find(each.ctypes.data, each.nbytes) for each in addresses):
        return SHARED
    return ""


def pack_table(table: Any, writer: SegmentWriter) -> tuple[Packed, str]:
    """Write a table to the segment; with what its readers will notice. Does not change it. May raise NotPacked."""
    if _is_arrow(table):
        return _pack_arrow(table, writer), ""
    before = writer.nbytes
    compact, renamed = _with_compact_text(table)
    pickler, root = _pickled(compact)
    if not any(buffer.raw().nbytes for buffer in pickler.buffers):
        raise NotPacked("nothing in it but Python objects: share a list of them instead")
    places = [writer.put((buffer.raw(),)) for buffer in pickler.buffers]
    kept = pickler.kept

    def open_(segment: Segment) -> Any:
        return _Unpickler(root, [_view(segment, place) for place in places], kept).load()

    stays = sum(len(array) for array in kept if array.size > 1)
    notes = [f"text of {', '.join(renamed)} becomes pandas' str (Arrow)"] if renamed else []
    if stays:
        notes.append("columns of Python objects stay as they are")
    return Packed(f"pandas {type(table).__name__}", writer.nbytes - before, open_), "; ".join(notes)


class _Pickler(pickle.Pickler):
    """Numbers out of band, arrays of Python objects not at all: they stay the same arrays."""

    def __init__(self, file: io.BytesIO) -> None:
        self.buffers: list[pickle.PickleBuffer] = []
        self.kept: list[np.ndarray[Any, Any]] = []
        super().__init__(file, 5, buffer_callback=self.buffers.append)

    def persistent_id(self, obj: Any) -> int | None:
        if type(obj) is np.ndarray and obj.dtype.hasobject:
            self.kept.append(obj)
            return len(self.kept) - 1
        return None

    def reducer_override(self, obj: Any) -> Any:
        if type(obj) is np.ndarray and not (obj.flags.c_contiguous or obj.flags.f_contiguous):
            return np.ascontiguousarray(obj).__reduce_ex__(5)  # numpy puts only contiguous ones out of band
        return NotImplemented


class _Unpickler(pickle.Unpickler):
    def __init__(self, root: bytes, buffers: list[memoryview], kept: list[np.ndarray[Any, Any]]) -> None:
        super().__init__(io.BytesIO(root), buffers=buffers)
        self._kept = kept

    def persistent_load(self, number: Any) -> Any:
        return self._kept[number]


def _pickled(table: Any) -> tuple[_Pickler, bytes]:
    file = io.BytesIO()
    pickler = _Pickler(file)
    pickler.dump(table)
    return pickler, file.getvalue()


def _view(segment: Segment, place: Place) -> memoryview:
    return memoryview(segment).toreadonly()[place.at : place.at + place.nbytes]


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


def _pack_arrow(table: Any, writer: SegmentWriter) -> Packed:
    """As an IPC stream, batch by batch."""
    arrow = sys.modules["pyarrow"]
    kind = type(table)
    if isinstance(table, arrow.Table):
        batches, schema = table.to_batches(), table.schema
    elif isinstance(table, arrow.RecordBatch):
        batches, schema = [table], table.schema
    else:
        chunks = table.chunks if isinstance(table, arrow.ChunkedArray) else [table]
        schema = arrow.schema([arrow.field("", table.type)])
        batches = [arrow.RecordBatch.from_arrays([chunk], schema=schema) for chunk in chunks]
    place = writer.put(_stream(batches, schema))

    def open_(segment: Segment) -> Any:
        reader = arrow.ipc.open_stream(arrow.py_buffer(_view(segment, place)))
        if issubclass(kind, arrow.RecordBatch):
            return reader.read_next_batch()
        whole = reader.read_all()
        if issubclass(kind, arrow.Table):
            return whole
        return whole.column(0) if issubclass(kind, arrow.ChunkedArray) else whole.column(0).chunk(0)

    return Packed(f"Arrow {kind.__name__}", place.nbytes, open_)


def _stream(batches: list[Any], schema: Any) -> Iterator[Any]:
    """The bytes of an IPC stream, as they come: never a second copy of more than one batch."""
    arrow = sys.modules["pyarrow"]
    sink = _Sink()
    with arrow.ipc.new_stream(arrow.PythonFile(sink, mode="w"), schema) as stream:
        yield from sink.taken()
        for batch in batches:
            stream.write_batch(batch)
            yield from sink.taken()
    yield from sink.taken()


class _Sink:
    closed = False

    def __init__(self) -> None:
        self._chunks: list[Any] = []

    def write(self, data: Any) -> int:
        self._chunks.append(data)
        return memoryview(data).nbytes

    def flush(self) -> None: ...

    def close(self) -> None: ...

    def taken(self) -> list[Any]:
        chunks, self._chunks = self._chunks, []
        return chunks


def _arrow_buffers(table: Any) -> list[Any]:
    arrow = sys.modules["pyarrow"]
    if isinstance(table, arrow.Array):
        arrays = [table]
    elif isinstance(table, arrow.ChunkedArray):
        arrays = table.chunks
    else:
        columns = table.columns
        arrays = [
            chunk
            for column in columns
            for chunk in (column.chunks if hasattr(column, "chunks") else [column])
        ]
    return [buffer for array in arrays for buffer in array.buffers() if buffer is not None]


def _is_pandas(obj: object) -> bool:
    return _is_one_of(obj, "pandas", _PANDAS)


def _is_arrow(obj: object) -> bool:
    return _is_one_of(obj, "pyarrow", _ARROW)


def _is_one_of(obj: object, library: str, names: tuple[str, ...]) -> bool:
    if library not in sys.modules:
        return False
    # During the import of the library itself some names are not there yet.
    kinds = [getattr(sys.modules[library], name, None) for name in names]
    return any(isinstance(kind, type) and isinstance(obj, kind) for kind in kinds)

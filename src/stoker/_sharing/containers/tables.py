"""Packs Arrow tables, and chooses the packer of any table. Never imports pandas or Arrow itself."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import numpy as np

from stoker._pickling.segment import Segment, SegmentWriter, find
from stoker._sharing.containers import frames
from stoker._sharing.storage.packing import Packed

SHARED = "already shared"
_PANDAS = ("DataFrame", "Series", "Index")
_ARROW = ("Table", "RecordBatch", "ChunkedArray", "Array")


def is_table(obj: object) -> bool:
    """Whether this is something that ``pack_table`` is for."""
    return _is_pandas(obj) or _is_arrow(obj)


def measured(table: Any) -> int:
    """The bytes a table takes; of Python objects in it, an estimate."""
    return int(table.nbytes) if _is_arrow(table) else frames.measured(table)


def refusal(table: Any) -> str:
    """Why a table stays as it is; empty when it can be packed."""
    kind = type(table)
    if kind.__module__.partition(".")[0] not in ("pandas", "pyarrow"):
        return f"a {kind.__name__}: only pandas' and Arrow's own classes are shared"
    memory = _arrow_buffers(table) if _is_arrow(table) else frames.buffers(table)
    arrays = [np.frombuffer(buffer, np.uint8) for buffer in memory if memoryview(buffer).nbytes]
    if arrays and all(find(each.ctypes.data, each.nbytes) for each in arrays):
        return SHARED
    return ""


def pack_table(table: Any, writer: SegmentWriter) -> tuple[Packed, str]:
    """Write a table to the segment; with what its readers will notice. Does not change it. May raise NotPacked."""
    return (_pack_arrow(table, writer), "") if _is_arrow(table) else frames.pack_frame(table, writer)


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
        reader = arrow.ipc.open_stream(arrow.py_buffer(frames.view(segment, place)))
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
    sink = _TableSink()
    with arrow.ipc.new_stream(arrow.PythonFile(sink, mode="w"), schema) as stream:
        yield from sink.taken()
        for batch in batches:
            stream.write_batch(batch)
            yield from sink.taken()
    yield from sink.taken()


class _TableSink:
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

"""The packed file form of receipts: blocks that are only ever appended, so that a killed run leaves a file that can be read.

    block:   "STKR", version, kind, size of the payload, its CRC, the receipt it belongs to, payload
    HEADER:  JSON: what is known when the iteration begins
    ADDED:   grain, first block, then one 64-bit sum per block of batches: these add up
    WHOLE:   the same, instead of all before (``DataReceipt.save``)
    TOTALS:  the sketch of the samples, then JSON: the sums so far. The last one counts

Nothing in it is pickled.
"""

from __future__ import annotations

import json
import os
import struct
import zlib
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from stoker._host import bounded_file, bounded_json
from stoker._host.private_files import open_append
from stoker._receipt import receipt_checks, sketch
from stoker._receipt.data_receipt import VERSION, DataReceipt, coarser
from stoker._receipt.mixing import Words
from stoker.errors import RecordError

SUFFIX = ".receipt"
_MOST_BYTES = 1 << 30
"""Of a file: some hundred million batches."""
_MARK = b"STKR"
_BLOCK = struct.Struct("<4sHHIIQ")
_ENTRIES = struct.Struct("<QQ")
HEADER, ADDED, WHOLE, TOTALS = 1, 2, 3, 4
_SKETCH_BYTES = sketch.TABLES * sketch.CELLS * 8
_BEGUN = ("epoch", "seed", "sampler_epoch", "first", "resumed", "previous")
_TOTALS = (
    "batches", "samples", "finished", "digest", "order", "samples_digest", "ascending", "whole", "told", "bad", "bad_count",
    "replaced", "failed", "failed_count", "contents", "missing",
)  # fmt: skip
_LARGEST_GRAIN = 1 << 40


@dataclass(frozen=True, slots=True)
class ReceiptFile:
    """What a file holds. ``damage`` says why a part of it was not read; None: all was."""

    receipts: list[DataReceipt]
    damage: str | None = None


def header_block(receipt: DataReceipt) -> bytes:
    """What is known of a receipt at its beginning."""
    begun = {name: getattr(receipt, name) for name in _BEGUN}
    begun["facts"] = asdict(receipt.facts)
    begun["before"] = None if receipt.before is None else asdict(receipt.before)
    return _block(HEADER, receipt.id, _json(begun))


def entries_block(receipt: DataReceipt, entries: Words, first: int, *, kind: int = ADDED) -> bytes:
    """Sums of batches from number ``first`` on, at the receipt's grain."""
    packed = _ENTRIES.pack(receipt.grain, first // receipt.grain) + entries.astype("<u8").tobytes()
    return _block(kind, receipt.id, packed)


def totals_block(receipt: DataReceipt) -> bytes:
    """The sums of a receipt so far."""
    totals = {name: getattr(receipt, name) for name in _TOTALS}
    return _block(TOTALS, receipt.id, receipt.sketch.astype("<u8").tobytes() + _json(totals))


def append(path: str | os.PathLike[str], data: bytes) -> None:
    """Add blocks to a file. A new one is private to the user. Raises PermissionError for another user's file or link."""
    fd = open_append(path)
    left = memoryview(data)
    try:
        while left:
            left = left[os.write(fd, left) :]
    finally:
        os.close(fd)


def save(receipt: DataReceipt, path: str | os.PathLike[str]) -> None:
    """Add a whole receipt to a file."""
    entries = entries_block(receipt, receipt.entries, receipt.first, kind=WHOLE)
    append(path, header_block(receipt) + entries + totals_block(receipt))


def is_receipt_file(path: Path) -> bool:
    """Whether a file begins like one. Raises OSError."""
    with path.open("rb") as file:
        return file.read(4) == _MARK


def read(path: Path) -> ReceiptFile:
    """The receipts in a file, in the order in which they began. Raises RecordError for what is none, or newer."""
    try:
        data = bounded_file.read(path, _MOST_BYTES)
    except OSError as error:
        raise RecordError(f"cannot read {path}: {error.strerror or error}") from error
    if data[:4] != _MARK[: len(data[:4])] or not data:
        raise RecordError(f"{path} is no receipt of stoker: loader.receipt().save(path) writes one")
    found: dict[int, DataReceipt] = {}
    pieces: dict[int, list[_Piece]] = {}
    damage = None
    try:
        for kind, receipt_id, payload in _blocks(data, path):
            _take(found, pieces, kind, receipt_id, payload)
    except _CutOff as cut:
        damage = str(cut)
    except (ValueError, struct.error) as error:
        if isinstance(error, RecordError):
            raise
        damage = f"damaged: {error}"
    for receipt in found.values():
        _assemble(receipt, pieces.get(receipt.id, []))
    if not found:
        raise RecordError(f"{path} is a receipt that is {damage or 'empty'}: nothing of it can be read")
    return ReceiptFile(list(found.values()), damage)


class _Piece(NamedTuple):
    """Sums of some batches: ``block`` is the number of the first of them, in units of ``grain`` batches."""

    grain: int
    block: int
    entries: Words


class _CutOff(Exception):
    """The file ends, or is damaged, within a block."""


def _blocks(data: bytes, path: Path) -> Iterator[tuple[int, int, memoryview]]:
    view, at = memoryview(data), 0
    while at < len(data):
        if len(data) - at < _BLOCK.size:
            raise _CutOff(f"truncated: {len(data) - at} bytes of a block are left at its end")
        mark, version, kind, size, crc, receipt_id = _BLOCK.unpack_from(data, at)
        if mark != _MARK:
            raise _CutOff(f"damaged: there is no block at byte {at}")
        if version > VERSION:
            raise RecordError(
                f"{path} has receipts of version {version}, and this stoker reads up to {VERSION}: upgrade stoker to read them"
            )
        payload = view[at + _BLOCK.size : at + _BLOCK.size + size]
        if len(payload) < size:
            raise _CutOff(f"truncated: its last block should have {size} bytes and has {len(payload)}")
        if zlib.crc32(payload) != crc:
            raise _CutOff(f"damaged: the block at byte {at} is not what was written")
        yield kind, receipt_id, payload
        at += _BLOCK.size + size


def _take(
    found: dict[int, DataReceipt],
    pieces: dict[int, list[_Piece]],
    kind: int,
    receipt_id: int,
    payload: memoryview,
) -> None:
    """One block. Raises ValueError or struct.error, and then the block is as if it were not there."""
    if kind == HEADER:
        if receipt_id not in found:
            begun = receipt_checks.begun(bounded_json.loads(bytes(payload)))
            found[receipt_id] = DataReceipt(id=receipt_id, **begun)
        return
    receipt = found.get(receipt_id)
    if receipt is None:
        raise ValueError("a block of a receipt that has no beginning")
    if kind in (ADDED, WHOLE):
        piece = _piece(receipt, payload)
        if kind == WHOLE:
            pieces[receipt_id] = []
        pieces.setdefault(receipt_id, []).append(piece)
    elif kind == TOTALS:
        cells = np.frombuffer(payload[:_SKETCH_BYTES], "<u8").astype(np.uint64)
        cells = cells.reshape(sketch.TABLES, sketch.CELLS)
        totals = receipt_checks.totals(bounded_json.loads(bytes(payload[_SKETCH_BYTES:])))
        receipt.sketch = cells
        for name in _TOTALS:
            setattr(receipt, name, totals[name])


def _piece(receipt: DataReceipt, payload: memoryview) -> _Piece:
    grain, block = _ENTRIES.unpack_from(payload)
    if not 1 <= grain <= _LARGEST_GRAIN or grain & (grain - 1):
        raise ValueError(f"a grain of {grain}")
    piece = _Piece(grain, block, np.frombuffer(payload[_ENTRIES.size :], "<u8").astype(np.uint64))
    start = block - receipt.first // grain
    if start < 0 or start + len(piece.entries) > receipt_checks.MOST_PLACES:
        raise ValueError(f"sums of batches from {block * grain} on")
    return piece


def _assemble(receipt: DataReceipt, pieces: list[_Piece]) -> None:
    """Add up the sums of all pieces, at the coarsest grain of them. Sums of batches that the totals do not count are left out.

    A killed run, or a full disk, may leave them: they are written first.
    """
    grain = max((each.grain for each in pieces), default=receipt.grain)
    grain = receipt.grain = receipt_checks.grain_for(receipt.end, grain)
    begin, count = receipt.first // grain, -(-receipt.end // grain) - receipt.first // grain
    same = [
        (
            each.block * each.grain // grain - begin,
            coarser(each.entries, each.block * each.grain, each.grain, grain),
        )
        for each in pieces
    ]
    used = min(count, max((start + len(entries) for start, entries in same), default=0))
    receipt.entries = np.zeros(used, np.uint64)
    for start, entries in same:
        kept = receipt.entries[start : start + len(entries)]
        kept += entries[: len(kept)]


def _block(kind: int, receipt_id: int, payload: bytes) -> bytes:
    return _BLOCK.pack(_MARK, VERSION, kind, len(payload), zlib.crc32(payload), receipt_id) + payload


def _json(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":"), allow_nan=False).encode()

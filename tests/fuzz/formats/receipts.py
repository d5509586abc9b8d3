"""Receipts of the data that was handed over: the packed file, as ``stoker verify`` reads it, alone and beside others."""

from __future__ import annotations

import itertools
import json
import struct
import tempfile
import zlib
from pathlib import Path
from random import Random
from typing import Any

import torch

import stoker
from stoker._receipt import receipt_file
from stoker._tools.verify import screen
from stoker._tools.verify.verification import verify
from stoker.errors import RecordError
from tests.fuzz import mutation
from tests.fuzz.format import Format

_BLOCK = struct.Struct("<4sHHIIQ")
_SKETCH_BYTES = receipt_file._SKETCH_BYTES


def _seeds() -> list[bytes]:
    """A run, the same run resumed in the middle, and two epochs."""
    whole, first, last = _saved(_loader()), b"", b""
    loader = _loader()
    for _ in itertools.islice(iter(loader), 3):
        pass
    state = loader.state_dict()
    first = _data(loader)
    other = _loader()
    other.load_state_dict(state)
    last = _saved(other)
    return [whole, first + last, _saved(_loader(), 2)]


def _loader() -> Any:
    data: Any = range(24)
    return stoker.DataLoader(data, batch_size=4, shuffle=True, generator=torch.Generator().manual_seed(3))


def _saved(loader: Any, epochs: int = 1) -> bytes:
    found = b""
    for _ in range(epochs):
        for _ in loader:
            pass
        found += _data(loader)
    return found


def _data(loader: Any) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "run.receipt")
        loader.receipt().save(path)
        return path.read_bytes()


def _read(data: bytes, folder: Path) -> None:
    path = folder / "run.receipt"
    path.write_bytes(data)
    for receipt in receipt_file.read(path).receipts:
        receipt_file.header_block(receipt)
        receipt_file.totals_block(receipt)
        json.dumps(receipt.as_dict())


def _verify(data: bytes, folder: Path) -> None:
    path, other = folder / "run.receipt", folder / "other.receipt"
    path.write_bytes(data)
    other.write_bytes(_other()[0])
    found = verify([path, other])
    json.dumps(found.as_dict())
    screen.lines(found, 80)


_made: list[bytes] = []


def _other() -> list[bytes]:
    if not _made:
        _made.extend(_seeds())
    return _made


def _mutate(dice: Random, data: bytes) -> bytes:
    """Half of the time inside of a block, whose checksum is then right."""
    if dice.random() < 0.4:
        return mutation.any_bytes(dice, data, (b"STKR",))
    blocks = _blocks(data)
    for _ in range(dice.choice((1, 1, 2, 3))):
        _edit(dice, blocks)
    return b"".join(_packed(*each) for each in blocks)


def _edit(dice: Random, blocks: list[list[Any]]) -> None:
    at = dice.randrange(len(blocks))
    chosen, (kind, number, payload) = dice.random(), blocks[at]
    if chosen < 0.05:
        del blocks[at]
        blocks.append([kind, number, payload])
    elif chosen < 0.1:
        blocks.insert(at, [dice.choice((1, 2, 3, 4, 5)), number, payload])
    elif chosen < 0.15:
        blocks[at][1] = dice.choice((number ^ 1, 0, (1 << 64) - 1))
    elif chosen < 0.3 or kind in (receipt_file.ADDED, receipt_file.WHOLE):
        blocks[at][2] = mutation.any_bytes(dice, payload)
    else:
        split = _SKETCH_BYTES if kind == receipt_file.TOTALS else 0
        if len(payload) > split:
            try:
                document = json.loads(payload[split:])
            except (ValueError, RecursionError):
                return
            blocks[at][2] = payload[:split] + mutation.dumped(mutation.edited(dice, document))


def _blocks(data: bytes) -> list[list[Any]]:
    found, at = [], 0
    while at < len(data):
        _, _, kind, size, _, number = _BLOCK.unpack_from(data, at)
        at += _BLOCK.size
        found.append([kind, number, data[at : at + size]])
        at += size
    return found


def _packed(kind: int, number: int, payload: bytes) -> bytes:
    return _BLOCK.pack(b"STKR", 1, kind, len(payload), zlib.crc32(payload), number) + payload


FORMATS = (
    Format("receipt", _other, _read, (RecordError,), _mutate, weight=4),
    Format("verify", _other, _verify, (RecordError,), _mutate, weight=2),
)

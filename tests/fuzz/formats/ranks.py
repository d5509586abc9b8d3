"""The file through which local ranks agree: rows with checksums, whose numbers decide how many workers are started."""

from __future__ import annotations

import os
import struct
import zlib
from pathlib import Path
from random import Random

from stoker._runtime.autoscale.ranks import rank_file
from stoker._runtime.autoscale.ranks.rank_file import ROW_BYTES, RankRow
from stoker._runtime.autoscale.ranks.rank_report import RankReport, combined
from tests.fuzz import mutation
from tests.fuzz.format import Format
from tests.unit.tuning.test_rank_report import MINE

_RANKS = 4
_PACKED = rank_file._ROW


def _seeds() -> list[bytes]:
    report = RankReport.of(MINE)
    rows = [RankRow(os.getpid(), 0, 7 + rank, 5, rank, 3, 6, 1, report) for rank in range(_RANKS)]
    return [b"".join(each.pack().ljust(ROW_BYTES, b"\0") for each in rows)]


def _read(data: bytes, folder: Path) -> None:
    path = folder / "ranks-0-x"
    path.write_bytes(data)
    path.chmod(0o600)
    fd = rank_file.open_file(path)
    try:
        rows = rank_file.read(fd, _RANKS)
        others = [each.report for each in rows if each is not None and each.report is not None]
        combined(MINE, others)
        _ = [each.alive for each in rows if each is not None]
    finally:
        os.close(fd)
    rank_file.remove_dead(folder)


def _mutate(dice: Random, data: bytes) -> bytes:
    if dice.random() < 0.3:
        return mutation.any_bytes(dice, data)
    rows = [bytearray(data[at : at + ROW_BYTES]) for at in range(0, len(data), ROW_BYTES)]
    row = dice.choice(rows)
    values = list(_PACKED.unpack_from(row))
    for _ in range(dice.choice((1, 2, 4))):
        place = dice.randrange(1, len(values))
        number = dice.choice(mutation.NUMBERS)
        if isinstance(values[place], float):
            values[place] = float(number)
        else:
            values[place] = int(number) & 0x7FFFFFFFFFFFFFFF if number == number and abs(number) < 1e30 else 0
    packed = _PACKED.pack(*values)
    row[: len(packed) + 4] = packed + struct.pack("<I", zlib.crc32(packed))
    return b"".join(rows)


FORMATS = (Format("rank-file", _seeds, _read, (PermissionError,), _mutate, weight=6),)

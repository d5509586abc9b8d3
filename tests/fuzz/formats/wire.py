"""Headers on the wire: results of workers, given to the parent's scheduler, and tasks as a worker takes them apart."""

from __future__ import annotations

import struct
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from stoker._runtime.executors.process.result_decoder import ResultDecoder
from stoker._runtime.protocol import wire
from stoker._runtime.scheduler import messages as m
from stoker._runtime.scheduler.policy import Policy
from stoker._runtime.scheduler.scheduler import Scheduler
from stoker._runtime.scheduler.slots import SlotTable
from stoker._runtime.scheduler.types import Ticket
from stoker.errors import IllegalMove
from tests.fuzz.format import Format

_HEADER = len(wire.ResultHeader._fields)


def _results() -> list[bytes]:
    return [
        b"".join(_result(kind, seq) for seq, kind in enumerate(kinds))
        for kinds in ((5, 1, 1, 2), (1,), (3, 4, 6, 7))
    ]


def _result(kind: int, seq: int) -> bytes:
    values = dict.fromkeys(wire.ResultHeader._fields, 0)
    values |= {
        "version": wire.VERSION, "kind": kind, "seq": seq, "slot": seq, "scratch": wire.NO_SLOT, "epoch": 1, "root_bytes": 40,
        "nbytes": 4000, "shared_bytes": 100, "slow_row": -1,
    }  # fmt: skip
    return wire.pack_result(*values.values())


def _receive(data: bytes, _: Path) -> None:
    """What a parent does with what it read: its decoder takes it apart, the scheduler decides."""
    handles: Any = {0: SimpleNamespace()}
    arena: Any = None
    decoder = ResultDecoder(handles, arena)
    decoder.begin(-1)
    scheduler = Scheduler(Policy(window=8, max_window=8), SlotTable(), 2)
    for seq in range(4):
        scheduler.handle(m.Planned(Ticket(1, seq, seq, [0, 1], 7)))
    for arrival in decoder.arrivals(data):
        if arrival.epoch in (-1, 1) and not isinstance(
            arrival.event, m.Unheld | m.Held
        ):  # the pool takes these
            scheduler.handle(arrival.event)


def _tasks() -> list[bytes]:
    values = dict.fromkeys(wire.TaskHeader._fields, 0)
    values |= {"version": wire.VERSION, "kind": wire.TaskKind.MAKE, "flags": wire.INLINE, "payload_bytes": 20}
    return [wire.pack_task(*values.values()) + b"x" * 20]


def _task(data: bytes, _: Path) -> None:
    wire.TaskHeader._make(wire.unpack_task(data))


FORMATS = (
    Format("result-header", _results, _receive, (struct.error, IllegalMove), weight=8),
    Format("task-header", _tasks, _task, (struct.error,), weight=4),
)
